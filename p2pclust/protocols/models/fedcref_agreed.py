"""What FedCRef's peers agree on: the arrays of its state as one typed value, and what follows from them.

Everything here is a pure function of the agreed state, so it is the same at every peer: which models there are, which
clusters belong together, which peers train what together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from p2pclust.errors import P2PClustError
from p2pclust.protocols.engine.arrays import Arrays, State
from p2pclust.protocols.engine.workspace import DIGEST_BYTES, Run
from p2pclust.protocols.models.association import Association, Clusters

Phase = Literal["models", "verdicts", "graph", "train", "refine"]
PHASES: Final[tuple[Phase, ...]] = get_args(Phase)

#: One row per refinement: which iteration, which refinement of it, how many groups, isolated clusters and links there
#: were, how many rows changed their cluster, of how many, and how many peers were still active after it.
HISTORY: Final = ("iteration", "refinement", "groups", "isolated", "links", "changed", "rows", "active")

Ints = NDArray[np.int64]
Bytes = NDArray[np.uint8]

_NO_INTS: Final = np.empty(0, np.int64)
_NO_DIGESTS: Final = np.empty((0, DIGEST_BYTES), np.uint8)
MOST_CLUSTERS: Final = 2**13  # of all peers together: matrices of all pairs are held

MOST_ROWS: Final = 2**53  # of one cluster, or of a peer in one group: sums of them fit into 64 bits

_MOST_TURNS: Final = 2**31

_FIELDS: Final = (
    "counts", "rows", "models", "told", "table", "links", "aside", "members", "group_models", "holders", "differs",
    "resting", "history",
)  # fmt: skip
#: The names of the arrays that every state has. ``cref_alone`` is left out where no peer has any.
ARRAYS: Final = ("stream", "cref_phase", "cref_iteration", "cref_refinement", *(f"cref_{name}" for name in _FIELDS))


@dataclass(frozen=True, eq=False)
class Agreed:
    """FedCRef's state beside the scaling. Arrays with an entry for each peer end with the last peer that has one."""

    phase: Phase = "models"  # what the present round does
    stream: int = 0  # the seed of random numbers that all peers share
    iteration: int = 0  # how often models of local clusters were exchanged, this time included
    refinement: int = 0  # how many refinements this iteration has had
    counts: Ints = field(default_factory=lambda: _NO_INTS)  # how many clusters each peer entered, (A,)
    rows: Ints = field(default_factory=lambda: _NO_INTS)  # how many rows each cluster has, (Q,)
    models: Bytes = field(default_factory=lambda: _NO_DIGESTS)  # the digest of each cluster's model, (Q, 32)
    told: NDArray[np.bool_] = field(default_factory=lambda: np.empty(0, np.bool_))  # which peers sent verdicts, (A,)
    table: Bytes = field(default_factory=lambda: np.empty((0, 0), np.uint8))  # their verdicts, (Q, Z), or zeros
    links: Ints = field(default_factory=lambda: np.empty((0, 2), np.int64))  # the association graph, (L, 2)
    aside: Ints = field(default_factory=lambda: _NO_INTS)  # clusters that could take no part in it, (W,)
    #: How many rows each peer has in each group, (B, G); before the first refinement, of its clusters.
    members: Ints = field(default_factory=lambda: np.empty((0, 0), np.int64))
    group_models: Bytes = field(default_factory=lambda: _NO_DIGESTS)  # of the groups, (G, 32), or zeros
    holders: NDArray[np.bool_] = field(default_factory=lambda: np.empty((0, 0), np.bool_))  # their holders, (H, G)
    differs: Ints = field(default_factory=lambda: _NO_INTS)  # peers that built another graph, (D,); the job then fails
    resting: NDArray[np.bool_] = field(default_factory=lambda: np.empty(0, np.bool_))  # which peers are at rest, (R,)
    history: NDArray[np.float64] = field(default_factory=lambda: np.empty((0, len(HISTORY))))  # (T, 8): `HISTORY`
    #: How many own clusters of no community have rows at each peer, (E,): what numbers them without gaps.
    alone: Ints = field(default_factory=lambda: _NO_INTS)

    @classmethod
    def of(cls, state: State) -> Agreed:
        """Read the arrays of a state."""
        agreed = cls(
            PHASES[int(state["cref_phase"])], int(state["stream"]), int(state["cref_iteration"]),
            int(state["cref_refinement"]), *(state[f"cref_{name}"] for name in _FIELDS),
        )  # fmt: skip
        return replace(agreed, alone=state["cref_alone"]) if "cref_alone" in state else agreed

    def into(self, state: State) -> State:
        """Put them into a state."""
        arrays = {f"cref_{name}": getattr(self, name) for name in _FIELDS}
        if self.alone.any():
            arrays["cref_alone"] = self.alone
        return state.without("cref_alone").replace(
            stream=np.int64(self.stream), cref_phase=np.int64(PHASES.index(self.phase)),
            cref_iteration=np.int64(self.iteration), cref_refinement=np.int64(self.refinement), **arrays,
        )  # fmt: skip

    @property
    def clusters(self) -> Clusters:
        """Whose clusters the models are of."""
        return Clusters(tuple(self.counts.tolist()))

    @property
    def association(self) -> Association:
        """The association graph that was agreed on."""
        return Association(self.clusters, self.links, self.aside.tolist())

    @property
    def n_groups(self) -> int:
        """How many communities there are, with a model or without."""
        return len(self.group_models)

    def model(self, index: int) -> bytes:
        """The digest of a cluster's model."""
        return bytes(self.models[index].tobytes())

    def group_model(self, group: int) -> bytes:
        """The digest of a group's model, or empty bytes if it has none."""
        digest = self.group_models[group]
        return digest.tobytes() if digest.any() else b""

    @property
    def alive(self) -> Ints:
        """The groups that have a model, ascending."""
        return np.flatnonzero(self.group_models.any(axis=1))

    def holders_of(self, group: int) -> tuple[int, ...]:
        """Who has the model of a group."""
        return tuple(np.flatnonzero(self.holders[:, group]).tolist()) if self.holders.size else ()

    def trainers(self, group: int, least_rows: int) -> tuple[int, ...]:
        """Who trains the model of a group: the peers with enough rows in it."""
        return tuple(np.flatnonzero(self.members[:, group] >= least_rows).tolist())

    def entered(self, parts: Sequence[tuple[int, Arrays]]) -> Agreed:
        """Return the state after the exchange: whose models there are; what an iteration before had found is dropped."""
        counts = np.zeros(parts[-1][0] + 1, np.int64)
        for peer, part in parts:
            counts[peer] = len(part["rows"])
        rows = np.concatenate([part["rows"] for _, part in parts])
        models = np.concatenate([part["models"] for _, part in parts])
        return Agreed(
            "verdicts", self.stream, self.iteration + 1, 0, counts, rows, models, resting=self.resting,
            history=self.history,
        )  # fmt: skip

    def judged(self, parts: Sequence[tuple[int, Arrays]], name: str, width: int) -> Agreed:
        """Return the state after the verdicts."""
        clusters = self.clusters
        told = np.zeros(len(clusters.counts), np.bool_)
        table = np.zeros((clusters.total, width), np.uint8)
        for peer, part in parts:
            told[peer] = True
            table[list(clusters.of(peer))] = part[name]
        return replace(self, phase="graph", told=told, table=table)

    def associated(
        self, found: Association, parts: Sequence[tuple[int, Arrays]], first: Sequence[int] | None
    ) -> Agreed:
        """Return the state after the graph.

        With `first`, one cluster of each group, the groups begin with these clusters' models, which every peer has that
        sent verdicts, and rows are refined before anything is trained. Without, no group has a model yet.
        """
        differs = [peer for peer, part in parts if part["digest"].tobytes() != found.digest]
        members = np.zeros((len(found.clusters.counts), len(found.groups)), np.int64)
        grouped = np.flatnonzero(found.group_of >= 0)
        np.add.at(members, (found.clusters.owners[grouped], found.group_of[grouped]), self.rows[grouped])
        models = np.zeros((len(found.groups), DIGEST_BYTES), np.uint8)
        holders = np.zeros(members.shape, np.bool_)
        if first is not None:
            models[:] = self.models[list(first)]
            holders[:] = self.told[:, np.newaxis]
        return replace(
            self, phase="train" if first is None else "refine", table=np.empty((0, 0), np.uint8),
            told=np.empty(0, np.bool_), links=found.links, aside=np.array(found.set_aside, np.int64), members=members,
            group_models=models, holders=holders, differs=np.array(differs, np.int64),
        )  # fmt: skip

    def trained(self, parts: Sequence[tuple[int, Arrays]]) -> Agreed:
        """Return the state after the training: of each group the model that most peers came to.

        They all come to the same, unless a peer took part in a job that ended twice, or lies. A group whose job ended
        at no peer keeps the model that it had.
        """
        models = self.group_models.copy()
        sent: dict[int, dict[bytes, list[int]]] = {}
        for peer, part in parts:
            for group, digest in zip(part["groups"].tolist(), part["models"], strict=True):
                sent.setdefault(group, {}).setdefault(digest.tobytes(), []).append(peer)
        holders = np.zeros((max([len(self.holders), *(peer + 1 for peer, _ in parts)]), self.n_groups), np.bool_)
        holders[: len(self.holders)] = self.holders
        for group, found in sorted(sent.items()):
            digest, peers = max(found.items(), key=lambda item: (len(item[1]), -item[1][0]))
            models[group] = np.frombuffer(digest, np.uint8)
            holders[:, group] = False
            holders[peers, group] = True
        return replace(self, phase="refine", group_models=models, holders=holders)

    def counted(self, parts: Sequence[tuple[int, Arrays]], *, n_active: int, n_isolated: int) -> Agreed:
        """Return the state with one more row of history, and who has how many rows in each group, and own clusters.

        Models of groups that no row belongs to are dropped: a kind of rows may begin as two groups, and one of them soon
        serves the rows of both better. A group stays as long as a peer is away that had rows in it.
        """
        refined = [peer for peer, _ in parts]
        members = np.zeros((refined[-1] + 1, self.n_groups), np.int64)
        for peer, part in parts:
            members[peer] = part["members"]
        # Of a peer that is away now, what it sent last.
        alone = np.zeros(max(len(self.alone), refined[-1] + 1), np.int64)
        alone[: len(self.alone)] = self.alone
        alone[refined] = [int(part["alone"]) for _, part in parts]
        changed, rows = (sum(int(part[name]) for _, part in parts) for name in ("changed", "rows"))
        row = [self.iteration, self.refinement, self.n_groups, n_isolated, len(self.links), changed, rows, n_active]
        history = np.concatenate([self.history, np.array([row], np.float64)])
        missed = [peer for peer in range(len(self.members)) if peer not in refined]
        models = self.group_models.copy()
        models[(members.sum(axis=0) <= 0) & (self.members[missed].sum(axis=0) <= 0)] = 0
        return replace(self, members=members, alone=alone, history=history, group_models=models)

    def problem(self) -> str:
        """Say why such arrays cannot have been agreed on, or return an empty string; lengths were checked before."""
        try:
            clusters, association = self.clusters, self.association
        except (P2PClustError, ValueError, OverflowError) as error:
            return str(error)
        rows, aside, alone = self.rows, self.aside, self.alone
        turns_exist = 0 <= self.iteration < _MOST_TURNS and 0 <= self.refinement < _MOST_TURNS
        rows_fit = clusters.total == len(rows) and ((rows >= 1) & (rows <= MOST_ROWS)).all()
        verdicts_fit = len(self.told) == len(clusters.counts) and len(self.table) == clusters.total
        problems = {
            "a count is out of range": not turns_exist,
            "there are not as many clusters as models": not rows_fit,
            "verdicts do not fit the clusters": self.phase == "graph" and not verdicts_fit,
            "a cluster that is set aside does not exist": ((aside < 0) | (aside >= clusters.total)).any(),
            "there are not as many groups as models of groups": self.phase in ("train", "refine")
            and len(association.groups) != self.n_groups,
            "the members of groups are malformed": (self.members < 0).any(),
            "the numbers of own clusters are malformed": ((alone < 0) | (alone > MOST_CLUSTERS)).any(),
        }
        return next((problem for problem, found in problems.items() if found), "")


