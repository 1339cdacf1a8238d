"""Passes over rows by the C extension: the same bits on every CPU, and on several threads (docs/kernels.md).

``"numpy"`` is there always, and its last bits depend on the kind of CPU and the version of the libraries. ``"c1"`` is there
where a C compiler was at the installation. A kernel with other bits gets another name, so all peers of a job can agree on
one. Rows are cut into parts of a fixed size, whose sums are added up in the order of the rows: the number of threads changes
no bit.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from p2pclust.errors import UsageError

if TYPE_CHECKING:
    from p2pclust.clustering.points import Floats, GappedRows, Labels, Points


NUMPY: Final = "numpy"
C1: Final = "c1"
KERNELS: Final = (NUMPY, C1)  # every kernel that a job may name
AUTO: Final = "auto"  # what a person may ask for in the place of a name
MAX_THREADS: Final = 256

_PART_ROWS = 8192  # part of the bits of c1, as are the numbers in c/kernels.h
_FUZZIFIERS = {2.0: 0, 1.5: 1, 3.0: 2}  # and what the extension calls them
_TASKS_PER_THREAD = 4
_NOTHING = np.empty(0)


@functools.lru_cache(maxsize=1)
def _extension() -> Any:
    try:
        return import_module("p2pclust.clustering._kernels")
    except ImportError:
        return None


def installed() -> tuple[str, ...]:
    """Return the names of the kernels that this installation has, the best first."""
    return (NUMPY,) if _extension() is None else (C1, NUMPY)


def named(asked: str) -> str:
    """Return the kernel that a person asks for; ``"auto"`` is the best that is installed here.

    Raises UsageError if the kernel is unknown, or not installed here.

    >>> named("numpy"), named("auto") == installed()[0]
    ('numpy', True)
    """
    return installed()[0] if asked == AUTO else Kernel(asked).name


def instruction_sets() -> tuple[str, ...]:
    """Return the instruction sets of this CPU that the extension can use, the fastest last; all give the same bits."""
    return () if _extension() is None else tuple(_extension().instruction_sets())


class GappedSums(NamedTuple):
    """What rows with missing cells add up to at their nearest centers: per center and column, over cells that are there."""

    counts: Floats  # shape (C, F), as are the next three
    masses: Floats  # sums of the rows' weights
    sums: Floats  # of the differences from an offset for each center
    squares: Floats  # of the squares of these; empty where they were not asked for
    labels: Labels  # shape (n,)
    closest: Floats  # shape (n,): squared distances to the nearest center


class GappedFuzzySums(NamedTuple):
    """What rows with missing cells add up to in fuzzy c-means."""

    weights: Floats  # shape (C, F): of ``u^m`` of the rows that have the column
    sums: Floats  # shape (C, F)
    row_weights: Floats  # shape (C,): of ``u^m`` of all rows
    objective: float  # NaN where NumPy does not compute it in the same pass


@dataclass(frozen=True)
class Kernel:
    """Which kernel does the passes over some rows, and with how many threads.

    Raises UsageError if this installation has no such kernel, or the number of threads is out of range.

    >>> Kernel().name, Kernel().does(fuzzifier=2.0)
    ('numpy', False)
    """

    name: str = NUMPY  # "numpy" or "c1"
    threads: int = 1  # 1 to 256; NumPy uses one
    instruction_set: str = ""  # one of :func:`instruction_sets`; by default the fastest

    def __post_init__(self) -> None:
        if self.name not in KERNELS:
            raise UsageError(f"kernel = {str(self.name)[:100]!r}: expected {AUTO}, {' or '.join(KERNELS)}")
        if self.name not in installed():
            raise UsageError(
                f"the kernel {self.name} is not installed here: install p2pclust where there is a C compiler"
            )
        if not 1 <= self.threads <= MAX_THREADS:
            raise UsageError(f"threads = {self.threads}: expected 1 to {MAX_THREADS}")
        if self.instruction_set and self.instruction_set not in instruction_sets():
            raise UsageError(f"this CPU has no {self.instruction_set}; it has {', '.join(instruction_sets())}")

    def does(self, *, fuzzifier: float | None = None) -> bool:
        """Whether the extension does the passes of k-means, or of fuzzy c-means with this fuzzifier."""
        return self.name == C1 and (fuzzifier is None or fuzzifier in _FUZZIFIERS)

    def fuzzy_sums(
        self, points: Points, centred: Floats, fuzzifier: float, share: float, row_weights: Floats | None
    ) -> tuple[Floats, Floats, float]:
        """Return the sums of :func:`p2pclust.clustering.fcm.fuzzy_sums`, shapes (C,) and (C, F), and the objective.

        Distances below `share` of ``|x|^2 + |v|^2`` are computed by direct differences.
        """
        n_parts, given = _n_parts(points), _weights(points, row_weights)
        weights, sums = np.empty((n_parts, len(centred))), np.empty((n_parts, *centred.shape))
        costs = np.empty(n_parts)

        def work(first: int, last: int) -> None:
            rows = slice(first * _PART_ROWS, last * _PART_ROWS)
            _extension().fuzzy(
                points.source[rows], points.subtracted, centred, given[rows], _PART_ROWS, last - first,
                _FUZZIFIERS[fuzzifier], share, self._set, weights[first:last], sums[first:last], costs[first:last], _NOTHING,
            )  # fmt: skip

        self._share_out(work, n_parts)
        return _in_order(weights), _in_order(sums), float(_in_order(costs))

    def gapped_fuzzy_sums(
        self, rows: GappedRows, centred: Floats, fuzzifier: float, row_weights: Floats | None
    ) -> GappedFuzzySums:
        """Return the sums of :func:`fuzzy_sums` of rows with missing cells, whose distances are all direct differences."""
        n_parts, given = _n_parts(rows), _weights(rows, row_weights)
        weights, sums = np.empty((2, n_parts, *centred.shape))
        of_rows, costs = np.empty((n_parts, len(centred))), np.empty(n_parts)

        def work(first: int, last: int) -> None:
            here = slice(first * _PART_ROWS, last * _PART_ROWS)
            _extension().fuzzy(
                rows.source[here], rows.subtracted, centred, given[here], _PART_ROWS, last - first, _FUZZIFIERS[fuzzifier],
                0.0, self._set, of_rows[first:last], sums[first:last], costs[first:last], weights[first:last],
            )  # fmt: skip

        self._share_out(work, n_parts)
        return GappedFuzzySums(_in_order(weights), _in_order(sums), _in_order(of_rows), float(_in_order(costs)))

    def gapped_sums(
        self, rows: GappedRows, centred: Floats, offsets: Floats | None, row_weights: Floats | None
    ) -> GappedSums:
        """Assign rows with missing cells to their nearest centers, and add up differences from the `offsets` (C, F).

        Without offsets the rows themselves are added up, and no squares.
        """
        n_parts, given = _n_parts(rows), _weights(rows, row_weights)
        counts, sums = np.zeros((2, n_parts, *centred.shape))
        squares = np.zeros((n_parts, *centred.shape) if offsets is not None else (n_parts, 0))
        origin = np.zeros(centred.shape) if offsets is None else offsets
        masses = np.zeros((n_parts, *centred.shape)) if row_weights is not None else np.zeros((n_parts, 0))
        labels, closest = np.empty(rows.n_samples, dtype=np.int64), np.empty(rows.n_samples)

        def work(first: int, last: int) -> None:
            here, parts = slice(first * _PART_ROWS, last * _PART_ROWS), slice(first, last)
            _extension().gapped(
                rows.source[here], rows.subtracted, centred, origin, given[here], _PART_ROWS, last - first, self._set,
                counts[parts], masses[parts], sums[parts], squares[parts], labels[here], closest[here],
            )  # fmt: skip

        self._share_out(work, n_parts)
        counted = _in_order(counts)
        massed = counted if row_weights is None else _in_order(masses)
        return GappedSums(counted, massed, _in_order(sums), _in_order(squares), labels, closest)

    def crisp_sums(
        self, points: Points, centred: Floats, noise: float, row_weights: Floats | None = None
    ) -> tuple[Floats, Floats, Floats, Labels]:
        """Return sums (C, F), masses (C,), counts (C,) and labels (n,) of the rows nearest to each center.

        Distances that differ by less than `noise` times ``|x|^2 + |v|^2`` are compared by direct differences.
        """
        n_parts, given = _n_parts(points), _weights(points, row_weights)
        sums, counts = np.zeros((n_parts, *centred.shape)), np.zeros((n_parts, len(centred)))
        masses = np.zeros((n_parts, len(centred) if row_weights is not None else 0))
        labels = np.empty(points.n_samples, dtype=np.int64)

        def work(first: int, last: int) -> None:
            rows = slice(first * _PART_ROWS, last * _PART_ROWS)
            _extension().crisp(
                points.source[rows], points.subtracted, centred, given[rows], _PART_ROWS, last - first, noise, self._set,
                counts[first:last], masses[first:last], sums[first:last], labels[rows],
            )  # fmt: skip

        self._share_out(work, n_parts)
        counted = _in_order(counts)
        return _in_order(sums), counted if row_weights is None else _in_order(masses), counted, labels

    def moments(
        self, points: Points, centred: Floats, labels: Labels, row_weights: Floats | None
    ) -> tuple[Floats, Floats]:
        """Return weighted sums (C, F) over each center's rows of their differences from it, and of their squares."""
        n_parts = _n_parts(points)
        sums, squares = np.zeros((2, n_parts, *centred.shape))
        _extension().moments(
            points.source, points.subtracted, centred, _weights(points, row_weights), _PART_ROWS, n_parts, self._set,
            labels, sums, squares,
        )  # fmt: skip
        return _in_order(sums), _in_order(squares)

    def lower(self, points: Points, centred: Floats, closest: Floats) -> None:
        """Lower `closest` (n,) to the squared distances to these centers, by direct differences, where they are smaller."""
        _extension().lower(points.source, points.subtracted, np.ascontiguousarray(centred), self._set, closest)

    @property
    def _set(self) -> int:
        sets = instruction_sets()
        return sets.index(self.instruction_set) if self.instruction_set else len(sets) - 1

    def _share_out(self, work: Callable[[int, int], None], n_parts: int) -> None:
        """Let threads do all parts, some at a time."""
        if self.threads == 1 or n_parts == 1:
            work(0, n_parts)
            return
        step = -(-n_parts // (self.threads * _TASKS_PER_THREAD))
        tasks = iter([(first, min(first + step, n_parts)) for first in range(0, n_parts, step)])

        def take() -> None:
            for first, last in tasks:  # each task goes to one thread
                work(first, last)

        with ThreadPoolExecutor(self.threads - 1) as pool:
            helping = [pool.submit(take) for _ in range(self.threads - 1)]
            take()
            for helper in helping:
                helper.result()


_IN_FORCE: ContextVar[Kernel] = ContextVar("kernel", default=Kernel())  # noqa: B039 - it cannot be changed


def in_force() -> Kernel:
    """Return the kernel of points that are given none."""
    return _IN_FORCE.get()


@contextmanager
def using(kernel: Kernel) -> Iterator[None]:
    """Let a kernel be in force for what the block does in this thread, as ``np.errstate`` does with warnings.

    >>> with using(Kernel(installed()[0])):
    ...     in_force().name == installed()[0]
    True
    """
    before = _IN_FORCE.set(kernel)
    try:
        yield
    finally:
        _IN_FORCE.reset(before)


def _n_parts(points: Points) -> int:
    return -(-points.n_samples // _PART_ROWS)


def _weights(points: Points, row_weights: Floats | None) -> Floats:
    """Return the weights of the rows as the extension takes them: none is an empty array."""
    if row_weights is None:
        return np.empty(0)
    if row_weights.shape != (points.n_samples,):
        raise UsageError(f"{points.n_samples} rows, but weights of shape {row_weights.shape}")
    return np.ascontiguousarray(row_weights, dtype=np.float64)


def _in_order(parts: Floats) -> Floats:
    return functools.reduce(np.add, parts)
