"""The C extension: hand-computed sums, equal to NumPy's up to rounding, and the same bits however they are computed."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tomllib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pclust.clustering import (
    Points,
    cell_moments,
    fuzzy_sums,
    kmeans_plusplus,
    nearest,
    objective,
    squared_to_nearest,
    sums_and_counts,
    weighted_sums_and_counts,
)  # fmt: skip
from p2pclust.clustering.kernels import C1, NUMPY, Kernel, installed, instruction_sets
from p2pclust.errors import UsageError

compiled = pytest.mark.skipif(C1 not in installed(), reason="the C extension was not compiled")
_ROOT = Path(__file__).parents[2]


def _digest(*arrays: np.ndarray) -> str:
    return hashlib.sha256(b"".join(np.ascontiguousarray(one).tobytes() for one in arrays)).hexdigest()


def _everything(points: Points, centers: np.ndarray, weights: np.ndarray | None) -> str:
    """Return a digest of all that the extension computes."""
    fuzzy = [part for m in (1.5, 2.0, 3.0) for part in fuzzy_sums(points, centers, m, weights)]
    crisp = [*weighted_sums_and_counts(points, centers, weights), *cell_moments(points, centers, weights)]
    costs = [objective(points, centers, m, weights) for m in (None, 1.5, 2.0, 3.0)]
    return _digest(*fuzzy, *crisp, nearest(points, centers), squared_to_nearest(points, centers), np.array(costs))


@pytest.mark.slow
@compiled
@given(
    st.integers(1, 700), st.integers(1, 19), st.integers(1, 13), st.booleans(), st.booleans(), st.integers(0, 2**32 - 1)
)
def test_all_instruction_sets_have_the_same_bits_and_are_near_numpy(
    n: int, n_columns: int, n_clusters: int, weighted: bool, moved: bool, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    X = rng.normal(scale=3.0, size=(n, n_columns)).round(int(rng.integers(0, 12)))
    centers = X[rng.integers(n, size=n_clusters)] + rng.choice([0.0, 1e-9, 1.0]) * rng.normal(
        size=(n_clusters, n_columns)
    )
    weights = rng.integers(1, 5, n).astype(float) if weighted else None
    where = {"origin": rng.normal(size=n_columns)} if moved else {}
    digests = {
        _everything(Points(X, kernel=Kernel(C1, instruction_set=name), **where), centers, weights)
        for name in instruction_sets()
    }
    assert len(digests) == 1
    ours, theirs = Points(X, kernel=Kernel(C1), **where), Points(X, **where)
    for m in (1.5, 2.0, 3.0):
        (w, s), (w0, s0) = fuzzy_sums(ours, centers, m, weights), fuzzy_sums(theirs, centers, m, weights)
        np.testing.assert_allclose(w, w0, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(s, s0, rtol=1e-9, atol=1e-9 * (1 + np.abs(s0).max()))
    assert nearest(ours, centers).tolist() == nearest(theirs, centers).tolist()
    for one, other in zip(
        weighted_sums_and_counts(ours, centers, weights),
        weighted_sums_and_counts(theirs, centers, weights),
        strict=True,
    ):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-9)
    np.testing.assert_allclose(
        squared_to_nearest(ours, centers), squared_to_nearest(theirs, centers), rtol=1e-13, atol=1e-290
    )


@compiled
@pytest.mark.parametrize("threads", [2, 3, 8])
def test_threads_change_no_bit(threads: int) -> None:
    rng = np.random.default_rng(3)
    X, centers = rng.normal(size=(70_001, 5)), rng.normal(size=(7, 5))
    weights = rng.integers(1, 4, len(X)).astype(float)
    for own in (None, weights):
        one = _everything(Points(X, kernel=Kernel(C1)), centers, own)
        assert _everything(Points(X, kernel=Kernel(C1, threads)), centers, own) == one


@compiled
def test_a_row_on_a_center_belongs_to_it_wholly_and_shares_those_that_coincide() -> None:
    points = Points([[0.0], [3.0], [1.0]], shift=[0.0], kernel=Kernel(C1))
    weights, sums = fuzzy_sums(points, [[0.0], [3.0], [3.0]], 2.0)
    # The row 1.0 has squared distances 1, 4, 4: memberships 2/3, 1/6, 1/6. The row 3.0 is shared by two centers.
    np.testing.assert_allclose(weights, [1 + 4 / 9, 1 / 4 + 1 / 36, 1 / 4 + 1 / 36], rtol=1e-15)
    np.testing.assert_allclose(sums[:, 0], [4 / 9, 3 / 4 + 1 / 36, 3 / 4 + 1 / 36], rtol=1e-15)


@compiled
@pytest.mark.parametrize(("fuzzifier", "power"), [(1.5, 2.0), (3.0, 0.5)])
def test_memberships_with_other_fuzzifiers(fuzzifier: float, power: float) -> None:
    # Squared distances 1 and 4 from the row 1.0; the memberships are as 1 to (1/4)**power.
    u = np.array([1.0, 0.25**power])
    u /= u.sum()
    weights, sums = fuzzy_sums(Points([[1.0]], shift=[0.0], kernel=Kernel(C1)), [[0.0], [3.0]], fuzzifier)
    np.testing.assert_allclose(weights, u**fuzzifier, rtol=1e-14)
    np.testing.assert_allclose(sums[:, 0], u**fuzzifier, rtol=1e-14)


@compiled
def test_exact_ties_go_to_the_lowest_index() -> None:
    points = Points([[1.0], [1.0], [5.0]], shift=[0.0], kernel=Kernel(C1))
    assert nearest(points, [[2.0], [0.0], [2.0], [5.0]]).tolist() == [0, 0, 3]
    sums, counts = sums_and_counts(points, [[2.0], [0.0], [2.0], [5.0]])
    assert (sums[:, 0].tolist(), counts.tolist()) == ([2.0, 0.0, 0.0, 5.0], [2, 0, 0, 1])


@compiled
def test_rows_far_from_the_origin_lose_no_digits() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 3)) + 1e8
    centers = X[:4] + 1e-3
    squared = ((X[:, None] - centers) ** 2).sum(axis=2)
    u = (squared.min(axis=1, keepdims=True) / squared) ** 1.0
    u = (u / u.sum(axis=1, keepdims=True)) ** 2
    weights, _ = fuzzy_sums(Points(X, shift=X[0], kernel=Kernel(C1)), centers, 2.0)
    np.testing.assert_allclose(weights, u.sum(axis=0), rtol=1e-9)


@compiled
def test_seeds_of_kmeans_plusplus_are_those_of_numpy() -> None:
    X = np.random.default_rng(1).normal(size=(300, 4))
    picked = [
        kmeans_plusplus(Points(X, kernel=Kernel(name)), 6, np.random.default_rng(2)).tolist() for name in (NUMPY, C1)
    ]
    assert picked[0] == picked[1]


@compiled
def test_another_fuzzifier_is_left_to_numpy() -> None:
    X = np.random.default_rng(1).normal(size=(300, 4))
    both = [fuzzy_sums(Points(X, kernel=Kernel(name)), X[:3], 1.7) for name in (NUMPY, C1)]
    assert _digest(*both[0]) == _digest(*both[1])


@compiled
@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("X", np.zeros(5), "X has 40 bytes"), ("subtracted", np.zeros(0), "one number per column"),
        ("centers", np.zeros(3), "one number per column"), ("weights", np.zeros(2), "weights has 16 bytes, expected 32"),
        ("part_rows", 0, "number of parts"), ("part_rows", -1, "number of parts"), ("n_parts", 2, "number of parts"),
        ("n_parts", -1, "number of parts"), ("fuzzifier", 3, "fuzzifier"), ("set", 99, "instruction set"),
        ("set", -1, "instruction set"), ("weight_sums", np.zeros(1), "weight_sums has 8 bytes"),
        ("sums", np.zeros(9), "sums has 72 bytes"),
        ("costs", np.zeros(2), "costs has 16 bytes"), ("cell_weights", np.zeros(3), "cell_weights has 24 bytes"),
    ],
    ids=str,
)  # fmt: skip
def test_lengths_that_do_not_fit_are_refused(name: str, value: object, message: str) -> None:
    from p2pclust.clustering import _kernels

    fits: dict[str, object] = {
        "X": np.zeros((4, 2)), "subtracted": np.zeros(2), "centers": np.zeros((2, 2)), "weights": np.empty(0),
        "part_rows": 8, "n_parts": 1, "fuzzifier": 0, "share": 1e-3, "set": 0, "weight_sums": np.zeros(2),
        "sums": np.zeros((2, 2)), "costs": np.zeros(1), "cell_weights": np.empty(0),
    }  # fmt: skip
    _kernels.fuzzy(*fits.values())
    with pytest.raises(ValueError, match=message):
        _kernels.fuzzy(*{**fits, name: value}.values())


@compiled
@pytest.mark.parametrize("name", ["counts", "masses", "sums", "labels"])
def test_results_that_do_not_fit_are_refused(name: str) -> None:
    from p2pclust.clustering import _kernels

    fits: dict[str, object] = {
        "X": np.zeros((4, 2)), "subtracted": np.zeros(2), "centers": np.zeros((2, 2)), "weights": np.ones(4),
        "part_rows": 8, "n_parts": 1, "noise": 1e-15, "set": 0, "counts": np.zeros(2), "masses": np.zeros(2),
        "sums": np.zeros((2, 2)), "labels": np.zeros(4, dtype=np.int64),
    }  # fmt: skip
    _kernels.crisp(*fits.values())
    with pytest.raises(ValueError, match=name):
        _kernels.crisp(*{**fits, name: np.zeros(1)}.values())
    with pytest.raises(ValueError, match="closest"):
        _kernels.lower(np.zeros((4, 2)), np.zeros(2), np.zeros((2, 2)), 0, np.zeros(3))


@compiled
@pytest.mark.parametrize("name", ["offsets", "counts", "masses", "sums", "squares", "labels", "closest"])
def test_results_of_rows_with_gaps_that_do_not_fit_are_refused(name: str) -> None:
    from p2pclust.clustering import _kernels

    square = ("offsets", "weights", "part_rows", "n_parts", "set", "counts", "masses", "sums", "squares")
    fits: dict[str, object] = {
        "X": np.zeros((4, 2)), "subtracted": np.zeros(2), "centers": np.zeros((2, 2)),
        **{one: np.zeros((2, 2)) for one in square}, "labels": np.zeros(4, dtype=np.int64), "closest": np.zeros(4),
    }  # fmt: skip
    fits |= {"weights": np.ones(4), "part_rows": 8, "n_parts": 1, "set": 0}
    _kernels.gapped(*fits.values())
    with pytest.raises(ValueError, match=name):
        _kernels.gapped(*{**fits, name: np.zeros(1)}.values())


@compiled
def test_labels_of_no_center_are_refused() -> None:
    from p2pclust.clustering import _kernels

    fits: dict[str, object] = {
        "X": np.zeros((4, 2)), "subtracted": np.zeros(2), "centers": np.zeros((2, 2)), "weights": np.ones(4),
        "part_rows": 8, "n_parts": 1, "set": 0, "labels": np.array([0, 1, 0, 1]), "sums": np.zeros((2, 2)),
        "squares": np.zeros((2, 2)),
    }  # fmt: skip
    _kernels.moments(*fits.values())
    for labels in ([0, 1, 2, 0], [0, 1, -1, 0]):
        with pytest.raises(ValueError, match="indices of centers"):
            _kernels.moments(*{**fits, "labels": np.array(labels)}.values())
    for name in ("labels", "sums", "squares"):
        with pytest.raises(ValueError, match=name):
            _kernels.moments(*{**fits, name: np.zeros(1)}.values())


def test_a_kernel_that_does_not_exist_is_refused() -> None:
    with pytest.raises(UsageError, match="expected auto, numpy or c1"):
        Kernel("c2")
    with pytest.raises(UsageError, match="threads = 0"):
        Kernel(threads=0)


@pytest.mark.skipif(C1 not in installed(), reason="only where it is installed can it be taken away")
def test_without_the_extension_numpy_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    from p2pclust.clustering import kernels

    monkeypatch.setattr(kernels, "_extension", lambda: None)
    assert (installed(), instruction_sets()) == ((NUMPY,), ())
    with pytest.raises(UsageError, match="the kernel c1 is not installed here"):
        Kernel(C1)


def _digests_of(folder: Path, compiler: str, *runner: str) -> dict[str, tuple[str, str]]:
    """Compile the passes alone, with a program that prints digests of their results for each instruction set; run it."""
    pyproject = tomllib.loads((_ROOT / "pyproject.toml").read_text())
    flags = pyproject["tool"]["setuptools"]["ext-modules"][0]["extra-compile-args"]
    program, source = folder / compiler, Path(__file__).with_name("kernel_digests.c")
    sources = _ROOT / "p2pclust" / "clustering" / "c"
    subprocess.run(
        [compiler, *flags, "-Wall", "-Wextra", "-Werror", f"-I{sources}", str(source), "-o", str(program), "-lm", "-static"],
        check=True, timeout=300,
    )  # fmt: skip
    done = subprocess.run([*runner, str(program)], capture_output=True, text=True, check=True, timeout=300)
    lines = (line.split() for line in done.stdout.splitlines())
    return {name: (plain, gapped) for name, plain, gapped in lines}


_ARM = [("aarch64-linux-gnu-gcc", "qemu-aarch64"), ("arm-linux-gnueabihf-gcc", "qemu-arm")]  # of 64 bits and of 32
# Printed by this program on AVX-512, AVX2, SSE2 and ARM. Other bits need another name of the kernel.
_C1_DIGESTS = ("5df34f6cb5486e85", "1ea30a15b9cafc18")  # of rows without gaps, and of rows with gaps


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("gcc") is None, reason="no compiler")
def test_every_instruction_set_of_this_cpu_has_the_bits_of_c1(tmp_path: Path) -> None:
    assert set(_digests_of(tmp_path, "gcc").values()) == {_C1_DIGESTS}


@pytest.mark.parametrize(("compiler", "emulator"), _ARM)
def test_arm_has_the_bits_of_c1(tmp_path: Path, compiler: str, emulator: str) -> None:
    if shutil.which(compiler) is None or shutil.which(emulator) is None:
        pytest.skip(f"needs {compiler} and {emulator}")
    assert _digests_of(tmp_path, compiler, emulator) == {"plain": _C1_DIGESTS}
