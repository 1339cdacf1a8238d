"""Each converter on a small file of the form that the home offers."""

from __future__ import annotations

import gzip
import io
import json
import struct
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from p2pclust.data.catalogue import ENTRIES, Entry
from p2pclust.errors import DataError
from p2pclust.lab.data.convert import convert


def entry(name: str, rows: int, columns: int, classes: int) -> Entry:
    return replace(ENTRIES[name], rows=rows, columns=columns, classes=classes)


def idx(array: np.ndarray) -> bytes:
    head = struct.pack(">HBB", 0, 8, array.ndim) + struct.pack(f">{array.ndim}I", *array.shape)
    return gzip.compress(head + array.astype(np.uint8).tobytes(), mtime=0)


def zipped(file: Path, members: dict[str, str | bytes]) -> list[Path]:
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return [file]


def npz(array: np.ndarray) -> bytes:
    content = io.BytesIO()
    np.savez_compressed(content, array)
    return content.getvalue()


TRAIN, TEST = np.arange(24).reshape(2, 3, 4), np.arange(100, 112).reshape(1, 3, 4)
LABELS = (np.array([3, 7]), np.array([5]))


def written(folder: Path, files: dict[str, bytes]) -> list[Path]:
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return [folder / name for name in files]


def check_images(files: list[Path], name: str) -> np.ndarray:
    found = convert(entry(name, 3, 12, 3), files)
    assert found.X.dtype == np.uint8
    assert found.y.tolist() == [0, 2, 1]
    return found.X


def test_idx(tmp_path: Path) -> None:
    parts = {"a": idx(TRAIN), "b": idx(LABELS[0]), "c": idx(TEST), "d": idx(LABELS[1])}
    X = check_images(written(tmp_path, parts), "mnist")
    assert X.tolist() == [list(range(12)), list(range(12, 24)), list(range(100, 112))]


def test_npz_pairs(tmp_path: Path) -> None:
    parts = {"a.npz": npz(TRAIN.astype(np.uint8)), "b.npz": npz(LABELS[0]), "c.npz": npz(TEST.astype(np.uint8))}
    X = check_images(written(tmp_path, parts | {"d.npz": npz(LABELS[1])}), "kuzushiji_49")
    assert X[2].tolist() == list(range(100, 112))


def test_emnist_is_turned_upright(tmp_path: Path) -> None:
    halves = (("train", TRAIN, LABELS[0]), ("test", TEST, LABELS[1]))
    members: dict[str, str | bytes] = {}
    for half, images, labels in halves:
        members[f"gzip/emnist-digits-{half}-images-idx3-ubyte.gz"] = idx(images.transpose(0, 2, 1))
        members[f"gzip/emnist-digits-{half}-labels-idx1-ubyte.gz"] = idx(labels)
    X = check_images(zipped(tmp_path / "gzip.zip", members), "emnist_digits")
    assert X[0].tolist() == list(range(12))


def test_arff_with_labels_that_leave_numbers_out(tmp_path: Path) -> None:
    text = "@relation r\n@attribute x real\n@attribute y real\n@attribute CLASS {0,1,3}\n@data\n1,2,3\n3,4,0\n"
    found = convert(entry("s_set1", 2, 2, 2), written(tmp_path, {"s.arff": text.encode()}))
    assert (found.X.tolist(), found.y.tolist(), found.features) == ([[1.0, 2.0], [3.0, 4.0]], [1, 0], ("x", "y"))


def test_comma_separated(tmp_path: Path) -> None:
    found = convert(entry("phoneme", 2, 2, 2), written(tmp_path, {"p.csv": b"1.5,2,1\n3,4,0\n"}))
    assert (found.X.tolist(), found.y.tolist()) == ([[1.5, 2.0], [3.0, 4.0]], [1, 0])


@pytest.mark.parametrize(
    ("name", "members"),
    [
        ("pendigits", {"pendigits.tra": "  1,  2, 8\n", "pendigits.tes": " 3, 4, 0\n", "pendigits-orig.names": "x"}),
        ("satellite", {"sat.trn": "1 2 7\n", "sat.tst": "3 4 1\n", "sat.doc": "x"}),
    ],
)
def test_training_rows_come_first(tmp_path: Path, name: str, members: dict[str, str | bytes]) -> None:
    found = convert(entry(name, 2, 2, 2), zipped(tmp_path / "a.zip", members))
    assert (found.X.tolist(), found.y.tolist()) == ([[1.0, 2.0], [3.0, 4.0]], [1, 0])


