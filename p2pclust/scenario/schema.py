"""What a scenario file may say, and nothing more: every key has a meaning, every other key is refused.

The models are frozen and strict: text is never taken for a number. What one field alone decides is checked at that
field, what several decide together at the table that holds them. `p2pclust.scenario.load` turns the errors into lines
for people; its messages rely on the two kinds of custom errors made in `p2pclust.scenario.fields`.
"""

from __future__ import annotations

import dataclasses
import difflib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, Field, PlainValidator, model_validator

from p2pclust.errors import UsageError
from p2pclust.scenario import fields
from p2pclust.scenario.fields import Bounds, Centers, RandomVictims, wrong_table
from p2pclust.scenario.job_parameters import OwnParameters, Table
from p2pclust.topology.kinds import options_of

if TYPE_CHECKING:
    import numpy as np

__all__ = [
    "At",
    "DataSpec",
    "Device",
    "DeviceSpec",
    "ExpectSpec",
    "FaultSpec",
    "FleetSpec",
    "JobSpec",
    "LinkSpec",
    "OverlaySpec",
    "PartitionSpec",
    "Scenario",
]

PEERS_MAX = 1000

Phase = Literal["opening", "adopting", "combining", "closing"]


@dataclass(frozen=True)
class Device:
    """One peer of the fleet, as `FleetSpec.members` lists it."""

    name: str
    group: str
    mains: bool
    cores: int | None
    link: LinkSpec | None


class PartitionSpec(Table):
    """``[data.partition]``: which peer holds which rows."""

    scheme: Literal[
        "iid", "dirichlet", "labels", "distance", "by-group", "by-file", "by-class", "vertical", "files"
    ] = "iid"
    #: For dirichlet and distance: the smaller, the more the peers differ.
    beta: Annotated[float, Field(gt=0)] | None = None
    #: For labels: every peer holds exactly so many classes.
    labels_per_peer: Annotated[int, Field(ge=1)] | None = None
    #: For distance: where each peer stands, in raw units; by default drawn from the seed, in the box of the rows.
    locations: Annotated[Centers, PlainValidator(fields.locations)] | None = None
    #: For by-class: so many rows of each class that a peer sees, how many classes it sees (from, to), and which share of
    #: the rows of a class all of its peers have in common.
    rows_per_class: Annotated[int, Field(ge=1)] | None = None
    classes_per_peer: Annotated[tuple[int, int], Field(strict=False)] | None = None
    overlap: Annotated[float, Field(ge=0, le=1)] | None = None
    #: For vertical: how many columns each device gets, in the order of the devices; by default as equal as can be.
    widths: Annotated[tuple[Annotated[int, Field(ge=1)], ...], Field(strict=False)] | None = None

    @model_validator(mode="after")
    def _options_fit_scheme(self) -> PartitionSpec:
        problems = []
        for option, schemes in (("beta", ("dirichlet", "distance")), ("labels_per_peer", ("labels",))):
            given = getattr(self, option) is not None
            if given and self.scheme not in schemes:
                problems.append(f"{option} is for scheme = {' or '.join(map(repr, schemes))}, not {self.scheme!r}")
            elif not given and self.scheme in schemes:
                problems.append(f"scheme = {self.scheme!r} needs {option}")
        if self.scheme == "by-class" and self.rows_per_class is None:
            problems.append("scheme = 'by-class' needs rows_per_class")
        problems += [
            f"{option} is for scheme = 'by-class', not {self.scheme!r}"
            for option in ("rows_per_class", "classes_per_peer", "overlap")
            if getattr(self, option) is not None and self.scheme != "by-class"
        ]
        if self.locations is not None and self.scheme != "distance":
            problems.append(f"locations are for scheme = 'distance', not {self.scheme!r}")
        if self.widths is not None and self.scheme != "vertical":
            problems.append(f"widths is for scheme = 'vertical', not {self.scheme!r}")
        if problems:
            raise wrong_table(problems)
        return self


