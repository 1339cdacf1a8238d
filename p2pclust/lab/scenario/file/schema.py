"""The schema of a scenario file; unknown keys are refused.

The models are frozen and strict: text is never converted to a number. A check of one field is at that field, a check of
several fields at their table. `p2pclust.jobs.explain` turns the errors into lines for people; it knows the two
kinds of custom errors of `p2pclust.jobs.fields`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import AfterValidator, Field, model_validator

from p2pclust.jobs import fields
from p2pclust.jobs.data_keys import DataSpec
from p2pclust.jobs.fields import RandomVictims, TomlTable, refuse
from p2pclust.jobs.job_keys import JobSpec
from p2pclust.lab.scenario.file.expect_keys import ExpectSpec
from p2pclust.lab.scenario.file.fault_keys import FaultSpec
from p2pclust.lab.scenario.file.fleet_keys import FleetTable
from p2pclust.lab.scenario.file.result_paths import wrong_path
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
        problems += self._partition_problems()
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
