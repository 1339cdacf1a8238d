"""Downloads from a server on this machine: the homes themselves are never asked by a test."""

from __future__ import annotations

import hashlib
import socket
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from p2pclust.data import load
from p2pclust.data.catalogue import ENTRIES, Entry, Remote
from p2pclust.errors import DataError, UsageError
from p2pclust.lab.data.fetch import fetch

from .home import Home, serving

pytest.importorskip("pooch")

ROWS = 20000
CHUNK = 1 << 14
NAME = "made_up"
TEXT = "".join(f"{i},{i / 7!r},{'ab'[i % 2]}\n" for i in range(ROWS)).replace("a", "1").replace("b", "2").encode()


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.fixture
def home() -> Iterator[Home]:
    with serving() as server:
        server.files["rows.csv"] = TEXT
        yield server


@pytest.fixture
def entry(home: Home, monkeypatch: pytest.MonkeyPatch) -> Entry:
    """A data set of the catalogue whose home is the server."""
    checksum = f"sha256:{hashlib.sha256(TEXT).hexdigest()}"
    files = (Remote("rows.csv", (home.url("rows.csv"),), checksum),)
    made = Entry(NAME, "Made up", ROWS, 2, 2, home.address, "none", "nobody", "comma_separated", files)
    monkeypatch.setitem(ENTRIES, NAME, made)
    return made


def without_checksum(entry: Entry, monkeypatch: pytest.MonkeyPatch) -> None:
    files = tuple(replace(remote, checksum="") for remote in entry.files)
    monkeypatch.setitem(ENTRIES, NAME, replace(entry, files=files))