class DataSpec(Table):
    """``[data]``: where the rows come from, and how the federated protocol scales them."""

    #: A registered data set, or one file or folder of files, which is split among the peers.
    source: Annotated[str, Field(min_length=1)] | None = None
    #: One file per device, in the order of the devices: nothing is split.
    files: Annotated[tuple[str, ...], Field(strict=False), AfterValidator(fields.not_empty)] | None = None
    #: For CSV, ARFF and Parquet files: the columns of y and group, and of the features if these are not all others.
    label_column: Annotated[str | int, PlainValidator(fields.column)] | None = None
    group_column: Annotated[str | int, PlainValidator(fields.column)] | None = None
    columns: Annotated[tuple[str | int, ...], PlainValidator(fields.columns)] | None = None
    #: For files: refuse a missing value, or leave its row out.
    missing: Literal["error", "drop"] = "error"
    #: For generated data sets: their own options, such as noise.
    options: Annotated[dict[str, Any], PlainValidator(fields.options)] | None = None
    scaling: Literal["none", "minmax", "zscore"] = "none"
    #: Declared range of each feature in raw units: spares the round that finds it out. One pair stands for all.
    bounds: Annotated[Bounds, PlainValidator(fields.bounds)] | None = None
    partition: PartitionSpec | None = None

    @property
    def scheme(self) -> str:
        """The partition's scheme; files are taken as they are, a source is dealt out at random."""
        if self.partition is not None:
            return self.partition.scheme
        return "iid" if self.files is None else "files"

    @model_validator(mode="after")
    def _one_source(self) -> DataSpec:
        if (self.source is None) == (self.files is None):
            raise wrong_table(["expected either source, or files with one file per device"])
        if self.files is not None and self.scheme != "files":
            raise wrong_table([f"files are not split: partition.scheme = {self.scheme!r} needs source"])
        if self.files is not None and self.options is not None:
            raise wrong_table(["options are for generated data sets: they need source"])
        if self.source is not None and self.scheme == "files":
            raise wrong_table(["partition.scheme = 'files' needs files, one per device, instead of source"])
        return self


class OverlaySpec(Table):
    """``[fleet.overlay]``: who is linked to whom; the options are those of the kind, see :data:`p2pclust.topology.KINDS`."""

    kind: str = "full"
    neighbours: int | float | None = None
    rewire: float | None = None
    radius: float | None = None
    children: int | None = None
    torus: bool | None = None
    #: The name of a device.
    center: str | None = None
    gateways: int | None = None
    #: Of a GraphML, edge or adjacency file, beside the scenario.
    path: str | None = None
    #: Of peers that walk.
    speed: float | None = None
    seconds: int | None = None
    #: A file of links that appear and vanish while jobs run, beside the scenario; see p2pclust.topology.traces.
    trace: Annotated[str, Field(min_length=1)] | None = None

    @property
    def options(self) -> dict[str, Any]:
        """What was given for the kind."""
        given = self.model_dump(exclude={"kind", "trace"}).items()
        return {name: value for name, value in given if value is not None}

    @model_validator(mode="after")
    def _fits_its_kind(self) -> OverlaySpec:
        try:
            options_of(self.kind, self.options)
        except UsageError as error:
            raise wrong_table([str(error)]) from None
        if self.trace is not None and self.kind == "mobility":
            raise wrong_table(["kind 'mobility' draws its own trace: leave trace out, or choose another kind"])
        return self


class LinkSpec(Table):
    """``link = { ... }``: how a device is connected. Only the simulated backend shapes links; the others refuse it."""

    #: Delay of one message on its way from or to this device.
    latency_ms: Annotated[float, Field(ge=0, le=60_000)] = 0.0
    #: Probability that a message is lost.
    loss: Annotated[float, Field(ge=0, lt=1)] = 0.0


class DeviceSpec(Table):
    """``[[fleet.devices]]``: one device, or a group of alike ones named ``name-01``, ``name-02``, ..."""

    name: Annotated[str, AfterValidator(fields.device_name)]
    count: Annotated[int, Field(ge=1, le=PEERS_MAX)] | None = None
    #: On mains power, with so many cores: such a device stands earlier for aggregator.
    mains: bool = False
    cores: Annotated[int, Field(ge=1)] | None = None
    link: LinkSpec | None = None


class FleetSpec(Table):
    """``[fleet]``: the devices, and the durations that their peers work with."""

    timing: Literal["default", "wan", "fast"] = "default"
    overlay: OverlaySpec = OverlaySpec()
    #: Shorthand for devices that are all alike: peer-01, peer-02, ...
    peers: Annotated[int, Field(ge=1, le=PEERS_MAX)] | None = None
    devices: Annotated[tuple[DeviceSpec, ...], Field(strict=False)] = ()
    #: The fleet is given up after so long without any progress; by default it follows from patience and faults.
    give_up_s: Annotated[float, Field(gt=0)] | None = None

    @property
    def members(self) -> tuple[Device, ...]:
        """Every peer, in the order of the file."""
        specs = self.devices or (DeviceSpec(name="peer", count=self.peers),)
        return tuple(
            Device(name, spec.name, spec.mains, spec.cores, spec.link) for spec in specs for name in _names(spec)
        )

    @model_validator(mode="after")
    def _names_are_distinct(self) -> FleetSpec:
        if (self.peers is None) == (not self.devices):
            raise wrong_table(["expected either peers = N, or [[fleet.devices]]"])
        taken: set[str] = set()
        for spec in self.devices:
            names = dict.fromkeys([spec.name, *_names(spec)])
            for name in names:
                if name in taken:
                    raise wrong_table([f"two devices or groups are called {name!r}: give each a name of its own"])
            taken.update(names)
        if len(self.members) > PEERS_MAX:
            raise wrong_table([f"{len(self.members)} devices: expected at most {PEERS_MAX}"])
        return self


