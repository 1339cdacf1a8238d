"""The schema of a scenario file; unknown keys are refused.

The models are frozen and strict: text is never converted to a number. A check of one field is at that field, a check of
several fields at their table. `p2pclust.jobs.explain` turns the errors into lines for people.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator

from p2pclust.jobs import fields
from p2pclust.jobs.data_keys import DataSpec
from p2pclust.jobs.fields import Names, RandomVictims, Scalar, SomeNames, TomlTable, Who, refuse
from p2pclust.jobs.job_keys import JobSpec
from p2pclust.lab.data.damage import HOWS
from p2pclust.lab.scenario.file.fleet_keys import FleetTable
from p2pclust.lab.scenario.file.result_paths import wrong_path
from p2pclust.lab.testbed.faults import LASTING, Do
from p2pclust.lab.testbed.peer.lies import LIES
from p2pclust.tools.spelling import nearest

if TYPE_CHECKING:
    import numpy as np


class ScenarioJob(JobSpec):
    """``[[jobs]]`` of a scenario: with first labels and numbers of clusters from true labels, which devices do not have."""

    #: For initial = "given": the share of labels that is moved to a wrong cluster of the device.
    dirtiness: Annotated[float, Field(ge=0, le=1)] | None = None
    #: Of fedcref and k-fed; "classes", of fedcref: the number of labels of a device's rows.
    n_local_clusters: fields.LocalClusters | None = None

    @property
    def own(self) -> dict[str, Any]:
        given = self.n_local_clusters not in (None, "classes")
        return {**super().own, **({"n_local_clusters": self.n_local_clusters} if given else {})}

    @model_validator(mode="after")
    def _labels_are_for_fedcref(self) -> ScenarioJob:
        from_labels = {"dirtiness": self.dirtiness is not None, "n_local_clusters": self.n_local_clusters == "classes"}
        wrong = [] if self.protocol == "fedcref" else [key for key, given in from_labels.items() if given]
        refuse([f"protocol {self.protocol!r} takes no {key} from labels" for key in wrong])
        return self


Phase = Literal["opening", "adopting", "combining", "closing"]

#: The key that each of these faults needs; no other fault has it.
_NEEDS = {"slow": "factor", "drop": "probability", "corrupt-data": "how", "lie": "how"}
#: What `how` may be.
_HOWS = {"corrupt-data": tuple(HOWS), "lie": tuple(LIES)}


class At(TomlTable):
    """``at = { round = 3 }``, ``{ seconds = 2.5 }``, ``{ job = 1 }`` or ``{ rate_per_minute = 2, until_s = 60 }``."""

    #: When the victim reaches this round, in the first job that has it; the victim carries it out itself.
    round: Annotated[int, Field(ge=0)] | None = None
    phase: Phase | None = None
    #: After the first job was submitted.
    seconds: Annotated[float, Field(ge=0)] | None = None
    #: Before this job is submitted; jobs count from 0.
    job: Annotated[int, Field(ge=0)] | None = None
    #: At instants drawn from the seed: the mean number per minute, and the span of time.
    rate_per_minute: Annotated[float, Field(gt=0, le=6000)] | None = None
    from_s: Annotated[float, Field(ge=0)] | None = None
    until_s: Annotated[float, Field(gt=0, le=100_000)] | None = None

    @model_validator(mode="after")
    def _one_moment(self) -> At:
        moments, rated = (self.round, self.seconds, self.job, self.rate_per_minute), self.rate_per_minute is not None
        wrong = {
            "expected one of round, seconds, job, or rate_per_minute": sum(one is not None for one in moments) != 1,
            "phase is for a fault at a round, not at another moment": self.phase is not None and self.round is None,
            "from_s and until_s are for rate_per_minute":
                not rated and (self.from_s is not None or self.until_s is not None),
            "rate_per_minute needs until_s, later than from_s (0 if it is not given)":
                rated and (self.until_s is None or self.until_s <= (self.from_s or 0.0)),
        }  # fmt: skip
        refuse([problem for problem, here in wrong.items() if here][:1])
        return self


class FaultSpec(TomlTable):
    """``[[faults]]``: what goes wrong, when, and at which devices."""

    at: At
    do: Do
    #: A device, a class of devices, a list of these, "all", "aggregator", or { random = k }.
    who: Who = "all"
    #: Of cut and heal: the other side, by default all other devices. With one_way, only messages to `who` are lost.
    apart_from: Annotated[Names, Field(alias="from")] = ()
    one_way: bool = False
    #: Whether rounds and the aggregator are those of a job within the job (FedCRef's communities).
    within: bool = False
    #: How long a restarted peer stays down, or another fault lasts (without it: to the end).
    for_s: Annotated[float, Field(ge=0)] | None = None
    #: Of slow: the factor by which computing takes longer.
    factor: Annotated[float, Field(ge=1, le=100_000)] | None = None
    #: Of drop: the probability that a message from or to the device is lost.
    probability: Annotated[float, Field(gt=0, le=1)] | None = None
    #: Of corrupt-data: what happens to the rows; of lie: what the device sends in place of its sums.
    how: Literal["nan", "scale", "shuffle", "constant", "corner", "inflate", "waver"] | None = None

    @property
    def phase(self) -> Phase:
        """The phase of a fault at a round: by default opening for the aggregator, adopting for other peers."""
        return self.at.phase or ("opening" if self.who == "aggregator" else "adopting")

    @model_validator(mode="after")
    def _possible(self) -> FaultSpec:
        do, at_round, of_aggregator = self.do, self.at.round is not None, self.who == "aggregator"
        moment = "expected at = { seconds = ... }"
        wrong = {
            f"a peer cannot revoke itself at a round: {moment}": at_round and do == "revoke",
            f"phase {self.phase!r} is the aggregator's: expected who = 'aggregator', or another phase":
                at_round and self.phase != "adopting" and not of_aggregator,
            f"a paused peer cannot resume itself at a round: {moment}": at_round and do == "resume",
            f"a device cannot join itself at a round: {moment} or {{ job = ... }}": at_round and do == "join",
            f"{do} at a rate has no meaning: {moment}":
                do in ("resume", "join", "heal") and self.at.rate_per_minute is not None,
            "before a job no device aggregates: expected another moment, or another device":
                of_aggregator and self.at.job is not None,
            "key 'who' is missing": do != "heal" and "who" not in self.model_fields_set,
            "resume needs who = a device or a group: another peer is the aggregator by then":
                do == "resume" and (of_aggregator or isinstance(self.who, RandomVictims)),
            f"{do} needs who = a device or a group, not the aggregator": do in ("join", "heal") and of_aggregator,
        }  # fmt: skip
        refuse([*self._foreign_keys(), *(problem for problem, here in wrong.items() if here)])
        return self

    def _foreign_keys(self) -> list[str]:
        problems = []
        if self.for_s is not None and self.do not in LASTING:
            problems.append(f"for_s is for {', '.join(LASTING[:-1])} and {LASTING[-1]}, not {self.do}")
        needed = _NEEDS.get(self.do)
        for key in dict.fromkeys(_NEEDS.values()):
            given = getattr(self, key) is not None
            if given and needed != key:
                of = [do for do, other in _NEEDS.items() if other == key]
                problems.append(f"{key} is for {' and '.join(of)}, not {self.do}")
            elif not given and needed == key:
                problems.append(f"do = {self.do!r} needs {key}")
        known = _HOWS.get(self.do, ())
        if known and self.how is not None and self.how not in known:
            problems.append(f"how = {self.how!r}: expected one of {', '.join(known)}")
        if (self.apart_from or self.one_way) and self.do not in ("cut", "heal"):
            problems.append(f"{'from' if self.apart_from else 'one_way'} is for cut and heal, not {self.do}")
        return problems


#: The keys that say how a value is compared.
OPERATORS = ("at_least", "at_most", "above", "below", "equals")


class ValueSpec(TomlTable):
    """``[[expect.values]]``: any value of the result, by its path; see `p2pclust.lab.scenario.file.result_paths`."""

    what: Annotated[str, Field(min_length=1)]
    #: How several values are combined: to one number, to whether all or any of them hold, or to their count.
    over: Literal["max", "min", "mean", "all", "any", "count"] | None = None
    at_least: float | None = None
    at_most: float | None = None
    above: float | None = None
    below: float | None = None
    equals: Scalar | None = None

    @property
    def comparisons(self) -> list[tuple[str, float | bool | str]]:
        """The operators that were given, with the wanted values."""
        return [(name, wanted) for name in OPERATORS if (wanted := getattr(self, name)) is not None]

    @model_validator(mode="after")
    def _compares(self) -> ValueSpec:
        if not self.comparisons:
            refuse([f"what = {self.what!r}: expected one of {', '.join(OPERATORS)}"])
        if isinstance(self.equals, bool | str) and self.over in ("max", "min", "mean", "count"):
            refuse([f"over = {self.over!r} gives a number: expected equals to be one"])
        return self


class ExpectSpec(TomlTable):
    """``[expect]``: what must hold in the end; only the keys that are set are checked."""

    finished_at_least: Annotated[int, Field(ge=0)] | None = None
    lost_at_most: Annotated[int, Field(ge=0)] | None = None
    identical_centers: bool | None = None
    pooled_relative_difference_below: Annotated[float, Field(gt=0)] | None = None
    #: For protocols that are not lossless.
    gap_below: Annotated[float, Field(gt=0)] | None = None
    replay_identical: bool | None = None
    ari_at_least: Annotated[float, Field(ge=-1, le=1)] | None = None
    accuracy_at_least: Annotated[float, Field(ge=0, le=1)] | None = None
    communities_at_least: Annotated[int, Field(ge=0)] | None = None
    communities_at_most: Annotated[int, Field(ge=0)] | None = None
    terms_at_least: Annotated[int, Field(ge=1)] | None = None
    terms_at_most: Annotated[int, Field(ge=0)] | None = None
    rounds_at_least: Annotated[int, Field(ge=1)] | None = None
    rounds_at_most: Annotated[int, Field(ge=1)] | None = None
    #: Devices that the record names as left out of a round or abstaining; an empty list expects no such device.
    left_out: SomeNames | None = None
    #: The fleet's own time: virtual if it was simulated.
    seconds_at_most: Annotated[float, Field(gt=0)] | None = None
    wall_seconds_at_most: Annotated[float, Field(gt=0)] | None = None
    virtual_seconds_at_most: Annotated[float, Field(gt=0)] | None = None
    #: Sent and received together: the largest value of a device, and the mean.
    bytes_per_device_at_most: Annotated[float, Field(gt=0)] | None = None
    mean_bytes_per_device_at_most: Annotated[float, Field(gt=0)] | None = None
    #: Joules: the largest value of a device whose energy is counted.
    energy_per_device_at_most: Annotated[float, Field(gt=0)] | None = None
    #: Any other value of the result.
    values: Annotated[tuple[ValueSpec, ...], Field(strict=False)] = ()


class Scenario(TomlTable):
    """A whole scenario file."""

    title: str = ""
    #: Of all random choices: partition, first centers, participation, victims, and the simulated network.
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    data: Annotated[DataSpec, Field(examples=['a table [data] with source = "iris"'])]
    fleet: Annotated[FleetTable, Field(examples=["a table [fleet] with peers = 3"])]
    jobs: Annotated[
        tuple[ScenarioJob, ...],
        Field(strict=False, examples=['a table [[jobs]] with protocol = "llf-fcm" and clusters = 3']),
        AfterValidator(fields.not_empty),
    ]
    faults: Annotated[tuple[FaultSpec, ...], Field(strict=False)] = ()
    expect: ExpectSpec = ExpectSpec()

    def victims(self, fault: FaultSpec, rng: np.random.Generator) -> tuple[str, ...]:
        """Return the victims of a fault, in the order of the file; ``{ random = k }`` is drawn.

        Empty for "aggregator", which is known only while the fleet runs.
        """
        if isinstance(fault.who, RandomVictims):
            members = self.fleet.members
            drawn = rng.choice(len(members), size=fault.who.random, replace=False)
            return tuple(members[index].name for index in sorted(drawn))
        return () if fault.who == "aggregator" else self.called(_listed(fault.who))

    def called(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return the devices with these names or in groups with these names, in the order of the file."""
        members = self.fleet.members
        return tuple(d.name for d in members if "all" in names or d.name in names or d.group in names)

    @model_validator(mode="after")
    def _tables_fit_together(self) -> Scenario:
        n_peers = len(self.fleet.members)
        problems = []
        if self.data.files is not None and len(self.data.files) != n_peers:
            problems.append(f"[data]: {len(self.data.files)} files for {n_peers} devices: expected one file per device")
        problems += [*self._partition_problems(), *self._gap_problems()]
        for index, fault in enumerate(self.faults):
            problems += [f"[faults.{index}]: {problem}" for problem in self._fault_problems(fault, n_peers)]
        first: dict[str, str] = {}  # what happens to each device first
        for fault in self.faults:
            fixed = () if isinstance(fault.who, RandomVictims) or fault.who == "aggregator" else _listed(fault.who)
            for name in self.called(fixed) if fault.do in ("join", "leave", "kill", "drain") else ():
                first.setdefault(name, fault.do)
        if 2 * (n_late := sum(do == "join" for do in first.values())) >= n_peers:
            problems.append(f"[[faults]]: {n_late} of {n_peers} devices join late: expected a majority from the start")
        problems += [
            f"[expect]: {key} = {wanted}: expected at most the {n_peers} devices of the fleet"
            for key in ("finished_at_least", "lost_at_most")
            if (wanted := getattr(self.expect, key)) is not None and wanted > n_peers
        ]
        devices, left_out = self.fleet.names, self.expect.left_out or ()
        problems += [f"[expect]: left_out = {name!r}: no such device" for name in left_out if name not in devices]
        problems += [
            f"[expect.values.{index}]: what = {value.what!r}: {why}"
            for index, value in enumerate(self.expect.values)
            if (why := wrong_path(value.what, devices, len(self.jobs)))
        ]
        refuse(problems)
        return self

    def _gap_problems(self) -> list[str]:
        """Let jobs keep missing values where the data do; return which cannot."""
        if self.data.missing_values != "keep":
            return []
        from p2pclust.protocols.engine.registry import parameters_of, protocol_class  # noqa: PLC0415 - as in JobSpec

        problems = []
        for index, job in enumerate(self.jobs):
            kind = protocol_class(job.protocol)
            if "missing_values" in parameters_of(kind):
                job.keep_gaps()
            elif not kind.always_keeps_gaps:
                instead = "set missing_values to 'drop' or { fill = VALUE }, or choose llf-cm or llf-fcm"
                problems.append(f"[jobs.{index}]: protocol {job.protocol!r} needs a value in every cell: {instead}")
        return problems

    def _partition_problems(self) -> list[str]:
        """Return which jobs need rows where columns are dealt out, or the other way round."""
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
            problems.append("[data]: bounds: every peer scales its own columns: leave bounds out")
        if len({job.init for job in self.jobs if job.by_columns and isinstance(job.init, tuple)}) > 1:
            problems.append("[jobs]: peers get their columns of one init only: expected the same init in every job")
        return problems

    def _fault_problems(self, fault: FaultSpec, n_peers: int) -> list[str]:
        problems = []
        if fault.at.job is not None and fault.at.job >= (n_jobs := len(self.jobs)):
            problems.append(f"at = {{ job = {fault.at.job} }}: the scenario has {n_jobs} jobs, counted from 0")
        if isinstance(fault.who, RandomVictims):
            if fault.who.random > n_peers:
                problems.append(f"who = {{ random = {fault.who.random} }}: the fleet has {n_peers} devices")
        elif fault.who != "aggregator":
            who, others = _listed(fault.who), fault.apart_from or ("all",)
            unknown = [self._unknown("who", name) for name in who if not self.called((name,))]
            unknown += [self._unknown("from", name) for name in others if not self.called((name,))]
            if fault.do == "cut" and not unknown and not set(self.called(others)) - set(self.called(who)):
                problems.append(
                    "no device is on the other side of the cut: expected who and from to be different devices"
                )
            problems += unknown
        return problems

    def _unknown(self, key: str, name: str) -> str:
        groups = dict.fromkeys(device.group for device in self.fleet.members)
        known = [*groups, *self.fleet.names, "aggregator", "all"]
        near = nearest(name, known)
        meant = f"did you mean {near!r}? " if near else ""
        return f"{key} = {name!r}: no such device or group; {meant}groups are {', '.join(groups)}"


def _listed(who: str | tuple[str, ...]) -> tuple[str, ...]:
    return (who,) if isinstance(who, str) else who
