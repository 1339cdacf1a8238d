from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from p2pclust.data.catalogue import ENTRIES, Entry, canonical, find
from p2pclust.data.registry import BUILT_IN, available, load
from p2pclust.lab.data.convert import CONVERTERS
from p2pclust.lab.data.listing import listing

PAPERS = (
    "xclara", "s-set1", "s-set2", "pendigits", "waveform", "phoneme", "rice", "statlog", "MNIST", "EMNIST", "KMNIST",
    "Kuzushiji-49", "Fashion-MNIST", "FEMNIST", "g2-2-10", "g2-1024-100",
)  # fmt: skip


@pytest.mark.parametrize("name", PAPERS)
def test_every_set_of_the_papers_is_there(name: str) -> None:
    assert find(name) is not None


def test_the_whole_g2_family() -> None:
    assert sum(name.startswith("g2_") for name in ENTRIES) == 100


def lacking(entry: Entry) -> list[str]:
    """Return what is wrong with an entry."""
    right = {
        "its name is the canonical one": canonical(entry.name) == entry.name,
        "no built-in set has its name": entry.name not in BUILT_IN,
        "its converter exists": entry.convert in CONVERTERS,
        "it has files, or says how to get them by hand": bool(entry.files) is not bool(entry.by_hand),
        "it has a home": bool(re.match(r"https?://", entry.home)),
        "it has a title, a licence and a citation": all((entry.title, entry.licence, entry.citation)),
        "its files have names of their own": len({remote.name for remote in entry.files}) == len(entry.files),
        "checksums are such": all(
            re.fullmatch(r"|sha256:[0-9a-f]{64}|md5:[0-9a-f]{32}", remote.checksum) for remote in entry.files
        ),
        "addresses are such": all(re.match(r"https?://", url) for remote in entry.files for url in remote.urls),
    }
    return [what for what, holds in right.items() if not holds]


def test_entries_are_whole() -> None:
    assert {name: wrong for name, entry in ENTRIES.items() if (wrong := lacking(entry))} == {}


def test_an_entry_that_lacks_something_is_found() -> None:
    entry = replace(ENTRIES["rice"], home="nowhere", licence="")
    assert lacking(entry) == ["it has a home", "it has a title, a licence and a citation"]


def test_archives_are_shared_by_sets_with_the_same_files_only() -> None:
    for entry in ENTRIES.values():
        for other in ENTRIES.values():
            if (entry.archive or entry.name) == (other.archive or other.name):
                assert entry.files == other.files


def test_sizes_are_those_of_the_sets_that_are_here() -> None:
    here = [name for name, entry in ENTRIES.items() if name in available() and entry.columns < 100]
    if not here:
        pytest.skip("no set of the catalogue is here: p2pclust data fetch xclara")
    for name in here:
        entry, data = ENTRIES[name], load(name)
        assert data.X.shape == (entry.rows, entry.columns), name
        assert len(set([] if data.y is None else data.y[data.y >= 0].tolist())) == entry.classes, name
        assert len(set([] if data.group is None else data.group.tolist())) == entry.groups, name


def test_the_list(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    np.savez(tmp_path / "xclara.npz", X=np.zeros((3000, 2)))
    np.savez(tmp_path / "Own-Rows.npz", X=np.zeros((3, 2)))
    np.savez(tmp_path / "g2_4_20.npz", X=np.zeros((2048, 4)))
    (tmp_path / "broken.npz").write_bytes(b"")
    monkeypatch.setenv("P2PCLUST_DATA", str(tmp_path))
    items = {item.name: item for item in listing()}
    assert [items[name].here for name in ("iris", "g2", "xclara", "g2_4_20", "rice", "femnist", "g2_D_SD")] == [
        "built in", "generated", "yes", "yes", "no", "by hand", "no",
    ]  # fmt: skip
    assert (items["Own-Rows"].rows, items["Own-Rows"].columns) == (3, 2)
    assert items["broken"].rows == 0
    assert "g2_2_10" not in items
    for name in ("breast_cancer", "digits", "iris", "wine"):
        data = load(name)
        assert data.y is not None
        found = (data.n_rows, data.n_features, len(set(data.y.tolist())))
        assert found == (items[name].rows, items[name].columns, items[name].classes)


def test_the_list_without_a_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("P2PCLUST_DATA", str(tmp_path / "nowhere"))
    assert all(item.here != "yes" for item in listing())
