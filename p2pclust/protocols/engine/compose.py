"""From a person's request to the stages of a job: estimators, scenarios and `submit` all use it.

A clustering protocol says by its class variables what has to precede and follow it (``before``, ``after``), and how its
first centers may be made (``inits``); so a new protocol needs no change in this file.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from p2pclust.clustering import blocks
from p2pclust.data.schema import Schema
from p2pclust.errors import UsageError
from p2pclust.protocols.engine import checks, exclusions, summaries
from p2pclust.protocols.engine.base import ByColumns, Labelling, Remembering, SideBySide, WithWorkspace
from p2pclust.protocols.engine.job import Job, JobState, Stage
from p2pclust.protocols.engine.privacy import gated_rounds
from p2pclust.protocols.engine.random_streams import MAX_SEED
from p2pclust.protocols.engine.registry import CLUSTERING, build, parameters_of, protocol_class
from p2pclust.protocols.engine.secure_rounds import problem_with_job
from p2pclust.tools.distribution import install_line
from p2pclust.tools.spelling import did_you_mean

#: The names that a person may give; which of them a protocol takes, its class says.
INIT_NAMES = ("split-merge", "k-means++", "careful", "shared-k-means++", "random", "uniform", "rows")
#: Ways to first centers that are stages of their own, of the same name; the others are ways of the stage ``seeding``.
_OWN_STAGES = ("split-merge", "careful", "shared-k-means++")
_MAKES_CENTERS = ("seeding", *_OWN_STAGES)
_EXTRAS = {"networkx": "models", "torch": "models"}  # modules that are installed with an extra only, and its name
#: The privacy rules of clusterings, and what switches each off.
_RULES_OFF: Mapping[str, object] = {"privacy_gate": False, "suppress_singletons": False, "min_cluster_size": 1}
#: Rounds of a private job. More rounds come closer to where k-means rests, and have more noise each: with a small epsilon
#: that costs more than it brings (benchmarks/private_cm.py).
_PRIVATE_ROUNDS, _NOISY_ROUNDS = 16, 8


def cluster_job(
    protocol: str, *, n_clusters: int | None = None, scaling: str | None = None,
    bounds: tuple[Sequence[float], Sequence[float]] | None = None, init: str | ArrayLike | None = None,
    tol: float | None = None, max_rounds: int | None = None, participation: float = 1.0, seed: int = 0,
    secure: bool = False, groups: int = 0, privacy: Mapping[str, float] | None = None,
    schema: Schema | None = None, **parameters: Any,
) -> Job:  # fmt: skip
    """Return a job: range, scaling, first centers, clustering, and what is added up of its result.

    Parameters
    ----------
    protocol : str
        The id of a clustering protocol; see :func:`p2pclust.protocols.engine.registry.clusterings`.
    n_clusters : int, optional
        At least 1. Left out for a protocol that finds the number itself.
    scaling : {"none", "minmax", "zscore"}, optional
        By the federation; see :mod:`p2pclust.protocols.before.scaling`. By default "none", and over columns "minmax".
    bounds : pair of sequences (lo, hi), optional
        Declared bounds of the features; they spare the round that finds the ranges.
    init : str or array_like (n_clusters, F), optional
        First centers: "split-merge", "k-means++", "careful", "shared-k-means++", "random" or "uniform"; an array is in the
        data's own units. By default as the protocol's paper has it, and "split-merge" where that is open. A protocol that
        makes its own takes no other. Over columns ("k-means++", "rows", "random", or an array) no peer may hold whole
        centers: an array is only checked, and each peer's ``Local`` has to have its columns of it.
    tol : float, optional
        Stop when the centers move by less (Frobenius norm, in working coordinates); 0 runs exactly ``max_rounds``. By
        default the protocol's own.
    max_rounds : int, optional
        Of the clustering stage; at least 1. By default the protocol's own.
    participation : float
        The papers' gamma, in (0, 1]: the share of peers drawn for each clustering round.
    seed : int
        0 to 2**63 - 1.
    secure : bool
        Make the stages of sums alone, for a fleet that is to run the job with secure sums: ranges are found by sums, and
        the privacy gate counts the rows of all peers together. The centers are the same.
    groups : int
        Of such a job with ``max_weight`` or ``robust``: into how many groups the fleet is to deal its peers.
    privacy : mapping, optional
        ``epsilon`` and ``delta``: differential privacy for each row (docs/protocols/private-cm.md), of llf-cm with secure
        sums and declared bounds. First centers are then "uniform", an array, or by default spread over the bounds.
    schema : Schema, optional
        The columns of every peer's rows. A protocol that takes ``levels`` and ``weights`` is given those of the schema;
        others cluster numbers only.
    **parameters
        The protocol's own: for example ``suppress_singletons`` (llf-cm), ``fuzzifier``, ``privacy_gate`` (llf-fcm), and
        ``n_init`` of both, how many sets of first centers are worked on side by side.
        Switching a privacy rule off also lets peers of one or two rows reveal their ranges and sums for scaling.

    Raises
    ------
    UsageError
        For anything unknown or out of range, in one line.

    Examples
    --------
    >>> job = cluster_job("llf-fcm", n_clusters=3, scaling="minmax", fuzzifier=1.5, seed=7)
    >>> [stage.protocol for stage in job.stages]
    ['range', 'minmax', 'split-merge', 'llf-fcm', 'objective']
    """
    kind = clustering_class(protocol)
    own = parameters_of(kind)
    parameters = _of_schema(schema, own) | {name: _scalar(value) for name, value in parameters.items()}
    scaling = usual_scaling(kind) if scaling is None else scaling
    given = {
        **parameters, "init": init, "bounds": bounds, "scaling": scaling, "tol": tol, "privacy": privacy, "secure": secure,
        "participation": _scalar(participation), "groups": groups,
    }  # fmt: skip
    exclusions.refuse(options_of(kind, given))
    wanted = 1  # where the protocol finds the number itself: no stage before it needs more rows
    if "n_clusters" in own:
        wanted = int(checks.CLUSTERS("n_clusters", n_clusters))
    elif n_clusters is not None:
        raise UsageError(f"n_clusters = {n_clusters}: {kind.id} finds the number of clusters itself: leave it out")
    scaling, box = checks.SCALING("scaling", scaling), None
    if bounds is not None:
        if not isinstance(bounds, list | tuple | np.ndarray) or len(bounds) != 2:
            raise UsageError("bounds: expected a pair (lo, hi) of lists with one number per feature")
        box = _plain("bounds", bounds[0], ndim=1), _plain("bounds", bounds[1], ndim=1)
    first = init if init is None or isinstance(init, str) else _plain("init", init, ndim=2)
    levels = checks.levels(f"{kind.id}: levels", parameters.get("levels", ()))
    box, first = _in_blocks(box, first, levels)
    if privacy is not None:
        assert box is not None, "privacy needs bounds"
        private = _private_stages(wanted, privacy, box, scaling, first, max_rounds, parameters)
        return _checked(private, seed, participation, secure=True, groups=groups, schema=schema)
    if not kind.inits and init is not None:
        raise UsageError(f"init: {protocol} begins with no centers: leave it out")
    # If the clustering may reveal single rows, the stages before it may too.
    chosen = ((parameters.get(rule), off) for rule, off in _RULES_OFF.items())
    reveals = any(type(value) is type(off) and value == off for value, off in chosen)  # 0 is not False, nor True 1
    starts = {}
    if issubclass(kind, SideBySide) and (n_init := checks.STARTS("n_init", parameters.get("n_init", 1))) > 1:
        starts = {"n_init": n_init}
    request = _Request(
        kind, wanted, scaling, box, (*kind.inits, "own")[0] if first is None else first,
        {"min_rows": 1} if reveals else {}, starts,
        {"missing_values": "keep"} if parameters.get("missing_values") == "keep" else {},
        _gate_rounds(own | parameters, max_rounds) if secure else None, bool(groups),
        list(levels), own | parameters,
    )  # fmt: skip
    stages = [stage for name in kind.before for stage in _before(name, request)]
    number = {} if n_clusters is None else {"n_clusters": request.n_clusters}
    # When the rounds end is spelled out: a reader of the document need not know the defaults. A limit that the protocol
    # lacks is refused, by name, where the protocol is built.
    limits = {"tol": own.get("tol") if tol is None else tol}
    limits["max_rounds"] = own.get("max_rounds") if max_rounds is None else max_rounds
    limits = {name: value for name, value in limits.items() if value is not None}
    parameters = {**number, **limits, **parameters, **kind.spelled_out(parameters)}
    if issubclass(kind, ByColumns):
        parameters["scaling"] = scaling
        protocol = request.by_sums(protocol)
    if secure:  # the first stage counts the rows of all peers
        parameters |= dict.fromkeys((rule for rule in kind.hidden_by_totals if rule in own), False)
    stages.append(Stage(protocol, parameters))
    own |= parameters
    for name in kind.after:
        shared = (one for one in parameters_of(protocol_class(name)) if one in own and one != "n_init")
        measured: dict[str, Any] = {one: own[one] for one in shared}
        if own.get("privacy_gate") == "job":
            measured["gate_rounds"] = own["max_rounds"]
        stages.append(Stage(name, {**measured, **starts, **request.gate, **request.gaps}))
    return _checked(stages, seed, participation, secure=secure, groups=groups, schema=schema)


def _of_schema(schema: Schema | None, own: Mapping[str, object]) -> dict[str, Any]:
    """Return the parameters that a schema gives a protocol with these parameters; none if all columns are numbers."""
    if schema is None or not any(schema.levels):
        return {}
    given = {"levels": list(schema.levels), "weights": list(schema.weights)}
    return {name: value for name, value in given.items() if name in own}


def _checked(
    stages: Sequence[Stage], seed: int, participation: float, *, secure: bool, groups: int, schema: Schema | None
) -> Job:  # fmt: skip
    """Return the job of these stages; raise UsageError if it cannot have secure sums and shall."""
    seed = checks.whole("seed", seed, least=0, most=MAX_SEED)
    job = Job(tuple(stages), seed, _scalar(participation), schema=schema)
    if secure and (problem := problem_with_job(job, groups)):
        raise UsageError(problem)
    return job


def clustering_class(protocol: str) -> type[Labelling]:
    """Return the class of a clustering protocol; raise UsageError for an id that is not known."""
    kind = protocol_class(protocol, among=CLUSTERING)
    assert issubclass(kind, Labelling), f"{protocol} is registered as a clustering, but is not a Labelling"
    return kind


def options_of(kind: type[Labelling], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the table of exclusions looks at, of a job of this protocol with options by their names in a scenario.

    >>> options_of(clustering_class("fkm"), {"n_init": 10, "tol": 0.0})["tol"]
    True
    """
    # Of these, 0 or an array is a choice.
    chosen = {name: given[name] is not None for name in ("bounds", "privacy", "tol") if name in given}
    traits = {
        "protocol": kind.id,
        "by_columns": issubclass(kind, ByColumns),
        "with_models": issubclass(kind, WithWorkspace),
        "remembers": issubclass(kind, Remembering) and not issubclass(kind, ByColumns),
        "one_by_one": bool(given.get("max_weight") or given.get("robust")),
        "n_init": issubclass(kind, SideBySide) and given.get("n_init", 1),
    }
    return {**given, **chosen, **traits}


