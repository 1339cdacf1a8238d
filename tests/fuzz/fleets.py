"""Fleets of real cores in virtual time, of which one peer is a liar.

The liar is a peer like the others whose messages are changed on their way, or one that is gone and in whose name others are
made up; mostly both.

Everything that the honest peers do is the code of a peer: codec, core, and the mathematics of a worker. Only clock, network
and disk are simulated. All messages are recorded, as material for mutations.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from typing import Any, Final

import msgpack
import numpy as np

from p2pclust.errors import WireError
from p2pclust.lab.simulation.world.lines import Parcel
from p2pclust.lab.simulation.world.network import Conditions, Network, Traffic
from p2pclust.lab.simulation.world.peer import Peer, paper_roster
from p2pclust.lab.simulation.world.world import World
from p2pclust.peer.core.codec import decode
from p2pclust.peer.core.effects import CheckRoster, Effect
from p2pclust.peer.core.events import Arrived, Cancel, RosterRead, Submit
from p2pclust.peer.core.messages import Message, Relay
from p2pclust.peer.core.timing import PRESETS, Limits
from p2pclust.peer.core.treatment import Treatment
from p2pclust.protocols.engine.compose import cluster_job
from p2pclust.protocols.engine.job import Job, Stage
from p2pclust.protocols.engine.local import Local
from p2pclust.transport.links import Lane

__all__ = ["FLEETS", "HONEST", "LIAR", "Fleet"]

HONEST: Final = ("p1", "p2", "p3", "p4")
LIAR: Final = "p5"
NAMES: Final = (*HONEST, LIAR)
_LINE: Final = {"p1": ("p2",), "p2": ("p1", "p3"), "p3": ("p2", "p4", "p5"), "p4": ("p3",), "p5": ("p3",)}
_SMALL: Final = Limits(inline_bytes=64, chunk_bytes=128, blob_bytes=1 << 20)
_MOST_OF_A_KIND: Final = 60
_N_FEATURES: Final = 6
_SEE_EACH_OTHER_S: Final = 30.0


class Uncounted(Traffic):
    """Counts nothing: a relay of the liar may hold anything."""

    def count(self, source: str, target: str, frames: Sequence[bytes], n_bytes: int) -> None:
        pass


class FuzzedWorld(World):
    """Records what is sent, and lets only the roster that the fleet signed pass for signed."""

    def __init__(self, *words: Any, **options: Any) -> None:
        super().__init__(*words, **options)
        self.recorded: dict[str, list[list[bytes]]] = {}
        self.relays: dict[tuple[str, str, tuple[bytes, ...]], None] = {}  # what honest peers have signed
        self.traffic = Uncounted()
        self.lies = False  # whether the liar has begun
        self.signed: tuple[bytes, ...] = ()
        #: What becomes of a message that the liar's own core wants sent.
        self.tamper: Callable[[str, Message], list[bytes] | None] = lambda target, message: None
        #: Takes each message of the liar that arrives at an honest peer.
        self.take: Callable[[Peer, list[bytes], str], bool] = lambda peer, frames, via: self.receive(
            peer, LIAR, frames, via
        )

    def receive(self, peer: Peer, source: str, frames: list[bytes], via: str = "") -> bool:
        """Take a message as a shell does; return whether it got as far as the core.

        The shell knows the sender, and lets no relayed message pass that its origin did not sign.
        """
        try:
            message = decode(frames)
            if isinstance(message, Relay) and message.target == peer.name:
                inner = decode(message.inner)
                signed = message.origin == LIAR or (message.origin, message.target, message.inner) in self.relays
                if isinstance(inner, Relay) or not signed:
                    return False
                message, source, via = inner, message.origin, source
        except WireError as error:
            if source == LIAR or b"relay" in frames[0][:16]:
                return False
            raise AssertionError(f"{source} sends what no peer can read: {error}") from None
        self.step(peer, Arrived(source, message, via=via))
        return True

    def transmit(self, peer: Peer, target: str, frames: list[bytes], lane: Lane) -> bool:
        """Record a message, and let the liar change its own, before it is sent."""
        message = _readable(peer.name, target, frames)
        kept = self.recorded.setdefault(message.kind, [])
        kept.append(list(frames))
        if len(kept) > _MOST_OF_A_KIND:
            del kept[: _MOST_OF_A_KIND // 2]
        if isinstance(message, Relay) and message.origin == peer.name:
            self.relays[message.origin, message.target, message.inner] = None
        if self.lies:
            if target == peer.name or (self.overlay.sparse and target not in peer.links):
                return False  # links drop it: the liar sends on connections of its own, and made the peer answer there
            if peer.name == LIAR:
                frames = self.tamper(target, message) or frames
        return super().transmit(peer, target, frames, lane)

    def _deliver(self, parcel: Parcel) -> None:
        peer = self.peers[parcel.target]
        if peer.core is None:
            return
        if parcel.source == LIAR and self.lies:
            self.take(peer, parcel.frames, "")
        else:
            self.receive(peer, parcel.source, parcel.frames)

    def perform_on_roster(self, peer: Peer, effect: Effect) -> None:
        if isinstance(effect, CheckRoster) and effect.data not in self.signed:
            refused = RosterRead(effect.source, b"", False, reason="the fleet did not sign it")
            self.at(self.now, lambda: self.step(peer, refused))
            return
        super().perform_on_roster(peer, effect)


def _readable(source: str, target: str, frames: list[bytes]) -> Message:
    """Return a message: what a lie makes an honest peer send must be readable, or that peer would be as good as dead."""
    try:
        return decode(frames)
    except WireError as error:
        raise AssertionError(f"{source} sends {target} what no peer can read ({error}): {frames!r:.600}") from None


def _rows(rng: np.random.Generator) -> dict[str, Local]:
    kinds = rng.uniform(0, 100, (3, 2))
    return {name: Local(kinds[rng.integers(0, 3, 12)] + rng.normal(0, 3, (12, 2))) for name in NAMES}


def _columns(rng: np.random.Generator) -> dict[str, Local]:
    truth, ids = rng.integers(0, 3, 30), np.arange(30)
    return {name: Local(truth[:, None] * 5 + rng.normal(0, 1, (30, 2)), ids=ids) for name in NAMES}


def _labelled(rng: np.random.Generator) -> dict[str, Local]:
    """Rows of two of three kinds at each peer, with their labels."""
    kinds, made = rng.random((3, _N_FEATURES)), {}
    for name in NAMES:
        truth = np.repeat(rng.choice(3, 2, replace=False), 10)
        X = np.clip(kinds[truth] + rng.normal(0, 0.05, (20, _N_FEATURES)), 0, 1)
        made[name] = Local(X, labels=np.unique(truth, return_inverse=True)[1], n_clusters=2)
    return made


def _models(seed: int) -> Job:
    """A job whose peers exchange models as blobs, and run jobs within it."""
    parameters = {
        "mode": "refined", "initial": "given", "hidden": [3], "output": "linear", "epochs": 6, "batch": 8, "rounds": 2,
        "learning_rate": 0.02, "federated_rate": 0.02, "min_rows": 4, "max_refinements": 2,
    }  # fmt: skip
    bounds = {"lo": [0.0] * _N_FEATURES, "hi": [1.0] * _N_FEATURES}
    return Job((Stage("range", {"rows_needed": 1, **bounds}), Stage("minmax"), Stage("fedcref", parameters)), seed)


@dataclass(frozen=True)
class Plan:
    """A fleet and its job."""

    job: Callable[[int], Job]
    treatment: Treatment = field(default_factory=Treatment)
    limits: Limits = field(default_factory=Limits)
    overlay: dict[str, tuple[str, ...]] | None = None
    keyed: bool = False
    rows: Callable[[np.random.Generator], dict[str, Local]] = _rows


def _cm(protocol: str, seed: int, **options: Any) -> Job:
    rounds: dict[str, Any] = {} if protocol == "k-fed" else {"max_rounds": 200, "tol": 0.0}
    return cluster_job(protocol, n_clusters=3, seed=seed, **rounds, **options)


#: One of each way in which peers work together: stars, trees, gossip; inline and as blobs; plain, padded, proved; repeated;
#: with models, and jobs within the job.
FLEETS: Final[dict[str, Plan]] = {
    "star": Plan(partial(_cm, "llf-cm", scaling="zscore", suppress_singletons=False)),
    "proposed": Plan(partial(_cm, "ffcm", init="careful", local_iterations=5), Treatment(aggregator="p1")),
    "blobs": Plan(partial(_cm, "llf-fcm", scaling="minmax", privacy_gate=False), limits=_SMALL),
    "tree": Plan(partial(_cm, "llf-cm", suppress_singletons=False), Treatment(collect="tree"), overlay=_LINE),
    "tree of blobs": Plan(partial(_cm, "llf-cm"), Treatment(collect="tree"), limits=_SMALL, overlay=_LINE),
    "gossip": Plan(partial(_cm, "llf-fcm", privacy_gate=False), Treatment(collect="gossip"), overlay=_LINE),
    "secure": Plan(
        partial(_cm, "llf-cm", init="split-merge", secure=True, suppress_singletons=False),
        Treatment(secure=True, keepers=3, cohort=3), keyed=True,
    ),
    "verified": Plan(partial(_cm, "llf-cm", suppress_singletons=False), Treatment(verify="all"), keyed=True),
    "proved sums": Plan(
        partial(_cm, "llf-cm", init="split-merge", secure=True, suppress_singletons=False),
        Treatment(secure=True, keepers=3, cohort=3, verify="all"), keyed=True,
    ),
    "repeated": Plan(
        lambda seed: cluster_job("llf-cm", n_clusters=3, seed=seed, max_rounds=3, tol=0.0), Treatment(every_s=1.0)
    ),
    "columns": Plan(partial(_cm, "vertical-cm"), limits=_SMALL, rows=_columns),
}  # fmt: skip
if find_spec("torch"):  # an extra
    FLEETS["models"] = Plan(_models, limits=_SMALL, rows=_labelled)


class Fleet:
    """Five peers that meet and work on a job; then the last one lies."""

    def __init__(self, kind: str, seed: int) -> None:
        self.kind, plan = kind, FLEETS[kind]
        rng = np.random.default_rng([seed, 1])
        self.world = FuzzedWorld(
            plan.rows(rng), Network(Conditions(), np.random.default_rng([seed, 2])),
            PRESETS["fast"], plan.limits, np.random.default_rng([seed, 3]), overlay=plan.overlay, keyed=plan.keyed,
        )  # fmt: skip
        roster = paper_roster(1, NAMES)
        self.world.signed = (roster,)
        for name in NAMES:
            self.world.give_roster(name, roster)
            self.world.start(name)
        linked = self.world.run_until(_SEE_EACH_OTHER_S, self._all_here)
        assert linked, "the peers did not find each other"
        self._submit(plan, seed)
        self.world.run_until(self.world.now + float(rng.uniform(0.0, 1.5)))
        if rng.random() < 0.2:
            self.world.step(self.world.peers["p2"], Cancel(self.jobs("p2")[0], "admin"))
        self.world.lies = True
        if rng.random() < 0.4:
            self.world.crash(LIAR)  # only what is made up comes from it

    def _all_here(self) -> bool:
        return all(p.core is not None and p.core.membership.all_here() for p in self.world.peers.values())

    def _submit(self, plan: Plan, seed: int) -> None:
        request = Submit(bytes(msgpack.packb(plan.job(seed).to_dict())), treatment=plan.treatment)
        for _ in range(30):  # a peer that does not know the whole overlay yet refuses
            self.world.step(self.world.peers["p1"], request)
            if self.world.run_until(self.world.now + 1.0, lambda: all(self.jobs(name) for name in NAMES)):
                return
        raise AssertionError("the job did not begin")

    def jobs(self, name: str) -> list[str]:
        """The jobs that a peer knows."""
        core = self.world.peers[name].core
        return [] if core is None else list(core.jobs.jobs)

    def deliver(self, target: str, frames: list[bytes], via: str = "") -> bool:
        """Hand a message of the liar to a peer; return whether it got as far as the core."""
        peer = self.world.peers[target]
        return peer.core is not None and self.world.take(peer, frames, via)

    def advance(self, seconds: float) -> None:
        """Let time pass: timers, messages between honest peers, and the tasks of workers."""
        self.world.run_until(self.world.now + seconds)
