"""What a protocol is: pure functions of a state, one peer's data and a random stream.

No network, clock, thread or failure is in sight: the engine owns every branch about who is missing, and the same
functions run in one process, in the simulator and in a fleet.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from p2pclust.clustering import Points
from p2pclust.protocols.engine.arrays import Arrays, Contribution, State
from p2pclust.protocols.engine.local import Local
from p2pclust.protocols.engine.workspace import Desk, Wants

__all__ = ["Abstain", "AtDesk", "Clustering", "Labelling", "OpeningStage", "Pool", "Protocol", "Slot"]


class Abstain(Exception):  # noqa: N818 - it is an answer of the peer, not an error
    """A peer answers a round without contributing; ``reason`` says why, in one line."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True)
class Slot:
    """The dtype and shape that one array of a contribution must have; None stands for any length."""

    shape: tuple[int | None, ...]
    dtype: str = "float64"


class Protocol(ABC):
    """One stage of a job: a frozen dataclass whose fields are its parameters, checked in ``__post_init__``.

    Attributes
    ----------
    id : str
        The name in job documents.
    additive : bool
        Whether :meth:`combine` needs only the sum; then it is handed the total, summed on a fixed grid.
    asks : {"all", "one"}
        Whether a round asks every peer, or one only: the first alive of the seed's permutation.
    works_on : tuple of str
        The arrays that its states have: what a state from elsewhere must hold.
    own_arrays : mapping of str to Slot
        Of a plug-in: the arrays of its states that no stage of p2pclust has, by name.
    draws : bool
        Whether participation applies: rounds of clustering draw peers, scaling asks everybody.
    by_columns : bool
        Whether peers hold different columns of the same rows. Then every peer is indispensable: a round without one
        fails the job. States and contributions grow with the rows, so what is large is left in its blob, and
        :meth:`combine` reads it in blocks with ``Arrays.blocks``.
    remembers : bool
        Whether :meth:`combine_remembering` is called in place of :meth:`combine`.
    at_desk : bool
        Whether a contribution may need blobs, other jobs, and the peer's own note: then :meth:`wants` is asked first,
        :meth:`contribute_at` is called in place of :meth:`contribute`, and :meth:`conclude_at` in place of
        :meth:`conclude`; see :mod:`p2pclust.protocols.engine.workspace`.
    by_peer : bool
        Whether :meth:`combine` is handed pairs of a roster index and that peer's contribution; not additive only.
    evaluates : bool
        Whether the stage only evaluates what the stages before made: ``converged`` of the job stays what it was.
    imports : tuple of str
        Modules that a peer loads late and at some cost: a fleet on one machine may load them once for all of its peers.
    """

    id: ClassVar[str]
    additive: ClassVar[bool] = False
    asks: ClassVar[Literal["all", "one"]] = "all"
    draws: ClassVar[bool] = False
    works_on: ClassVar[tuple[str, ...]] = ()
    own_arrays: ClassVar[Mapping[str, Slot]] = {}
    by_columns: ClassVar[bool] = False
    remembers: ClassVar[bool] = False
    at_desk: ClassVar[bool] = False
    by_peer: ClassVar[bool] = False
    evaluates: ClassVar[bool] = False
    imports: ClassVar[tuple[str, ...]] = ()

    def open(self, state: State, rng: np.random.Generator) -> State:
        """Return the first state of this stage, from the last one of the stage before.

        ``rng`` comes from the job's seed and is the same on every peer. Raise UsageError where the stage cannot start
        from such a state.
        """
        return state

    def needs_rounds(self, state: State) -> bool:
        """Tell whether the stage, just opened, needs any round at all."""
        return True

    def takes_weights(self) -> bool:
        """Tell whether contributions count a row as many times as ``Local.weights`` says, or need no row at all."""
        return False

    @property
    def round_limit(self) -> int | None:
        """After how many rounds, empty ones included, the stage ends whatever happened."""
        return None

    @abstractmethod
    def expects(self, state: State) -> Mapping[str, Slot]:
        """Return what a contribution consists of, in order."""

    @abstractmethod
    def contribute(self, state: State, local: Local, rng: np.random.Generator) -> Contribution:
        """Return all that this peer reveals; may raise :class:`Abstain`."""

    def wants(self, state: State, desk: Desk) -> Wants:
        """Return what shall lie on the desk before this peer contributes; only its index and its note do so far."""
        return Wants()

    def contribute_at(self, state: State, local: Local, rng: np.random.Generator, desk: Desk) -> Contribution:
        """Return all that this peer reveals, with what lies on the desk; may publish, keep, and raise :class:`Abstain`.

        Called again for the same state, with the same desk, it returns the same.
        """
        raise AssertionError(f"{self.id} works at no desk")

    def units(self, state: State) -> Mapping[str, NDArray[Any] | float]:
        """Return the size of "one" per array (powers of two, broadcastable); additive protocols only."""
        raise AssertionError(f"{self.id} is not additive: nobody asks for its units")

    @property
    def limbs(self) -> int:
        """How many limbs a value of an additive contribution has: two make a grid of 2**-72 of the unit."""
        return 2

    @abstractmethod
    def combine(self, state: State, contributions: Any) -> State:
        """Return the next state.

        ``contributions`` is the total, as :class:`Arrays` of floats, if the protocol is additive, else the list of
        contributions in roster order, or of pairs (peer, contribution) if it is combined by peer.
        """

    def combine_remembering(
        self, state: State, contributions: Sequence[Contribution], memory: NDArray[Any] | None
    ) -> tuple[State, NDArray[Any]]:
        """Return the next state, and what the aggregator is to remember of this round besides.

        The memory is in no state and told to nobody. It is None in the first round of the stage, and whenever another
        aggregator, or another life of this one, closed the round before; the log then says so for a replay. It may be
        changed in place.
        """
        raise AssertionError(f"{self.id} remembers nothing")

    def leaves_out(self, state: State, contributions: Sequence[tuple[int, Contribution]]) -> Mapping[int, str]:
        """Name the peers whose contributions cannot be combined with the others', and why; not additive only.

        They count as having abstained. The answer may depend on the contributions but on no order of arrival.
        """
        return {}

    def objection(self, state: State) -> str:
        """Say why the job must fail after a round that every roster peer answered, or return an empty string.

        Not asked after a round in which a privacy gate held somebody.
        """
        return ""

    def hopeless(self, previous: State, state: State) -> str:
        """Say why the job must fail after this step, whoever contributed, or return an empty string."""
        return ""

    def nobody(self, state: State, rng: np.random.Generator) -> State | None:
        """Return what to do when every peer abstained: a state that ends the stage, or None to fail the job."""
        return None

    @abstractmethod
    def finished(self, previous: State, state: State, rounds: int) -> bool:
        """Tell whether the stage ends by its own rule.

        ``rounds`` counts the rounds of this stage that made a step, including this one.
        """

    def settles(self, state: State, rounds: int) -> bool:
        """Tell whether what comes of the coming round must be the same at all peers, where nobody aggregates.

        If not, and the job takes a fixed number of ticks per round, each goes on from what it has of the sum by then. Only
        for stages whose :meth:`finished` looks at no number but ``rounds``, which here does not count the coming one.
        """
        return True

    def news(self, previous: State, state: State) -> Mapping[str, Any]:
        """Return what whoever watches may know about a step, in plain values: it goes into logs and reports."""
        return {}

    def flaw(self, state: State, *, done: bool) -> str:
        """Say why arrays that arrived from elsewhere cannot be this stage's, or return an empty string.

        Asked of arrays that have what ``works_on`` names, each with the dtype and shape that its name tells. What is let
        pass here is computed with, so no exception may come of it but those of this library.

        Parameters
        ----------
        state : State
        done : bool
            Whether the job ended with this stage; otherwise it is in a round of it.
        """
        return ""

    def suits(self, state: State, local: Local) -> bool:
        """Tell whether :meth:`conclude` can be asked about these rows."""
        return "origin" in state and state["origin"].shape == (local.n_features,)

    def conclude(self, state: State, local: Local) -> Arrays:
        """Return what the peer keeps of the job, for example its rows' labels."""
        return Arrays()

    def conclude_at(self, state: State, local: Local, rng: np.random.Generator, desk: Desk) -> Arrays:
        """Return what the peer keeps of the job, from its note and the blobs of :meth:`results` and :meth:`own_results`."""
        return Arrays()

    def results(self, state: State) -> tuple[bytes, ...]:
        """Return the digests of the blobs that are part of the job's result."""
        return ()

    def own_results(self, state: State, note: Arrays) -> tuple[bytes, ...]:
        """Return the digests of the blobs that the peer with this note concludes with and that no other peer has."""
        return ()


