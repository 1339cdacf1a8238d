"""What is finished stays finished, whatever happens while a line is written."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from p2pclust.errors import UsageError
from p2pclust.lab.workers import kept_in

Store = tuple[dict[str, Any], Callable[[Mapping[str, Any]], None]]


@contextmanager
def opened(path: Path) -> Iterator[Store]:
    finished: dict[str, Any] = {}

    def read(_: int, kept: dict[str, Any]) -> None:
        finished[kept["cell"]] = kept["values"]

    with kept_in(path, read, of="sweep", option="--out") as add:
        yield finished, add


def kept(path: Path, *digests: str) -> bytes:
    with opened(path) as (_, add):
        for number, digest in enumerate(digests):
            add({"cell": digest, "values": {"ticks": number, "x": 0.1}})
    return path.read_bytes()


def test_kept_for_the_next_time(tmp_path: Path) -> None:
    kept(tmp_path / "cells.jsonl", "a", "b")
    with opened(tmp_path / "cells.jsonl") as (finished, _):
        assert finished == {"a": {"ticks": 0, "x": 0.1}, "b": {"ticks": 1, "x": 0.1}}


def test_a_line_that_was_cut_short_anywhere_is_dropped(tmp_path: Path) -> None:
    path = tmp_path / "cells.jsonl"
    whole = kept(path, "a", "b")
    first = whole.index(b"\n") + 1
    for length in range(len(whole) + 1):
        path.write_bytes(whole[:length])
        with opened(path) as (finished, add):
            assert list(finished) == ["a", "b"][: (length >= first) + (length == len(whole))]
            add({"cell": "c", "values": {}})
        with opened(path) as (finished, _):
            assert list(finished)[-1] == "c"


def test_what_is_something_else_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "cells.jsonl"
    for wrong in ("hello", "[1]", '{"cell": "b"}'):
        path.write_text(f'{{"cell": "a", "values": {{}}}}\n{wrong}\n', encoding="utf-8")
        with pytest.raises(UsageError, match=r"cells.jsonl: line 2 is not a sweep's"), opened(path):
            pass
        assert path.read_text(encoding="utf-8").endswith(f"{wrong}\n")


def test_one_sweep_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "cells.jsonl"
    with opened(path):  # noqa: SIM117 - the second is refused while the first holds it
        with pytest.raises(UsageError, match="another sweep writes it"), opened(path):
            pass
    kept(path, "a")