def test_rice(tmp_path: Path) -> None:
    text = (
        "% text\n@RELATION rice\n@ATTRIBUTE Area INTEGER\n@ATTRIBUTE Extent REAL\n@ATTRIBUTE Class {Cammeo, Osmancik}\n"
        "@DATA\n1,0.5,Osmancik\n2,0.25,Cammeo\n"
    )
    files = zipped(tmp_path / "a.zip", {"Rice_Cammeo_Osmancik/Rice_Cammeo_Osmancik.arff": text})
    found = convert(entry("rice", 2, 2, 2), files)
    assert (found.X.tolist(), found.y.tolist(), found.features) == (
        [[1.0, 0.5], [2.0, 0.25]],
        [1, 0],
        ("Area", "Extent"),
    )


def test_g2_takes_its_own_member(tmp_path: Path) -> None:
    members: dict[str, str | bytes] = {"g2-2-10.txt": "1 2\n3 4\n", "g2-2-100.txt": "5 6\n7 8\n"}
    found = convert(entry("g2_2_100", 2, 2, 2), zipped(tmp_path / "g2.zip", members))
    assert (found.X.tolist(), found.y.tolist()) == ([[5.0, 6.0], [7.0, 8.0]], [0, 1])


def test_sensors(tmp_path: Path) -> None:
    found = convert(entry("ulb_library2", 1, 6, 0), written(tmp_path, {"r": b"1164 7 0 17,9 3 52,34 23,2 2 1\n"}))
    assert found.X.tolist() == [[17.9, 3.0, 52.34, 23.2, 2.0, 1.0]]
    assert found.group is not None
    assert (found.y.tolist(), found.group.tolist()) == ([-1], [7])
    head = b"\tSensors\r\n\r\nReading#\tMote ID\tHumidity\tTemperature\tLabel\r\n"
    parts = {"single": head + b"1\t1\t40.5\t20.5\t1\r\n", "multi": head + b"1\t3\t41\t21\t0\r\n"}
    found = convert(entry("lwsndr", 2, 2, 2), written(tmp_path, parts))
    assert found.group is not None
    assert (found.X.tolist(), found.y.tolist(), found.group.tolist()) == ([[40.5, 20.5], [41.0, 21.0]], [1, 0], [1, 0])


def test_leaf_by_writer(tmp_path: Path) -> None:
    for number, writer in enumerate(("f01", "f00")):
        rows = {"x": [[i / 255 for i in (0, 7, 255)]] * (number + 1), "y": [61, 3][: number + 1]}
        document = {"users": [writer], "num_samples": [number + 1], "user_data": {writer: rows}}
        (tmp_path / f"all_data_{number}.json").write_text(json.dumps(document))
    found = convert(replace(ENTRIES["femnist"], columns=3), [tmp_path])
    assert found.X.tolist() == [[0, 7, 255]] * 3
    assert found.group is not None
    assert (found.y.tolist(), found.group.tolist()) == ([61, 61, 3], [1, 0, 0])


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("mnist", b"no gzip"),
        ("mnist", idx(TRAIN)[:-9]),
        ("mnist", gzip.compress(b"\x00\x00\x0d\x03", mtime=0)),
        ("mnist", gzip.compress(idx(TRAIN), mtime=0)),
        ("kuzushiji_49", b"no archive"),
        ("pendigits", b"no archive"),
        ("xclara", b"no arff"),
        ("waveform", b"1,2,text\n"),
        ("wisdm_ar", b"@relation r\n@attribute a real\n@data\n1\n"),
        ("femnist", b"{}"),
        ("femnist", b"no json"),
        ("lwsndr", b"nothing"),
        ("ulb_library2", b"\xff"),
    ],
    ids=range(13),
)
def test_files_of_another_kind_are_refused_in_one_line(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / "f").write_bytes(content)
    with pytest.raises(DataError) as error:
        convert(ENTRIES[name], [tmp_path / "f"] * 4)
    assert str(tmp_path / "f") in str(error.value)
    assert "\n" not in str(error.value)


def test_an_archive_that_lacks_the_member(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"a\.zip: g2-4-10\.txt is not in it$"):
        convert(ENTRIES["g2_4_10"], zipped(tmp_path / "a.zip", {"g2-2-10.txt": ""}))


def test_leaf_without_files(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"^femnist: .* holds no JSON file of LEAF: there is no file to download: run "):
        convert(ENTRIES["femnist"], [tmp_path])
