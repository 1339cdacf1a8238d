from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from p2pclust.data.readers import read
from p2pclust.errors import DataError

HEAD = """% a comment
@RELATION 'two words'

@attribute width REAL
@ATTRIBUTE 'sepal length' numeric
@attribute "note" string
@attribute class {cat, 'big dog'}
@data
"""


def written(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "d.arff"
    file.write_text(text, encoding="utf-8")
    return file


def test_names_quotes_and_comments(tmp_path: Path) -> None:
    file = written(tmp_path, HEAD + "1, 2.5, 'a, b', cat\n\n% more\n3,-4e1,\"it's\",'big dog'\n")
    data = read(file, columns=["sepal length", "width"], label_column="class")
    assert data.X.tolist() == [[2.5, 1.0], [-40.0, 3.0]]
    assert data.feature_names == ("sepal length", "width")
    assert data.y is not None
    assert data.y.tolist() == ["cat", "big dog"]


def test_the_same_numbers_as_scipy_reads(tmp_path: Path) -> None:
    from scipy.io.arff import loadarff

    rng = np.random.default_rng(0)
    rows = "".join(f"{a!r},{b!r},{k}\n" for (a, b), k in zip(rng.normal(size=(50, 2)).tolist(), "xy" * 25, strict=True))
    file = written(tmp_path, "@relation r\n@attribute a real\n@attribute b numeric\n@attribute k {x,y}\n@data\n" + rows)
    data, (theirs, _) = read(file, label_column="k"), loadarff(file)
    assert np.array_equal(data.X, np.stack([theirs["a"], theirs["b"]], axis=1))
    assert data.y is not None
    assert data.y.tolist() == [value.decode() for value in theirs["k"]]


def test_missing_values(tmp_path: Path) -> None:
    file = written(tmp_path, HEAD + "1,?,n,cat\n2,3,n,cat\n")
    with pytest.raises(DataError, match=r"d\.arff: row 9, column 2 \(sepal length\): '\?' means a missing value: "):
        read(file, columns=[1, 2])
    assert read(file, columns=[1, 2], missing_values="drop").X.tolist() == [[2.0, 3.0]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (HEAD, "no rows below @data: expected at least one"),
        ("", "no @data line: not an ARFF file, or cut short"),
        ("@relation r\n@attribute a real\n", "no @data line: not an ARFF file, or cut short"),
        ("@relation r\n@data\n1\n", "row 2: @data without an @attribute before it"),
        ("@relation r\n1,2\n", "row 2: expected @relation, @attribute NAME TYPE, @data or % comment"),
        (HEAD + "1,2,n,cat\n1,2,n\n", "row 10 has 3 cells: expected 4, one per attribute"),
        (HEAD + "{0 1, 2 cat}\n", "row 9: sparse ARFF is not read: save it as dense ARFF or CSV"),
        (HEAD + "1,2,'n,cat\n", "row 9: a quote is not closed, or text follows one"),
        (HEAD + "1,2,'n'm,cat\n", "row 9: a quote is not closed, or text follows one"),
        (HEAD + "1,2,n,cat\n", "row 9, column 3 (note): 'n' is text: expected a number"),
    ],
)
def test_errors_say_row_and_column(tmp_path: Path, text: str, message: str) -> None:
    file = written(tmp_path, text)
    with pytest.raises(DataError) as error:
        read(file)
    assert str(error.value).partition("; ")[0] == f"{file}: {message}"


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no\.arff: no such file$"):
        read(tmp_path / "no.arff")
    (tmp_path / "d.arff").write_bytes(b"@relation \xff")
    with pytest.raises(DataError, match=r"d\.arff: not UTF-8 text \(byte 11\): save it as UTF-8$"):
        read(tmp_path / "d.arff")
