"""Exchanged models: whether one recognises a row that it was trained on, and how near a copy it can draw.

Each peer's models are attacked with rows that they were trained on, and with rows of the same peer that were withheld
from the job for this purpose: both are of one distribution, so a difference between them is what the model remembers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from p2pclust.clustering.autoencoders import ModelStack, Weights
from p2pclust.clustering.flows import FlowArchitecture, generated_rows, log_likelihoods
from p2pclust.clustering.stacks import reconstruction_errors, reconstructions
from p2pclust.errors import UsageError
from p2pclust.lab.attacks.findings import AttackResult, Floats, ranges_of, recovered
from p2pclust.protocols.engine import engine, random_streams
from p2pclust.protocols.engine.arrays import State
from p2pclust.protocols.engine.base import Abstain
from p2pclust.protocols.engine.job import Job, JobState
from p2pclust.protocols.engine.local import Local
from p2pclust.protocols.engine.runner import Workspaces, one_thread, run_in_process
from p2pclust.protocols.engine.workspace import Workspace
from p2pclust.protocols.models.fedcref import FedCRefProtocol
from p2pclust.protocols.models.uifca import UIFCAProtocol

#: One row in so many is withheld from the job, of peers with at least as many rows.
_WITHHELD = 5
_DRAWS = 200
#: After so many steps of an autoencoder on its own output its rows are looked at.
_STEPS = (1, 5, 20)


@dataclass(frozen=True)
class SeenModels(ABC):
    """The models of one peer, as the peers that receive them use them; rows are in the data's units."""

    state: State  # with the scaling

    @abstractmethod
    def familiarity(self, X: Floats) -> Floats:
        """Return how familiar each row looks to the best of the models, on a logarithmic scale, shape (n,)."""

    @abstractmethod
    def copies(self, own: Floats, rng: np.random.Generator) -> Floats:
        """Return rows that the models draw, shape (k, F), with the help of rows of the attacker's own, shape (n, F)."""

    def _working(self, X: Floats) -> Floats:
        return np.asarray((X - self.state["origin"]) / self.state["scale"])

    def _raw(self, rows: NDArray[np.floating]) -> Floats:
        return np.asarray(self.state["origin"] + rows.astype(np.float64) * self.state["scale"])


@dataclass(frozen=True)
class _Autoencoders(SeenModels):
    stack: ModelStack

    def familiarity(self, X: Floats) -> Floats:
        errors = reconstruction_errors(self.stack, self._working(X)).min(axis=1)
        return np.asarray(-np.log(np.maximum(errors, np.finfo(np.float32).tiny)), dtype=np.float64)

    def copies(self, own: Floats, rng: np.random.Generator) -> Floats:
        begin = rng.permutation(self._working(own))[:_DRAWS]
        drawn = []
        for number in range(len(self.stack)):
            rows = begin
            for step in range(1, _STEPS[-1] + 1):
                rows = reconstructions(self.stack[[number]], rows)[0].astype(np.float64)
                if not np.isfinite(rows).all():
                    break
                if step in _STEPS:
                    drawn.append(self._raw(rows))
        return np.concatenate(drawn) if drawn else np.zeros((0, begin.shape[1]))


@dataclass(frozen=True)
class _Flows(SeenModels):
    architecture: FlowArchitecture
    weights: Weights

    def familiarity(self, X: Floats) -> Floats:
        logs = log_likelihoods(self.architecture, self.weights, self._working(X))
        return np.asarray(logs.max(axis=1), dtype=np.float64)

    def copies(self, own: Floats, rng: np.random.Generator) -> Floats:
        codes = rng.standard_normal((_DRAWS, own.shape[1]))
        rows = np.concatenate(generated_rows(self.architecture, self.weights, codes))
        return self._raw(rows[np.isfinite(rows).all(axis=1)])


def exchanges_models(job: Job) -> bool:
    """Return whether the peers of a job send models, and not sums or centers."""
    return job.has_workspace or isinstance(job.protocols[job.main], UIFCAProtocol)


def attack_models(job: Job, locals: Sequence[Local], *, clock: Callable[[], float]) -> list[AttackResult]:
    """Run a job in this process without a fifth of the rows, and attack the models that its peers send."""
    parts = [_parted(local, random_streams.attacking(job.seed, peer)) for peer, local in enumerate(locals)]
    trained, withheld = [one for one, _ in parts], [other for _, other in parts]
    protocol = job.protocols[job.main]
    if isinstance(protocol, FedCRefProtocol):
        observer, models = "any peer", _first_exchange(job, protocol, trained)
    elif isinstance(protocol, UIFCAProtocol):
        observer, models = "aggregator", _last_round(job, protocol, trained)
    else:
        raise UsageError(f"audit: what {protocol.id} exchanges cannot be attacked: only autoencoders and flows can")
    with one_thread():
        return [
            *_membership(observer, models, trained, withheld, clock),
            _copies(observer, job.seed, models, trained, withheld, clock),
        ]