def usual_scaling(kind: type[Labelling]) -> str:
    """Return the default of `scaling`: over columns secure sums need one that makes the columns of all owners alike."""
    return "minmax" if issubclass(kind, ByColumns) else "none"


def inits_of(kind: type[Labelling]) -> tuple[str, ...]:
    """Return the names of first centers that a protocol takes from a person, the default first.

    >>> inits_of(clustering_class("llf-cm"))
    ('split-merge', 'k-means++', 'shared-k-means++', 'careful', 'random', 'uniform')
    """
    return tuple(name for name in kind.inits if name in INIT_NAMES or name == "own")


@dataclass(frozen=True)
class _Request:
    """What the stages before a clustering are made from, checked one by one."""

    kind: type[Labelling]
    n_clusters: int
    scaling: str
    bounds: tuple[list[float], list[float]] | None
    init: str | list[list[float]]
    gate: dict[str, int]
    starts: dict[str, int]
    gaps: dict[str, str]  # whether missing cells are kept, for the stages that look at rows
    gate_rounds: int | None  # of a job with secure sums: whose equations count against the rows of all peers
    by_group: bool = False  # or of each of their groups
    levels: list[int] = field(default_factory=list)  # of the columns
    own: Mapping[str, Any] = field(default_factory=dict)  # the parameters of the clustering

    @property
    def categories(self) -> dict[str, list[int]]:
        return {"levels": self.levels} if any(self.levels) else {}

    def by_sums(self, protocol: str) -> str:
        """Return the stage that takes the place of one over columns in a job with secure sums."""
        return protocol if self.gate_rounds is None else f"{protocol}-by-sums"


