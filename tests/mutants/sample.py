"""A sample of the mutations of modules, drawn by a seed: at most one at each place.

The operators are those of cosmic-ray, and one more that leaves a statement out. A mutation is drawn by the hash of the seed
and of its place, so that the sample stays the same where the code stays the same.
"""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import parso
from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.operators.operator import Operator
from cosmic_ray.plugins import get_operator, operator_names
from tests.mutants.places import Lines, Place, Source

#: `is` in place of `==` and the like: mostly the same thing in CPython, and an error of style otherwise.
_LEFT_OUT = ("Eq_Is", "Eq_IsNot", "Lt_Is", "LtE_Is", "Gt_Is", "GtE_Is", "Is_Eq", "IsNot_NotEq", "RemoveDecorator")
_DROP = "DropStatement"
#: Leaves of the syntax tree that no operator changes: most of all.
_NEVER = ("name", "newline", "string", "endmarker")


@dataclass(frozen=True)
class Mutation:
    """One change of one module."""

    place: Place
    operator: str
    number: int  # the line in the file
    statement: Lines
    before: str  # the lines that change, without indentation
    after: str
    text: str  # the whole module, mutated

    @property
    def key(self) -> str:
        """Its name in files of results."""
        return _hash(self.place, self.operator)[:12]


class DropStatement(Operator):  # type: ignore[misc]
    """Leave out a call whose result is not used, or an assignment to an attribute or an element."""

    def mutation_positions(self, node: Any) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
        """Yield the statement, if it is one of these."""
        if node.type == "simple_stmt" and _has_effect(node.children[0]):
            yield node.children[0].start_pos, node.children[0].end_pos

    def mutate(self, node: Any, index: int) -> Any:
        """Put `pass` in its place."""
        statement = node.children[0]
        node.children[0] = parso.parse(statement.get_first_leaf().prefix + "pass")
        return node

    @classmethod
    def examples(cls) -> tuple[()]:
        """Return no examples."""
        return ()


def _has_effect(statement: Any) -> bool:
    if statement.type == "expr_stmt":
        return statement.children[0].type == "atom_expr" and statement.children[1].type != "annassign"
    return statement.type == "atom_expr" and statement.children[-1].get_first_leaf().value == "("


def operators() -> dict[str, Operator]:
    """Return all operators by name."""
    given = {name.partition("/")[2]: get_operator(name) for name in operator_names()}
    plain = {name: one() for name, one in given.items() if not one.arguments() and not name.endswith(_LEFT_OUT)}
    return {**plain, _DROP: DropStatement()}


def drawn(root: Path, modules: Iterable[str], seed: int) -> Iterator[Mutation]:
    """Yield mutations in the order that a seed gives, each of another place."""
    known = operators()
    sources = {module: Source(module, (root / module).read_text(encoding="utf-8")) for module in modules}
    found: dict[Place, list[tuple[str, int, tuple[int, int]]]] = {}
    for source in sources.values():
        for name, occurrence, position in _all_of(source, known):
            found.setdefault(source.place(position), []).append((name, occurrence, position))
    for place in sorted(found, key=lambda place: _hash(seed, place)):
        source = sources[place.module]
        for name, occurrence, position in sorted(found[place], key=lambda one: _hash(seed, place, one[0], one[1])):
            text = mutate_code(source.text, known[name], occurrence)
            if text is None or not _compiles(text):
                continue
            before, after = _changed(source.text, text)
            yield Mutation(place, name, position[0], source.statement(position[0]), before, after, text)
            break


def _all_of(source: Source, known: dict[str, Operator]) -> Iterator[tuple[str, int, tuple[int, int]]]:
    nodes = [node for node in ast_nodes(get_ast(source.text)) if node.type not in _NEVER]
    for name, operator in known.items():
        positions = (begin for node in nodes for begin, _ in operator.mutation_positions(node))
        for occurrence, begin in enumerate(positions):
            if source.may_be_mutated(begin) and not (
                name == _DROP and source.place(begin).function.endswith("__init__")
            ):
                yield name, occurrence, begin


def _hash(*parts: object) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def _compiles(text: str) -> bool:
    try:
        compile(text, "mutated", "exec")
    except (SyntaxError, ValueError):
        return False
    return True


def _changed(before: str, after: str) -> tuple[str, str]:
    lines = list(difflib.ndiff(before.splitlines(), after.splitlines()))
    return tuple("\n".join(line[2:].strip() for line in lines if line.startswith(sign)) for sign in ("- ", "+ "))  # type: ignore[return-value]
