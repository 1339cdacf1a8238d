"""All histories of three peers: what `make exhaustive` explores, as far as a minute goes."""

from __future__ import annotations

import pytest
from tests.exhaustive.__main__ import BUGS, ROWS
from tests.exhaustive.explore import Bounds, explore
from tests.exhaustive.fleet import NAMES, Peer, Toy
from tests.exhaustive.liar import Witnesses

from p2pclust.lab.simulation.fleets.bugs import planted
from p2pclust.peer.core.events import Woken
from p2pclust.peer.core.evidence import Majority


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", ["one round, tasks end at any time", "one round, one crash"])
def test_no_history_breaks_a_promise(name: str) -> None:
    found = explore(ROWS[name], 500.0)
    assert found.broken == ""
    assert found.complete
    assert found.finished > 1000


@pytest.mark.slow
@pytest.mark.parametrize("name", ["a liar, about votes", "a liar, about ends"])
def test_a_liar_breaks_no_promise_about_evidence(name: str) -> None:
    """Not all histories, but those that a few seconds allow."""
    assert explore(ROWS[name], 8.0).broken == ""


def test_a_certificate_with_signatures_that_are_not_checked_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Majority, "problem_with", lambda *of: "")
    assert explore(ROWS["a liar, about votes"], 100.0).broken.startswith("W1: ")


def test_what_the_liar_alone_contradicts_breaks_no_promise_and_what_an_honest_peer_does_breaks_one() -> None:
    rules, nothing, last = Witnesses(), (0, False, 0), b"last"
    history = [
        ("voted", 1, "a", "a"), ("voted", 1, "b", "b"),
        ("followed", 1, (1, "a", nothing, b"", ("a", "c"))), ("followed", 1, (1, "b", nothing, b"", ("b", "c"))),
        ("adopted", 1, 1, last, "a"), ("closed", "b", (1, "a", (1, True, 1), last, ("a", "c"))),
        ("voted", 2, "b", "b"), ("followed", 2, (2, "b", nothing, b"", ("b", "c"))),
    ]  # fmt: skip
    assert [rules.flaw(event) for event in history] == [""] * len(history)
    assert rules.flaw(("voted", 1, "b", "a")).startswith("S1: ")
    assert rules.flaw(("followed", 3, (3, "c", nothing, b"", ("a", "c")))).startswith("W1: ")
    assert rules.flaw(("closed", "b", (2, "b", (2, True, 1), last, ("b", "c")))).startswith("W1: ")
    assert rules.flaw(("voted", 3, "c", "a")) == ""
    assert rules.flaw(("followed", 3, (3, "c", nothing, b"", ("a", "c")))).startswith("W2: "), (
        "a had adopted the last state"
    )


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
