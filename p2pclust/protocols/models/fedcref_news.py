"""What logs and reports show of FedCRef's rounds: the result of a phase, and how many bytes of models it moved.

Models are nearly all that FedCRef sends. How many of them a phase moves follows from what was agreed on, so it is known
wherever the state is, and the same on every backend; in one process, where nothing is sent, it is what would be. Not
counted: what peers send each other to agree (states without weights, verdicts, digests), membership, the headers of
messages, and what is sent again after a loss or an election. The counters of a fleet's peers have all of that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from p2pclust.protocols.engine.workspace import Run
from p2pclust.protocols.models.fedcref_agreed import HISTORY, Agreed


def news(before: Agreed, after: Agreed, runs: Sequence[Run], size: int) -> dict[str, Any]:
    """Return what a phase came to: for the graph its clusters and links, for a refinement its row of history.

    Parameters as of :func:`model_bytes`; the values are plain.
    """
    found: dict[str, Any] = {"phase": before.phase, "iteration": max(before.iteration, after.iteration)}
    found["model_bytes"] = model_bytes(before, after, runs, size)
    match before.phase:
        case "models":
            found |= {"clusters": after.counts.tolist(), "cluster_rows": after.rows.tolist()}
        case "graph":
            graph = after.association
            found |= {"clusters": after.counts.tolist(), "links": after.links.tolist()}
            found |= {"groups": [list(group) for group in graph.groups], "isolated": list(graph.isolated)}
        case "train":
            found |= {"refinement": before.refinement, "models_of_groups": int(after.group_models.any(axis=1).sum())}
        case "refine":
            found |= dict(zip(HISTORY, (int(x) for x in after.history[-1]), strict=True))
        case "verdicts":
            pass
    return found


def model_bytes(before: Agreed, after: Agreed, runs: Sequence[Run], size: int) -> int:
    """Return how many bytes of models, `size` each, one phase moves between peers, all of them together.

    Models and graph: 0, for models are only published. Verdicts: every peer that sent any has fetched the models of all
    others. Train: in each round of FedAvg, every peer of a community but its aggregator gets the weights and sends its
    own; `runs` are these jobs. Refine: every peer with clusters fetches the models of the communities in whose training
    it had no part.

    Two peers with two clusters and one, whose models have 10 bytes.

    >>> import numpy as np
    >>> from p2pclust.protocols.engine.arrays import Arrays
    >>> before = Agreed("verdicts", counts=np.array([2, 1]), rows=np.array([5, 5, 5]))
    >>> sent = [(peer, Arrays(affinity=np.zeros((own, 3), np.uint8))) for peer, own in enumerate((2, 1))]
    >>> model_bytes(before, before.judged(sent, "affinity", 3), (), 10)
    30
    """
    match before.phase:
        case "verdicts":
            counts: list[int] = before.counts.tolist()
            return sum(sum(counts) - own for own, told in zip(counts, after.told.tolist(), strict=True) if told) * size
        case "train":
            rounds = [int(run.job.stages[0].parameters["rounds"]) for run in runs]
            return sum(2 * number * (len(run.roster) - 1) for number, run in zip(rounds, runs, strict=True)) * size
        case "refine":
            there = [peer for peer, own in enumerate(before.counts.tolist()) if own]
            held = [set(before.holders_of(group)) for group in range(before.n_groups) if before.group_model(group)]
            return sum(peer not in holders for holders in held for peer in there) * size
        case "models" | "graph":
            return 0
