"""When a peer is started again, and when it is given up."""

from __future__ import annotations

import pytest

from p2pclust.hosts.restarts import ORDERS, SupervisedPeer


def a_peer() -> SupervisedPeer:
    return SupervisedPeer("a", ("-c", ""), "1")


def live(peer: SupervisedPeer, since: float, for_s: float, code: int = 1) -> None:
    peer.started(since, 7, "")
    peer.exited(since + for_s, code, "last")


def test_one_that_lived_long_is_started_again_soon() -> None:
    peer = a_peer()
    live(peer, 100.0, 50.0)
    assert (peer.status, peer.due, peer.restarts, peer.quick, peer.pid) == ("waiting", 150.5, 1, 0, 0)


def test_quick_failures_wait_twice_as_long_each_time_and_the_fifth_is_the_last() -> None:
    peer, now, waits = a_peer(), 0.0, []
    for _ in range(4):
        live(peer, now, 1.0)
        waits.append(peer.due - (now + 1.0))
        now = peer.due
    assert waits == [0.5, 1.0, 2.0, 4.0]
    live(peer, now, 1.0)
    assert (peer.status, peer.restarts, peer.ended, peer.last_line) == ("given-up", 4, "exit code 1", "last")


def test_a_last_line_says_why_unless_sigkill_ended_the_process() -> None:
    killed, aborted = a_peer(), a_peer()
    for peer, code in ((killed, -9), (aborted, -6)):
        live(peer, 0.0, 50.0, code)
    assert (killed.ended, killed.last_line) == ("killed by SIGKILL", "")
    assert (aborted.ended, aborted.last_line) == ("killed by SIGABRT", "last")


def test_a_long_life_forgives_earlier_failures() -> None:
    peer = a_peer()
    live(peer, 0.0, 1.0)
    live(peer, 10.0, 1.0)
    live(peer, 20.0, 10.0)
    assert peer.quick == 0
    live(peer, 40.0, 1.0)
    assert peer.due == 41.5


def test_one_that_was_given_up_is_tried_again_as_if_it_were_new() -> None:
    peer = a_peer()
    for begin in range(5):
        live(peer, float(begin), 0.5)
    assert peer.status == "given-up"
    peer.again(100.0)
    assert (peer.status, peer.due, peer.quick) == ("waiting", 100.0, 0)
    live(peer, 100.0, 0.5)
    assert peer.status == "waiting"


def test_a_changed_one_that_left_as_asked_is_no_failure() -> None:
    peer = a_peer()
    peer.started(0.0, 7, "")
    peer.leave(1.0, 10.0)
    assert (peer.status, peer.due) == ("leaving", 11.0)
    peer.exited(2.0, 0, "left")
    assert (peer.status, peer.due, peer.restarts, peer.quick) == ("waiting", 2.0, 0, 0)


def test_one_that_is_not_wanted_any_more_has_left() -> None:
    peer = a_peer()
    peer.started(0.0, 7, "")
    peer.wanted = False
    peer.leave(1.0, 10.0)
    peer.exited(2.0, -15, "")
    assert (peer.status, peer.ended) == ("left", "killed by SIGTERM")
    waiting = a_peer()
    waiting.leave(1.0, 10.0)
    assert waiting.status == "left"


def test_one_that_runs_waits_ten_seconds_for_others_and_one_that_says_nothing_sixty() -> None:
    peer = a_peer()
    peer.started(100.0, 7, "")
    assert peer.ready_at == 160.0
    peer.heard(103.0)
    peer.heard(110.0)
    assert peer.ready_at == 113.0


def test_one_that_is_tried_again_has_failed_until_it_is_ready() -> None:
    peer = a_peer()
    peer.started(0.0, 7, "")
    assert not peer.to_dict()["failed"], "nothing is known of a first life"
    peer.exited(1.0, 3, "the port is in use")
    assert peer.to_dict()["failed"]
    peer.started(1.5, 8, "")
    assert (peer.status, peer.to_dict()["failed"]) == ("starting", True)
    peer.ready()
    assert not peer.to_dict()["failed"]
    peer.leave(2.0, 5.0)
    peer.exited(2.5, 0, "left")
    assert not peer.to_dict()["failed"], "it was asked to"


def test_only_one_that_is_starting_becomes_ready() -> None:
    peer = a_peer()
    peer.started(0.0, 7, "")
    peer.ready()
    assert peer.status == "running"
    peer.leave(1.0, 10.0)
    peer.ready()
    assert peer.status == "leaving"


@pytest.mark.parametrize(
    ("code", "words"), [(3, "exit code 3"), (-9, "killed by SIGKILL"), (-250, "killed by signal 250")]
)
def test_how_it_ended_is_said_in_words(code: int, words: str) -> None:
    peer = a_peer()
    live(peer, 0.0, 1.0, code)
    assert peer.ended == words


class TestWhatAnOperatorAsksFor:
    def test_one_that_is_stopped_stays_down_however_it_ends_until_it_is_started_again(self) -> None:
        peer = a_peer()
        peer.started(0.0, 7, "")
        peer.leave(1.0, 10.0)
        peer.stop(1.0)
        assert (peer.status, peer.to_dict()["stopped"]) == ("leaving", True)
        peer.exited(2.0, -9, "last")
        assert (peer.status, peer.restarts, peer.failed) == ("stopped", 0, False)
        peer.start_again(100.0)
        assert (peer.status, peer.due, peer.stopped) == ("waiting", 100.0, False)

    def test_one_that_waits_or_was_given_up_is_stopped_at_once(self) -> None:
        peer = a_peer()
        for begin in range(5):
            live(peer, float(begin), 0.5)
        peer.stop(10.0)
        assert (peer.status, peer.quick) == ("stopped", 0)

    def test_a_restart_is_no_failure(self) -> None:
        peer = a_peer()
        peer.started(0.0, 7, "")
        peer.leave(1.0, 10.0)
        peer.start_again(1.0)
        peer.exited(2.0, 0, "")
        assert (peer.status, peer.due, peer.restarts, peer.quick) == ("waiting", 2.0, 0, 0)

    def test_the_time_in_which_it_stood_still_counts_against_no_deadline(self) -> None:
        peer = a_peer()
        peer.started(0.0, 7, "")
        peer.fed_at = 1.0
        peer.hold(2.0, paused=True)
        assert peer.to_dict()["status"] == "paused"
        peer.hold(500.0, paused=False)
        assert (peer.to_dict()["status"], peer.fed_at) == ("starting", 500.0)

    def test_one_that_ends_is_not_paused_any_more(self) -> None:
        peer = a_peer()
        peer.started(0.0, 7, "")
        peer.hold(2.0, paused=True)
        peer.exited(3.0, -9, "")
        assert (peer.paused, peer.to_dict()["status"]) == (False, "waiting")

    @pytest.mark.parametrize(
        ("how", "refused"),
        [
            ("runs", {"resume": "is not paused"}),
            ("paused", {"pause": "is paused already"}),
            (
                "stopped",
                {
                    "stop": "is stopped already",
                    "kill": "does not run: it is stopped",
                    "pause": "does not run: it is stopped",
                    "resume": "does not run: it is stopped",
                },
            ),
        ],
    )
    def test_what_is_refused(self, how: str, refused: dict[str, str]) -> None:
        peer = a_peer()
        if how == "stopped":
            peer.stop(0.0)
        else:
            peer.started(0.0, 7, "")
            peer.hold(1.0, paused=how == "paused")
        assert {order: peer.problem_with(order) for order in ORDERS if peer.problem_with(order)} == refused
