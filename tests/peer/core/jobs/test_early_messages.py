"""Messages of jobs that are not known here yet."""

from __future__ import annotations

from p2pclust.peer.core.job_messages import Close, Reminder
from p2pclust.peer.core.jobs import early as early_module
from p2pclust.peer.core.jobs.early import EarlyMessages


def word(number: int) -> Reminder:
    return Reminder(f"job-{number}", 1, number, "s")


def test_the_last_message_of_each_peer_is_kept_once() -> None:
    early = EarlyMessages()
    early.keep("job-1", "p2", word(1))
    early.keep("job-1", "p2", word(2))
    early.keep("job-1", "p3", word(3))
    early.keep("job-2", "p2", word(4))
    assert early.take_all("job-1", ("p1", "p2", "p3")) == [("p2", word(2)), ("p3", word(3))]
    assert early.take_all("job-1", ("p1", "p2", "p3")) == []
    assert early.take_all("job-2", ("p2",)) == [("p2", word(4))]


def test_the_messages_of_a_revoked_peer_are_dropped_and_no_others() -> None:
    early = EarlyMessages()
    early.keep("job-1", "p2", word(1))
    early.keep("job-2", "p2", word(2))
    early.keep("job-1", "p3", word(3))
    early.forget("p2")
    assert early.take_all("job-2", ("p2", "p3")) == []
    assert early.take_all("job-1", ("p2", "p3")) == [("p3", word(3))]


def test_the_oldest_make_room() -> None:
    early = EarlyMessages()
    for number in range(early_module._MOST_MESSAGES + 1):
        early.keep(f"job-{number}", "p2", word(number))
    assert early.take_all("job-0", ("p2",)) == []
    assert early.take_all("job-1", ("p2",)) == [("p2", word(1))]


def test_they_take_no_more_than_4_mib() -> None:
    """256 messages of 8 MiB each could take 2 GiB."""
    early = EarlyMessages()
    for number in range(200):
        early.keep(f"job-{number}", "p2", Close(f"job-{number}", 1, 1, b"", 0, (bytes(2**20),) * (1 + number % 3)))
    kept = [message for number in range(200) for _, message in early.take_all(f"job-{number}", ("p2",))]
    assert 1 <= len(kept) <= 4
    assert sum(len(frame) for message in kept for frame in message.frames) <= 2**22
    early.keep("job-1", "p2", word(1))  # what was taken or dropped counts no longer
    early.keep("job-2", "p2", Close("job-2", 1, 1, b"", 0, (bytes(2**22),)))
    assert early.take_all("job-1", ("p2",))
    assert early.take_all("job-2", ("p2",))
