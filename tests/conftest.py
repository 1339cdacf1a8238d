"""Shared by all tests: Hypothesis draws the same examples in every run, and has no deadline on a busy machine.

With P2PCLUST_HYPOTHESIS=explore (`make explore`) it draws new examples in each run, and more of them.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Generator, Iterator

# Before anything loads torch: two workers on two cores, each with a pool of two threads, wait for each other for minutes.
for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import pytest  # noqa: E402
from hypothesis import Phase, settings  # noqa: E402

settings.register_profile("deterministic", derandomize=True, deadline=None)
# The same examples as "deterministic", without looking for the smallest one that fails (`make mutants`).
_NO_SHRINKING = [phase for phase in Phase if phase not in (Phase.shrink, Phase.explain)]
settings.register_profile("mutants", derandomize=True, deadline=None, phases=_NO_SHRINKING, report_multiple_bugs=False)
settings.register_profile("explore", max_examples=1000, deadline=None, print_blob=True)
settings.load_profile(os.environ.get("P2PCLUST_HYPOTHESIS", "deterministic"))


#: Simulated fleets are many objects that stay: looking at them often takes a tenth of the time.
_OBJECTS_BETWEEN_COLLECTIONS = 50_000


@pytest.fixture
def quick_passphrases(monkeypatch: pytest.MonkeyPatch) -> None:
    """A guess at a passphrase costs next to nothing; what it really costs is a test of its own."""
    from cryptography.hazmat.primitives.kdf import scrypt

    real = scrypt.Scrypt
    monkeypatch.setattr(scrypt, "Scrypt", lambda **wanted: real(**wanted | {"n": 2**4}))


@pytest.fixture(scope="session")
def dask_scheduler() -> Iterator[str]:
    """The address of a scheduler with two workers, which are processes: each loads the agent once for all tests."""
    distributed = pytest.importorskip("distributed", reason="Dask is not installed: pip install 'p2pclust[sweep]'")
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, worker_dashboard_address=None
    ) as cluster:
        yield cluster.scheduler_address


def pytest_addoption(parser: pytest.Parser) -> None:
    """Offer to regenerate the transcripts after a change that can be explained."""
    parser.addoption("--rewrite", action="store_true", help="write the transcripts anew")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep modules and tests, half a million objects that stay, out of every collection of garbage that tests cause."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS)
        gc.enable()