def _before(kind: str, request: _Request) -> list[Stage]:
    number = {"n_clusters": request.n_clusters}
    match kind:
        case "quantile":
            protocol: Any = build(request.kind.id, request.own)
            plain, rule = request.gate_rounds is None, {} if request.gate_rounds is None else {"privacy_gate": False}
            return [Stage("columns")] * plain + [Stage("quantile", protocol.quantile_parameters | rule)]
        case "range":
            given = {} if request.bounds is None else {"lo": request.bounds[0], "hi": request.bounds[1]}
            gate = request.gate | request.gaps
            ranges = Stage("range", {"rows_needed": request.n_clusters, **gate, **given})
            by_group = {"by_group": True} if request.by_group else {}
            sums = {name: value for name, value in request.own.items() if name == "covariance_type"}
            sums |= {**number, **by_group, **request.gaps, **request.categories}
            enough = Stage("enough-rows", {**sums, "gate_rounds": request.gate_rounds})
            by_sums = [enough, ranges if given else Stage("range-by-sums", gate)]
            return [ranges] if request.gate_rounds is None else by_sums
        case "scaling":
            scaling = Stage(request.scaling, request.gate | request.gaps if request.scaling == "zscore" else {})
            weighed = {**request.categories, **request.kind.category_weights(request.own), **request.gate}
            return [scaling, Stage("category-weights", weighed)] if request.categories else [scaling]
        case "seeding":
            init, own = request.init, {**number, **request.starts}
            if isinstance(init, str):
                checks.one_of("init", init, inits_of(request.kind))
                own |= request.gate if init == "split-merge" else {}
                stage = Stage(init if init in _OWN_STAGES else "seeding", {**own, **request.gaps, "init": init})
            else:
                if "given" not in request.kind.inits:
                    raise UsageError(f"init: {request.kind.id} makes its own first centers: leave init out")
                _agree(init, request.n_clusters, request.bounds)
                stage = Stage("seeding", {**own, **request.gaps, "init": "given", "centers": init})
            return [] if init == "own" else [stage]
        case "align":
            return [Stage(request.by_sums("align"))]
        case "vertical-seeding":
            init = request.init if isinstance(request.init, str) else "given"
            if not isinstance(request.init, str):
                _agree(request.init, request.n_clusters, None)
            checks.one_of("init", init, request.kind.inits)
            return [Stage(request.by_sums(kind), {**number, "init": init, "scaling": request.scaling})]
    raise KeyError(kind)


