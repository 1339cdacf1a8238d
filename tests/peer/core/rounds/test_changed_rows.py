from __future__ import annotations

from p2pclust.lab.testbed.peer.lies import FirstUse
from p2pclust.peer.core.effects import Compute
from p2pclust.peer.core.reports import Report
from p2pclust.peer.core.round_reports import PhaseBegun
from p2pclust.peer.core.tasks import AnswerToken, CombineRound, Contribute, Ref, TermToken

STATE = Ref(b"", 0, b"")


def adopting(round_: int, job: str = "j", within: str | None = None) -> Report:
    return PhaseBegun(job, within, "adopting", 1, round_)


def contributing(job: str = "j") -> Compute:
    return Compute(AnswerToken(job, "contribute", b"", -1), Contribute(b"", 3, STATE, 0))


def combining(job: str = "j") -> Compute:
    return Compute(TermToken(job, "combine", 1), CombineRound(b"", 3, STATE, ()))


def told(use: FirstUse, *effects: Report | Compute) -> list[tuple[str, int, int]]:
    found = [use.see(effect) for effect in effects]
    return [(r.fields["job"], r.fields["round"], r.fields["number"]) for r in found if r is not None]


def test_nothing_is_told_of_rows_of_its_own() -> None:
    assert told(FirstUse(), adopting(3), contributing()) == []


def test_the_first_contribution_after_and_none_that_follow() -> None:
    use = FirstUse()
    assert told(use, adopting(3), contributing()) == []
    use.replaced(7)
    assert told(use, combining(), adopting(4), contributing(), adopting(5), contributing()) == [("j", 4, 7)]


def test_a_lower_round_that_is_opened_again_and_another_job() -> None:
    use = FirstUse()
    use.replaced(1)
    effects = [adopting(4), contributing(), adopting(3), contributing(), adopting(0, "k"), contributing("k")]
    assert told(use, *effects) == [("j", 4, 1), ("j", 3, 1), ("k", 0, 1)]


def test_rows_that_are_replaced_again() -> None:
    use = FirstUse()
    use.replaced(1)
    assert told(use, adopting(4), contributing()) == [("j", 4, 1)]
    use.replaced(2)
    assert told(use, adopting(5), contributing()) == [("j", 5, 2)]


def test_jobs_within_another_one_are_not_told() -> None:
    use = FirstUse()
    use.replaced(1)
    assert told(use, adopting(4, "child", within="j"), contributing("child")) == []