class AtDesk(Protocol):
    """A protocol that works at a desk: it never contributes without one."""

    at_desk: ClassVar[bool] = True
    by_peer: ClassVar[bool] = True

    def contribute(self, state: State, local: Local, rng: np.random.Generator) -> Contribution:
        raise AssertionError(f"{self.id} contributes at a desk only")


class Labelling(Protocol):
    """A protocol that a person asks for by its id: it ends with a label for every row, by :meth:`conclude`.

    Attributes
    ----------
    before : tuple of str
        The kinds of stages that a job puts before it, in order; see :mod:`p2pclust.protocols.engine.compose`.
    after : tuple of str
        The kinds of stages that a job puts after it.
    side_by_side : bool
        Whether it has a parameter ``n_init`` and can work on so many sets of first centers in the same rounds.
    inits : tuple of str
        How its first centers may be made, the default first; empty where it has none.
    stops : str
        What its own stop rule means, in a few words for people.
    reveals : str
        Of a plug-in: what a peer reveals, in a few words for people; `p2pclust protocols` shows it.
    """

    before: ClassVar[tuple[str, ...]]
    after: ClassVar[tuple[str, ...]] = ()
    side_by_side: ClassVar[bool] = False
    inits: ClassVar[tuple[str, ...]] = ()
    stops: ClassVar[str]
    reveals: ClassVar[str] = ""

    @classmethod
    def spelled_out(cls, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """Return parameters that a new job has where the person gave none, beside the defaults of older documents."""
        return {}


class Clustering(Labelling):
    """One that ends with centers, shape (n_clusters, F).

    Attributes
    ----------
    inits : tuple of str
        "own": by itself, in its first round, without a seeding stage; "given": an array.
    pooled_name : str
        The algorithm on pooled rows that :meth:`pooled_step` is a step of.
    """

    before: ClassVar[tuple[str, ...]] = ("range", "scaling", "seeding")
    inits: ClassVar[tuple[str, ...]] = (
        "split-merge", "k-means++", "shared-k-means++", "careful", "random", "uniform", "given",
    )  # fmt: skip
    pooled_name: ClassVar[str]
    stops: ClassVar[str] = "the centers stand still"

    n_clusters: int

    @property
    def lossless(self) -> bool:
        """Whether one round equals one pooled step over the same contributors, where no privacy rule strikes.

        If not, the difference to the pooled algorithm is a gap that can be measured, and nothing is promised about it.
        """
        return False

    @abstractmethod
    def pooled_step(self, points: Points, centers: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the next centers of the pooled algorithm, with all rows in one place; used to evaluate only.

        Parameters
        ----------
        points : Points
            All rows, in working coordinates.
        centers : ndarray of shape (C, F)
            In working coordinates. They are not changed.
        """

    def pool(self, state: State, locals: Sequence[Local]) -> Pool:
        """Return all rows of these peers in one place; used to evaluate only.

        Parameters
        ----------
        state : State
            The first one of this stage that has centers.
        locals : sequence of Local
        """
        X = np.concatenate([(local.X - state["origin"]) / state["scale"] for local in locals])
        # No other shift than the job's: rows that tie exactly must tie here too.
        return Pool(Points(X, shift=np.zeros(X.shape[1])), state["centers"], state["origin"], state["scale"])

    def pooled_round(self, pool: Pool, centers: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the centers that follow in the pooled algorithm with this protocol's rule for empty clusters."""
        return self.pooled_step(pool.points, centers)


@dataclass(frozen=True)
class Pool:
    """All rows in one place, in working coordinates; the first centers in them; and the way back to the data's units."""

    points: Points
    centers: NDArray[np.float64]
    origin: NDArray[np.float64]
    scale: NDArray[np.float64]

    def raw(self, centers: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return centers in the units of the data."""
        return np.asarray(self.origin + centers * self.scale, dtype=np.float64)


class OpeningStage(Protocol):
    """A stage that is finished as soon as it is opened: no peer is ever asked."""

    def takes_weights(self) -> bool:
        return True

    def needs_rounds(self, state: State) -> bool:
        return False

    def expects(self, state: State) -> Mapping[str, Slot]:
        return {}

    def contribute(self, state: State, local: Local, rng: np.random.Generator) -> Contribution:
        raise AssertionError(f"{self.id} asks nobody")

    def combine(self, state: State, contributions: Any) -> State:
        raise AssertionError(f"{self.id} asks nobody")

    def finished(self, previous: State, state: State, rounds: int) -> bool:
        raise AssertionError(f"{self.id} asks nobody")