def there(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


KEPT = f"downloads/{NAME}/rows.csv"


def test_fetched_converted_and_loaded(
    home: Home, entry: Entry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[tuple[str, int, int | None]] = []
    found = fetch("Made-Up", to=tmp_path, on_progress=lambda *what: told.append(what))
    assert (found.name, found.file, found.new) == (NAME, tmp_path / f"{NAME}.npz", True)
    assert there(tmp_path) == [KEPT, f"{NAME}.npz"]
    monkeypatch.setenv("P2PCLUST_DATA", str(tmp_path))
    data = load("made-up")
    assert data.X.tolist() == [[float(i), i / 7] for i in range(ROWS)]
    assert data.y is not None
    assert data.y.tolist() == [i % 2 for i in range(ROWS)]
    assert told[-1] == ("rows.csv", len(TEXT), len(TEXT))
    assert [there for _, there, _ in told] == sorted(there for _, there, _ in told)
    assert fetch(NAME, to=tmp_path).new is False
    assert len(home.asked) == 1


def test_the_same_download_makes_the_same_file(entry: Entry, tmp_path: Path) -> None:
    one, two = (fetch(NAME, to=tmp_path / name).file.read_bytes() for name in "ab")
    assert one == two


def test_a_connection_that_breaks_is_taken_up_again_by_itself(home: Home, entry: Entry, tmp_path: Path) -> None:
    home.breaks_after = 11 * CHUNK
    fetch(NAME, to=tmp_path)
    third = 11 * CHUNK
    assert home.asked == [("rows.csv", ""), ("rows.csv", f"bytes={third}-"), ("rows.csv", f"bytes={2 * third}-")]
    assert (tmp_path / KEPT).read_bytes() == TEXT


def test_an_interrupted_download_goes_on_at_the_next_command(home: Home, entry: Entry, tmp_path: Path) -> None:
    home.breaks_after = 2 * CHUNK
    with pytest.raises(
        UsageError, match=r"^made_up: http://.*: the connection breaks again and again; 163840 bytes are"
    ):
        fetch(NAME, to=tmp_path)
    assert there(tmp_path) == [f"{KEPT}.part", f"{KEPT}.part.validator"]
    home.breaks_after = 0
    home.asked.clear()
    fetch(NAME, to=tmp_path)
    assert home.asked == [("rows.csv", "bytes=163840-")]
    assert there(tmp_path) == [KEPT, f"{NAME}.npz"]


def test_a_connection_that_breaks_at_once(home: Home, entry: Entry, tmp_path: Path) -> None:
    home.breaks_after = 100
    with pytest.raises(
        UsageError, match=r"^made_up: http://.*: the connection broke after 0 bytes: run it again to resume$"
    ):
        fetch(NAME, to=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_ctrl_c_keeps_what_has_come(home: Home, entry: Entry, tmp_path: Path) -> None:
    def interrupt(_name: str, size: int, _total: int | None) -> None:
        if size > 100_000:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch(NAME, to=tmp_path, on_progress=interrupt)
    kept = (tmp_path / f"{KEPT}.part").stat().st_size
    assert kept > 100_000
    home.asked.clear()
    fetch(NAME, to=tmp_path)
    assert home.asked == [("rows.csv", f"bytes={kept}-")]


def test_a_server_that_cannot_send_parts_sends_all_of_it(home: Home, entry: Entry, tmp_path: Path) -> None:
    home.ranges = False
    part = tmp_path / f"{KEPT}.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(TEXT[:1000])
    fetch(NAME, to=tmp_path)
    assert (tmp_path / KEPT).read_bytes() == TEXT


def test_a_file_that_changed_in_between_begins_anew(
    home: Home, entry: Entry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_checksum(entry, monkeypatch)
    home.breaks_after = 2 * CHUNK
    with pytest.raises(UsageError):
        fetch(NAME, to=tmp_path, unverified=True)
    changed = TEXT.replace(b"0,", b"1,")
    home.breaks_after, home.files["rows.csv"] = 0, changed
    fetch(NAME, to=tmp_path, unverified=True)
    assert (tmp_path / KEPT).read_bytes() == changed


def test_nothing_is_pieced_together_that_nothing_would_check(
    home: Home, entry: Entry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_checksum(entry, monkeypatch)
    home.etags = False
    part = tmp_path / f"{KEPT}.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(b"something else")
    fetch(NAME, to=tmp_path, unverified=True)
    assert home.asked == [("rows.csv", "")]
    assert (tmp_path / KEPT).read_bytes() == TEXT


def test_a_part_longer_than_the_file_is_thrown_away(home: Home, entry: Entry, tmp_path: Path) -> None:
    part = tmp_path / f"{KEPT}.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(TEXT + b"more")
    with pytest.raises(UsageError, match=r"the file has changed since the download began: run it again$"):
        fetch(NAME, to=tmp_path)
    assert fetch(NAME, to=tmp_path).new


def test_a_wrong_checksum_is_refused_and_named(home: Home, entry: Entry, tmp_path: Path) -> None:
    home.files["rows.csv"] = other = TEXT.replace(b"0", b"9")
    with pytest.raises(DataError) as error:
        fetch(NAME, to=tmp_path)
    got = hashlib.sha256(other).hexdigest()
    assert str(error.value) == (
        f"made_up: {home.url('rows.csv')}: wrong checksum: expected {entry.files[0].checksum} but got {got}: the "
        "download was thrown away"
    )
    assert list(tmp_path.iterdir()) == []


def test_without_a_known_checksum_nothing_is_downloaded(
    home: Home, entry: Entry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_checksum(entry, monkeypatch)
    with pytest.raises(UsageError, match=r"^made_up: no checksum of rows.csv is known, .* --unverified, or .* --from$"):
        fetch(NAME, to=tmp_path)
    assert home.asked == []
    assert there(tmp_path) == []


def test_what_is_offered_has_a_checksum_or_needs_the_option() -> None:
    without = {entry.archive or entry.name for entry in ENTRIES.values() for one in entry.files if not one.checksum}
    assert without == {"g2"}
    assert all(
        one.urls[0].startswith("https:") for entry in ENTRIES.values() for one in entry.files if not one.checksum
    )


def test_the_first_download_is_what_later_ones_have_to_equal(
    home: Home, entry: Entry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_checksum(entry, monkeypatch)
    fetch(NAME, to=tmp_path, unverified=True)
    record = tmp_path / f"{KEPT}.checksum"
    assert record.read_text() == f"sha256:{hashlib.sha256(TEXT).hexdigest()}\n"
    (tmp_path / KEPT).unlink()
    (tmp_path / f"{NAME}.npz").unlink()
    home.files["rows.csv"] = TEXT.replace(b"0", b"9")
    with pytest.raises(
        DataError, match=rf"wrong checksum: expected sha256:\w+ as at the first download, see {record}, "
    ):
        fetch(NAME, to=tmp_path)
    assert there(tmp_path) == [f"{KEPT}.checksum"]
    home.files["rows.csv"] = TEXT
    assert fetch(NAME, to=tmp_path).new


def test_a_damaged_copy_of_a_download_is_replaced(home: Home, entry: Entry, tmp_path: Path) -> None:
    fetch(NAME, to=tmp_path)
    (tmp_path / f"{NAME}.npz").unlink()
    (tmp_path / KEPT).write_bytes(b"damaged")
    assert fetch(NAME, to=tmp_path).new
    assert len(home.asked) == 2


def test_a_sound_copy_of_a_download_needs_no_network(home: Home, entry: Entry, tmp_path: Path) -> None:
    fetch(NAME, to=tmp_path)
    (tmp_path / f"{NAME}.npz").unlink()
    home.status = 500
    assert fetch(NAME, to=tmp_path).new


@pytest.mark.parametrize(("status", "words"), [(404, "404 Not Found"), (503, "503 Service Unavailable")])
def test_a_server_that_refuses(home: Home, entry: Entry, tmp_path: Path, status: int, words: str) -> None:
    home.status = status
    with pytest.raises(UsageError) as error:
        fetch(NAME, to=tmp_path)
    assert str(error.value) == f"made_up: {home.url('rows.csv')}: the server answered {words}"
    assert list(tmp_path.iterdir()) == []


def test_nobody_there(entry: Entry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, and nobody listens
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/rows.csv"
        monkeypatch.setitem(ENTRIES, NAME, replace(entry, files=(replace(entry.files[0], urls=(url,)),)))
        with pytest.raises(UsageError) as error:
            fetch(NAME, to=tmp_path)
    assert str(error.value) == f"made_up: {url}: no connection"


def test_offline(entry: Entry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_args: object, **_settings: object) -> object:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    url = "http://home.invalid/rows.csv"
    monkeypatch.setitem(ENTRIES, NAME, replace(entry, files=(replace(entry.files[0], urls=(url,)),)))
    with pytest.raises(UsageError) as error:
        fetch(NAME, to=tmp_path)
    assert (
        str(error.value) == f"made_up: {url}: no connection (its address is not known here: is this machine offline?)"
    )


def test_the_second_place_is_tried(home: Home, entry: Entry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home.files["wrong.csv"] = b"another"
    urls = (home.url("gone.csv"), home.url("wrong.csv"), home.url("rows.csv"))
    monkeypatch.setitem(ENTRIES, NAME, replace(entry, files=(replace(entry.files[0], urls=urls),)))
    assert fetch(NAME, to=tmp_path).new
    assert [name for name, _ in home.asked] == ["gone.csv", "wrong.csv", "rows.csv"]


def test_what_is_not_as_the_catalogue_says_is_refused(
    home: Home, entry: Entry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(ENTRIES, NAME, replace(entry, rows=ROWS + 1))
    with pytest.raises(
        DataError, match=r"expected and found: 20001 rows, 2 columns, 2 classes and 20000 rows, 2 columns"
    ):
        fetch(NAME, to=tmp_path)
    assert there(tmp_path) == [KEPT]


def test_a_full_disk_leaves_no_half_file(entry: Entry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(file: object, **_arrays: object) -> None:
        assert hasattr(file, "write")
        file.write(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez_compressed", full)
    with pytest.raises(DataError, match=r"made_up\.npz: cannot be written \(No space left on device\): choose another"):
        fetch(NAME, to=tmp_path)
    assert there(tmp_path) == [KEPT]


def test_a_folder_that_cannot_be_written(entry: Entry, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match=r"cannot be written \(Not a directory\): choose another folder$"):
        fetch(NAME, to=tmp_path / "file")


def test_given_by_hand(home: Home, entry: Entry, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_bytes(TEXT)
    assert fetch(NAME, to=tmp_path / "a", given=tmp_path / "rows.csv").new
    assert fetch(NAME, to=tmp_path / "b", given=tmp_path).new
    assert home.asked == []
    (tmp_path / "rows.csv").write_bytes(TEXT[:-1])
    with pytest.raises(
        DataError, match=r"rows\.csv: its checksum is sha256:\w+, expected sha256:\w+: another or a dam"
    ):
        fetch(NAME, to=tmp_path / "c", given=tmp_path)
    with pytest.raises(DataError, match=r"nowhere: no such file or folder$"):
        fetch(NAME, to=tmp_path / "c", given=tmp_path / "nowhere")
    with pytest.raises(DataError, match=r"a/rows\.csv: no such file: made_up needs it$"):
        fetch(NAME, to=tmp_path / "c", given=tmp_path / "a")
    with pytest.raises(
        DataError, match=r"mnist has several files: expected a folder with train-images-idx3-ubyte\.gz, "
    ):
        fetch("mnist", to=tmp_path / "c", given=tmp_path / "rows.csv")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "xclra",
            r"unknown data set 'xclra' \(did you mean 'xclara'\?\): p2pclust data list shows all that can be fetched$",
        ),
        ("zzz", r"unknown data set 'zzz': p2pclust data list shows all that can be fetched$"),
        ("iris", r"iris: always there, nothing to fetch$"),
        ("Gaussian-Grid", r"Gaussian-Grid: always there, nothing to fetch$"),
        ("femnist", r"femnist: there is no file to download: run data/femnist/preprocess\.sh of "),
    ],
)
def test_names_that_cannot_be_fetched(tmp_path: Path, name: str, message: str) -> None:
    with pytest.raises(UsageError, match=f"^{message}"):
        fetch(name, to=tmp_path)


def test_without_the_library_one_line_says_what_to_install(
    entry: Entry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pooch", None)
    with pytest.raises(UsageError, match=r"^made_up: downloading needs pooch: pip install 'p2pclust\[fetch\]'$"):
        fetch(NAME, to=tmp_path)
