"""What is finished stays finished, whatever happens while a line is written."""

from __future__ import annotations

from pathlib import Path

import pytest

from p2pclust.errors import UsageError
from p2pclust.lab.sweep.table import opened


def kept(path: Path, *digests: str) -> bytes:
    with opened(path) as store:
        for number, digest in enumerate(digests):
            store.add(digest, {"ticks": number, "x": 0.1}, 1.0)
    return path.read_bytes()


def test_kept_for_the_next_time(tmp_path: Path) -> None:
    kept(tmp_path / "cells.jsonl", "a", "b")
    with opened(tmp_path / "cells.jsonl") as store:
        assert store.finished == {"a": {"ticks": 0, "x": 0.1}, "b": {"ticks": 1, "x": 0.1}}


def test_a_line_that_was_cut_short_anywhere_is_dropped(tmp_path: Path) -> None:
    path = tmp_path / "cells.jsonl"
    whole = kept(path, "a", "b")
    first = whole.index(b"\n") + 1
    for length in range(len(whole) + 1):
        path.write_bytes(whole[:length])
        with opened(path) as store:
            assert list(store.finished) == ["a", "b"][: (length >= first) + (length == len(whole))]
            store.add("c", {}, 0.0)
        with opened(path) as store:
            assert list(store.finished)[-1] == "c"


def test_what_is_something_else_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "cells.jsonl"
    path.write_text('{"cell": "a", "values": {}}\nhello\n', encoding="utf-8")
    with pytest.raises(UsageError, match=r"cells.jsonl: line 2 is not a sweep's"), opened(path):
        pass
    assert path.read_text(encoding="utf-8").endswith("hello\n")


def test_one_sweep_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "cells.jsonl"
    with opened(path):  # noqa: SIM117 - the second is refused while the first holds it
        with pytest.raises(UsageError, match="another sweep writes it"), opened(path):
            pass
    kept(path, "a")
