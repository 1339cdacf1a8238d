"""A Dask cluster on this machine; tests that import this module are skipped where Dask is not installed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

import pytest

if find_spec("distributed") is None:
    pytest.skip("Dask is not installed: pip install 'p2pclust[sweep]'", allow_module_level=True)


@contextmanager
def two_workers() -> Iterator[str]:
    """Yield the address of a scheduler with two workers, which are processes."""
    import distributed  # half a second, which only these tests need

    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, worker_dashboard_address=None
    ) as cluster:
        yield cluster.scheduler_address