def _parted(local: Local, rng: np.random.Generator) -> tuple[Local, Floats]:
    """Return a peer's rows without those that are withheld, and these, shape (m, F)."""
    if local.n_samples < _WITHHELD or local.problem:
        return local, np.zeros((0, local.n_features))
    out = np.sort(rng.permutation(local.n_samples)[: local.n_samples // _WITHHELD])
    kept = np.setdiff1d(np.arange(local.n_samples), out)
    labels = None if local.labels is None else local.labels[kept]
    return Local(local.X[kept], labels=labels, n_clusters=local.n_clusters), local.X[out]


@dataclass
class _Watched(Workspaces):
    """Workspaces that remember what each peer published first."""

    first: dict[int, list[bytes]] = field(default_factory=dict)

    def take(self, used: Mapping[int, Workspace]) -> None:
        for peer, workspace in used.items():
            if workspace.published:
                self.first.setdefault(peer, list(workspace.published))
        super().take(used)


def _first_exchange(job: Job, protocol: FedCRefProtocol, locals: Sequence[Local]) -> dict[int, SeenModels]:
    """Return the autoencoders of each peer's own clusters, which every peer fetches."""
    watched = _Watched()
    state = _done(run_in_process(job, locals, workspaces=watched))
    architecture = protocol.architecture(state.arrays)
    return {
        peer: _Autoencoders(state.arrays, ModelStack.decode(architecture, data, protocol.encoding))
        for peer, data in sorted(watched.first.items())
    }


def _last_round(job: Job, protocol: UIFCAProtocol, locals: Sequence[Local]) -> dict[int, SeenModels]:
    """Return the flows that each peer sent to the aggregator in the last round."""
    asked = [engine.begin(job)]

    def keep(state: JobState) -> None:
        if state.status == "running":
            asked[:] = [state]

    _done(run_in_process(job, locals, keep))
    (state,) = asked
    models: dict[int, SeenModels] = {}
    for peer, local in enumerate(locals):
        try:
            with one_thread():
                weights = engine.contribution(job, state, local, peer, len(locals))["weights"]
        except Abstain:
            continue
        models[peer] = _Flows(state.arrays, protocol.architecture(local.n_features), np.asarray(weights))
    return models


def _done(state: JobState) -> JobState:
    if state.status != "done":
        raise UsageError(f"audit: without a fifth of its rows the job fails: {state.reason}")
    return state


def _membership(
    observer: str, models: Mapping[int, SeenModels], trained: Sequence[Local], withheld: Sequence[Floats],
    clock: Callable[[], float],
) -> list[AttackResult]:  # fmt: skip
    """Distinguish rows that were trained on from others.

    An autoencoder reconstructs them with smaller errors, and a flow gives them higher densities (S. Yeom et al., 2018).
    *Calibrated*, the same is compared with the models of other peers, for which the row is new in any case: a row that is
    easy for all models is then not taken for a member (L. Watson et al., 2022).
    """
    from sklearn.metrics import roc_auc_score  # noqa: PLC0415 - slow to import

    began = clock()
    plain, calibrated, rows = [], [], 0
    for peer, own in models.items():
        if not len(withheld[peer]):
            continue
        X = np.concatenate([trained[peer].X, withheld[peer]])
        member = np.arange(len(X)) < trained[peer].n_samples
        familiar = own.familiarity(X)
        plain.append(float(roc_auc_score(member, familiar)))
        others = [other.familiarity(X) for number, other in models.items() if number != peer]
        if others:
            calibrated.append(float(roc_auc_score(member, familiar - np.max(others, axis=0))))
        rows += trained[peer].n_samples
    seconds = clock() - began
    return [
        AttackResult(observer, attack, rows, None, seconds, {}, auc=float(np.mean(found)))
        for attack, found in (("membership inference", plain), ("membership inference, calibrated", calibrated))
        if found
    ]


def _copies(
    observer: str, seed: int, models: Mapping[int, SeenModels], trained: Sequence[Local], withheld: Sequence[Floats],
    clock: Callable[[], float],
) -> AttackResult:  # fmt: skip
    """Draw copies of rows.

    Rows that were trained on can be attractors of an overfitted autoencoder that is applied to its own output repeatedly
    (A. Radhakrishnan et al., 2018); the attacker begins with rows of its own. A flow is sampled.
    """
    began, ranges = clock(), ranges_of(trained)
    by_peer, near, far, rows = {}, [], [], 0
    for peer, own in models.items():
        able = [number for number in models if number != peer] or [peer]
        attacker = trained[next((number for number in able if number > peer), able[0])]
        drawn = own.copies(attacker.X, random_streams.attacking(seed, len(trained) + peer))
        if hits := recovered(drawn, trained[peer].X, ranges):
            by_peer[peer] = hits
        near.append(_nearest(drawn, trained[peer].X, ranges))
        far.append(_nearest(drawn, withheld[peer], ranges))
        rows += trained[peer].n_samples
    least = (min(distances, default=np.inf) for distances in (near, far))
    nearest, control = (float(distance) if np.isfinite(distance) else None for distance in least)
    return AttackResult(
        observer, "copies drawn from models", rows, sum(by_peer.values()), clock() - began, by_peer,
        nearest=nearest, control=control,
    )  # fmt: skip


def _nearest(drawn: Floats, rows: Floats, ranges: Floats) -> float:
    """Return the distance of the nearest draw to any of the rows; infinite without draws or rows."""
    if not len(drawn):
        return np.inf
    return min((float((np.abs(drawn - row) / ranges).max(axis=1).min()) for row in rows), default=np.inf)
