"""What exact totals give away to a submitter who chooses the questions, and which jobs a device's conditions refuse.

Jobs are llf-cm with secure sums, one round each, from given first centers: 20 peers of 100 rows with 4 features,
`suppress_singletons` on, and `min_cell = 5` at every device. The submitter aggregates, so it knows the totals, and follows
the protocol. Centers on a line divide the rows at one value of one feature, and two totals whose counts differ by one row
differ by that row. The script adds up what the protocol contributes: the total of a secured job has the bits of a plain one.

- two jobs: one row between two such values.
- so many jobs: intervals of the feature are halved until each holds one row; a row is found if all its features are off by
  less than a millionth, of values up to 100.
- without one peer: the difference of two jobs over all peers, and all but one, against that peer's own sums.

Below it is what a device with `given_centers = false`, `least_rounds = 3`, `jobs = { most = 3, per = "30d" }` and `rosters =
"fixed"` in `[privacy]` says to these jobs.

Run: python benchmarks/chosen_questions.py [--jobs 100 1000]
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from p2pclust.peer.shell.privacy_file import PrivacyFile
from p2pclust.peer.work.floor import Floor
from p2pclust.protocols.engine import engine
from p2pclust.protocols.engine.compose import cluster_job
from p2pclust.protocols.engine.fixed_point import dequantise_all
from p2pclust.protocols.engine.job import Job
from p2pclust.protocols.engine.local import Local
from p2pclust.protocols.private.ledger import MostJobs, PeerSet
from p2pclust.protocols.secure.parameters import SecureSums

N_PEERS, ROWS_EACH, N_FEATURES, SEED = 20, 100, 4, 7
LO, HI = [0.0] * N_FEATURES, [100.0] * N_FEATURES
MIDDLE, COHORT = 50.0, 5
#: Beyond these shares of the rows some device has fewer than five on one side.
REACH = (0.12, 0.88)
FOUND = 1e-6

Floats = NDArray[np.float64]
#: Of the rows on one side: their number, and their sum; None where a device withheld something.
Answer = tuple[float, Floats] | None


def devices() -> list[Local]:
    """Return the rows of all devices, three clusters each."""
    rng = np.random.default_rng(SEED)
    middles = rng.uniform(20, 80, (3, N_FEATURES))
    found = []
    for _ in range(N_PEERS):
        rows = middles[rng.integers(0, 3, ROWS_EACH)] + rng.normal(0, 12, (ROWS_EACH, N_FEATURES))
        found.append(Local(np.clip(rows, 0, 100)))
        found[-1].min_cell = 5
    return found


def question(threshold: float) -> Job:
    """Return the job that divides rows at that value of the first feature."""
    centers = np.full((2, N_FEATURES), MIDDLE)
    centers[:, 0] = threshold - 1.0, threshold + 1.0
    return cluster_job("llf-cm", n_clusters=2, bounds=(LO, HI), init=centers, max_rounds=1, tol=0.0, secure=True)


def answer(job: Job, peers: list[Local]) -> Answer:
    """Return the totals of the first cluster in the first round, as the aggregator sees them."""
    n, state = len(peers), engine.begin(job)
    while job.stages[state.stage].protocol != "llf-cm":
        given = [(k, engine.contribution(job, state, one, k, n)) for k, one in enumerate(peers)]
        state = engine.advance(job, state, given, {}, n_peers=n)
    total, _ = engine.added_up(((k, engine.contribution(job, state, one, k, n)) for k, one in enumerate(peers)), n)
    assert total is not None
    protocol = job.protocols[state.stage]
    found = dequantise_all({name: np.array(total[name]) for name in total}, protocol.units(state.arrays))  # type: ignore[attr-defined]
    if float(found["suppressed"]):
        return None
    return float(found["counts"][0]), found["sums"][0] + found["counts"][0] * state.arrays["origin"]


def one_row(peers: list[Local]) -> float:
    """Return how far off a chosen row is after two jobs."""
    rows = np.concatenate([one.X for one in peers])
    order = np.argsort(rows[:, 0])
    at = len(rows) // 2
    below, above = ((rows[order[k - 1], 0] + rows[order[k], 0]) / 2 for k in (at, at + 1))
    first, second = (answer(question(float(threshold)), peers) for threshold in (below, above))
    assert first is not None
    assert second is not None
    return float(np.abs(second[1] - first[1] - rows[order[at]]).max())


def rows_found(peers: list[Local], n_jobs: int) -> int:
    """Return how many rows come back from so many jobs, without knowing anything of the rows."""
    rows = np.concatenate([one.X for one in peers])
    ends = tuple(float(np.quantile(rows[:, 0], share)) for share in REACH)
    known = {end: answer(question(end), peers) for end in ends}
    spent, single = 2, list[Floats]()
    queue: list[tuple[float, ...]] = [ends]
    while queue and spent < n_jobs:
        queue.sort(key=lambda pair: _between(known, pair)[0])
        left, right = queue.pop(0)  # the interval with the fewest rows
        middle, spent = (left + right) / 2, spent + 1
        known[middle] = answer(question(middle), peers)
        if known[middle] is None:
            continue
        for pair in ((left, middle), (middle, right)):
            count, difference = _between(known, pair)
            if count == 1:
                single.append(difference)
            elif count > 1:
                queue.append(pair)
    return sum(bool(np.abs(rows - row).max(axis=1).min() < FOUND) for row in single)


def _between(known: dict[float, Answer], pair: tuple[float, ...]) -> tuple[float, Floats]:
    left, right = (known[end] for end in pair)
    assert left is not None
    assert right is not None
    return right[0] - left[0], right[1] - left[1]


def without_one(peers: list[Local]) -> float:
    """Return how far off the sums of the last peer are, after two jobs over all peers and all but this one."""
    job = question(MIDDLE)
    every, others = answer(job, peers), answer(job, peers[:-1])
    assert every is not None
    assert others is not None
    own = peers[-1].X[peers[-1].X[:, 0] < MIDDLE]
    return float(np.abs(every[1] - others[1] - own.sum(axis=0)).max())


def refusals(folder: Path) -> dict[str, str]:
    """Return which of these jobs a device refuses by each condition, and with which words."""
    secure = SecureSums(cohort=COHORT)
    job, names = question(MIDDLE), [bytes([k] * 32) for k in range(N_PEERS)]
    counted = PrivacyFile(folder / "jobs", jobs=MostJobs(3, 30))
    fixed = PrivacyFile(folder / "rosters", fixed=True)

    def asked(ledger: PrivacyFile, job_id: str, n_peers: int) -> str:
        return ledger.reserve(job_id, 0.0, COHORT, lambda: [PeerSet.of(job_id, bytes(32), names[:n_peers])])

    return {
        "given_centers, the first job": Floor(given_centers=False).problem_with(job, secure, ROWS_EACH),
        "least_rounds, the first job": Floor(least_rounds=3).problem_with(job, secure, ROWS_EACH),
        "jobs, the fourth job": [asked(counted, f"job-{number}", N_PEERS) for number in range(4)][-1],
        "rosters, the job without one peer": [asked(fixed, f"job-{n}", n) for n in (N_PEERS, N_PEERS - 1)][-1],
    }


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--jobs", type=int, nargs="+", default=[100, 1000])
    peers = devices()
    print(f"two jobs: the row between two values comes back, off by {one_row(peers):.0e}")
    for n_jobs in parser.parse_args().jobs:
        print(f"{n_jobs:,} jobs: {rows_found(peers, n_jobs)} of {N_PEERS * ROWS_EACH:,} rows come back in all features")
    print(f"without one peer: its sums come back from two jobs, off by {without_one(peers):.0e}")
    with tempfile.TemporaryDirectory() as folder:
        for condition, words in refusals(Path(folder)).items():
            print(f"{condition}: {words or 'not refused'}")


if __name__ == "__main__":
    main()
