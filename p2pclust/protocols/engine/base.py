"""What a protocol is: pure functions of a state, one peer's data and a random stream.

There is no network, clock, thread or failure here: the engine handles every missing peer, and the same functions run in one
process, in the simulator and in a fleet. :class:`Protocol` is what every author writes. Its sub-classes add what some
protocols need: :class:`Additive` sums, contributions :class:`ByColumns`, a memory (:class:`Remembering`), a workspace
(:class:`WithWorkspace`), several starts (:class:`SideBySide`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal

import numpy as np
from numpy.typing import NDArray

from p2pclust.clustering import Points, lloyd_step, nearest
from p2pclust.clustering.gaps import prepared
from p2pclust.protocols.engine import checks
from p2pclust.protocols.engine.arrays import Arrays, Contribution, State
from p2pclust.protocols.engine.local import Local
from p2pclust.protocols.engine.workspace import Wants, Workspace


class Abstain(Exception):  # noqa: N818 - it is an answer of the peer, not an error
    """A peer answers a round without contributing; ``reason`` says why, in one line."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason or "no reason given"  # an empty one would be no abstention


@dataclass(frozen=True)
class Slot:
    """The dtype and shape that one array of a contribution must have; None stands for any length."""

    shape: tuple[int | None, ...]
    dtype: str = "float64"


def always(*_: Any, **__: Any) -> bool:
    """Answer a question of the engine with yes: in a class, ``finished = always`` ends it after one round."""
    return True


def never(*_: Any, **__: Any) -> bool:
    """Answer a question of the engine with no."""
    return False