def _gate_rounds(own: Mapping[str, Any], max_rounds: int | None) -> int:
    """Return the rounds, times starts, whose equations the privacy gate counts; 0 if it is off, or there is none."""
    rule = checks.gate("privacy_gate", own.get("privacy_gate", False))
    return int(gated_rounds(rule, max_rounds or own.get("max_rounds", 1))) * int(own.get("n_init", 1))


def _plain(where: str, value: ArrayLike, *, ndim: int) -> list[Any]:
    """Return an array as nested lists, which a job document can carry."""
    try:
        array: NDArray[np.float64] = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise UsageError(f"{where}: expected numbers in rows of equal length") from None
    if array.ndim != ndim or array.size == 0:
        shape = "a list of numbers" if ndim == 1 else "an array of shape (n_clusters, features)"
        raise UsageError(f"{where}: expected {shape}, got shape {array.shape}")
    plain: list[Any] = array.tolist()
    return plain


def _agree(centers: list[list[float]], n_clusters: int, bounds: tuple[list[float], list[float]] | None) -> None:
    if len(centers) != n_clusters:
        raise UsageError(f"init: {len(centers)} centers were given for n_clusters = {n_clusters}")
    if bounds is not None and len(bounds[0]) != len(centers[0]):
        raise UsageError(f"init: {len(centers[0])} columns were given, but bounds for {len(bounds[0])} features")


_Bounds = tuple[list[float], list[float]]


def _in_blocks(
    box: _Bounds | None, first: str | list[list[float]] | None, levels: tuple[int, ...]
) -> tuple[_Bounds | None, str | list[list[float]] | None]:
    """Return declared bounds and given centers of a table with categories for its 0/1 blocks; all else as it is.

    The bounds of a block are 0 and 1. In given centers a category is the index of a value; centers that have blocks already
    come from another job.
    """
    if not any(levels):
        return box, first
    if box is not None:
        if len(box[0]) != len(levels) or len(box[1]) != len(levels):
            raise UsageError(f"bounds are given for {len(box[0])} columns, and levels for {len(levels)}")
        low, high = (np.repeat(side, [max(1, count) for count in levels]) for side in box)
        inside = blocks.in_block(levels)
        box = np.where(inside, 0.0, low).tolist(), np.where(inside, 1.0, high).tolist()
    if isinstance(first, list) and len(first[0]) == len(levels):
        given = np.array(first)
        if (place := blocks.undeclared(given, levels)) is not None:
            row, column = place
            raise UsageError(
                f"init: row {row}, column {column} is not the index of a value: expected 0 to {levels[column] - 1}"
            )
        first = blocks.in_blocks(given, levels).tolist()
    return box, first


