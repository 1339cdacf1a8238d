"""What `make mutants` draws, leaves alone, and takes for judged. The mutations themselves take hours."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.mutants.child import Note, Order
from tests.mutants.covered import Covered, Steps
from tests.mutants.judged import VERDICTS, Judged, load
from tests.mutants.places import Lines, Source
from tests.mutants.results import Result, Results, judged_as
from tests.mutants.tree import Tree

ROOT = Path(__file__).parents[2]

TEXT = '''\
"""A module."""

import os

__all__ = ["Thing"]
Kind = int | str


class Thing:
    def both(self, left: int | None = 1, *, rest: int) -> int | None:
        self._ctx.report(Begun(self._n + 1))
        self._ctx.send(
            left + 1,
        )
        if left > 2 and self.much(
            left,
        ):
            raise ValueError(f"wrong by {left - 2}")
        return left + 1
'''


def position(text: str, nth: int = 0) -> tuple[int, int]:
    """Return where a text stands in `TEXT`."""
    at = -1
    for _ in range(nth + 1):
        at = TEXT.index(text, at + 1)
    return TEXT.count("\n", 0, at) + 1, at - (TEXT.rfind("\n", 0, at) + 1)


@pytest.mark.parametrize("text", ["| str", "| None = 1", "| None:", "*, rest", "1))", "- 2}", '"Thing"'])
def test_types_and_texts_are_left_alone(text: str) -> None:
    assert not Source("m.py", TEXT).may_be_mutated(position(text))


@pytest.mark.parametrize("text", ["1, *, rest", "> 2", "self._ctx.send", "left + 1,", "return"])
def test_what_a_module_does_is_not(text: str) -> None:
    assert Source("m.py", TEXT).may_be_mutated(position(text))


def test_a_place_keeps_its_name_when_lines_are_put_before_it() -> None:
    line, column = position("+ 1", 2)
    moved = Source("m.py", "import sys\n\n" + TEXT)
    assert Source("m.py", TEXT).place((line, column)) == moved.place((line + 2, column))
    assert moved.place((line + 2, column)).function == "Thing.both"


def test_a_line_that_continues_a_statement_is_run_by_what_runs_the_statement() -> None:
    source = Source("m.py", TEXT)
    assert source.statement(position("left + 1,")[0]) == Lines(12, 14)
    assert source.statement(position("if left")[0]) == Lines(15, 17), "the head only: the body may not run"
    assert source.statement(position("return")[0]) == Lines(19, 19)


def test_a_sample_is_the_same_where_the_code_is_the_same(tmp_path: Path) -> None:
    pytest.importorskip("cosmic_ray", reason="make mutants installs it")
    from tests.mutants.sample import drawn

    (tmp_path / "m.py").write_text(TEXT, encoding="utf-8")
    first = list(drawn(tmp_path, ["m.py"], 7))
    (tmp_path / "m.py").write_text(TEXT + "\n\ndef more():\n    return 1 - 2\n", encoding="utf-8")
    second = list(drawn(tmp_path, ["m.py"], 7))
    assert [one.key for one in first] == [one.key for one in second if one.place.function != "more"]
    assert [one.key for one in first] != [one.key for one in drawn(tmp_path, ["m.py"], 8)]
    assert len({one.place for one in first}) == len(first)
    assert any(one.after == "pass" and "left + 1" in one.before for one in first), "a call of several lines left out"


def test_a_line_is_tried_on_what_runs_it_the_tests_of_its_module_first() -> None:
    own, other = "tests/peer/core/test_routing.py::test_a", "tests/peer/core/test_codec.py::test_b"
    slow, elsewhere = "tests/peer/core/test_codec.py::test_slow", "tests/peer/core/test_routing.py::test_c"
    took = {own: 0.5, other: 0.1, slow: 9.0, elsewhere: 0.1, "seed 3": 2.0, "seed 7": 0.1}
    by_line = {4: [own, other, slow, "seed 3", "seed 7"], 5: [own], 6: [elsewhere], 1: ["", own]}
    data = SimpleNamespace(contexts_by_lineno=lambda file: by_line if file == "/p2pclust/peer/core/routing.py" else {})
    notes = [Note(name, "passed", cpu_s=cpu_s, wall_s=cpu_s) for name, cpu_s in took.items()]
    covered = Covered(cast(Any, data), Path("/"), notes)
    module = "p2pclust/peer/core/routing.py"
    assert covered.steps(module, Lines(4, 5)) == Steps((own,), (other,), (7, 3))
    assert covered.steps(module, Lines(5, 5)) == Steps((own,), (), ())
    assert covered.steps(module, Lines(1, 1)) == Steps((elsewhere, own), (other,), (7, 3)), "a line of the import"
    assert covered.steps(module, Lines(9, 9)) == Steps((elsewhere, own), (other,), (7, 3)), "a line without code"


def test_each_judgement_is_of_code_that_is_there() -> None:
    for one in load():
        assert one.verdict in VERDICTS, one
        assert one.reason.endswith("."), one
        lines = [line.strip() for line in (ROOT / one.module).read_text(encoding="utf-8").splitlines()]
        assert all(line in lines for line in one.before.splitlines()), (
            f"{one.module} has changed: judge this again: {one}"
        )
    assert len(set(load())) == len(load())


RESULT = Result("k", "m.py", "f", 3, "AddNot", "if a:", "if not a:", "survived", "", "", 9, 2, 1.5, "tree-1")


def test_a_judgement_holds_for_its_change_only() -> None:
    judged = [Judged("m.py", "f", "if a:", "if not a:", "equivalent", "Both do the same.")]
    assert judged_as(RESULT, judged) == judged[0]
    assert judged_as(replace(RESULT, after="if True:"), judged) is None
    assert judged_as(replace(RESULT, function="g"), judged) is None


def test_a_survivor_is_tried_again_after_a_change_and_what_was_killed_is_not(tmp_path: Path) -> None:
    file = tmp_path / "results.jsonl"
    Results(file).add(RESULT)
    Results(file).add(replace(RESULT, key="l", outcome="tests"))
    file.write_text(file.read_text(encoding="utf-8") + '{"key": "half', encoding="utf-8")
    kept = Results(file)
    assert [kept.done(key, "tree-1") for key in "klm"] == [True, True, False]
    assert [kept.done(key, "tree-2") for key in "klm"] == [False, True, False]
    judged = [Judged("m.py", "f", "if a:", "if not a:", "equivalent", "Both do the same.")]
    assert kept.done("k", "tree-2", judged)


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """A project of one module and three tests."""
    project = tmp_path / "from"
    for folder in ("p2pclust", "peers", "scenarios", "topology", "docs", "tests/mutants"):
        (project / folder).mkdir(parents=True)
    (project / "tests/mutants/child.py").write_text((ROOT / "tests/mutants/child.py").read_text("utf-8"), "utf-8")
    (project / "pyproject.toml").write_text("", "utf-8")
    (project / "p2pclust/__init__.py").write_text("", "utf-8")
    (project / "p2pclust/one.py").write_text("def add(a):\n    return a + 1\n", "utf-8")
    (project / "tests/test_one.py").write_text(
        "from p2pclust.one import add\ndef test_a(): pass\ndef test_b(): assert add(1) == 2\ndef test_c(): pass\n",
        "utf-8",
    )
    return Tree(project, tmp_path)


TESTS = ("tests/test_one.py",)


@pytest.mark.slow
def test_the_first_test_that_fails_ends_a_run_and_is_named(tree: Tree) -> None:
    assert tree.run(Order(TESTS), 100, writes_bytecode=True).passed
    with tree.mutated("p2pclust/one.py", "def add(a):\n    return a - 1\n"):
        ran = tree.run(Order(TESTS), 100)
    assert (ran.passed, ran.timed_out) == (False, False)
    assert [note.name for note in ran.done] == ["tests/test_one.py::test_a", "tests/test_one.py::test_b"]
    assert ran.failed.name == "tests/test_one.py::test_b"
    assert ran.failed.why == "assert 0 == 2"
    assert tree.run(Order(TESTS), 100).passed, "and afterwards the module is as it was"


@pytest.mark.slow
def test_an_endless_loop_is_a_time_out(tree: Tree) -> None:
    with tree.mutated("p2pclust/one.py", "def add(a):\n    while True:\n        pass\n"):
        ran = tree.run(Order(TESTS, most_cpu_s=0.5), 100)
    assert ran.timed_out
    assert ran.failed.name == "tests/test_one.py::test_b"


@pytest.mark.slow
def test_a_module_that_cannot_be_imported_fails(tree: Tree) -> None:
    with tree.mutated("p2pclust/one.py", "raise ValueError('no')\n"):
        ran = tree.run(Order(TESTS), 100)
    assert not ran.passed
    assert "no" in ran.failed.why