def news(before: Agreed, after: Agreed, runs: Sequence[Run], size: int) -> dict[str, Any]:
    """Return what a phase came to, in plain values: for the graph its clusters and links, for a refinement its history.

    ``model_bytes`` are the bytes of models, `size` each, that the phase moves between peers, all of them together. It
    follows from the state, so it is the same on every backend: what is sent again after a loss does not count. `runs` are
    the jobs of the communities.
    """
    found: dict[str, Any] = {}
    moved, counts = 0, before.counts.tolist()
    match before.phase:
        case "models":
            found = {"clusters": after.counts.tolist(), "cluster_rows": after.rows.tolist()}
        case "verdicts":
            # Every peer that sent any has fetched the models of all others.
            moved = sum(sum(counts) - own for own, told in zip(counts, after.told.tolist(), strict=True) if told)
        case "graph":
            graph = after.association
            found = {"clusters": after.counts.tolist(), "links": after.links.tolist()}
            found |= {"groups": [list(group) for group in graph.groups], "isolated": list(graph.isolated)}
        case "train":
            # In each round, every peer of a community but its aggregator gets the weights and sends its own.
            moved = sum(2 * int(run.job.stages[0].parameters["rounds"]) * (len(run.roster) - 1) for run in runs)
            found = {"refinement": before.refinement, "models_of_groups": len(after.alive)}
        case "refine":
            # Every peer with clusters fetches the models of the communities in whose training it had no part.
            there = [peer for peer, own in enumerate(counts) if own]
            held = [before.holders_of(group) for group in range(before.n_groups) if before.group_model(group)]
            moved = sum(peer not in holders for holders in held for peer in there)
            found = dict(zip(HISTORY, (int(x) for x in after.history[-1]), strict=True))
    iteration = max(before.iteration, after.iteration)
    return {"phase": before.phase, "iteration": iteration, "model_bytes": moved * size, **found}
