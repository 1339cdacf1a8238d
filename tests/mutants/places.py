"""What may be mutated: places in the source, and those that are left alone."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple


class Span(NamedTuple):
    """A piece of a source, in parso's coordinates: lines from 1, columns in characters."""

    begin: tuple[int, int]
    end: tuple[int, int]

    def holds(self, position: tuple[int, int]) -> bool:
        """Whether a position is in it."""
        return self.begin <= position < self.end


@dataclass(frozen=True)
class Place:
    """Where a mutation is made, named by the text: the name stays the same while the code around it moves."""

    module: str  # its path in the project
    function: str  # the enclosing definition, such as Job.begin; empty outside all
    line: str  # the text of the line
    column: int  # in that text
    nth: int  # of the same lines in this function


@dataclass(frozen=True)
class Lines:
    """The lines of the statement that a place is in, or of its head if it has a body."""

    first: int
    last: int


class Source:
    """The source of a module, with what is not mutated: types, decorators, imports, reports, and the text of messages."""

    def __init__(self, module: str, text: str) -> None:
        self.module = module
        self.text = text
        self._lines = text.splitlines()
        tree = ast.parse(text)
        self._skipped = [self._span(node) for node in _skipped(tree)]
        self._functions: dict[int, str] = {}
        self._statements: dict[int, Lines] = {}
        self._note(tree, ())

    def may_be_mutated(self, position: tuple[int, int]) -> bool:
        """Whether a mutation that begins at a position changes what the module does.

        An asterisk before a comma makes the parameters after it keyword-only, and is no operator.
        """
        line, column = position
        separator = self._lines[line - 1][column : column + 2] in ("*,", "/,")
        return not separator and not any(span.holds(position) for span in self._skipped)

    def place(self, position: tuple[int, int]) -> Place:
        """Return the name of a position."""
        line, column = position
        text = self._lines[line - 1]
        function = self._functions.get(line, "")
        same = Counter(self._functions.get(n, "") for n in range(1, line) if self._lines[n - 1].strip() == text.strip())
        return Place(self.module, function, text.strip(), column - len(text) + len(text.lstrip()), same[function])

    def statement(self, line: int) -> Lines:
        """Return the lines of the innermost statement of a line."""
        return self._statements.get(line, Lines(line, line))

    def _note(self, node: ast.AST, names: tuple[str, ...]) -> None:
        for child in ast.iter_child_nodes(node):
            inner = names
            if isinstance(child, ast.FunctionDef | ast.ClassDef):
                inner = (*names, child.name)
            if isinstance(child, ast.stmt):
                body = getattr(child, "body", None)
                last = body[0].lineno - 1 if body else child.end_lineno or child.lineno
                lines = Lines(child.lineno, max(child.lineno, last))
                for line in range(lines.first, lines.last + 1):
                    self._statements[line] = lines
                for line in range(child.lineno, (child.end_lineno or child.lineno) + 1):
                    self._functions[line] = ".".join(inner)
            self._note(child, inner)

    def _span(self, node: ast.expr | ast.stmt) -> Span:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return Span(
            (node.lineno, self._characters(node.lineno, node.col_offset)),
            (node.end_lineno, self._characters(node.end_lineno, node.end_col_offset)),
        )

    def _characters(self, line: int, n_bytes: int) -> int:
        return len(self._lines[line - 1].encode()[:n_bytes].decode())


def _skipped(tree: ast.AST) -> Iterator[ast.expr | ast.stmt]:
    for node in ast.walk(tree):
        match node:
            case ast.Import() | ast.ImportFrom() | ast.JoinedStr():
                yield node
            case ast.AnnAssign(annotation=annotation) | ast.arg(annotation=ast.expr() as annotation):
                yield annotation
            case ast.FunctionDef(decorator_list=decorators, returns=returns):
                yield from decorators
                if returns is not None:
                    yield returns
            case ast.ClassDef(decorator_list=decorators):
                yield from decorators
            case ast.If(test=ast.Name(id="TYPE_CHECKING")):
                yield node
            case ast.Assign(targets=[ast.Name(id="__all__")]):
                yield node
            case ast.Assign(value=ast.BinOp(op=ast.BitOr(), left=ast.Name() | ast.BinOp(), right=ast.Name()) as union):
                if isinstance(node.targets[0], ast.Name) and node.targets[0].id[:1].isupper():
                    yield union  # the name of a union of types
            case ast.Call(func=ast.Attribute(attr="report")):
                yield node
            case _:
                pass
