"""A job: its document, and the state that the peers agree on.

A :class:`Job` is what a submitter asks for: a list of stages, a seed and the participation. A :class:`JobState` is one
consensus entry: everything that the next round, another aggregator, or a replay needs. Its bytes are canonical.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, Literal

import msgpack

from p2pclust.clustering import blocks
from p2pclust.clustering.kernels import AUTO, C1, KERNELS, NUMPY, named
from p2pclust.errors import P2PClustError, PluginError, UsageError, WireError
from p2pclust.protocols.engine.arrays import LIST_OF, Arrays, Payload, State, pack, unpack
from p2pclust.protocols.engine.base import Additive, ByColumns, Clustering, Protocol, Remembering, WithWorkspace
from p2pclust.protocols.engine.exclusions import JobOptions
from p2pclust.protocols.engine.fixed_point import MAX_PEERS
from p2pclust.protocols.engine.local import Local
from p2pclust.protocols.engine.random_streams import MAX_SEED
from p2pclust.protocols.engine.registry import build, main_stage, package_of, parameters_of
from p2pclust.protocols.engine.stored_arrays import LARGE_BYTES, Piece, Pieces, Stored, bin_header, joined, scan
from p2pclust.protocols.secure.secured import Secured
from p2pclust.tools.bit_sets import as_mask, members_of, packed, unpacked
from p2pclust.tools.spelling import did_you_mean, first_few

if TYPE_CHECKING:
    from p2pclust.data.schema import Schema

Status = Literal["running", "done", "failed"]

_VERSION = 1
_FIELDS = (10, 11, 12)  # the last ones are the secured part and the proof
_MAX_STAGES = 64
_MAX_PACKAGE = 100
MAX_ITEMS = 2 * MAX_PEERS  # of one list on the wire: a reason for every peer
MAX_TEXT = 1000
_MAX_COUNT = 2**53


@dataclass(frozen=True)
class Stage:
    """One protocol with its parameters.

    Parameters
    ----------
    protocol : str
        The protocol's id, for example ``"llf-fcm"``.
    parameters : dict
        Plain values (numbers, strings, booleans, None, lists of these); arrays as nested lists.
    package : str
        Of a protocol that another package brings: that package's name and version, such as ``"p2pclust-noisy 1.0"``. By
        default, and in a job, that of the package installed here; empty for p2pclust's own.
    """

    protocol: str
    parameters: dict[str, Any] = field(default_factory=dict)
    package: str = field(default="", repr=False)

    @contextmanager
    def calling(self, function: str) -> Iterator[None]:
        """Raise PluginError, which names the package, where code of a plug-in raises an exception of its own."""
        try:
            yield
        except P2PClustError:
            raise
        except Exception as error:
            if not self.package:
                raise
            said = f"{function} of {self.protocol} ({self.package}) failed: {type(error).__name__}: {error}"
            raise PluginError(said) from error


@dataclass(frozen=True)
class Job:
    """Stages, a seed, and the share of the peers that each clustering round draws.

    Parameters
    ----------
    stages : sequence of Stage
        Each opens from the last state of the one before.
    seed : int
        0 to 2**63 - 1: every draw of the job follows from it.
    participation : float
        The papers' gamma, in (0, 1].
    kernel : {"numpy", "c1"}
        What does every peer's passes over its rows; with another one the last bits differ. See
        :mod:`p2pclust.clustering.kernels`.
    schema : Schema, optional
        The columns of every peer's rows, and their kinds; without one they are numbers, in the order of each peer's file.

    Raises
    ------
    UsageError
        For an unknown protocol or parameter (the nearest known one is named) and for a value out of range.

    Examples
    --------
    >>> job = Job((Stage("range"), Stage("minmax")), seed=7)
    >>> Job.from_dict(job.to_dict()) == job
    True
    """

    stages: tuple[Stage, ...]
    seed: int
    participation: float = 1.0
    kernel: str = NUMPY
    schema: Schema | None = None

    def __post_init__(self) -> None:
        # Where the document does not name it, the package installed here that brings a stage's protocol.
        stages = (replace(stage, package=stage.package or package_of(stage.protocol)) for stage in self.stages)
        object.__setattr__(self, "stages", tuple(stages))
        if not 1 <= len(self.stages) <= _MAX_STAGES:
            raise UsageError(f"job: {len(self.stages)} stages: expected 1 to {_MAX_STAGES}")
        if type(self.seed) is not int or not 0 <= self.seed <= MAX_SEED:
            raise UsageError(f"job: seed = {self.seed!r}: expected a whole number from 0 to 2**63 - 1")
        share = self.participation
        if isinstance(share, bool) or not isinstance(share, int | float) or not 0.0 < share <= 1.0:
            raise UsageError(f"job: participation = {share!r}: expected a number above 0, at most 1")
        object.__setattr__(self, "participation", float(share))
        if self.kernel not in KERNELS:
            raise UsageError(f"job: kernel = {str(self.kernel)[:100]!r}: expected one of {', '.join(KERNELS)}")
        _ = self.protocols  # Every stage is checked now, not when its turn comes.
        if self.schema is not None and (problem := self._problem_with(self.schema)):
            raise UsageError(f"schema: {problem}")

    def _problem_with(self, schema: Schema) -> str:
        """Say why peers cannot work on the job by this schema, or return an empty string."""
        if self.by_columns:
            return "is for peers that hold the same columns, and here each holds others: leave schema out"
        main, words = self.stages[self.main].protocol, [column.name for column in schema.columns if column.level]
        if words and "levels" not in parameters_of(type(self.protocols[self.main])):
            return f"{main} clusters numbers, and {first_few(words, 3)} are not: leave these columns out of the schema"
        if any(tuple(stage.parameters.get("levels", schema.levels)) != schema.levels for stage in self.stages):
            return "the levels of a stage are not those of the schema: leave levels out"
        return ""

    @cached_property
    def protocols(self) -> tuple[Protocol, ...]:
        """The protocol objects of the stages."""
        return tuple(build(stage.protocol, stage.parameters, stage.package) for stage in self.stages)

    @cached_property
    def additive(self) -> tuple[Additive, ...]:
        """The protocols of the stages that add up."""
        return tuple(protocol for protocol in self.protocols if isinstance(protocol, Additive))

    @cached_property
    def problem_if_plain(self) -> str:
        """Why no peer can work on the job without secure sums, or an empty string."""
        only = next((one.id for one in self.additive if one.needs_columns), "")
        return f"{only}: needs secure sums, with whose keys the peers agree on the number of columns" if only else ""

    @cached_property
    def mu_squared(self) -> float:
        """How much of a privacy budget the job takes from each of its peers: the square of mu, over all its totals.

        Rounds that are done again with fresh noise, because keys were exchanged anew, are counted. It is 0 without noise.
        """
        return math.fsum(protocol.mu_squared for protocol in self.additive)

    @cached_property
    def main(self) -> int:
        """The number of the stage that a person asked for: the last one but for those that only evaluate it."""
        return main_stage([stage.protocol for stage in self.stages])

    @cached_property
    def levels(self) -> tuple[int, ...]:
        """The number of values of each column, 0 for a number; empty if no column is a category.

        In every stage of such a job the rows have a block of 0/1 columns for each; see :meth:`rows`.
        """
        main = self.protocols[self.main]
        return main.levels if isinstance(main, Clustering) and any(main.levels) else ()

    def rows(self, local: Local) -> Local:
        """Return a peer's rows as all stages of this job have them; see :meth:`.Local.encoded`."""
        return local.encoded(self.schema, self.levels)

    def center_columns(self, features: Sequence[str]) -> tuple[str, ...]:
        """Return the names of the columns of centers, from those of the rows: a category has one for each value."""
        return blocks.named(features, self.levels, () if self.schema is None else self.schema.words)

    def stream(self, stage: int) -> int:
        """Return the number by which a stage draws: its own, without the stages before it that add nothing."""
        return stage - sum(protocol.adds_nothing for protocol in self.protocols[:stage])

    @cached_property
    def by_columns(self) -> bool:
        """Whether peers hold different columns of the same rows, so that every one of them is indispensable."""
        return any(isinstance(protocol, ByColumns) for protocol in self.protocols)

    @cached_property
    def has_workspace(self) -> bool:
        """Whether peers keep notes of their own, which contain their part of the result."""
        return any(isinstance(protocol, WithWorkspace) for protocol in self.protocols)

    def fill_in(self, options: JobOptions) -> JobOptions:
        """Return these options with what follows from the stages of this job."""
        return {
            **options,
            "by_columns": self.by_columns,
            "with_models": self.has_workspace,
            "remembers": not self.by_columns and any(isinstance(protocol, Remembering) for protocol in self.protocols),
            "one_by_one": any(protocol.one_by_one for protocol in self.additive),
        }

    def here(self, kernel: str = AUTO) -> Job:
        """Return the same job with a kernel of this installation, by default its best.

        >>> Job((Stage("range"),), seed=7).here("numpy").kernel
        'numpy'
        """
        return replace(self, kernel=named(kernel))

    def with_common_kernel(self, kernels: Iterable[str]) -> Job:
        """Return the same job with the best kernel that all peers of a job roster have.

        Parameters
        ----------
        kernels : iterable of str
            The best kernel that each peer has published; empty where a peer's kernel is not known.

        >>> job = Job((Stage("range"),), seed=7)
        >>> job.with_common_kernel(["c1", "c1"]).kernel, job.with_common_kernel(["c1", ""]).kernel
        ('c1', 'numpy')
        """
        return replace(self, kernel=C1) if set(kernels) == {C1} else self

    def to_dict(self) -> dict[str, Any]:
        """Return the job document, as plain values."""
        return {
            "stages": [
                {"protocol": stage.protocol, "parameters": dict(stage.parameters)}
                | ({"package": stage.package} if stage.package else {})
                for stage in self.stages
            ],
            "seed": self.seed,
            "participation": self.participation,
            "kernel": self.kernel,
        } | ({} if self.schema is None else {"schema": self.schema.to_dict()})

    @classmethod
    def from_dict(cls, document: object) -> Job:
        """Check a job document strictly and return the job.

        Raises
        ------
        UsageError
            For a missing or unknown key, a value of the wrong type, or anything that :class:`Job` refuses.
        """
        given = _keys(document, "job", required=("stages", "seed"), optional=("participation", "kernel", "schema"))
        stages = given["stages"]
        if not isinstance(stages, list | tuple) or len(stages) > _MAX_STAGES:
            raise UsageError(f"job: stages: expected a list of at most {_MAX_STAGES}")
        made = []
        for number, item in enumerate(stages):
            stage = _keys(item, f"job: stage {number}", required=("protocol",), optional=("parameters", "package"))
            if not isinstance(stage["protocol"], str):
                raise UsageError(f"job: stage {number}: protocol: expected a name")
            parameters, package = stage.get("parameters", {}), stage.get("package", "")
            if not isinstance(parameters, dict) or not all(isinstance(name, str) for name in parameters):
                raise UsageError(f"job: stage {number}: parameters: expected names with values")
            if not isinstance(package, str) or len(package) > _MAX_PACKAGE:
                raise UsageError(f"job: stage {number}: package: expected a name and a version")
            made.append(Stage(stage["protocol"], dict(parameters), package))
        schema = None
        if given.get("schema") is not None:
            from p2pclust.data.schema import Schema  # noqa: PLC0415 - of such jobs only, with the readers of columns

            schema = Schema.from_dict(given["schema"], "job: schema")
        share, kernel = given.get("participation", 1.0), given.get("kernel", NUMPY)
        return cls(tuple(made), given["seed"], share, kernel, schema)


