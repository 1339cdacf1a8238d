"""K-medians whose peers reveal, for each cluster and feature, a histogram of their rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from p2pclust.clustering import Points
from p2pclust.protocols import Abstain, Additive, Arrays, Contribution, Local, Slot, State
from p2pclust.protocols.centers.alternating import Iterated
from p2pclust.protocols.engine import checks


def closest(rows: np.ndarray, centers: np.ndarray) -> np.ndarray:
    return np.abs(rows[:, np.newaxis] - centers).sum(axis=2).argmin(axis=1)


@dataclass(frozen=True)
class HistogramMediansProtocol(Iterated, Additive):
    """K-medians by histograms.

    Parameters: those of every clustering, `bins` for each feature, and `min_rows`: a peer with fewer rows abstains.
    """

    id: ClassVar[str] = "hist-medians"
    reveals: ClassVar[str] = "each round, for each cluster and feature, how many of its rows lie in each bin"
    pooled_name: ClassVar[str] = "k-medians"
    works_on: ClassVar[tuple[str, ...]] = (*Iterated.works_on, "low", "width")
    own_arrays: ClassVar[Mapping[str, Slot]] = {"low": Slot((None,)), "width": Slot((None,))}

    bins: int = 64
    min_rows: int = 3

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.check(self, bins=checks.between(2, 4096), min_rows=checks.between(1, 1000))

    def open(self, state: State, rng: np.random.Generator) -> State:
        low = (state["lo"] - state["origin"]) / state["scale"]  # in working coordinates
        whole = np.where(state["hi"] > state["lo"], state["hi"] - state["lo"], 1.0) / state["scale"]
        return super().open(state, rng).replace(low=low, width=whole / self.bins)

    def expects(self, state: State) -> Mapping[str, Slot]:
        return {"histogram": Slot((*state["centers"].shape, self.bins))}

    def units(self, state: State) -> Mapping[str, Any]:
        return {"histogram": 1.0}

    def contribute(self, state: State, local: Local, rng: np.random.Generator) -> Contribution:
        if local.n_samples < self.min_rows:
            raise Abstain("too few rows for a histogram")
        rows, histogram = local.points(state).X, np.zeros((*state["centers"].shape, self.bins))
        labels = closest(rows, state["centers"])
        # Rows outside the range are counted in the first or the last bin.
        places = np.clip((rows - state["low"]) // state["width"], 0, self.bins - 1).astype(np.int64)
        for feature, own in enumerate(places.T):
            np.add.at(histogram[:, feature], (labels, own), 1.0)
        return Arrays(histogram=histogram)

    def combine(self, state: State, total: Any) -> State:
        up_to = total["histogram"].cumsum(axis=2)
        half = up_to[:, :, -1] / 2
        bins = (up_to < half[:, :, np.newaxis]).sum(axis=2)  # those below the median's, shape (C, F)
        medians = state["low"] + state["width"] * (bins + 0.5)
        return self.stepped(state, np.where(half > 0, medians, state["centers"]))

    def conclude(self, state: State, local: Local) -> Arrays:
        return Arrays(labels=closest(local.points(state).X, state["centers"]))

    def pooled_step(self, points: Points, centers: np.ndarray) -> np.ndarray:
        rows, labels = points.X, closest(points.X, centers)
        found = [
            np.median(rows[labels == c], axis=0) if (labels == c).any() else centers[c] for c in range(len(centers))
        ]
        return np.stack(found)
