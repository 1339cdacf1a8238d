"""FedCRef: peers find out which of their clusters are the same, and train a model of each community together.

M. Nardi, L. Valerio, A. Passarella: Federated Clustering: An Unsupervised Cluster-Wise Training for Decentralized Data
Distributions. docs/protocols/fedcref.md has the five phases, both modes, the departures, and what a peer reveals. Each
round of the job is one phase of Algorithm 1, agreed on by all peers; comments name its lines.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from p2pclust.clustering.autoencoders import Architecture, encoded_size
from p2pclust.errors import WireError
from p2pclust.protocols.engine.arrays import Arrays, Contribution, State
from p2pclust.protocols.engine.base import Labelling, Slot, WithWorkspace
from p2pclust.protocols.engine.job import Job, Stage
from p2pclust.protocols.engine.local import Local
from p2pclust.protocols.engine.random_streams import MAX_SEED
from p2pclust.protocols.engine.workspace import DIGEST_BYTES, Fetch, Run, Wants, Workspace
from p2pclust.protocols.models import affinity, mutual_test
from p2pclust.protocols.models.association import Association, first_aggregators
from p2pclust.protocols.models.fedavg import architecture_of
from p2pclust.protocols.models.fedcref_agreed import ARRAYS, HISTORY, MOST_CLUSTERS, MOST_ROWS, PHASES, Agreed, news
from p2pclust.protocols.models.fedcref_note import Note, own_clusters
from p2pclust.protocols.models.fedcref_parameters import MOST_OF_A_PEER, FedCRefParameters
from p2pclust.protocols.models.fedcref_peer import AtWork
from p2pclust.protocols.models.refinement import stop_reason


@dataclass(frozen=True)
class FedCRefProtocol(FedCRefParameters, WithWorkspace, Labelling):
    """FedCRef: an autoencoder for each cluster of each peer; peers find which are the same, and train together."""

    id: ClassVar[str] = "fedcref"
    holds: ClassVar[str] = (
        "int64: stream cref_phase cref_iteration cref_refinement; int64 a: cref_counts; int64 q: cref_rows; "
        "uint8 q 32: cref_models; bool a2: cref_told; uint8 q2 z: cref_table; int64 l 2: cref_links; "
        "int64 v: cref_aside; int64 b2 g: cref_members; uint8 g 32: cref_group_models; bool h g: cref_holders; "
        "int64 d: cref_differs; bool r: cref_resting; float64 t2 8: cref_history; int64 e: cref_alone"
    )
    reveals: ClassVar[str] = (
        "a model of each of its clusters and its number of rows; for each cluster and each other peer's model one "
        "byte (mode refined) or bit (paper); each round of a community, a model trained on its rows and their "
        "number; how many rows changed, and how many are in each community. No label"
    )
    before: ClassVar[tuple[str, ...]] = ("range", "scaling")
    stops: ClassVar[str] = "rows keep their clusters, or the associations are at rest"
    works_on: ClassVar[tuple[str, ...]] = ("origin", "scale", *ARRAYS)
    imports: ClassVar[tuple[str, ...]] = ("torch", "networkx")

    # -- what follows from the state ----------------------------------------------------------------------------------

    def withholds_below(self, n_rows: int) -> bool:
        # Which peers train a community's model is agreed on with the job's rule, the same for all.
        return self.min_rows >= n_rows

    def architecture(self, state: State) -> Architecture:
        """Return the autoencoders' architecture for the rows of this job."""
        return architecture_of(self.id, state["origin"].size, self.hidden, self.output)

    def _verdicts(self, agreed: Agreed) -> tuple[str, int]:
        """Return the name of the array of verdicts in a contribution, and how many bytes there are for each cluster."""
        total = agreed.clusters.total
        return ("passes", -(-total // 8)) if self.mode == "paper" else ("affinity", total)

    def associate(self, agreed: Agreed) -> Association:
        """Return the association graph that follows from the verdicts; the same wherever it is computed (line 18)."""
        if self.links is None:  # mode "refined"
            return affinity.associate(agreed.clusters, agreed.table, agreed.told)
        return mutual_test.associate(agreed.clusters, agreed.table, agreed.told, self.links)

    def runs(self, state: State, agreed: Agreed) -> list[tuple[int, Run]]:
        """Return the training jobs of the present round, for each group that some peer trains (line 23).

        In mode "paper" its members are the associated clusters, and it begins from random weights, the same for all of them;
        in mode "refined" they are the peers that have rows in the group, and it begins from its last model.
        """
        association = agreed.association
        rosters = {g: who for g in range(agreed.n_groups) if (who := agreed.trainers(g, self.min_rows))}
        made = []
        for (group, roster), aggregator in zip(rosters.items(), first_aggregators([*rosters.values()]), strict=True):
            clusters = [[group]] * len(roster)
            if self.mode == "paper":
                members = [association.clusters.nodes[m] for m in association.groups[group]]
                clusters = [[q for p, q in members if p == peer] for peer in roster]
            # Agreed on, so all of them train alike.
            pace = self.pace(float(np.median(agreed.members[list(roster), group])))
            parameters = {
                "n_features": int(state["origin"].size), "clusters": clusters, "hidden": list(self.hidden),
                "output": self.output, "rounds": self.rounds, "epochs": pace.local_epochs,
                "batch": pace.batch, "learning_rate": self.federated_rate, "encoding": self.encoding,
                "start": agreed.group_model(group).hex(), "device": self.device,
            }  # fmt: skip
            turn = [agreed.iteration, agreed.refinement, group]
            seed = int(np.random.SeedSequence([agreed.stream, *turn]).generate_state(1, np.uint64)[0]) & MAX_SEED
            job = Job((Stage("fedavg", parameters),), seed)
            made.append((group, Run(".".join(map(str, turn)), job, roster, aggregator)))
        return made

    # -- the rounds ---------------------------------------------------------------------------------------------------

    def open(self, state: State, rng: np.random.Generator) -> State:
        # Declared bounds stay: rows outside of them take no part in any round.
        declared = "declared" in state and bool(state["declared"].all())
        names = ("origin", "scale", *(("lo", "hi", "declared") if declared else ()))
        scaling = Arrays({name: state[name] for name in names})
        return Agreed(stream=int(rng.integers(MAX_SEED))).into(scaling)

    def expects(self, state: State) -> Mapping[str, Slot]:
        agreed = Agreed.of(state)
        match agreed.phase:
            case "models":
                return {"rows": Slot((None,), "int64"), "models": Slot((None, DIGEST_BYTES), "uint8")}
            case "verdicts":
                name, width = self._verdicts(agreed)
                return {name: Slot((None, width), "uint8")}
            case "graph":
                return {"digest": Slot((DIGEST_BYTES,), "uint8")}
            case "train":
                return {"groups": Slot((None,), "int64"), "models": Slot((None, DIGEST_BYTES), "uint8")}
            case "refine":
                counts = {"changed": Slot((), "int64"), "rows": Slot((), "int64"), "stable": Slot((), "bool")}
                return {**counts, "members": Slot((agreed.n_groups,), "int64"), "alone": Slot((), "int64")}

    def wants(self, state: State, workspace: Workspace) -> Wants:
        agreed = Agreed.of(state)
        size = encoded_size(self.architecture(state).n_parameters, self.encoding)
        note = Note.of(workspace.note)
        own = [Fetch(digest, size, (workspace.peer,)) for digest in (note.own_models if note else ())]
        again = self.mode == "refined" and agreed.refinement == 0 and agreed.phase in ("graph", "refine")
        owners: dict[bytes, list[int]] = {}
        if agreed.phase == "verdicts" or again:
            # The models of all clusters; two may be the same, bit for bit.
            for index, owner in enumerate(agreed.clusters.owners.tolist()):
                owners.setdefault(agreed.model(index), []).append(owner)
        of_groups: list[tuple[bytes, tuple[int, ...]]] = []
        if agreed.phase in ("train", "refine"):
            of_groups = [(agreed.group_model(group), agreed.holders_of(group)) for group in range(agreed.n_groups)]
        models = [*((digest, tuple(who)) for digest, who in owners.items()), *of_groups]
        runs = self._own_runs(state, agreed, workspace) if agreed.phase == "train" else []
        fetches = (*own, *(Fetch(digest, size, who) for digest, who in models if digest))
        return Wants(fetches, tuple(run for _, run in runs))

    def _own_runs(self, state: State, agreed: Agreed, workspace: Workspace) -> list[tuple[int, Run]]:
        return [(group, run) for group, run in self.runs(state, agreed) if workspace.peer in run.roster]

    def contribute_with(
        self, state: State, local: Local, rng: np.random.Generator, workspace: Workspace
    ) -> Contribution:
        agreed = Agreed.of(state)
        work = AtWork(self, self.architecture(state), state, agreed, local, workspace)
        match agreed.phase:
            case "models":
                return work.train_clusters(rng)
            case "verdicts":
                return work.judge()
            case "graph":
                digest = self.associate(agreed).digest
                return Arrays(digest=np.frombuffer(digest, np.uint8))
            case "train":
                return work.hand_in(self._own_runs(state, agreed, workspace), rng)
            case "refine":
                return work.refine(rng)

    def problems_with_parts(self, state: State, contributions: Sequence[tuple[int, Contribution]]) -> Mapping[int, str]:
        agreed, left_out, n_clusters = Agreed.of(state), {}, 0
        for peer, part in contributions:
            try:
                self._check(agreed, peer, part)
                if agreed.phase == "models":
                    if n_clusters + len(part["rows"]) > MOST_CLUSTERS:
                        raise WireError(f"no room for its clusters: a fleet may have {MOST_CLUSTERS}")
                    n_clusters += len(part["rows"])
            except WireError as error:
                left_out[peer] = f"failed: {error}"
        return left_out

    def _check(self, agreed: Agreed, peer: int, part: Contribution) -> None:
        match agreed.phase:
            case "models":
                rows, n_models = part["rows"], len(part["models"])
                if not 1 <= len(rows) == n_models <= MOST_OF_A_PEER or rows.min() < 1 or rows.max() > MOST_ROWS:
                    raise WireError("its clusters are malformed")
            case "verdicts":
                if peer >= len(agreed.clusters.counts):
                    raise WireError("verdicts without clusters")
                read = mutual_test.read_verdicts if self.mode == "paper" else affinity.read_verdicts
                read(agreed.clusters, peer, part)
            case "train":
                groups = part["groups"].tolist()
                if len(groups) != len(part["models"]) or sorted(set(groups)) != groups:
                    raise WireError("its models of groups are malformed")
                if groups and not 0 <= groups[0] <= groups[-1] < agreed.n_groups:
                    raise WireError("a model of a group that does not exist")
                if any(peer not in agreed.trainers(group, self.min_rows) for group in groups):
                    raise WireError("a model of a group that it does not train")
            case "refine":
                of_all, members = int(part["rows"]), part["members"]
                sound = 0 <= int(part["changed"]) <= of_all <= MOST_ROWS and 0 <= int(part["alone"]) <= MOST_CLUSTERS
                if not sound or part["alone"] > of_all or ((members < 0) | (members > of_all)).any():
                    raise WireError("its counts are out of range")

    def combine(self, state: State, contributions: Any) -> State:
        agreed = Agreed.of(state)
        match agreed.phase:
            case "models":
                after = agreed.entered(contributions)
            case "verdicts":
                after = agreed.judged(contributions, *self._verdicts(agreed))
            case "graph":
                found = self.associate(agreed)
                first = affinity.medoids(agreed.table, found.groups) if self.mode == "refined" else None
                after = agreed.associated(found, contributions, first)
            case "train":
                after = agreed.trained(contributions)
            case "refine" if self.mode == "refined":
                alone = sum(int(part["alone"]) for _, part in contributions)
                left = agreed.counted(contributions, n_active=len(contributions), n_isolated=alone)
                history = left.history.copy()
                history[-1, HISTORY.index("groups")] = len(left.alive)
                after = replace(left, phase="train", refinement=agreed.refinement + 1, history=history)
            case "refine":
                # Lines 29 to 31; a peer that once came to rest stays so.
                peers = [peer for peer, _ in contributions]
                resting = np.zeros(max(peers[-1] + 1, len(agreed.resting)), np.bool_)
                resting[: len(agreed.resting)] = agreed.resting
                resting[[peer for peer, part in contributions if part["stable"]]] = True
                isolated = len(agreed.association.isolated)
                # The stop rule looks at the groups that were found, so history counts all of them here.
                left = agreed.counted(contributions, n_active=int((~resting[peers]).sum()), n_isolated=isolated)
                after = replace(left, phase="models", resting=resting)
        return after.into(state)

    @property
    def round_limit(self) -> int:
        """Rounds of the most iterations, or refinements; an empty round counts as one of them."""
        if self.mode == "paper":
            return len(PHASES) * int(self.max_iterations or 0)
        return len(PHASES) - 1 + 2 * int(self.max_refinements or 0)

    def finished(self, previous: State, state: State, rounds: int) -> bool:
        return self.stop_reason(previous, state) != ""

    def stop_reason(self, previous: State, state: State) -> str:
        """Say why it ends with this step, or return an empty string if it continues (Phase 5)."""
        if Agreed.of(previous).phase != "refine":
            return ""
        done = Agreed.of(state).history
        last = dict(zip(HISTORY, done[-1].tolist(), strict=True))
        if self.mode == "paper":
            return stop_reason(int(last["active"]), [(int(row[2]), int(row[3])) for row in done])
        settled = last["changed"] < float(self.settled or 0.0) * last["rows"] or last["groups"] == 0
        return "hardly a row changes its cluster" if settled else ""

    def problem_with_step(self, previous: State, state: State) -> str:
        """Fail if two peers built different graphs from the same verdicts: no result of theirs would mean the same."""
        differs = Agreed.of(state).differs.tolist()
        if differs:
            return f"fedcref: peers {differs} built another association graph from the same verdicts: this is a bug"
        return ""

    def news(self, previous: State, state: State) -> Mapping[str, Any]:
        before = Agreed.of(previous)
        runs = [run for _, run in self.runs(previous, before)] if before.phase == "train" else []
        size = encoded_size(self.architecture(previous).n_parameters, self.encoding)
        return news(before, Agreed.of(state), runs, size)

    def problem_with_state(self, state: State, *, done: bool) -> str:
        phase = int(state["cref_phase"])
        if not 0 <= phase < len(PHASES):
            return f"fedcref: there is no phase {phase}"
        agreed = Agreed.of(state)
        fits = agreed.phase != "graph" or agreed.table.shape[1:] == self._verdicts(agreed)[1:]
        problem = agreed.problem() if fits else "verdicts do not fit the clusters"
        return problem and f"fedcref: {problem}"

    # -- the end ------------------------------------------------------------------------------------------------------

    def results(self, state: State) -> tuple[bytes, ...]:
        agreed = Agreed.of(state)
        return tuple(digest for group in range(agreed.n_groups) if (digest := agreed.group_model(group)))

    def own_results(self, state: State, note: Arrays) -> tuple[bytes, ...]:
        """Return the digests of the own models that a peer concludes with: those of its own clusters.

        A peer that missed the last refinement has yet to find out which of its clusters have rows: then all.
        """
        agreed, kept = Agreed.of(state), Note.of(note)
        if kept is None:
            return ()
        if kept.refinements != len(agreed.history):
            return kept.own_models
        return tuple(digest for own in own_clusters(agreed, kept) for digest in own.models)

    def conclude_with(self, state: State, local: Local, rng: np.random.Generator, workspace: Workspace) -> Arrays:
        return AtWork(self, self.architecture(state), state, Agreed.of(state), local, workspace).conclude(rng)