class Protocol(ABC):
    """One stage of a job: a frozen dataclass whose fields are its parameters, checked in ``__post_init__``.

    The five functions are :meth:`open`, :meth:`contribute`, :meth:`combine`, :meth:`finished` and :meth:`conclude`;
    :meth:`expects` declares what a contribution looks like. The others are the engine's other questions, each with a
    default: override the few that matter to yours.

    Attributes
    ----------
    id : str
        The name in job documents.
    asks : {"all", "one"}
        Whether a round asks every peer, or one only: the first alive of the seed's permutation.
    works_on : tuple of str
        The arrays that its states have: a state from another peer must hold them.
    holds : str
        What its states may hold, beside what those of its bases may, such as ``"float64 C F: centers; int64: rows"``: a
        dtype, or several with ``|`` between; lengths, of which a letter is the same one in all stages of a job, 0 only if
        it is small; and names.
    own_arrays : mapping of str to Slot
        Of a plug-in: the arrays of its states that no other stage of the job has, by name.
    draws : bool
        Whether participation applies: rounds of clustering draw peers, scaling asks all.
    evaluates : bool
        Whether the stage only evaluates the result of the stages before it: ``converged`` of the job is left unchanged.
    adds_nothing : bool
        Whether the stages after it draw as if it were not there, so that a job has the same centers with it and without.
    imports : tuple of str
        Modules that a peer loads late and at some cost: a fleet on one machine may load them once for all its peers.
    always_keeps_gaps : bool
        Whether it works on rows with missing cells, which are NaN, whatever its parameters are.
    allowed : mapping of str to check
        A check for single parameters of the class, by name; those of its bases are checked first.
    """

    id: ClassVar[str]
    asks: ClassVar[Literal["all", "one"]] = "all"
    draws: ClassVar[bool] = False
    works_on: ClassVar[tuple[str, ...]] = ()
    own_arrays: ClassVar[Mapping[str, Slot]] = {}
    evaluates: ClassVar[bool] = False
    adds_nothing: ClassVar[bool] = False
    imports: ClassVar[tuple[str, ...]] = ()
    always_keeps_gaps: ClassVar[bool] = False
    allowed: ClassVar[Mapping[str, checks.Check]] = {}

    def __post_init__(self) -> None:
        for kind in reversed(type(self).__mro__):
            checks.check(self, **vars(kind).get("allowed", {}))

    def open(self, state: State, rng: np.random.Generator) -> State:
        """Return the first state of this stage, from the last one of the stage before.

        ``rng`` comes from the job's seed and is the same on every peer. Raise UsageError where the stage cannot start
        from such a state.
        """
        return state

    @abstractmethod
    def expects(self, state: State) -> Mapping[str, Slot]:
        """Return the arrays of a contribution, in order."""

    @abstractmethod
    def contribute(self, state: State, local: Local, rng: np.random.Generator) -> Contribution:
        """Return all that this peer reveals; may raise :class:`Abstain`."""

    @abstractmethod
    def combine(self, state: State, contributions: Any) -> State:
        """Return the next state.

        ``contributions`` is the list of contributions in roster order; an :class:`Additive` protocol is given their total.
        """

    @abstractmethod
    def finished(self, previous: State, state: State, rounds: int) -> bool:
        """Return whether the stage ends by its own rule.

        ``rounds`` counts the rounds of this stage that made a step, including this one.
        """

    def conclude(self, state: State, local: Local) -> Arrays:
        """Return what the peer keeps of the job, for example its rows' labels."""
        return Arrays()

    def needs_rounds(self, state: State) -> bool:
        """Return whether the stage, just opened, needs any round at all."""
        return True

    def takes_weights(self) -> bool:
        """Return whether contributions count a row as often as ``Local.weights`` says, or use no rows."""
        return False

    @property
    def round_limit(self) -> int | None:
        """The number of rounds, empty ones included, after which the stage ends in any case."""
        return None

    def at_limit(self, state: State) -> State:
        """Return the last state of a stage that ends at its `round_limit`."""
        return state

    @property
    def chosen_centers(self) -> bool:
        """Whether its parameters hold centers: then the submitter chose where the rows are divided."""
        return False

    def sums_only(self) -> bool:
        """Return whether its aggregator needs only sums over peers, so that secure sums can hide single contributions."""
        return False

    def instead_of_sums(self) -> str:
        """Return, where :meth:`sums_only` is false, what it does and what would work instead; for a message to people."""
        return "needs what single peers send, not only the sum: choose llf-cm or llf-fcm"

    @property
    def keeps_gaps(self) -> bool:
        """Whether it works on rows in which NaN is a missing cell."""
        return self.always_keeps_gaps

    def withholds_below(self, n_rows: int) -> bool:
        """Return whether a peer sends nothing of a cluster with fewer of its rows, if its device asks for that.

        The device asks by :attr:`.Local.min_cell`; a job with a stage that cannot do it gets nothing from the device.
        """
        return True

    def problem_with_rows(self, state: State, local: Local) -> str:
        """Return why a peer's rows cannot take part, or an empty string."""
        return local.problem_in(state, keeps_gaps=self.keeps_gaps)

    def knowing_columns(self, state: State, n_columns: int) -> State:
        """Return the state with the number of columns that the peers of a job with secure sums agreed on."""
        return state

    def problems_with_parts(self, state: State, contributions: Sequence[tuple[int, Contribution]]) -> Mapping[int, str]:
        """Return the peers whose contributions cannot be combined with the others, with reasons; not if additive.

        They count as having abstained. The answer may depend on the contributions but not on their order of arrival. By
        default it is :meth:`problem_with` each.
        """
        found = {peer: self.problem_with_part(part, state) for peer, part in contributions}
        return {peer: problem for peer, problem in found.items() if problem}

    def problem_with_part(self, part: Contribution, state: State) -> str:
        """Return why a contribution can be combined with no others, or an empty string; not if additive."""
        return ""

    def problem_with_all_rows(self, state: State) -> str:
        """Return why the job must fail after a round that every roster peer answered, or an empty string.

        Not asked after a round in which a privacy gate held a peer.
        """
        return ""

    def problem_with_step(self, previous: State, state: State) -> str:
        """Return why the job must fail after this step, whichever peers contributed, or an empty string."""
        return ""

    def all_abstained(self, state: State, rng: np.random.Generator) -> State | None:
        """Return the state that ends the stage when every peer abstained, or None to fail the job."""
        return None

    def settles(self, state: State, rounds: int) -> bool:
        """Return whether the result of the coming round must be the same at all peers, in a job without an aggregator.

        If not, and the job takes a fixed number of ticks per round, each peer continues from its estimate at that time. Only
        for stages whose :meth:`Protocol.finished` depends on ``rounds`` alone, which here does not count the coming one.
        """
        return True

    def news(self, previous: State, state: State) -> Mapping[str, Any]:
        """Return what logs and reports may show of a step, in plain values."""
        return {}

    def problem_with_state(self, state: State, *, done: bool) -> str:
        """Return why arrays that arrived from another peer cannot be of this stage, or an empty string.

        The arrays have what ``works_on`` names, each with the right dtype and number of dimensions. Accepted arrays are used
        in computation, which may raise only this library's errors.

        `done` says whether the job ended with this stage; otherwise it is in a round of it.
        """
        return ""

    def suits(self, state: State, local: Local) -> bool:
        """Return whether :meth:`Protocol.conclude` can be called for these rows."""
        return "origin" in state and state["origin"].shape == (local.n_features,)


