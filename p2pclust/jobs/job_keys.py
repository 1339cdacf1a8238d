"""``[[jobs]]`` of a scenario: one clustering job of the whole fleet."""

from __future__ import annotations

import dataclasses
from functools import lru_cache, partial
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Field, ModelWrapValidatorHandler, PlainValidator, create_model, model_validator

from p2pclust.errors import UsageError
from p2pclust.jobs import fields
from p2pclust.jobs.fields import LocalClusters, PrivacyGate, TomlTable, refuse, wrong_table, wrong_value
from p2pclust.peer.core.treatment import LEAST_PATIENCE_S, groups_flaw, secure_fields
from p2pclust.protocols.secure.parameters import LEAST_COHORT, LEAST_GROUPS
from p2pclust.tools.spelling import did_you_mean


class SecureSpec(TomlTable):
    """``secure = {...}`` of a job: the parameters of secure sums (docs/secure-sums.md)."""

    #: How many peers keep pads, or all.
    keepers: Annotated[int, Field(ge=2, le=4096)] | Literal["all"] | None = None
    #: The fewest peers whose sum may be revealed; by default 5, below 7 peers 3.
    cohort: Annotated[int, Field(ge=LEAST_COHORT)] | None = None
    #: What is done if the set of peers of a sum that was revealed cannot be had again for the same state.
    burnt: Literal["groups", "record"] | None = None
    #: What is done if a peer of earlier sums is missing.
    leave: Literal["alone", "groups"] | None = None
    #: With max_weight or robust: into how many fixed groups of at least `cohort` peers all are dealt; what is revealed are
    #: the totals of these.
    groups: Annotated[int, Field(ge=LEAST_GROUPS)] | None = None


class PrivateSpec(TomlTable):
    """``privacy = {...}`` of a job: what it may reveal of a row (docs/protocols/private-cm.md)."""

    epsilon: Annotated[float, Field(gt=0)]
    delta: Annotated[float, Field(gt=0, lt=1)]


class _JobKeys(TomlTable):
    """The keys of every job."""

    protocol: Annotated[str, AfterValidator(fields.known_protocol)]
    #: The number of clusters; left out for a protocol that finds it.
    clusters: Annotated[int, Field(ge=1, le=2**20)] | None = None
    #: How the first centers are found, or an explicit list in raw units; by default as in the protocol's paper.
    init: fields.Init | None = None
    #: The job ends when the centers move less than this in one round (Frobenius norm, scaled units; 0: never), or at
    #: max_rounds. By default the protocol's.
    tol: Annotated[float, Field(ge=0)] | None = None
    max_rounds: Annotated[int, Field(ge=1, le=10**6)] | None = None
    #: The share of the peers that is drawn for each round.
    participation: Annotated[float, Field(gt=0, le=1)] = 1.0
    #: What happens if a peer is silent: the round waits for all, waits for a while, or continues at a deadline.
    missing: Literal["all", "wait", "drop"] = "wait"
    #: For missing = "wait"; by default the timing preset's.
    patience_s: Annotated[float, Field(ge=LEAST_PATIENCE_S)] | None = None
    #: For missing = "drop": the longest duration of a round.
    deadline_s: Annotated[float, Field(gt=0)] | None = None
    #: How contributions reach the aggregator: each by itself (the default on a full mesh), or added up on the way. Or
    #: without an aggregator: peers exchange sums with their neighbours until all have the same ones.
    collect: Literal["star", "tree", "gossip"] | None = None
    #: Above 64 devices: whether each may send its models to all others, if the protocol exchanges models.
    all_to_all: bool = False
    #: For collect = "gossip": how closely all peers' estimates of a sum must agree, relative to the sum of absolute values
    #: (default 1e-9), and what share of its numbers a peer gives to a neighbour (default push-sum).
    gossip_tolerance: Annotated[float, Field(gt=0, le=0.5)] | None = None
    mixing: Literal["push-sum", "metropolis-hastings"] | None = None
    #: And the number of ticks after which each peer continues from its own mixture, if the protocol allows that.
    ticks: Annotated[int, Field(ge=0, le=10**6)] | None = None
    #: Secure sums: no peer sees what a single other one contributes. True, or a table of their parameters.
    secure: bool | SecureSpec = False
    #: "all": every peer makes each state again from signed contributions before it adopts it, so that a lying aggregator
    #: is found out.
    verify: Literal["all"] | None = None
    #: What does every peer's passes over its rows: the C extension (c1), with the same bits on every kind of CPU, or NumPy;
    #: auto: c1 where all peers have it.
    kernel: Literal["auto", "numpy", "c1"] = "auto"
    #: Differential privacy for each row, with protocol llf-cm, secure sums and declared bounds.
    privacy: PrivateSpec | None = None