@dataclass(frozen=True)
class RoundRecord:
    """The peers that took part in one round.

    Parameters
    ----------
    stage : int
    contributors : tuple of int
        Sorted indices in the roster.
    abstained : mapping of int to str
        Peers that answered without contributing, and why; those that were merely not drawn are not among them.
    forgot : bool
        Whether the aggregator lacked the memory that the protocol would have used: it was elected since the round
        before, or restarted.
    """

    stage: int
    contributors: tuple[int, ...]
    abstained: Mapping[int, str] = field(default_factory=dict)
    forgot: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "contributors", tuple(self.contributors))
        object.__setattr__(self, "abstained", dict(sorted(self.abstained.items())))

    @cached_property
    def packed(self) -> bytes:
        """Its bytes in an encoded state; remembered, because every round encodes the whole log again."""
        abstained = [part for item in self.abstained.items() for part in item]
        contributors = packed(as_mask(self.contributors))
        # The flag is there only where it is set: the logs of most protocols never have it.
        flag = [True] if self.forgot else []
        return bytes(pack([self.stage, contributors, abstained, *flag]))


def _read_log(data: bytes, before: JobState | None) -> tuple[RoundRecord, ...]:
    """Return the records of a packed log; raise WireError for a malformed one.

    Logs only grow: of one that begins with that of the state before, only the end is read.
    """
    begin, known = (b"", ()) if before is None else (before._packed_log, before.log)
    if not data.startswith(begin):
        begin, known = b"", ()
    end = data[len(begin) :]
    unpacker = msgpack.Unpacker(
        raw=False, strict_map_key=True, max_buffer_size=max(len(end), 1), max_array_len=MAX_ITEMS, max_map_len=0,
        max_ext_len=0, max_str_len=MAX_TEXT * 4, max_bin_len=MAX_PEERS // 8,
    )  # fmt: skip
    unpacker.feed(end)
    try:
        return (*known, *[_record(item) for item in unpacker])
    except (ValueError, TypeError, OverflowError, RecursionError, msgpack.UnpackException) as error:
        raise WireError(f"job state: malformed log: {type(error).__name__}") from None


