"""Corcuera Bárcena et al.: Federated c-means and fuzzy c-means, section VI-E: columns dealt in five ways.

pendigits, 16 features scaled to [0, 1], ten clusters, fuzzifier 2, thirty rounds. Each peer draws its columns of the first
centers within their ranges, and a column's draw does not depend on who holds it: so all splits start from the same centers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from p2pclust.clustering import Points, nearest
from p2pclust.lab.pictures.curves import mean_curves
from p2pclust.lab.reproduce.model import Claim, Experiment, Findings, Setup, Table, Values
from p2pclust.lab.reproduce.peers import Peers, seed_of
from p2pclust.lab.reproduce.tables.horizontal import data_case
from p2pclust.metrics import adjusted_rand_index, center_distance
from p2pclust.protocols.engine import engine
from p2pclust.protocols.engine.compose import cluster_job
from p2pclust.protocols.engine.local import Local
from p2pclust.protocols.engine.runner import pooled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SPLITS: Mapping[str, Sequence[int]] = {
    "16 x 1": (1,) * 16,
    "8 x 2": (2,) * 8,
    "4 x 4": (4,) * 4,
    "2 x 8": (8,) * 2,
    "1+2+3+4+6": (1, 2, 3, 4, 6),
}


def _repeat(rng: np.random.Generator, peers: Peers, *, quick: bool) -> Values:
    case = data_case("pendigits", quick=quick)
    rounds = 10 if quick else 30
    job = cluster_job(
        "vertical-fcm", n_clusters=case.n_clusters, scaling="minmax", init="random", tol=0.0, max_rounds=rounds,
        seed=seed_of(rng),
    )  # fmt: skip
    lo, width = case.X.min(axis=0), np.ptp(case.X, axis=0)
    values: Values = {}
    for name, widths in SPLITS.items():
        edges = np.cumsum(widths)[:-1]
        parts = [np.ascontiguousarray(part) for part in np.split(case.X, edges, axis=1)]
        state = peers.run(job, parts)
        locals_ = [Local(part) for part in parts]
        kept = [engine.conclude(job, state, local) for local in locals_]
        ours = (np.concatenate([part["centers"] for part in kept], axis=1) - lo) / width
        reference = (pooled(job, locals_, state.log) - lo) / width
        shifts = state.arrays["shifts"]
        values[name] = {
            "shifts": shifts[shifts >= 0].tolist(),  # the first distances have no change
            "ari": adjusted_rand_index(case.y, kept[0]["labels"]),
            "ari to pooled": adjusted_rand_index(nearest(Points(case.scaled), reference), kept[0]["labels"]),
            "distance": center_distance(reference, ours),
        }
    return values


def _claims(found: Findings) -> Iterable[Claim]:
    what = "all splits have the same curve (within 1e-9 of its values) and the pooled centers (within 1e-9)"
    rows = [name for name in SPLITS if found.has(name, "shifts")]
    if len(rows) < len(SPLITS):
        yield Claim(what, always=True)
        return
    reference = found.curves(rows[0], "shifts")
    apart = max(float(np.abs(found.curves(row, "shifts") / reference - 1).max()) for row in rows)
    furthest = max(float(found.samples(row, "distance").max()) for row in rows)
    yield Claim(what, f"{apart:.1e}, {furthest:.1e}", apart <= 1e-9 and furthest <= 1e-9, always=True)


def _draw(figure: Figure, found: Findings) -> None:
    axes = figure.add_subplot()
    mean_curves(axes, found.all_curves({name: name for name in SPLITS}, "shifts"), log=True, first=2)
    axes.set(xlabel="round", ylabel="‖D(t+1) − D(t)‖", title="change of the distances, pendigits")
    axes.legend()


TABLES = (
    Table(
        "002-figure6", "vertical llf-fcm on pendigits: the same curve however the columns are split", "15 s",
        Experiment("vertical", lambda: [Setup("pendigits", _repeat, "pendigits")]),
        {"ari": "ARI to classes", "ari to pooled": "ARI to pooled", "distance": "‖V − V pooled‖"}, _claims, _draw,
        quick_repeats=1,
    ),
)  # fmt: skip