class OwnParameters(TomlTable):
    """The protocols' own parameters; by default those of the protocol."""

    #: Of a model made for a plug-in: its parameters.
    of_plugin: ClassVar[tuple[str, ...] | None] = None

    fuzzifier: Annotated[float, Field(gt=1)] | None = None
    privacy_gate: PrivacyGate | None = None
    suppress_singletons: bool | None = None
    accelerate: bool | None = None
    #: Against a peer that lies: the most that a peer weighs, in median peers, and how centers follow from peers' means.
    max_weight: Annotated[float, Field(ge=1)] | None = None
    robust: Literal["trim", "median"] | None = None
    averaging: Literal["weighted", "kmeans"] | None = None
    support: Literal["u^m", "u"] | None = None
    local_iterations: Annotated[int, Field(ge=1, le=1000)] | None = None
    learning_rate: Annotated[float, Field(gt=0)] | None = None
    min_cluster_size: Annotated[int, Field(ge=1)] | None = None
    n_init: Annotated[int, Field(ge=1)] | None = None
    n_local_clusters: LocalClusters | None = None
    transfer: Literal["float64", "float32"] | None = None
    n_batches: Annotated[int, Field(ge=1, le=10**6)] | None = None
    forgetting: Annotated[float, Field(ge=0, le=1)] | None = None
    #: Of FedCRef. ``n_local_clusters = "classes"``: the number of labels of a device's rows; for experiments.
    mode: Literal["refined", "paper"] | None = None
    initial: Literal["mixture", "kmeans", "dec", "given"] | None = None
    #: For initial = "given": the share of labels that is moved to a wrong cluster of the device.
    dirtiness: Annotated[float, Field(ge=0, le=1)] | None = None
    alpha: Annotated[float, Field(gt=0, le=100)] | None = None
    theta: Annotated[float, Field(ge=0)] | None = None
    tau: Annotated[float, Field(ge=0)] | None = None
    normalisation: str | None = None
    max_iterations: Annotated[int, Field(ge=1)] | None = None
    max_refinements: Annotated[int, Field(ge=1)] | None = None
    settled: Annotated[float, Field(ge=0)] | None = None
    hidden: Annotated[tuple[Annotated[int, Field(ge=1)], ...], Field(strict=False)] | None = None
    output: Literal["sigmoid", "linear", "relu"] | None = None
    epochs: Annotated[int, Field(ge=1)] | None = None
    batch: Annotated[int, Field(ge=1)] | None = None
    rounds: Annotated[int, Field(ge=1)] | None = None
    local_epochs: Annotated[int, Field(ge=1)] | None = None
    federated_rate: Annotated[float, Field(gt=0)] | None = None
    encoding: Literal["float32", "float16", "int8"] | None = None
    precision: Literal["float32", "bfloat16"] | None = None
    min_rows: Annotated[int, Field(ge=1)] | None = None
    most_local_clusters: Annotated[int, Field(ge=2)] | None = None
    device: str | None = None
    #: Of UIFCA, beside hidden, batch, learning_rate, min_cluster_size and device.
    cluster_rounds: Annotated[int, Field(ge=1)] | None = None
    communication_rounds: Annotated[int, Field(ge=1)] | None = None
    local_steps: Annotated[int, Field(ge=1)] | None = None
    couplings: Annotated[int, Field(ge=1)] | None = None
    image_width: Annotated[int, Field(ge=1)] | None = None
    decay: Annotated[float, Field(ge=0)] | None = None
    start: Literal["random", "peers"] | None = None

    def parameters(self) -> dict[str, Any]:
        """Return the protocol's own parameters that the file sets, by name."""
        names = dict.fromkeys((*OwnParameters.model_fields, *(self.of_plugin or ())))
        own = {name: getattr(self, name) for name in names if name != "dirtiness"}
        if own["n_local_clusters"] == "classes":
            own["n_local_clusters"] = None  # each device has its own number
        return {
            name: list(value) if isinstance(value, tuple) else value for name, value in own.items() if value is not None
        }