class _JobKeys(Table):
    """What every job may say."""

    protocol: Annotated[str, AfterValidator(fields.known_protocol)]
    #: How many; left out for a protocol that finds the number itself.
    clusters: Annotated[int, Field(ge=1, le=2**20)] | None = None
    #: First centers: proposed by one peer, or an explicit list in raw units.
    #: Left out, as the protocol's paper has it.
    init: Annotated[str | Centers | None, PlainValidator(fields.init)] = None
    #: Ends when the centers move less than this in one round (Frobenius norm, scaled units; 0: never), or at max_rounds.
    #: Left out, the protocol's defaults hold.
    tol: Annotated[float, Field(ge=0)] | None = None
    max_rounds: Annotated[int, Field(ge=1, le=10**6)] | None = None
    #: Share of the peers drawn for each round.
    participation: Annotated[float, Field(gt=0, le=1)] = 1.0
    #: What happens to a peer that stays silent: the round waits for all, waits patiently, or goes on at a deadline.
    missing: Literal["all", "wait", "drop"] = "wait"
    #: For missing = "wait", in place of the timing preset's.
    patience_s: Annotated[float, Field(gt=0)] | None = None
    #: For missing = "drop": how long a round may take.
    deadline_s: Annotated[float, Field(gt=0)] | None = None
    #: How contributions reach the aggregator: each by itself, or added up on the way. Left out: by itself on a full mesh.
    #: Or without an aggregator: every peer talks with its neighbours until all have the same sums.
    collect: Literal["star", "tree", "gossip"] | None = None
    #: Above 64 devices: let each send its models to all others, where the protocol exchanges models.
    all_to_all: bool = False
    #: For collect = "gossip": how closely all peers' estimates of a sum agree before anybody takes one, in terms of the
    #: sum of absolute values (default 1e-9), and what part of its numbers a peer gives to a neighbour (default push-sum).
    gossip_tolerance: Annotated[float, Field(gt=0, le=0.5)] | None = None
    mixing: Literal["push-sum", "metropolis-hastings"] | None = None
    #: And after how many ticks of a round each peer goes on from its own mixture, where the protocol allows that.
    ticks: Annotated[int, Field(ge=0, le=10**6)] | None = None


class JobSpec(OwnParameters, _JobKeys):
    """``[[jobs]]``: one clustering job of the whole fleet; several are done one after another."""

    @property
    def by_columns(self) -> bool:
        """Whether the protocol wants peers that hold different columns of the same rows."""
        from p2pclust.protocols.registry import protocol_class  # noqa: PLC0415 - as in fields.known_protocol

        return protocol_class(self.protocol).by_columns

    @model_validator(mode="after")
    def _keys_fit_together(self) -> JobSpec:
        from p2pclust.protocols.registry import protocol_class  # noqa: PLC0415 - as in fields.known_protocol

        kind = protocol_class(self.protocol)
        known: list[str] = [field.name for field in dataclasses.fields(kind)] if dataclasses.is_dataclass(kind) else []
        problems = [f"protocol {self.protocol!r} has no {name}" for name in self.parameters() if name not in known]
        if "n_clusters" in known and self.clusters is None:
            problems.append(f"protocol {self.protocol!r} needs clusters")
        if "n_clusters" not in known and self.clusters is not None:
            problems.append(f"protocol {self.protocol!r} finds the number of clusters itself: leave clusters out")
        if kind.by_columns and "missing" not in self.model_fields_set:
            self.__dict__["missing"] = "all"  # the only way there is, so nobody has to write it
        if kind.by_columns and self.missing != "all":
            problems.append(f"protocol {self.protocol!r} needs every peer in every round: expected missing = 'all'")
        if kind.by_columns and self.participation != 1.0:
            problems.append(f"protocol {self.protocol!r} needs every peer in every round: leave participation out")
        problems += self._gossip_problems()
        if self.patience_s is not None and self.missing != "wait":
            problems.append(f"patience_s is for missing = 'wait', not {self.missing!r}")
        if self.deadline_s is not None and self.missing != "drop":
            problems.append(f"deadline_s is for missing = 'drop', not {self.missing!r}")
        if self.deadline_s is None and self.missing == "drop":
            problems.append("missing = 'drop' needs deadline_s")
        problems += [
            f"protocol {self.protocol!r} has no {name}"
            for name in ("tol", "max_rounds")
            if getattr(self, name) is not None and name not in known
        ]
        if isinstance(self.init, tuple) and len(self.init) != self.clusters:
            problems.append(f"init has {len(self.init)} centers: expected clusters = {self.clusters}")
        if problems:
            raise wrong_table(problems)
        return self

    def _gossip_problems(self) -> list[str]:
        from p2pclust.protocols.leaderless import needs_aggregator  # noqa: PLC0415 - as in fields.known_protocol
        from p2pclust.protocols.registry import protocol_class  # noqa: PLC0415

        if self.collect != "gossip":
            own = {"gossip_tolerance": self.gossip_tolerance, "mixing": self.mixing, "ticks": self.ticks}
            return [f"{name} is for collect = 'gossip'" for name, value in own.items() if value is not None]
        problems = []
        if self.missing == "drop" or self.patience_s is not None:
            problems.append(
                "collect = 'gossip' has no aggregator to lose patience: leave missing = 'drop' and patience_s out"
            )
        if needs := needs_aggregator(protocol_class(self.protocol)):
            problems.append(f"protocol {self.protocol!r} works on peers' {needs}: collect = 'gossip' cannot do that")
        return problems