class Additive(Protocol):
    """A protocol that needs only the sum: :meth:`combine` is given the total, Arrays of floats, summed on a fixed grid.

    Attributes
    ----------
    whether : bool
        Of the totals it needs only whether each is zero. With secure sums nothing else becomes known.
    noisy : bool
        Each peer adds noise to its contribution, and only :meth:`noise` makes the total private.
    needs_columns : bool
        It begins with the number of columns that the peers of a job with secure sums agreed on.
    """

    whether: ClassVar[bool] = False
    noisy: ClassVar[bool] = False
    needs_columns: ClassVar[bool] = False

    @property
    def one_by_one(self) -> bool:
        """Whether a total is made of single contributions by :meth:`combine_each`, and not by adding up."""
        return False

    @property
    def mu_squared(self) -> float:
        """What all totals together take of a privacy budget: the square of mu; 0 without noise."""
        return 0.0

    @property
    def most_totals(self) -> int:
        """How often a peer contributes at most, because each total with noise costs privacy; 0: as often as it is asked."""
        return 0

    def least_contributors(self, n_peers: int) -> int:
        """Return how many of the roster's peers must be in a total, beside those that may pool what they know."""
        return 1

    def problem_with_addend(self, state: State, peers: tuple[int, ...], part: Arrays) -> str:
        """Return why no rows can have led to a peer's contribution, or to a group's total, as floats; or an empty string.

        Only if :attr:`one_by_one`. The contribution is then left out, and its peers are suspects.
        """
        return ""

    def combine_each(self, state: State, parts: Mapping[tuple[int, ...], Arrays]) -> State:
        """Return the next state from the contribution of each peer or group, as floats; only if :attr:`one_by_one`."""
        raise AssertionError(f"{self.id} adds up")

    sums_only = always

    @abstractmethod
    def units(self, state: State) -> Mapping[str, NDArray[Any] | float]:
        """Return the size of "one" of each array (powers of two, broadcastable)."""

    def ones(self, state: State) -> Mapping[str, NDArray[Any] | float]:
        """Return 1 for each array: :meth:`units` of a protocol that adds up counts and shares."""
        return dict.fromkeys(self.expects(state), 1.0)

    @property
    def limbs(self) -> int:
        """The number of limbs of each value of a contribution: two make a grid of 2**-72 of the unit."""
        return 2

    def noise(self, state: State, n_peers: int, entropy: Callable[[int], bytes]) -> Mapping[str, NDArray[np.int64]]:
        """Return what a peer adds to the first limb of each array of its contribution; only if :attr:`noisy`.

        The arrays have the names and shapes of a contribution. ``entropy`` returns as many secret random bytes as it is
        asked for; the same bytes give the same noise.
        """
        return {}


@dataclass(frozen=True, kw_only=True)
class WithGaps(Protocol):
    """A protocol that can keep missing cells: it counts a row in the columns in which it has a number."""

    # "keep": rows with missing cells take part with the others. "error": their peer abstains.
    missing_values: Literal["error", "keep"] = "error"

    allowed = checks.by_name(missing_values=checks.among("error", "keep"))

    @property
    def keeps_gaps(self) -> bool:
        return self.missing_values == "keep"


