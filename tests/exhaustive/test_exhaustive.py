"""All histories of three peers: what `make exhaustive` explores, as far as a minute goes."""

from __future__ import annotations

import pytest
from tests.exhaustive.__main__ import BUGS, ROWS
from tests.exhaustive.explore import Bounds, explore
from tests.exhaustive.fleet import NAMES, Peer, Toy

from p2pclust.lab.simulation.fleets.bugs import planted
from p2pclust.peer.core.events import Woken


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", ["one round, tasks end at any time", "one round, one crash"])
def test_no_history_breaks_a_promise(name: str) -> None:
    found = explore(ROWS[name], 500.0)
    assert found.broken == ""
    assert found.complete
    assert found.finished > 1000


@pytest.mark.slow
@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_found(name: str) -> None:
    bounds, promise = BUGS[name]
    with planted(name):
        assert explore(bounds, 100.0).broken.startswith(promise)


def test_a_copy_of_a_peer_is_another_peer() -> None:
    first = Peer(NAMES[0], Toy(1), at_once=True)
    second = first.copied()
    assert first.fingerprint() == second.fingerprint()
    second.now += 10.0
    second.step(Woken())
    assert second.sent
    assert first.sent == []
    assert first.job.election.role != second.job.election.role
    assert first.fingerprint() != second.fingerprint()


def test_a_search_that_is_cut_off_says_so() -> None:
    assert not explore(Bounds(), 0.0).complete
