"""What tests of FedCRef share: peers whose rows are of planted kinds, small jobs, and a hand on every round.

A kind is a point of the unit cube; its rows lie along a direction of its own, so that an autoencoder of a few units can
learn one kind and fails on the others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from p2pclust.errors import WireError
from p2pclust.lab.testbed.spec import PeerSpec
from p2pclust.protocols.engine import engine
from p2pclust.protocols.engine.arrays import Arrays, Contribution
from p2pclust.protocols.engine.base import Abstain
from p2pclust.protocols.engine.job import Job, JobState, Stage
from p2pclust.protocols.engine.local import Local
from p2pclust.protocols.engine.runner import Workspaces, _run
from p2pclust.protocols.engine.wire import ContributionReader, decode_state
from p2pclust.protocols.engine.workspace import Run, Workspace
from p2pclust.protocols.models.association import Clusters
from p2pclust.protocols.models.fedcref import FedCRefProtocol
from p2pclust.protocols.models.fedcref_agreed import Agreed

D = 8
"""Columns."""

#: Corners of the cube, each four edges or more from every other.
_CORNERS = np.array([[int(bit) for bit in f"{word:08b}"] for word in (0, 15, 51, 60, 85, 90, 102, 105)], np.float64)


@dataclass(frozen=True)
class Planted:
    """One peer's rows, what kind each is of, and the labels that it starts from."""

    X: NDArray[np.float64]
    truth: NDArray[np.int64]
    labels: NDArray[np.int64]

    def local(self) -> Local:
        return Local(self.X, labels=self.labels, n_clusters=len(np.unique(self.truth)))

    def spec(self, name: str) -> PeerSpec:
        return PeerSpec(name, self.X, labels=self.labels, n_clusters=len(np.unique(self.truth)))


def planted(kinds_of: Sequence[Sequence[int]], *, rows: int = 24, dirt: float = 0.0, seed: int = 0) -> list[Planted]:
    """Peers with rows of these kinds; a share `dirt` of their labels is wrong."""
    rng = np.random.default_rng(seed)
    middles = 0.2 + 0.6 * _CORNERS
    ways = rng.uniform(-1, 1, (len(_CORNERS), D))
    peers = []
    for own in kinds_of:
        truth = np.repeat(np.array(own, np.int64), rows)
        along = 0.15 * rng.uniform(-1, 1, (len(truth), 1)) * ways[truth]
        X = np.clip(middles[truth] + along + 0.02 * rng.normal(size=(len(truth), D)), 0.0, 1.0)
        labels = np.unique(truth, return_inverse=True)[1].astype(np.int64)
        wrong = rng.random(len(truth)) < dirt
        moved = (labels + 1) % max(1, len(own))
        peers.append(Planted(X, truth, np.where(wrong, moved, labels)))
    return peers


def specs(peers: Sequence[Planted]) -> tuple[PeerSpec, ...]:
    """For a fleet, by names in order."""
    return tuple(peer.spec(f"p{number}") for number, peer in enumerate(peers))


def a_job(mode: str = "refined", *, seed: int = 0, bounds: bool = True, **options: Any) -> Job:
    """A small job on rows of the unit cube."""
    own = {"max_refinements": 2} if mode == "refined" else {"max_iterations": 3, "theta": 0.4}
    given = {
        "mode": mode, "initial": "given", "hidden": [4], "epochs": 15, "batch": 8, "rounds": 3, "local_epochs": 3,
        "learning_rate": 0.02, "federated_rate": 0.02, "output": "linear", **own, **options,
    }  # fmt: skip
    declared = {"lo": [0.0] * D, "hi": [1.0] * D} if bounds else {}
    return Job((Stage("range", {"rows_needed": 1, **declared}), Stage("minmax"), Stage("fedcref", given)), seed=seed)


Liar = Callable[[int, Contribution], Contribution]


def judged(clusters: Clusters, parts: Sequence[Arrays | None], name: str, width: int) -> Agreed:
    """The state after peers sent these verdicts; None where one sent nothing."""
    sent = [(peer, part) for peer, part in enumerate(parts) if part is not None]
    return Agreed(counts=np.array(clusters.counts, np.int64)).judged(sent, name, width)


