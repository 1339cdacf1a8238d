"""What people may call a job: an id or its beginning, a series, a turn of it; and never the census between two turns."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from harness import Net, toy

from p2pclust.errors import UsageError
from p2pclust.peer.core.events import Event
from p2pclust.peer.operate.questions import Questions
from p2pclust.peer.operate.server import HERE
from p2pclust.peer.operate.status import find, job_snapshots, name_of

EVERY_S = 10.0


def at_turn(number: int, *, going: bool = False) -> tuple[Net, str]:
    """A fleet whose series has ended that turn, from 0, or has begun the one after it; and the name of the series."""
    net = Net(3)
    net.meet()
    net.submit("p1", toy(1), every_s=EVERY_S)
    (told,) = net.verbs("submitted")
    series = str(told[1]["series"])

    def ended() -> bool:
        return any(
            d.turn is not None and d.turn.number == number and not d.census and net.job("p2", d.id).ledger.finished
            for d in net.core("p2").jobs.table.turns(series)
        )

    net.until(ended, 120.0)
    if going:
        net.hold_work = lambda name, effect: effect.task.kind == "contribute"
        net.until(lambda: bool(net.tasks))
    return net, series


def named(net: Net, name: str, *, ended: bool = True) -> str:
    return name_of(find(net.core("p2").jobs.jobs, name, "p2", ended=ended).document)


def test_a_series_means_its_newest_turn_that_has_ended_and_while_one_goes_on_that_one_to_watch_it() -> None:
    net, series = at_turn(2, going=True)
    assert named(net, series) == f"{series}/3"
    assert named(net, series, ended=False) == f"{series}/4"
    assert named(net, f"{series}/4") == f"{series}/4"
    assert named(net, series[:12]) == f"{series}/3"
    assert named(net, series.removeprefix("series-")) == f"{series}/3"


def test_a_first_turn_that_goes_on_is_meant_until_one_has_ended() -> None:
    net = Net(3)
    net.hold_work = lambda name, effect: True
    net.meet()
    net.submit("p1", toy(1), every_s=EVERY_S)
    series = str(net.verbs("submitted")[0][1]["series"])
    assert named(net, series) == f"{series}/1"


@pytest.mark.parametrize(
    ("turn", "reason"),
    [
        (
            "1",
            "turn 1 of SERIES is no longer kept: of a series a peer keeps the last two turns; p2 has turn 2 and turn 3",
        ),
        ("4", "turn 4 of SERIES has not begun; p2 has turn 2 and turn 3"),
        ("0", "'SERIES/0': expected the number of a turn after the slash, from 1"),
        ("x", "'SERIES/x': expected the number of a turn after the slash, from 1"),
    ],
)
def test_a_turn_that_is_not_here(turn: str, reason: str) -> None:
    net, series = at_turn(2)
    with pytest.raises(UsageError) as error:
        named(net, f"{series}/{turn}")
    assert str(error.value) == reason.replace("SERIES", series)


def test_a_job_that_is_not_repeated_keeps_its_id() -> None:
    net, series = at_turn(0)
    job = net.submit("p1", toy(2))
    net.until(lambda: len(net.finished(job)) == 3)
    assert named(net, job) == named(net, job[:20]) == named(net, job.removeprefix("job-")) == job
    for wrong in ("", "series-", "job-x", f"{series}x"):
        with pytest.raises(UsageError, match=r"p2 does not know the job|several jobs"):
            named(net, wrong)


def test_the_census_is_never_shown_nor_found() -> None:
    net, series = at_turn(1)
    net.until(lambda: any(job.document.census for job in net.core("p2").jobs.jobs.values()), 60.0)
    (census, *_) = [job_id for job_id, job in net.core("p2").jobs.jobs.items() if job.document.census]
    store = SimpleNamespace(blobs=SimpleNamespace(read=None))
    shell: Any = SimpleNamespace(core=net.core("p2"), outcomes={}, now=net.now, store=store)
    shown = job_snapshots(shell)
    assert {told.protocol for told in shown} != set()
    assert census not in [told.job for told in shown]
    assert [told.name for told in shown] == [f"{series}/{told.number + 1}" for told in shown]
    with pytest.raises(UsageError, match="does not know the job"):
        named(net, census)


class Caller:
    """Somebody on this device."""

    name = HERE

    def __init__(self) -> None:
        self.told: list[Any] = []

    def answer(self, fields: Any, *, last: bool = True) -> bool:
        self.told.append(fields)
        return True

    def refuse(self, reason: str, code: int = 2) -> bool:
        self.told.append(reason)
        return True


class NetShell:
    """The shell of one peer of a net, as the control address sees it."""

    def __init__(self, net: Net, name: str, *, reports: bool = True) -> None:
        self._net, self._name, self._reports = net, name, reports
        self.core = net.core(name)
        self.outcomes: dict[str, Any] = {}
        self.now = 0.0

    def listen(self, listener: Any) -> None:
        self._listener = listener

    def step(self, event: Event) -> None:
        before = len(self._net.reports)
        self._net.step(self._name, event)
        for name, report in self._net.reports[before:] if self._reports else ():
            if name == self._name:
                self._listener(report.verb, report.fields)


def test_a_series_is_cancelled_by_its_name() -> None:
    net, series = at_turn(1)
    asker = Caller()
    Questions(NetShell(net, "p2")).take(asker, "cancel", {"job": series})  # type: ignore[arg-type]
    assert [told["series"] for told in asker.told] == [series, series]
    assert net.core("p2").jobs.cancels.by(series) == "p2"


def test_a_cancel_is_not_answered_by_a_peer_that_ended_before_it_was_on_disk() -> None:
    net, series = at_turn(1)
    asker = Caller()
    Questions(NetShell(net, "p2", reports=False)).take(asker, "cancel", {"job": series})  # type: ignore[arg-type]
    assert asker.told == []