def _scalar(value: Any) -> Any:
    """Return a NumPy scalar as Python's own, and a tuple as a list, which a job document can carry."""
    if isinstance(value, tuple):
        return [_scalar(item) for item in value]
    return value.item() if isinstance(value, np.generic) else value


def continued(job: Job, state: JobState) -> Job:
    """Return the next job of a series: the same one, from the centers that the last one ended with.

    They are given in the data's own units, so that new rows may change the scaling. A job that failed, or that has no
    stage for first centers, is done again as it was.
    """
    if state.status != "done" or "centers" not in state.arrays or "origin" not in state.arrays:
        return job
    centers = summaries.raw_centers(state).tolist()
    given = Stage("seeding", {"n_clusters": len(centers), "init": "given", "centers": centers})
    stages = []
    for stage in job.stages:
        if stage.protocol in _MAKES_CENTERS:
            stages.append(given)
        elif "n_init" in stage.parameters:  # given centers are one start
            stages.append(Stage(stage.protocol, {**stage.parameters, "n_init": 1}))
        else:
            stages.append(stage)
    try:
        return replace(job, stages=tuple(stages))
    except UsageError:  # a center beyond what can be given
        return job


def require_extras(jobs: Sequence[Job]) -> None:
    """Raise UsageError, with the command that installs it, if these jobs import what is not installed here.

    Without it, a whole fleet on one machine would say the same once per peer, and fail.
    """
    for job in jobs:
        for protocol in job.protocols:
            for module in protocol.imports:
                extra = _EXTRAS.get(module)
                if extra is not None and importlib.util.find_spec(module) is None:
                    raise UsageError(f"{protocol.id} needs {module}, which is not installed: {install_line(extra)}")


def _private_stages(
    n_clusters: int, privacy: Any, bounds: tuple[list[float], list[float]], scaling: str,
    init: str | list[list[float]] | None, max_rounds: int | None, parameters: Mapping[str, Any],
) -> tuple[Stage, ...]:  # fmt: skip
    """Return the stages of a private job; raise UsageError that says what cannot be private, why, and what would work.

    Only k-means over declared bounds can be differentially private, and nothing but its noisy rounds may ask a peer:
    ranges, numbers of rows, an objective or centers that a peer proposes depend on single rows exactly.
    """
    if not isinstance(privacy, Mapping) or not all(isinstance(name, str) for name in privacy):
        raise UsageError("privacy: expected { epsilon = 2, delta = 1e-6 }")
    for name in privacy:
        if name not in ("epsilon", "delta"):
            raise UsageError(f"privacy: unknown name {name[:60]!r}{did_you_mean(name[:60], ('epsilon', 'delta'))}")
    for name in ("epsilon", "delta"):
        if name not in privacy:
            raise UsageError(f"privacy: {name} is missing: expected for example {{ epsilon = 2, delta = 1e-6 }}")
    promise = {name: checks.real(f"privacy: {name}", privacy[name], above=0.0) for name in ("epsilon", "delta")}
    number = {"n_clusters": n_clusters}
    build("llf-cm", {**number, **parameters})  # checks what a private job leaves out
    box = {"lo": bounds[0], "hi": bounds[1]}
    if max_rounds is None:
        max_rounds = _PRIVATE_ROUNDS if promise["epsilon"] >= 1.0 else _NOISY_ROUNDS
    before = [Stage("range", box), Stage(scaling)]
    if isinstance(init, list):
        before.append(Stage("seeding", {**number, "init": "given", "centers": init}))
    elif init == "uniform":
        before.append(Stage("seeding", {**number, "init": "uniform"}))
    elif init is not None:  # without, the private stage spreads the first centers over the box
        raise UsageError(
            f"privacy: init = {init!r} looks at rows: leave init out, or choose 'uniform' or an array that does "
            "not come from the data"
        )
    return (*before, Stage("private-cm", {**number, **promise, **box, "rounds": max_rounds}))