@dataclass
class Hand:
    """A job in this process, round by round."""

    job: Job
    locals: Sequence[Local]
    workspaces: Workspaces = field(default_factory=lambda: Workspaces(1))
    state: JobState = field(init=False)

    def __post_init__(self) -> None:
        self.state = engine.begin(self.job)

    @property
    def agreed(self) -> Agreed:
        return Agreed.of(self.state.arrays)

    @property
    def phase(self) -> str:
        return self.agreed.phase if "cref_phase" in self.state.arrays else ""

    @property
    def protocol(self) -> FedCRefProtocol:
        protocol = self.job.protocols[-1]
        assert isinstance(protocol, FedCRefProtocol)
        return protocol

    def prepared(self, peers: Sequence[int] | None = None) -> dict[int, Workspace]:
        """The workspaces of these peers, with everything that they want."""
        everybody = range(len(self.locals)) if peers is None else peers

        def run(child: Run, own: Workspaces) -> JobState:
            return _run(child.job, [self.locals[peer] for peer in child.roster], None, own)

        return self.workspaces.prepare(self.job, self.state, list(everybody), len(self.locals), run)

    def answer(
        self, peer: int, workspace: Workspace | None = None, state: JobState | None = None
    ) -> Contribution | Abstain:
        """What a peer says, with everything on its workspace if none is given."""
        at = state or self.state
        workspace = self.prepared([peer]).get(peer) if workspace is None else workspace
        try:
            return engine.contribution(self.job, at, self.locals[peer], peer, len(self.locals), workspace)
        except Abstain as answer:
            return answer

    def answers(self, peers: Sequence[int] | None = None) -> dict[int, Contribution | Abstain]:
        """What these peers say; what they publish and note is kept."""
        everybody = list(range(len(self.locals)) if peers is None else peers)
        prepared = self.prepared(everybody)
        told = {peer: self.answer(peer, prepared.get(peer, Workspace(peer))) for peer in everybody}
        self.workspaces.take(prepared)
        return told

    def close(self, answers: Mapping[int, Contribution | Abstain]) -> JobState:
        """Close the round; every state must be one that others can read."""
        given = []
        abstained = {peer: told.reason for peer, told in answers.items() if isinstance(told, Abstain)}
        for peer, told in sorted(answers.items()):
            if isinstance(told, Arrays):
                n_peers = len(self.locals)
                try:
                    part = ContributionReader(self.job, self.state, n_peers=n_peers).read(told.encode())
                except WireError as error:
                    abstained[peer] = f"malformed: {error}"
                else:
                    given.append((peer, part))
        self.state = engine.advance(self.job, self.state, given, abstained, n_peers=len(self.locals))
        assert decode_state(self.job, self.state.encode()) == self.state, "others can read it"
        return self.state

    def round(self, peers: Sequence[int] | None = None, liar: Liar = lambda peer, part: part) -> JobState:
        """One round of these peers."""
        told = self.answers(peers)
        return self.close({p: t if isinstance(t, Abstain) else liar(p, t) for p, t in told.items()})

    def until(self, phase: str, *, again: bool = False) -> Hand:
        """Continue until this phase is next; `again`: at least one round on."""
        while self.state.status == "running" and (again or self.phase != phase):
            again = False
            self.round()
        assert self.phase == phase, self.state
        return self

    def end(self) -> JobState:
        while self.state.status == "running":
            self.round()
        return self.state

    def labels(self, peer: int) -> NDArray[np.int64]:
        """What the peer keeps of the job."""
        return engine.conclude(self.job, self.state, self.locals[peer], self.workspaces.of(peer))["labels"]

    def changed(self, **changes: Any) -> JobState:
        """The present state with other agreed values."""
        arrays = replace(self.agreed, **changes).into(self.state.arrays)
        return replace(self.state, arrays=arrays)


def hand(kinds_of: Sequence[Sequence[int]], mode: str = "refined", *, dirt: float = 0.0, **options: Any) -> Hand:
    """A job over planted peers."""
    return Hand(a_job(mode, **options), [peer.local() for peer in planted(kinds_of, dirt=dirt)])
