"""What arrives from another peer is checked against the job before anything is computed with it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike

from p2pclust.errors import WireError
from p2pclust.protocols.engine.arrays import Arrays, Contribution, State
from p2pclust.protocols.engine.base import Additive
from p2pclust.protocols.engine.fixed_point import GridError, fits, is_unit, quantise_all
from p2pclust.protocols.engine.job import Job, JobState
from p2pclust.protocols.engine.stored_arrays import Stored

_MOST_KEPT: Final = 4  # states of so many jobs are kept to read the next one of each, if they are not larger
_MOST_KEPT_BYTES: Final = 128 * 1024
#: The arrays of which `_check_arrays` looks at the numbers; of others at shapes only.
_LOOKED_AT: Final = frozenset(("scale", "unit", "stream", "lo", "hi"))

PADDED = "padded"  # the only array of a padded contribution

# Everything that a state of the known stages can hold, by dtypes and shape. A letter stands for the same length everywhere,
# a number for itself.
_BY_SHAPE: Final = {
    ("bool", ""): "declared proposed given",
    ("int64", ""): (
        "rows n_columns found_bits moments splits winner suppressed further merged stream coarse measured_rows "
        "measured_hidden batch steps n_rows cref_phase cref_iteration cref_refinement"
    ),
    ("float64", ""): "objective relaxation epsilon delta cost measured_inertia measured_objective measured_within "
    "measured_outside measured_silhouette",
    ("float64", "F"): "lo hi origin scale unit",
    ("int64", "2 F"): "prefixes",
    ("float64", "C F"): "centers plain deviations past_sums opened",
    ("float64", "C"): "masses past_weights measured_weights measured_spreads",
    ("int64", "C"): "past_rounds counts measured_counts",
    ("float64", "T"): "shifts",
    ("float64", "P F"): "picks",
    ("float64", "E F"): "cells",
    ("float64", "E"): "cell_masses",
    ("float64", "J 4"): "claims",
    ("float64", "B 5"): "drift",
    # Of several starts side by side:
    ("float64", "I C F"): "starts",
    ("float64", "I T"): "trails",
    ("int64", "I"): "start_coarse",
    ("float64", "I'"): "objectives",
    # Of models with U weights each, and of an autoencoder that peers train together, as it is sent, or as numbers:
    ("float32", "C U"): "models assigning",
    ("uint8", "W"): "weights",
    ("float32", "U'"): "model",
    # Of peers that hold different columns of N rows:
    ("uint8", "S"): "salt",
    ("int64", "M"): "columns",
    ("int64", "K"): "first_rows",
    ("float64 float32", "N C"): "memberships last_memberships",
    ("int64", "N"): "labels last_labels",
    # Of FedCRef: A, B, H and R peers, Q clusters, G groups, L links.
    ("int64", "A"): "cref_counts",
    ("int64", "Q"): "cref_rows",
    ("uint8", "Q 32"): "cref_models",
    ("bool", "A'"): "cref_told",
    ("uint8", "Q' Z"): "cref_table",
    ("int64", "L 2"): "cref_links",
    ("int64", "V"): "cref_aside",
    ("int64", "B G"): "cref_members",
    ("uint8", "G 32"): "cref_group_models",
    ("bool", "H G"): "cref_holders",
    ("int64", "D"): "cref_differs",
    ("bool", "R"): "cref_resting",
    ("float64", "T' 8"): "cref_history",
    ("int64", "E"): "cref_alone",
}
_SLOTS: Final = {
    name: (tuple(map(np.dtype, dtypes.split())), tuple(shape.split()))
    for (dtypes, shape), names in _BY_SHAPE.items()
    for name in names.split()
}
_MAY_BE_EMPTY = frozenset({"P", "T", "B", "W", "A", "Q", "A'", "Q'", "Z", "L", "V", "G", "H", "D", "R", "T'", "E", "J"})


class ContributionReader:
    """Reads the contributions that answer one state; what they must look like is worked out once for all of them."""

    def __init__(self, job: Job, state: JobState, *, n_peers: int) -> None:
        protocol = job.protocols[state.stage]
        self._n_peers = n_peers
        self._grid: tuple[Mapping[str, ArrayLike], int] | None = None  # units and limbs of sums
        self._expected: dict[str, tuple[np.dtype[Any], tuple[int | None, ...]]]
        if state.secured is not None:
            from p2pclust.protocols.engine.padded import layout_of  # noqa: PLC0415 - of jobs with secure sums only

            # Nothing can be known of padded numbers but how many there are.
            self._expected = {PADDED: (np.dtype("int64"), (layout_of(job, state).size,))}
            return
        slots = protocol.expects(state.arrays)
        self._expected = {name: (np.dtype(slot.dtype), slot.shape) for name, slot in slots.items()}
        if isinstance(protocol, Additive):
            self._grid = (protocol.units(state.arrays), protocol.limbs)
            self._expected = {name: (np.dtype("int64"), (protocol.limbs, *slot.shape)) for name, slot in slots.items()}

    def read(self, data: bytes | Stored, *, summed: int = 1) -> Contribution:
        """Return a contribution that arrived as bytes, or a sum of several, checked against what the stage expects.

        Large arrays of what is stored are checked when they are read. Raises WireError for wrong names, dtypes or
        shapes, values that are not finite or outside the grid, and malformed bytes.
        """
        arrays = Arrays.decode_stored(data) if isinstance(data, Stored) else Arrays.decode(data)
        if list(arrays) != list(self._expected):
            raise WireError(f"contribution: {', '.join(arrays) or 'nothing'} where {', '.join(self._expected)} belong")
        if self._grid is not None and summed == 1 and all(arrays.dtype(name) == np.float64 for name in arrays):
            # The floats of one peer are rounded to the grid of its sums, as the peer itself would have.
            for name, (_, shape) in self._expected.items():
                if not matches(size := arrays.shape(name), shape[1:]):
                    raise WireError(f"contribution: {name} is float64{list(size)}, expected float64{list(shape[1:])}")
            units, limbs = self._grid
            try:
                return Arrays(quantise_all(dict(arrays.items()), units, n_peers=self._n_peers, limbs=limbs))
            except GridError as error:
                raise WireError(f"contribution: {error}") from None
        for name, (dtype, shape) in self._expected.items():
            given, size = arrays.dtype(name), arrays.shape(name)
            if given != dtype or not (size == shape or matches(size, shape)):
                found, wanted = f"{given}{list(size)}", f"{dtype}{list(shape)}"
                raise WireError(f"contribution: {name} is {found}, expected {wanted}")
            if self._grid is not None and not fits(arrays[name], n_peers=self._n_peers, summed=summed):
                raise WireError(f"contribution: {name} lies outside the grid")
        return arrays


def decode_state(job: Job, data: bytes | Stored) -> JobState:
    """Return a state that arrived as bytes, checked to be one that this job can have.

    Raises WireError for malformed bytes, a stage that the job lacks, and arrays that its stage could not work with.
    """
    if isinstance(data, Stored):
        return _checked(job, JobState.decode_stored(data), None)
    _, known, before = _RECENT.get(id(job), (job, b"", None))
    if before is not None and known == data:
        return before
    state = _checked(job, JobState.decode(data, before), before)
    _RECENT.pop(id(job), None)
    if len(data) <= _MOST_KEPT_BYTES:
        _RECENT[id(job)] = (job, data, state)
    for other in list(_RECENT)[:-_MOST_KEPT]:  # a copy: another thread may read a state meanwhile
        _RECENT.pop(other, None)
    return state


#: The last state that was read of each of a few jobs, and its bytes: the next one is mostly the same, and so are other
#: peers'. By the identity of the job, which its entry keeps alive.
_RECENT: Final[dict[int, tuple[Job, bytes, JobState]]] = {}


def _checked(job: Job, state: JobState, before: JobState | None) -> JobState:
    """Raise WireError for a state that the job cannot have; what it shares with the one before was checked then."""
    if state.stage >= len(job.protocols):
        raise WireError(f"job state: stage {state.stage} of a job of {len(job.protocols)}")
    changed = None if before is None else state.arrays.changed_since(before.arrays)
    if (
        changed is None
        or not _LOOKED_AT.isdisjoint(changed)
        # The movements of all rounds so far grow in each, and no other array has their length.
        or "trails" in state.arrays
        or any(resized and name != "shifts" for name, resized in changed.items())
    ):
        _check_arrays(job, state.arrays)
    protocol = job.protocols[state.stage]
    if state.status == "failed":
        return state
    missing = [name for name in protocol.works_on if name not in state.arrays]
    if missing:
        raise WireError(f"job state: stage {protocol.id} lacks {', '.join(missing)}")
    wanted = getattr(protocol, "n_clusters", None)
    if "centers" in state.arrays and wanted is not None and len(state.arrays["centers"]) != wanted:
        raise WireError(f"job state: {len(state.arrays['centers'])} centers, expected {wanted}")
    if state.status == "done" and state.stage + 1 < len(job.protocols):
        raise WireError(f"job state: done in stage {state.stage} of a job of {len(job.protocols)}")
    if state.status == "running" and not protocol.needs_rounds(state.arrays):
        raise WireError(f"job state: a round of stage {protocol.id}, which needs none")
    if problem := protocol.problem_with_state(state.arrays, done=state.status == "done"):
        raise WireError(f"job state: {problem}")
    return state


def matches(shape: tuple[int, ...], expected: tuple[int | None, ...]) -> bool:
    """Return whether a shape is the expected one, None standing for any length."""
    return len(shape) == len(expected) and all(e is None or s == e for s, e in zip(shape, expected, strict=True))


def _check_arrays(job: Job, arrays: State) -> None:
    lengths: dict[str, int] = {}
    own = {name: slot for protocol in job.protocols for name, slot in protocol.own_arrays.items()}
    for name in arrays:
        if name in own and name not in _SLOTS:
            if arrays.dtype(name) != own[name].dtype or not matches(arrays.shape(name), own[name].shape):
                raise WireError(f"job state: {name} is {arrays.dtype(name)}{list(arrays.shape(name))}")
            continue
        if name not in _SLOTS:
            raise WireError(f"job state: unknown array {name!r}")
        dtypes, letters = _SLOTS[name]
        dtype, shape = arrays.dtype(name), arrays.shape(name)
        if dtype not in dtypes or len(shape) != len(letters):
            raise WireError(f"job state: {name} is {dtype}{list(shape)}")
        for letter, length in zip(letters, shape, strict=True):
            known = int(letter) if letter.isdigit() else lengths.setdefault(letter, length)
            if known != length or (length == 0 and letter not in _MAY_BE_EMPTY):
                raise WireError(f"job state: {name} has shape {list(shape)}, which does not fit the others")
    if "scale" in arrays and not (arrays["scale"] > 0).all():
        raise WireError("job state: a scale is not positive")
    if "unit" in arrays and not is_unit(arrays["unit"]):
        raise WireError("job state: a unit is not a power of two")
    if "stream" in arrays and arrays["stream"] < 0:
        raise WireError("job state: a stream has a negative number")
    if "lo" in arrays and "hi" in arrays and not np.less_equal(arrays["lo"], arrays["hi"]).all():
        raise WireError("job state: a range ends below its beginning")
