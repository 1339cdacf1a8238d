"""A Dask cluster on this machine; tests that import this module are skipped where Dask is not installed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

distributed = pytest.importorskip("distributed", reason="Dask is not installed: pip install 'p2pclust[sweep]'")


@contextmanager
def two_workers() -> Iterator[str]:
    """Yield the address of a scheduler with two workers, which are processes."""
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, worker_dashboard_address=None
    ) as cluster:
        yield cluster.scheduler_address