def _record(item: object) -> RoundRecord:
    if type(item) is not list or len(item) not in (3, 4) or (len(item) == 4 and item[3] is not True):
        raise WireError("job state: malformed log")
    stage, mask, abstained = item[:3]
    if not _is_count(stage) or type(mask) is not bytes or type(abstained) is not list:
        raise WireError("job state: malformed log")
    return _checked_record(stage, mask, tuple(abstained), len(item) == 4)


@lru_cache(maxsize=1024)
def _checked_record(stage: int, mask: bytes, abstained: tuple[Any, ...], forgot: bool) -> RoundRecord:
    """Most rounds of a job have the same record, and every state brings all of them again."""
    peers, reasons = abstained[0::2], abstained[1::2]
    if len(peers) != len(reasons) or not all(_is_count(peer) and peer < MAX_PEERS for peer in peers):
        raise WireError("job state: malformed log")
    if not all(isinstance(reason, str) and len(reason) <= MAX_TEXT for reason in reasons):
        raise WireError("job state: malformed log")
    return RoundRecord(stage, members_of(unpacked(mask)), dict(zip(peers, reasons, strict=True)), forgot)


def _is_count(value: object) -> bool:
    """Return True for a whole number that a state may hold as a count."""
    return type(value) is int and 0 <= value < _MAX_COUNT


