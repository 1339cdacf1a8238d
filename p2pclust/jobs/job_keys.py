"""``[[jobs]]`` of a scenario: one clustering job of the whole fleet."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, Discriminator, Field, Tag, TypeAdapter, model_validator

from p2pclust.errors import UsageError
from p2pclust.jobs import fields
from p2pclust.jobs.explain import FLAG, TABLE, shown, validated
from p2pclust.jobs.fields import TomlTable, refuse, wrong_table
from p2pclust.peer.core.treatment import LEAST_PATIENCE_S
from p2pclust.protocols.engine import exclusions
from p2pclust.protocols.secure.parameters import ALL, LEAST_COHORT, LEAST_GROUPS
from p2pclust.tools.spelling import did_you_mean

if TYPE_CHECKING:
    from p2pclust.protocols.engine.base import Labelling


#: Parameters of protocols that are asked for by another name, or in ``[data]``.
_ASKED = ("n_clusters", "scaling")
_NONE = "<none>"  # the tag of a key that was left out


class SecureSpec(TomlTable):
    """``secure = {...}`` of a job: the parameters of secure sums (docs/secure-sums.md)."""

    #: How many peers keep pads; by default 4, below 6 peers 3.
    keepers: fields.Keepers | None = None
    #: The fewest peers whose sum may be revealed; by default a majority of the peers, from 3 to 5.
    cohort: Annotated[int, Field(ge=LEAST_COHORT)] | None = None
    #: If a round must be repeated with other peers: groups reveals a new total only if no small group can be computed from
    #: the two (the default of two cohorts or more); record continues, and lists the exposed peers (the default of fewer).
    burnt: Literal["groups", "record"] | None = None
    #: If a peer is missing after earlier rounds: alone continues, and lists it as exposed (the default); groups leaves out
    #: further peers with it, or waits.
    leave: Literal["alone", "groups"] | None = None
    #: For max_weight or robust: into how many fixed groups of at least cohort peers all are dealt; the totals of these
    #: groups are revealed.
    groups: Annotated[int, Field(ge=LEAST_GROUPS)] | None = None
    #: How many peers, the aggregator included, may pool what they see; by default 2, below 6 peers 1.
    colluders: Annotated[int, Field(ge=1)] | None = None


def secure_fields(given: Any) -> dict[str, Any]:
    """Return the fields of a treatment from what a person gives as ``secure``: true or false, or their parameters.

    >>> secure_fields({"keepers": "all", "cohort": 5})
    {'secure': True, 'keepers': 4096, 'cohort': 5}
    """
    if isinstance(given, bool):
        return {"secure": True} if given else {}
    if not isinstance(given, SecureSpec):
        if not isinstance(given, Mapping):
            some = ", ".join(SecureSpec.model_fields)
            raise UsageError(f"secure: {given!r}: expected true, false, or a table of some of {some}")
        given = validated(SecureSpec, dict(given), "secure")
    named = given.model_dump(exclude_none=True)
    return {"secure": True} | {name: ALL if value == "all" else value for name, value in named.items()}


class PrivateSpec(TomlTable):
    """``privacy = {...}`` of a job: what it may reveal of a row (docs/protocols/private-cm.md)."""

    epsilon: Annotated[float, Field(gt=0)]
    delta: Annotated[float, Field(gt=0, lt=1)]


def _with_parameters(schema: dict[str, Any], model: type[TomlTable]) -> None:
    """Add the parameters of all protocols to the JSON Schema of a job."""
    # As in fields.known_protocol:
    from p2pclust.protocols.engine.registry import CLUSTERING, parameter_types, protocol_class  # noqa: PLC0415

    fields.described(schema, model)
    kinds: dict[str, dict[str, dict[str, Any]]] = {}
    for protocol in CLUSTERING:
        for name, kind in parameter_types(protocol_class(protocol)).items():
            if name not in (*_ASKED, *schema["properties"]):
                kinds.setdefault(name, {})[protocol] = TypeAdapter(kind).json_schema()
    for name, by_protocol in kinds.items():
        distinct = [kind for n, kind in enumerate(by_protocol.values()) if kind not in list(by_protocol.values())[:n]]
        words = {"description": f"A parameter of {', '.join(by_protocol)}."}
        schema["properties"][name] = words | (distinct[0] if len(distinct) == 1 else {"anyOf": distinct})


class JobSpec(TomlTable):
    """``[[jobs]]``: one clustering job of the whole fleet; several are done one after another.

    Every other key is a parameter of the protocol's own, of a type and in a range that the protocol's class declares.
    """

    model_config = ConfigDict(extra="allow", json_schema_extra=_with_parameters)

    #: The id of a clustering protocol.
    protocol: Annotated[str, AfterValidator(fields.known_protocol)]
    #: The number of clusters; not for a protocol that finds it.
    clusters: Annotated[int, Field(ge=1, le=2**20)] | None = None
    #: First centers: split-merge, k-means++, careful, shared-k-means++, random, uniform, over columns rows, or a list of
    #: centers in raw units; by default as in the protocol's paper.
    init: fields.Init | None = None
    #: The job ends when the centers move less than this in one round (Frobenius norm, scaled units); 0: at max_rounds only.
    tol: Annotated[float, Field(ge=0)] | None = None
    #: The most rounds of clustering.
    max_rounds: Annotated[int, Field(ge=1, le=10**6)] | None = None
    #: The share of the peers that is drawn for each round.
    participation: Annotated[float, Field(gt=0, le=1)] = 1.0
    #: If a peer is silent, the round waits for all peers (over columns always), waits for patience_s, or ends at deadline_s.
    missing: Literal["all", "wait", "drop"] = "wait"
    #: How long a round waits for a silent peer; by default as the timing preset says.
    patience_s: Annotated[float, Field(ge=LEAST_PATIENCE_S)] | None = None
    #: How long it waits for a peer that computes, from the aggregator's own answer on; by default as the preset says.
    compute_limit_s: Annotated[float, Field(ge=LEAST_PATIENCE_S)] | None = None
    #: The longest duration of a round that drops silent peers.
    deadline_s: Annotated[float, Field(gt=0)] | None = None
    #: star: each contribution goes to the aggregator (the default on a full mesh); tree: contributions are added up on the
    #: way; gossip: no aggregator, peers average with their neighbours.
    collect: Literal["star", "tree", "gossip"] | None = None
    #: Above 64 devices: whether each may send its models to all others.
    all_to_all: bool = False
    #: How closely the peers' estimates of a sum agree, relative to the sum of absolute values; by default 1e-9.
    gossip_tolerance: Annotated[float, Field(gt=0, le=0.5)] | None = None
    #: Which share of its numbers a peer gives to a neighbour; by default push-sum.
    mixing: Literal["push-sum", "metropolis-hastings"] | None = None
    #: After how many ticks each peer continues from its own estimate, if the protocol allows that.
    ticks: Annotated[int, Field(ge=0, le=10**6)] | None = None
    #: Secure sums: each peer's contribution is hidden from the others. True, a table of the parameters below, or false; by
    #: default true for llf-cm, llf-fcm, vertical-cm and vertical-fcm with four or more peers.
    secure: Annotated[
        Annotated[bool, Tag(FLAG)] | Annotated[SecureSpec, Tag(TABLE)] | Annotated[None, Tag(_NONE)],
        Discriminator(
            lambda given: TABLE if isinstance(given, dict | SecureSpec) else _NONE if given is None else FLAG
        ),
    ] = None
    #: Every peer makes each state again from signed contributions before it adopts it, which detects a lying aggregator.
    verify: Literal["all"] | None = None
    #: The code for passes over rows: the C extension c1, with the same bits on every CPU, or NumPy; auto is c1 where all
    #: peers have it.
    kernel: Literal["auto", "numpy", "c1"] = "auto"
    #: Differential privacy for each row: { epsilon = 2.0, delta = 1e-6 }.
    privacy: PrivateSpec | None = None

    @property
    def own(self) -> dict[str, Any]:
        """The protocol's own parameters that are given."""
        return dict(self.model_extra or {})

    @property
    def by_columns(self) -> bool:
        """Whether the protocol is for peers that hold different columns of the same rows."""
        from p2pclust.protocols.engine.base import ByColumns  # noqa: PLC0415 - as in fields.known_protocol
        from p2pclust.protocols.engine.registry import protocol_class  # noqa: PLC0415

        return issubclass(protocol_class(self.protocol), ByColumns)

    @model_validator(mode="after")
    def _keys_fit_together(self) -> JobSpec:
        # As in fields.known_protocol:
        from p2pclust.protocols.engine import registry  # noqa: PLC0415
        from p2pclust.protocols.engine.compose import clustering_class, options_of  # noqa: PLC0415

        try:
            kind = clustering_class(self.protocol)
        except UsageError as error:  # a plug-in that cannot be used
            raise wrong_table([str(error)]) from None
        if self.by_columns and "missing" not in self.model_fields_set:
            self.__dict__["missing"] = "all"  # the only possible value, so it may be left out
        known, types, own = registry.parameters_of(kind), registry.parameter_types(kind), self.own
        refuse([_unknown(name, kind) for name in own if name not in known or name in _ASKED])
        absent = [name for name in ("tol", "max_rounds") if getattr(self, name) is not None and name not in known]
        problems = [f"protocol {self.protocol!r} has no {name}" for name in absent]
        wrong = {
            name: problem for name, value in own.items() if (problem := registry.problem_with_value(types[name], value))
        }
        problems += [f"{name} = {shown(own[name])}: {problem}" for name, problem in wrong.items()]
        if not wrong:
            numbered = {"n_clusters": self.clusters or 1} if "n_clusters" in types else {}
            try:
                registry.build(kind.id, {**numbered, **own}, registry.package_of(kind.id))
            except UsageError as error:
                problems.append(str(error))
        if "n_clusters" in known and self.clusters is None:
            problems.append(f"protocol {self.protocol!r} needs clusters")
        if "n_clusters" not in known and self.clusters is not None:
            problems.append(f"protocol {self.protocol!r} finds the number of clusters itself: leave clusters out")
        if isinstance(self.init, tuple) and len(self.init) != self.clusters:
            problems.append(f"init has {len(self.init)} centers: expected clusters = {self.clusters}")
        # Without `secure` it is not known yet whether the job has secure sums: that follows from the roster.
        keys = {name: getattr(self, name) for name in type(self).model_fields if name != "secure"}
        asked = {} if self.secure is None else {"secure": False, **secure_fields(self.secure)}
        options = options_of(kind, {**keys, **own, **asked})
        refuse(list(dict.fromkeys([*problems, *exclusions.problems(options)])))
        return self


def _unknown(name: str, kind: type[Labelling]) -> str:
    from p2pclust.protocols.engine.registry import CLUSTERING, parameters_of, protocol_class  # noqa: PLC0415

    if name in SecureSpec.model_fields:
        return next(exclusions.problems({name: True, "secure": False}))
    if name == "n_clusters":
        return "unknown key 'n_clusters' (did you mean 'clusters'?)"
    others = {one for protocol in CLUSTERING for one in parameters_of(protocol_class(protocol))}
    if name in others:
        return f"protocol {kind.id!r} has no {name}"
    own = parameters_of(kind)
    known = [*JobSpec.model_fields, *SecureSpec.model_fields, *own, *sorted(others - own.keys())]
    return f"unknown key {name!r}{did_you_mean(name, known, '')}"
