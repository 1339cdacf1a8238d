"""What is no file: told in one line at once, by whatever would read it."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from p2pclust.data.readers import read, shape_of
from p2pclust.errors import P2PClustError
from p2pclust.lab.data.fetch import fetch
from p2pclust.lab.scenario.outcome.compare import read_runs
from p2pclust.overlay.files import read_overlay
from p2pclust.overlay.plans import plan_rows
from p2pclust.peer.work.rows import load_rows
from p2pclust.tools.files import regular
from p2pclust.tools.toml_files import read_toml
from p2pclust.transport.bundle import load_bundle

READERS: dict[str, Callable[[Path], object]] = {
    "rows.csv": read,
    "rows.arff": read,
    "rows.parquet": read,
    "rows.npy": read,
    "rows.npz": read,
    "femnist": lambda file: fetch("femnist", to=file.parent, given=file),
    "peer.toml": read_toml,
    "result.json": lambda file: read_runs([file, file]),
    "links.edges": read_overlay,
    "passes.csv": lambda file: list(plan_rows(file, ["ship"], "passes")),
    "a.bundle": load_bundle,
}


@pytest.fixture(autouse=True)
def no_waiting() -> Iterator[None]:
    """A reader of a pipe would wait indefinitely."""

    def give_up(*_: object) -> None:
        pytest.fail("it waits")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(20)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("name", READERS)
def test_a_pipe_is_no_file(tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    os.mkfifo(file, 0o600)
    with pytest.raises(P2PClustError, match="it is a pipe, not a file") as caught:
        READERS[name](file)
    assert str(file) in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_nor_for_a_peer_that_runs_already(tmp_path: Path) -> None:
    file, told = tmp_path / "rows.npy", list[object]()
    os.mkfifo(file)
    load_rows({"data": str(file)}, lambda verb, fields: told.append((verb, fields["reason"])))
    assert told == [("data-refused", f"{file}: cannot be read (it is a pipe, not a file)")]


def test_nor_where_only_the_shape_is_asked_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "rows.npz")
    assert shape_of(tmp_path / "rows.npz") == ()


def test_other_things_that_are_no_files(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "s"))
        with pytest.raises(OSError, match="it is a socket, not a file"):
            regular(tmp_path / "s")
    (tmp_path / "link").symlink_to("/dev/zero")
    with pytest.raises(OSError, match="it is a device, not a file"):
        regular(tmp_path / "link")


def test_a_file_a_folder_and_what_is_absent_are_left_to_whoever_opens_them(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path, tmp_path / "absent"):
        assert regular(path) == path


def test_nor_a_pipe_among_the_files_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("u\n1\n", encoding="utf-8")
    os.mkfifo(tmp_path / "b.csv")
    with pytest.raises(P2PClustError, match=r"b\.csv: cannot be read \(it is a pipe, not a file\)$"):
        read(tmp_path)