@dataclass(frozen=True)
class JobState:
    """The agreed state of a job: one consensus entry.

    Parameters
    ----------
    round : int
        Rounds closed since the job began, over all stages; empty ones count.
    stage, stage_round : int
        The current stage, and its rounds closed, empty ones included.
    status : {"running", "done", "failed"}
    reason : str
        Why the job failed, else empty.
    converged : bool
        Whether the current stage ended by its own rule rather than by its limit of rounds.
    empty_rounds : int
        Empty rounds in a row up to now.
    log : tuple of RoundRecord
        One per round.
    arrays : Arrays
        What the protocols work on.
    secured : Secured, optional
        Of a job with secure sums; no protocol reads it.
    proof : bytes
        Of a job with verify: from which signed contributions the state follows, an encoded
        :class:`~p2pclust.protocols.secure.proofs.Proof`; empty in its first state. No protocol reads it.
    """

    round: int
    stage: int
    stage_round: int
    status: Status
    reason: str
    converged: bool
    empty_rounds: int
    log: tuple[RoundRecord, ...]
    arrays: State
    secured: Secured | None = None
    proof: bytes = b""

    def encode(self) -> bytes:
        """Return canonical bytes: equal states give equal bytes."""
        return joined(self._pieces())

    def plain(self) -> JobState:
        """Return the state that the same rounds of a job without secure sums and proofs have."""
        return replace(self, secured=None, proof=b"")

    def pieces(self) -> Pieces:
        """Return the bytes of :meth:`encode` without putting large arrays among them."""
        return Pieces(self._pieces())

    def _pieces(self) -> list[Piece]:
        optional = [] if self.secured is None else [self.secured.encode()]
        optional += [pack(self.proof)] if self.proof else []
        log = self._packed_log
        return [
            *self._head(len(optional), len(log)), log if len(log) <= LARGE_BYTES else memoryview(log),
            *self.arrays.pieces(), *optional,
        ]  # fmt: skip

    @cached_property
    def _packed_log(self) -> bytes:
        return b"".join([record.packed for record in self.log])

    def _head(self, n_optional: int, log_bytes: int, later: int = 0) -> list[bytes]:
        """Return what precedes the log, of this state or of one that is some rounds later."""
        fields = [
            _VERSION, self.round + later, self.stage, self.stage_round + later, self.status, self.reason, self.converged,
            0 if later else self.empty_rounds,
        ]  # fmt: skip
        return [LIST_OF[min(_FIELDS) + n_optional], pack(fields)[1:], bin_header(log_bytes)]

    def following(self, data: bytes, *, fixed: Collection[str]) -> JobState | None:
        """Return the state of these bytes if it is one round after this one and differs in that and in numbers only.

        The record of the round is that of the one before, and the numbers of the arrays named in `fixed` are the same: so it
        need not be checked again what a job can have. Otherwise return None; :meth:`decode` then reads all.
        """
        if self.status != "running" or self.proof or not self.log or not self.log[-1].contributors:
            return None
        last = self.log[-1]
        log = self._packed_log + last.packed
        begin = b"".join([*self._head(int(self.secured is not None), len(log), later=1), log])
        found = self.arrays.following(data, len(begin), fixed=fixed, grows="shifts") if data.startswith(begin) else None
        if found is None:
            return None
        arrays, end = found
        secured = None if self.secured is None else self.secured.following(data[end:])
        if secured is None and (self.secured is not None or len(data) > end):
            return None
        after = JobState(
            self.round + 1, self.stage, self.stage_round + 1, "running", "", self.converged, 0, (*self.log, last), arrays,
            secured,
        )  # fmt: skip
        after.__dict__["_packed_log"] = log
        return after

    @classmethod
    def decode(cls, data: bytes, before: JobState | None = None) -> JobState:
        """Return the state of :meth:`encode`; raise WireError for any other bytes.

        Of a log that begins with that of the state `before` only the end is read.
        """
        state = cls._unpacked(unpack(data, max_items=MAX_ITEMS), before=before)
        if state.encode() != data:
            raise WireError("job state: not in canonical form")
        return state

    @classmethod
    def decode_stored(cls, blob: Stored) -> JobState:
        """Return the state of :meth:`encode` whose bytes are in a blob; its large arrays stay there.

        Raise WireError for any other bytes; what a large array holds is checked when it is read.
        """
        plain, head, where = scan(blob)
        fields = unpack(plain, max_items=MAX_ITEMS)
        if where and where[0] is not None and isinstance(fields, list) and len(fields) in _FIELDS:
            fields[8] = blob.reader(where[0][0]).read(where[0][1])  # a log of thousands of rounds
        state = cls._unpacked(fields, [None if place is None else (blob, *place) for place in where[1:]])
        if state.pieces().head() != head:
            raise WireError("job state: not in canonical form")
        return state

    @classmethod
    def _unpacked(
        cls, fields: Any, stored: Sequence[Payload | None] = (), before: JobState | None = None
    ) -> JobState:  # fmt: skip
        if type(fields) is not list or len(fields) not in _FIELDS or fields[0] != _VERSION:
            raise WireError(f"job state: expected ten to twelve fields of version {_VERSION}")
        _, round_, stage, stage_round, status, reason, converged, empty_rounds, log, arrays, *optional = fields
        proof = optional.pop() if optional and isinstance(optional[-1], bytes) else b""
        if len(optional) > 1 or (not proof and len(fields) == max(_FIELDS)):
            raise WireError("job state: a malformed optional part")
        if [*map(type, fields[:9])] != [int, int, int, int, str, str, bool, int, bytes]:
            raise WireError("job state: a field of another type")
        if min(counts := (round_, stage, stage_round, empty_rounds)) < 0 or max(counts) >= _MAX_COUNT:
            raise WireError("job state: a count is malformed")
        if status not in ("running", "done", "failed") or len(reason) > MAX_TEXT:
            raise WireError("job state: malformed status")
        records = _read_log(log, before)
        last_stage = max([record.stage for record in records], default=0)
        if len(records) != round_ or stage >= _MAX_STAGES or last_stage > stage:
            raise WireError("job state: its log does not match its round and stage")
        return cls(
            round_, stage, stage_round, status, reason, converged, empty_rounds, records, Arrays.unpack(arrays, stored),
            Secured.unpacked(optional[0]) if optional else None, proof,
        )  # fmt: skip


def _keys(value: object, where: str, *, required: tuple[str, ...], optional: tuple[str, ...]) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise UsageError(f"{where}: expected names with values")
    for name in value:
        if name not in required + optional:
            hint = did_you_mean(name, required + optional, f" (known: {', '.join(required + optional)})")
            raise UsageError(f"{where}: unknown key {str(name)[:100]!r}{hint}")
    for name in required:
        if name not in value:
            raise UsageError(f"{where}: key {name!r} is missing")
    if not all(math.isfinite(item) for item in value.values() if isinstance(item, float)):
        raise UsageError(f"{where}: a number is not finite")
    return value
