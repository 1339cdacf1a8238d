"""Every planted bug is found, so every promise that the simulator watches can be seen to break.

Each test begins at a seed that is known to find the bug, and runs a few more where a change of the drawing has moved it;
`p2pclust simulate --mutant all` looks for each without knowing one.
That the same seeds break no promise without the bug, the seeds of all swarms show (`make test`, `make swarms`).
"""

from __future__ import annotations

import importlib.util

import pytest

from p2pclust.lab.commands.seeds import Asked, try_seeds
from p2pclust.lab.simulation.fleets.bugs import BUGS

#: By planted bug: a seed of its swarm that finds it, and how the failure begins.
FOUND_BY = {
    "vote-not-synced": (0, "S6: "),
    "no-fence-by-term": (3, "S7: "),
    "finished-before-a-majority": (0, "S8: "),
    "wiped-store-counted": (0, "S1: "),
    "stepped-down-for-good": (12, "L5: "),
    "document-not-synced": (0, "S6: "),
    "register-not-synced": (0, "S6: "),
    "refutation-not-synced": (0, "S6: "),
    "peers-not-greeted": (0, "L2: "),
    "lost-links-not-told": (8, "L4: "),
    "rows-written-last": (0, "S6: "),
    "messages-sent-first": (0, "S6: "),
    "rows-one-effect-late": (0, "S6: "),
    "last-rows-forgotten": (0, "S6: "),
    "old-frames-sent": (26, "L3: "),
    "fetched-blob-not-synced": (3, "S11: "),
    "cancel-not-synced": (0, "S6: "),
    "one-context-for-all-rounds": (0, "P1: "),
    "pads-of-zeros": (19, "P3: "),
    "released-set-not-synced": (0, "P2: "),
    "released-set-not-noted": (0, "P2: "),
    "released-set-not-reported": (3, "P4: "),
    "open-context-forgotten": (11, "the job failed: secure sums: no total after "),
    "sum-of-one": (0, "P4: "),
    "cohort-not-of-the-set": (28, "the job failed: secure sums: differences of sums would expose "),
    "second-set-for-a-state": (81, "P2: "),
    "keys-never-forgotten": (0, "P1: "),
    "sets-compared-in-pairs": (7, "P4: "),
    "sets-of-the-job-forgotten": (18, "P5: "),
    "hidden-sets-not-reported": (7, "P6: "),
    "keys-kept-after-the-end": (0, "P7: "),
    "late-peer-joins-alone": (9, "P8: "),
    "blamed-without-a-proof": (15, "P9: "),
    "restarted-peer-passed-over": (41, "a peer was passed over"),
    "sum-of-a-small-group": (2, "P4: "),
    # Devices refuse what it would expose.
    "peers-leave-across-groups": (15, "the job failed: secure sums: "),
    "states-not-checked": (0, "V1: "),
    "answers-not-verified": (11, "V1: "),
    "pads-not-verified": (88, "V1: "),
    "any-start-of-a-proof": (95, "V1: "),
    "one-signature-is-enough": (181, "V1: "),
    "end-as-it-is-called": (57, "the job failed:  ("),  # without a reason
    "open-in-anothers-name": (20, "S4: "),
    "second-aggregator-followed": (20, "V1: "),
    "second-successor-adopted": (23, "V1: "),
    "rounds-after-the-last": (113, "V1: "),
    "end-not-read": (9, "V1: "),
    "cancel-not-checked": (9, "V1: "),
    "verified-cancel-not-checked": (1, "V1: "),
    "term-without-a-certificate": (18, "E1: "),
    "end-without-acknowledgements": (2, "E2: "),
    "wrong-blob-taken": (47, "S11: "),
    "blob-complete-before-it-is-verified": (0, "S11: "),
    "spoiled-source-asked-again": (85, "L3: "),
    "vote-of-a-revoked-peer": (12, "S10: "),
    "answer-of-a-revoked-peer": (85, "S10: "),
    "invented-peers-taken": (2, "F1: "),
    "old-fleet-roster-taken": (14, "F1: "),
    "new-keys-not-barred": (2, "F2: "),
    "facts-not-verified": (2, "S12: "),
    "term-of-a-liar-taken-over": (1, "V1: "),
    "late-vote-counted": (0, "S1: "),
    "result-of-an-older-term": (37, "S3: "),
    "gossip-ends-without-stores": (6, "S8: "),
    "accepted-by-one": (1, "S13: "),
    "silent-peer-waited-for": (10, "L3: "),
    "wiped-store-hoped-for": (44, "L3: "),
    "note-not-synced": (0, "S6: "),
    "jobs-within-kept": (0, "L6: "),
    "jobs-within-dropped-at-once": (0, "S9: "),
    "newest-turn-in-memory-only": (0, "S9: "),
    "turn-without-a-census": (4, "E3: "),
    "census-of-any-roster": (5, "E3: "),
    "never-hands-over": (35, "L3: "),
    "busy-for-ever": (2, "L3: "),
    "elections-never-wait-longer": (15, "L3: "),
    "hung-worker-waited-for-again": (19, "L7: "),
    "request-id-not-looked-up": (1, "H4: "),
    "cancelled-before-all-agreed": (0, "H6: "),
    "ended-before-a-majority": (28, "H6: "),
    "end-shown-by-its-aggregator-only": (0, "H1: "),
    "failed-after-a-restart": (17, "H2: "),
    "cancel-confirmed-and-forgotten": (44, "H3: "),
    "labels-of-other-centers": (1, "H5: "),
    "term-not-synced": (0, "S6: "),
    "second-state-of-a-round": (3, "S4: "),
    "ends-with-what-it-holds": (3, "S5: "),
    "left-out-not-named": (2, "S14: "),
    "submission-announced-once": (0, "L5: "),
    "facts-compared-once": (0, "L5: "),
    "epoch-not-synced": (0, "S6: "),
    "padded-twice": (0, "S2: "),
    "repeated-submission-accepted": (44, "S13: "),
    "pause-without-end": (0, "L5: "),
    "serial-not-synced": (2, "S6: "),
    "roster-asked-for-once": (2, "L5: "),
    "padded-by-a-revoked-peer": (126, "F2: "),
    "child-counted-twice": (104, "S2: "),
    "store-ids-asked-for-once": (9, "L5: "),
    "day-without-end": (0, "L5: "),
    "ended-jobs-forgotten": (0, "L1: "),
}

_MOVED = 8


@pytest.mark.slow
@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_found(bug: str) -> None:
    swarm = BUGS[bug]
    if swarm == "fedcref" and importlib.util.find_spec("torch") is None:
        pytest.skip("autoencoders need torch: pip install 'p2pclust[models]'")
    first, begins = FOUND_BY[bug]
    broken = ""
    for seed in range(first, first + _MOVED):
        (found,) = try_seeds(range(seed, seed + 1), Asked(swarm or None, bug))
        lines = found.failure.splitlines() or [""]
        broken = lines[-1 if lines[0].startswith("Traceback") else 0]
        if broken.startswith(begins):
            return
    pytest.fail(f"p2pclust simulate --seeds {first}:{first + _MOVED} --mutant {bug}: {broken}")


def test_every_bug_that_is_looked_for_is_planted() -> None:
    assert set(FOUND_BY) == set(BUGS)
