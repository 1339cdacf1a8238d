from __future__ import annotations

from typing import Any

from p2pclust.lab.testbed.processes.fleet import FleetCounters
from p2pclust.lab.testbed.record import Record


class Asked:
    """A child that only takes note."""

    alive = True

    def __init__(self, name: str) -> None:
        self.name = name
        self.heard: list[dict[str, str]] = []

    def send(self, line: dict[str, str]) -> None:
        self.heard.append(line)


def test_what_was_sent_is_told_when_all_have_answered() -> None:
    record, now = Record(lambda event: None), [0.0]
    counters = FleetCounters(record, lambda: now[0])
    children: Any = [Asked(name) for name in "abc"]
    assert not counters.due
    now[0] = 1.0
    assert counters.due
    counters.ask(children)
    assert not counters.due
    assert [child.heard for child in children] == [[{"do": "counters"}]] * 3
    counters.take("a", {"messages_sent": 2, "bytes_sent": 100})
    counters.take("b", {"messages_sent": 3, "bytes_sent": 300})
    assert not counters.complete()
    children.pop().alive = False
    assert counters.complete()
    assert "c" in counters.asked
    assert not record.events
    counters.ask(children)
    counters.take("a", {"messages_sent": 4, "bytes_sent": 400})
    counters.take("b", {"messages_sent": 3, "bytes_sent": 350})
    (load,) = record.events
    assert load == {
        "t": 1.0, "peer": "", "verb": "load", "messages_sent": 7, "bytes_sent": 750, "busiest": "a", "busiest_bytes": 400,
        "sent": {"a": 400, "b": 350},
    }  # fmt: skip
    counters.take("b", {"messages_sent": 9, "bytes_sent": 900})
    assert len(record.events) == 1, "nobody asked"
    assert counters.last["b"] == {"messages_sent": 9, "bytes_sent": 900}
    assert "c" not in counters.asked
    assert "x" not in counters.last


def test_nothing_is_told_of_nobody() -> None:
    record = Record(lambda event: None)
    record.load(1.0, {})
    assert not record.events