class ByColumns(Protocol):
    """A protocol whose peers hold different columns of the same rows.

    A round needs every peer: the job fails after a round without one. States and contributions grow with the rows, so large
    arrays are left in their blobs, and :meth:`combine` reads them in blocks with ``Arrays.blocks``.
    """


class Remembering(Protocol):
    """A protocol whose aggregator remembers something from round to round, beside the state."""

    @abstractmethod
    def combine_remembering(
        self, state: State, contributions: Sequence[Contribution], memory: NDArray[Any] | None
    ) -> tuple[State, NDArray[Any]]:
        """Return the next state, and what the aggregator is to remember of this round.

        The memory is not in the state and is sent to no peer. It is None in the first round of the stage, and whenever
        another aggregator, or this one before a restart, closed the round before; the log then says so for a replay. It may
        be changed in place.
        """

    def combine(self, state: State, contributions: Any) -> State:
        return self.combine_remembering(state, contributions, None)[0]


class WithWorkspace(Protocol):
    """A protocol whose contributions need blobs, other jobs or the peer's own note.

    :meth:`wants` is asked first; see :mod:`p2pclust.protocols.engine.workspace`. :meth:`combine` is given pairs of a roster
    index and that peer's contribution.
    """

    def wants(self, state: State, workspace: Workspace) -> Wants:
        """Return what the workspace must hold before this peer contributes; it has only its index and its note so far."""
        return Wants()

    @abstractmethod
    def contribute_with(
        self, state: State, local: Local, rng: np.random.Generator, workspace: Workspace
    ) -> Contribution:
        """Return all that this peer reveals; may publish, keep a note, and raise :class:`Abstain`.

        Called again for the same state, with the same workspace, it returns the same.
        """

    def contribute(self, state: State, local: Local, rng: np.random.Generator) -> Contribution:
        raise AssertionError(f"{self.id} contributes with a workspace only")

    def conclude_with(self, state: State, local: Local, rng: np.random.Generator, workspace: Workspace) -> Arrays:
        """Return what the peer keeps of the job, from its note and the blobs of :meth:`results` and :meth:`own_results`."""
        return Arrays()

    def results(self, state: State) -> tuple[bytes, ...]:
        """Return the digests of the blobs that are part of the job's result."""
        return ()

    def own_results(self, state: State, note: Arrays) -> tuple[bytes, ...]:
        """Return the digests of the blobs that the peer with this note needs to conclude and that no other peer has."""
        return ()