class At(Table):
    """``at = { round = 3 }`` or ``{ seconds = 2.5 }``: when a fault happens."""

    #: The victim's own doing when it reaches this round of the first job that gets there.
    round: Annotated[int, Field(ge=0)] | None = None
    phase: Phase | None = None
    #: After the first job was submitted.
    seconds: Annotated[float, Field(ge=0)] | None = None

    @model_validator(mode="after")
    def _one_moment(self) -> At:
        if (self.round is None) == (self.seconds is None):
            raise wrong_table(["expected either round or seconds"])
        if self.phase is not None and self.round is None:
            raise wrong_table(["phase is for a fault at a round, not at a second"])
        return self


class FaultSpec(Table):
    """``[[faults]]``: what goes wrong, when, and whom it meets."""

    at: At
    do: Literal["kill", "restart", "pause", "resume"]
    #: A device, a group, "aggregator", or { random = k }.
    who: Annotated[str | RandomVictims, PlainValidator(fields.who)]
    #: Count the rounds of the jobs within a job (FedCRef's communities), and mean the aggregator of one of these.
    within: bool = False
    #: How long a restarted peer stays down, or a paused one stands still (without it: until a resume).
    for_s: Annotated[float, Field(ge=0)] | None = None

    @property
    def phase(self) -> Phase:
        """The phase of a fault at a round: opening for the aggregator, adopting for anybody else, if not given."""
        return self.at.phase or ("opening" if self.who == "aggregator" else "adopting")

    @model_validator(mode="after")
    def _possible(self) -> FaultSpec:
        problems = []
        if self.for_s is not None and self.do in ("kill", "resume"):
            problems.append(f"for_s is for pause and restart, not {self.do}")
        if self.at.round is not None and self.phase != "adopting" and self.who != "aggregator":
            problems.append(f"phase {self.phase!r} is the aggregator's: expected who = 'aggregator', or another phase")
        if self.do == "resume" and self.at.round is not None:
            problems.append("a paused peer cannot resume itself at a round: expected at = { seconds = ... }")
        if self.do == "resume" and (self.who == "aggregator" or isinstance(self.who, RandomVictims)):
            problems.append("resume needs who = a device or a group: the aggregator is another one by then")
        if problems:
            raise wrong_table(problems)
        return self


class ExpectSpec(Table):
    """``[expect]``: what must hold in the end; what is left out is not asked."""

    finished_at_least: Annotated[int, Field(ge=0)] | None = None
    lost_at_most: Annotated[int, Field(ge=0)] | None = None
    identical_centers: bool | None = None
    pooled_relative_difference_below: Annotated[float, Field(gt=0)] | None = None
    #: For protocols that promise no equality.
    gap_below: Annotated[float, Field(gt=0)] | None = None
    replay_identical: bool | None = None
    ari_at_least: Annotated[float, Field(ge=-1, le=1)] | None = None
    terms_at_least: Annotated[int, Field(ge=1)] | None = None
    rounds_at_most: Annotated[int, Field(ge=1)] | None = None
    seconds_at_most: Annotated[float, Field(gt=0)] | None = None