class JobSpec(OwnParameters, _JobKeys):
    """``[[jobs]]``: one clustering job of the whole fleet; several are done one after another."""

    @model_validator(mode="wrap")
    @classmethod
    def _of_plugin(cls, given: Any, handler: ModelWrapValidatorHandler[JobSpec]) -> JobSpec:
        """Check the job of a plug-in with a model that has the plug-in's parameters as keys."""
        from p2pclust.protocols.engine.registry import package_of  # noqa: PLC0415 - as in fields.known_protocol

        protocol = given.get("protocol") if isinstance(given, dict) else None
        if cls.of_plugin is not None or not isinstance(protocol, str) or not package_of(protocol):
            return handler(given)
        model = _with_parameters(cls, protocol)
        if unknown := [key for key in given if key not in model.model_fields]:
            meant = did_you_mean(unknown[0], model.model_fields, f": expected {', '.join(model.model_fields)}")
            raise wrong_table([f"unknown key {unknown[0]!r}{meant}"])
        return model.model_validate(given)

    @property
    def by_columns(self) -> bool:
        """Whether the protocol is for peers that hold different columns of the same rows."""
        from p2pclust.protocols.engine.base import ByColumns  # noqa: PLC0415 - as in fields.known_protocol
        from p2pclust.protocols.engine.registry import protocol_class  # noqa: PLC0415

        return issubclass(protocol_class(self.protocol), ByColumns)

    @property
    def secured(self) -> dict[str, Any]:
        """The fields of the treatment of a job with secure sums; empty without."""
        given = self.secure if isinstance(self.secure, bool) else self.secure.model_dump(exclude_none=True)
        return secure_fields(given)

    @model_validator(mode="after")
    def _keys_fit_together(self) -> JobSpec:
        from p2pclust.protocols.engine.registry import protocol_class  # noqa: PLC0415 - as in fields.known_protocol

        kind = protocol_class(self.protocol)
        known: list[str] = [field.name for field in dataclasses.fields(kind)] if dataclasses.is_dataclass(kind) else []
        problems = [f"protocol {self.protocol!r} has no {name}" for name in self.parameters() if name not in known]
        if "n_clusters" in known and self.clusters is None:
            problems.append(f"protocol {self.protocol!r} needs clusters")
        if "n_clusters" not in known and self.clusters is not None:
            problems.append(f"protocol {self.protocol!r} finds the number of clusters itself: leave clusters out")
        if self.by_columns and "missing" not in self.model_fields_set:
            self.__dict__["missing"] = "all"  # the only possible value, so it may be left out
        if self.by_columns and self.missing != "all":
            problems.append(f"protocol {self.protocol!r} needs every peer in every round: expected missing = 'all'")
        if self.by_columns and self.participation != 1.0:
            problems.append(f"protocol {self.protocol!r} needs every peer in every round: leave participation out")
        problems += self._gossip_problems()
        if self.secured and self.collect == "gossip":
            problems.append(
                "secure: collect = 'gossip' has no aggregator that could fix a set of peers: 'star' or 'tree'"
            )
        if self.verify and self.collect in ("tree", "gossip"):
            problems.append(
                f"verify: with collect = {self.collect!r} contributions are added up on the way, and what single peers have "
                "signed does not arrive: expected 'star'"
            )
        if flaw := self._flaw_of_groups():
            problems.append(flaw)
        if self.patience_s is not None and self.missing == "drop":
            problems.append("patience_s is for missing = 'wait' or 'all', not 'drop'")
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
        refuse(problems)
        return self

    def _flaw_of_groups(self) -> str:
        return groups_flaw(self.collect or "", self.verify or "") if self.secured.get("groups") else ""

    def _gossip_problems(self) -> list[str]:
        from p2pclust.protocols.engine.registry import protocol_class  # noqa: PLC0415
        from p2pclust.protocols.gossip.leaderless import needs_aggregator  # noqa: PLC0415 - as in fields.known_protocol

        if self.collect != "gossip":
            own = {"gossip_tolerance": self.gossip_tolerance, "mixing": self.mixing, "ticks": self.ticks}
            return [f"{name} is for collect = 'gossip'" for name, value in own.items() if value is not None]
        problems = []
        if self.missing == "drop" or self.patience_s is not None:
            problems.append(
                "collect = 'gossip' has no aggregator that waits: leave missing = 'drop' and patience_s out"
            )
        if needs := needs_aggregator(protocol_class(self.protocol)):
            problems.append(f"protocol {self.protocol!r} works on peers' {needs}: collect = 'gossip' cannot do that")
        return problems


@lru_cache(maxsize=64)
def _with_parameters(model: type[JobSpec], protocol: str) -> type[JobSpec]:
    """Return the model with a key for each parameter of a plug-in."""
    from p2pclust.protocols.engine.compose import clustering_class  # noqa: PLC0415 - as in fields.known_protocol
    from p2pclust.protocols.engine.plugins import parameter_types  # noqa: PLC0415

    try:
        types = parameter_types(clustering_class(protocol))
    except UsageError as error:
        raise wrong_table([str(error)]) from None
    own = {name: kind for name, kind in types.items() if name not in ("n_clusters", "scaling", *_JobKeys.model_fields)}
    keys: dict[str, Any] = {
        name: (Annotated[Any, PlainValidator(partial(_typed, kind))], None) for name, kind in own.items()
    }
    made = create_model(model.__name__, __base__=model, **keys)
    made.of_plugin = tuple(own)
    return made


def _typed(kind: object, value: object) -> object:
    """Take a value of this type."""
    from p2pclust.protocols.engine.plugins import type_flaw  # noqa: PLC0415

    if flaw := type_flaw(kind, value):
        raise wrong_value(flaw)
    return value