class Labelling(Protocol):
    """A protocol that a person asks for by its id: :meth:`conclude` returns a label for every row.

    Attributes
    ----------
    before : tuple of str
        The kinds of stages that a job puts before it, in order; see :mod:`p2pclust.protocols.engine.compose`.
    after : tuple of str
        The kinds of stages that a job puts after it.
    inits : tuple of str
        How its first centers may be made, the default first; empty where it has none.
    stops : str
        What its own stop rule means, in a few words for people.
    reveals : str
        What a peer reveals, in a few words for people; `p2pclust protocols` shows it.
    secured_by_default : bool
        Whether its jobs have secure sums unless a person says otherwise; see :mod:`p2pclust.jobs.secured`.
    hidden_by_totals : tuple of str
        Its privacy rules that a job with secure sums switches off: they are about what a single peer shows.
    """

    secured_by_default: ClassVar[bool] = False
    hidden_by_totals: ClassVar[tuple[str, ...]] = ("privacy_gate",)
    before: ClassVar[tuple[str, ...]]
    after: ClassVar[tuple[str, ...]] = ()
    inits: ClassVar[tuple[str, ...]] = ()
    stops: ClassVar[str]
    reveals: ClassVar[str] = ""

    withholds_below = never

    @classmethod
    def category_weights(cls, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """Return the parameters of the stage that weighs categories, from those of a clustering that takes ``levels``."""
        weights = checks.weights(f"{cls.id}: weights", parameters.get("weights", ()))
        checks.weights_fit(cls.id, parameters.get("levels", ()), weights)
        return {"weights": list(weights)}

    @classmethod
    def spelled_out(cls, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """Return parameters that a new job has where the person gave none, beside the defaults of older documents."""
        return {}


class SideBySide(Labelling):
    """A protocol that can work on several sets of first centers in the same rounds: ``n_init`` of them."""

    n_init: int


_INITS: Final = ("split-merge", "k-means++", "shared-k-means++", "careful", "random", "uniform", "given")


def inits_from(first: str) -> tuple[str, ...]:
    """Return the ways to first centers that clusterings share, with another default."""
    return (first, *(init for init in _INITS if init != first))


class Clustering(Labelling):
    """A protocol that ends with centers, shape (n_clusters, F).

    Attributes
    ----------
    inits : tuple of str
        "own": by itself, in its first round, without a seeding stage; "given": an array.
    pooled_name : str
        The algorithm on pooled rows that :meth:`pooled_step` is a step of.
    moves : str
        What ``shifts`` of its states measure the movement of.
    levels : tuple of int
        The number of values of each column, 0 for a number; in its job, centers and rows have a block of 0/1 columns for
        each category (`Local.encoded`). Empty: no column is a category.
    least_squares : bool
        Whether what it minimises is the objective of c-means, or of fuzzy c-means, at its centers.
    """

    before: ClassVar[tuple[str, ...]] = ("range", "scaling", "seeding")
    inits: ClassVar[tuple[str, ...]] = _INITS
    pooled_name: ClassVar[str]
    stops: ClassVar[str] = "the centers move by less than tol"
    moves: ClassVar[str] = "centers"
    least_squares: ClassVar[bool] = True

    n_clusters: int
    levels: tuple[int, ...] = ()

    @property
    def ends_below(self) -> float:
        """The movement, in working coordinates, below which it ends; 0 if something else ends it."""
        return float(getattr(self, "tol", 0.0))

    @property
    def lossless(self) -> bool:
        """Whether one round equals one pooled step over the same contributors, where no privacy rule strikes.

        If not, the difference to the pooled algorithm is a gap that can be measured, and nothing is promised about it.
        """
        return False

    @abstractmethod
    def pooled_step(self, points: Any, centers: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the next centers of the pooled algorithm, with all rows in one place; used to evaluate only.

        Rows (`Points`, with missing cells only of a protocol that keeps them) and centers, shape (C, F), are in working
        coordinates. The centers are not changed.
        """

    def degrees(self, state: State, local: Local) -> NDArray[np.float64] | None:
        """Return how much each row belongs to each cluster, shape (n, C); None where a row belongs to one cluster only."""
        return None

    def pool(self, state: State, locals: Sequence[Local]) -> Pool:
        """Return all rows of these peers in one place; used to evaluate only.

        The state is the first one of this stage that has centers; the rows are those of its job (`Job.rows`).
        """
        X = np.concatenate([(local.X - state["origin"]) / state["scale"] for local in locals])
        # No other shift than the job's: rows that tie exactly must tie here too.
        points = prepared(X, shift=np.zeros(X.shape[1]))
        return Pool(points, state["centers"], state["origin"], state["scale"])

    def pooled_round(self, pool: Pool, centers: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the centers that follow in the pooled algorithm with this protocol's rule for empty clusters."""
        return self.pooled_step(pool.points, centers)


def nearest_labels(_: Protocol, state: State, local: Local) -> Arrays:
    """Return ``labels`` (n,), the center nearest to each row: :meth:`Protocol.conclude` of most clusterings.

    A row without any number has -1.
    """
    labels = nearest(local.points(state), state["centers"])
    labels.setflags(write=False)  # handed over, and not copied
    return Arrays(labels=labels)


def k_means_step(_: Protocol, points: Points, centers: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the next centers of k-means: :meth:`Clustering.pooled_step` of protocols that find what it finds."""
    return lloyd_step(points, centers)


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

    sums_only = takes_weights = always
    needs_rounds = never

    def expects(self, state: State) -> Mapping[str, Slot]:
        return {}

    def _asks_no_peer(self, *_: Any, **__: Any) -> Any:
        raise AssertionError(f"{self.id} asks no peer")

    contribute = combine = finished = _asks_no_peer