class Scenario(Table):
    """A whole scenario file."""

    title: str = ""
    #: Of all chance: partition, first centers, participation, random victims, and the simulated network.
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    data: DataSpec
    fleet: FleetSpec
    jobs: Annotated[tuple[JobSpec, ...], Field(strict=False), AfterValidator(fields.not_empty)]
    faults: Annotated[tuple[FaultSpec, ...], Field(strict=False)] = ()
    expect: ExpectSpec = ExpectSpec()

    def victims(self, fault: FaultSpec, rng: np.random.Generator) -> tuple[str, ...]:
        """Return the devices that a fault meets, in the order of the file.

        Parameters
        ----------
        fault : FaultSpec
            One of this scenario's.
        rng : numpy.random.Generator
            Draws the victims of ``{ random = k }``; not used otherwise.

        Returns
        -------
        tuple of str
            Empty for "aggregator": who that is shows only while the fleet runs.
        """
        if isinstance(fault.who, RandomVictims):
            members = self.fleet.members
            drawn = rng.choice(len(members), size=fault.who.random, replace=False)
            return tuple(members[index].name for index in sorted(drawn))
        return () if fault.who == "aggregator" else self._called(fault.who)

    def _called(self, name: str) -> tuple[str, ...]:
        """Return the device of that name, or all devices of the group of that name."""
        members = self.fleet.members
        return tuple(device.name for device in members if name in (device.name, device.group))

    @model_validator(mode="after")
    def _tables_fit_together(self) -> Scenario:
        n_peers = len(self.fleet.members)
        problems = []
        if self.data.files is not None and len(self.data.files) != n_peers:
            problems.append(f"[data]: {len(self.data.files)} files for {n_peers} devices: expected one file per device")
        problems += self._partition_problems()
        for index, fault in enumerate(self.faults):
            problems += [f"[faults.{index}]: {problem}" for problem in self._fault_problems(fault, n_peers)]
        for key in ("finished_at_least", "lost_at_most"):
            wanted = getattr(self.expect, key)
            if wanted is not None and wanted > n_peers:
                problems.append(f"[expect]: {key} = {wanted}: expected at most the {n_peers} devices of the fleet")
        if problems:
            raise wrong_table(problems)
        return self

    def _partition_problems(self) -> list[str]:
        """Say which jobs want rows dealt out where columns are, or the other way round."""
        columns = self.data.scheme == "vertical"
        with_files = self.data.files is not None
        problems = []
        for index, job in enumerate(self.jobs):
            if job.by_columns and not columns and not with_files:
                problems.append(
                    f"[jobs.{index}]: protocol {job.protocol!r} is for peers that hold different columns: expected "
                    "[data.partition] scheme = 'vertical'"
                )
            elif not job.by_columns and (columns or (with_files and self.jobs[0].by_columns)):
                problems.append(
                    f"[jobs.{index}]: protocol {job.protocol!r} is for peers that hold different rows, and here they "
                    "hold columns"
                )
        if any(job.by_columns for job in self.jobs) and self.data.bounds is not None:
            problems.append("[data]: bounds: every peer scales its own columns by itself: leave bounds out")
        if len({job.init for job in self.jobs if job.by_columns and isinstance(job.init, tuple)}) > 1:
            problems.append("[jobs]: peers are given their columns of one init only: expected the same in every job")
        return problems

    def _fault_problems(self, fault: FaultSpec, n_peers: int) -> list[str]:
        if isinstance(fault.who, RandomVictims):
            if fault.who.random > n_peers:
                return [f"who = {{ random = {fault.who.random} }}: the fleet has {n_peers} devices"]
            return []
        if fault.who != "aggregator" and not self._called(fault.who):
            groups = dict.fromkeys(device.group for device in self.fleet.members)
            known = [*groups, *(device.name for device in self.fleet.members), "aggregator"]
            near = difflib.get_close_matches(fault.who, known, n=1)
            meant = f"did you mean {near[0]!r}? " if near else ""
            return [f"who = {fault.who!r}: no such device or group; {meant}groups are {', '.join(groups)}"]
        return []


def _names(spec: DeviceSpec) -> tuple[str, ...]:
    """Return the names of a group's devices; at least two digits, so that they sort as they count."""
    if spec.count is None:
        return (spec.name,)
    digits = max(2, len(str(spec.count)))
    return tuple(f"{spec.name}-{index:0{digits}d}" for index in range(1, spec.count + 1))
