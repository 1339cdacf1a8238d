"""What precedes a vertical clustering: making sure that all peers hold the same rows, and choosing first centers.

docs/protocols/vertical.md says what each reveals. k-means++ sends the distances to all rows picked so far in every round,
and not only to the last one: the aggregator then needs no memory, and the state has no distances.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from p2pclust.errors import UsageError
from p2pclust.protocols.columns import columns as own_columns
from p2pclust.protocols.engine import checks, random_streams
from p2pclust.protocols.engine.arrays import Arrays, Contribution, State
from p2pclust.protocols.engine.base import Abstain, ByColumns, Slot, always
from p2pclust.protocols.engine.local import Local

INITS = ("k-means++", "rows", "random", "given")
_SALT_BYTES = 16


@dataclass(frozen=True)
class Align(ByColumns):
    """Whether all peers hold the same rows in the same order."""

    id: ClassVar[str] = "align"
    holds: ClassVar[str] = "uint8 S: salt; int64: n_rows; int64 M: columns"
    works_on: ClassVar[tuple[str, ...]] = ("salt",)

    def open(self, state: State, rng: np.random.Generator) -> State:
        return Arrays(salt=rng.integers(0, 256, _SALT_BYTES, dtype=np.uint8))

    def expects(self, state: State) -> Mapping[str, Slot]:
        return {"rows": Slot((), "int64"), "columns": Slot((), "int64"), "ids": Slot((32,), "uint8")}

    def contribute(self, state: State, local: Local, rng: np.random.Generator) -> Contribution:
        ids = np.arange(local.n_samples) if local.ids is None else local.ids
        if ids.shape != (local.n_samples,) or ids.dtype.kind not in "iuU":
            raise Abstain(f"ids of {ids.ndim} dimensions and type {ids.dtype}: one number or text per row is expected")
        # The salt is the job's own, so that a digest of one job cannot be looked up in another.
        digest = hashlib.blake2b(state["salt"].tobytes(), digest_size=32)
        if ids.dtype.kind == "U":
            texts = [str(text).encode() for text in ids.tolist()]
            digest.update(b"text" + b"".join(b"%d:" % len(text) + text for text in texts))
        else:
            digest.update(b"numbers" + np.ascontiguousarray(ids, dtype="<i8").tobytes())
        digests = np.frombuffer(digest.digest(), np.uint8)
        return Arrays(rows=np.int64(local.n_samples), columns=np.int64(local.n_features), ids=digests)

    def problems_with_parts(self, state: State, contributions: Sequence[tuple[int, Contribution]]) -> Mapping[int, str]:
        """Name the peers that differ from most; of two equally frequent answers, that of the lowest index counts."""
        problems: dict[int, str] = {}
        answers = [(peer, int(part["rows"]), part["ids"].tobytes()) for peer, part in contributions]
        # most_common() lists equal counts in order of first appearance, and contributions come in roster order.
        n_rows = Counter(rows for _, rows, _ in answers).most_common(1)[0][0]
        ids = Counter(digest for _, rows, digest in answers if rows == n_rows).most_common(1)[0][0]
        for (peer, rows, digest), (_, part) in zip(answers, contributions, strict=True):
            if rows != n_rows:
                problems[peer] = f"has {rows} rows where most peers have {n_rows}"
            elif digest != ids:
                problems[peer] = f"has {rows} rows with other ids, or in another order, than most peers"
            elif rows < 1 or part["columns"] < 1:
                problems[peer] = "has no data"
        return problems

    def combine(self, state: State, contributions: Any) -> State:
        columns = np.array([int(part["columns"]) for part in contributions])
        return state.replace(n_rows=contributions[0]["rows"], columns=columns)

    finished = always


@dataclass(frozen=True)
class VerticalSeeding(ByColumns):
    """First centers: drawn by each peer, given to it, or rows of all, drawn or picked one by one."""

    id: ClassVar[str] = "vertical-seeding"
    holds: ClassVar[str] = "bool: given; int64 K: first_rows"
    works_on: ClassVar[tuple[str, ...]] = ("salt", "n_rows", "columns", "given", "first_rows")

    n_clusters: int
    init: str = "k-means++"  # {"k-means++", "rows", "random", "given"}
    # {"none", "minmax", "zscore"}: of the clustering that follows: k-means++ measures in its coordinates.
    scaling: str = "none"

    allowed = checks.by_name(n_clusters=checks.CLUSTERS, init=checks.among(*INITS), scaling=checks.SCALING)

    def open(self, state: State, rng: np.random.Generator) -> State:
        if "n_rows" not in state:
            raise UsageError("vertical-seeding: put an align stage before it")
        n_rows = int(state["n_rows"])
        if n_rows < self.n_clusters:
            raise UsageError(
                f"{self.n_clusters} clusters were asked for, but there are {n_rows} rows: ask for at most {n_rows}"
            )
        state = state.replace(given=np.bool_(self.init == "given"))
        if self.init == "rows":
            return state.replace(first_rows=rng.choice(n_rows, size=self.n_clusters, replace=False))
        return state.replace(first_rows=rng.integers(n_rows, size=1)) if self.init == "k-means++" else state

    def needs_rounds(self, state: State) -> bool:
        return "first_rows" in state and state["first_rows"].size < self.n_clusters

    def expects(self, state: State) -> Mapping[str, Slot]:
        return {"squares": Slot((int(state["n_rows"]), state["first_rows"].size))}

    def contribute(self, state: State, local: Local, rng: np.random.Generator) -> Contribution:
        columns = own_columns.fitting_columns(state, local, self.scaling)
        centers = own_columns.first_centers(state, local, columns, self.n_clusters)
        return Arrays(squares=columns.squares(centers, "float64"))

    def problem_with_part(self, part: Contribution, state: State) -> str:
        return own_columns.problem_with_squares(part, state["first_rows"].size)

    def combine(self, state: State, contributions: Any) -> State:
        closest, height = np.empty(int(state["n_rows"])), own_columns.rows_per_block(state["first_rows"].size)
        for rows, squares in own_columns.totals(contributions, height):
            closest[rows] = squares.min(axis=1)
        return self.picked(state, closest)

    def picked(self, state: State, closest: NDArray[np.float64]) -> State:
        """Return the state with one row more, drawn by each row's squared distance to the nearest picked one, shape (N,)."""
        picks = own_columns.picked_rows(state, int(state["n_rows"]))
        rng = random_streams.aggregating(int.from_bytes(state["salt"].tobytes()[:8], "little"), picks.size)
        cumulated = np.cumsum(closest)
        if not cumulated[-1] > 0.0:  # all of them are picked
            row = int(rng.integers(closest.size))
        else:
            # side="right" never lands on a row of probability zero, except past the end when the product rounds up.
            row = int(np.searchsorted(cumulated, rng.random() * cumulated[-1], side="right"))
            row = row if row < closest.size else int(np.flatnonzero(closest)[-1])
        return state.replace(first_rows=np.append(picks, row))

    def problem_with_state(self, state: State, *, done: bool) -> str:
        return "" if state["first_rows"].size < self.n_clusters else "it continues picking rows"

    def finished(self, previous: State, state: State, rounds: int) -> bool:
        return bool(state["first_rows"].size >= self.n_clusters)


def warnings_of(state: State, n_clusters: int) -> dict[int, str]:
    """Say, for each peer with fewer columns than clusters, what its distances reveal; by roster index.

    >>> list(warnings_of(Arrays(columns=[4, 1]), 3))
    [1]
    """
    warnings = {}
    for peer, columns in enumerate(state["columns"].tolist() if "columns" in state else []):
        if columns < n_clusters:
            shown = "1 column" if columns == 1 else f"{columns} columns"
            warnings[peer] = (
                f"{shown} for {n_clusters} clusters: the distances that it sends in one round give its rows away up to "
                "shift, rotation and mirror image"
            )
    return warnings
