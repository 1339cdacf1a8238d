"""What arrives from another peer is checked against the job before anything is computed with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import ArrayLike

from p2pclust.errors import WireError
from p2pclust.protocols.engine.arrays import Arrays, Contribution, State
from p2pclust.protocols.engine.base import Additive
from p2pclust.protocols.engine.fixed_point import GridError, fits, is_unit, quantise_all
from p2pclust.protocols.engine.job import Job, JobState
from p2pclust.protocols.engine.stored_arrays import Stored

#: States of so many jobs are kept to read the next one of each, if they are not larger.
_MOST_KEPT: Final = 4
_MOST_KEPT_BYTES: Final = 128 * 1024
#: The arrays of which `_check_arrays` looks at the numbers; of others at shapes only.
_LOOKED_AT: Final = frozenset(("scale", "unit", "stream", "lo", "hi"))

#: The only array of a padded contribution.
PADDED = "padded"

# Everything that a state of the known stages can hold; F and C stand for the same number everywhere, 5 for five.
_SLOTS: dict[str, tuple[str, tuple[str, ...]]] = {
    "lo": ("float64", ("F",)),
    "hi": ("float64", ("F",)),
    "declared": ("bool", ()),
    "rows": ("int64", ()),
    "n_columns": ("int64", ()),
    "found_bits": ("int64", ()),
    "prefixes": ("int64", ("2", "F")),
    "origin": ("float64", ("F",)),
    "scale": ("float64", ("F",)),
    "unit": ("float64", ("F",)),
    "moments": ("int64", ()),
    "centers": ("float64", ("C", "F")),
    "picks": ("float64", ("P", "F")),
    "cells": ("float64", ("E", "F")),
    "cell_masses": ("float64", ("E",)),
    "splits": ("int64", ()),
    "masses": ("float64", ("C",)),
    # Of several starts side by side:
    "starts": ("float64", ("I", "C", "F")),
    "trails": ("float64", ("I", "T")),
    "start_coarse": ("int64", ("I",)),
    "objectives": ("float64", ("I'",)),
    "winner": ("int64", ()),
    "plain": ("float64", ("C", "F")),
    "objective": ("float64", ()),
    "relaxation": ("float64", ()),
    "shifts": ("float64", ("T",)),
    "suppressed": ("int64", ()),
    "further": ("int64", ()),
    "merged": ("int64", ()),
    "stream": ("int64", ()),
    "coarse": ("int64", ()),
    "claims": ("float64", ("J", "4")),
    "deviations": ("float64", ("C", "F")),
    "epsilon": ("float64", ()),
    "delta": ("float64", ()),
    "measured_rows": ("int64", ()),
    "measured_hidden": ("int64", ()),
    "measured_counts": ("int64", ("C",)),
    "measured_inertia": ("float64", ()),
    "measured_objective": ("float64", ()),
    "measured_within": ("float64", ()),
    "measured_outside": ("float64", ()),
    "measured_silhouette": ("float64", ()),
    "measured_weights": ("float64", ("C",)),
    "measured_spreads": ("float64", ("C",)),
    "proposed": ("bool", ()),
    "batch": ("int64", ()),
    "past_weights": ("float64", ("C",)),
    "past_sums": ("float64", ("C", "F")),
    "past_rounds": ("int64", ("C",)),
    "opened": ("float64", ("C", "F")),
    "cost": ("float64", ()),
    "drift": ("float64", ("B", "5")),
    # Of models with U weights each:
    "models": ("float32", ("C", "U")),
    "assigning": ("float32", ("C", "U")),
    "steps": ("int64", ()),
    # Of peers that hold different columns of N rows:
    "salt": ("uint8", ("S",)),
    "n_rows": ("int64", ()),
    "columns": ("int64", ("M",)),
    "given": ("bool", ()),
    "first_rows": ("int64", ("K",)),
    "memberships": ("float64 float32", ("N", "C")),
    "last_memberships": ("float64 float32", ("N", "C")),
    "labels": ("int64", ("N",)),
    "last_labels": ("int64", ("N",)),
    "counts": ("int64", ("C",)),
    # Of an autoencoder that peers train together, as it is sent, or as numbers:
    "weights": ("uint8", ("W",)),
    "model": ("float32", ("U'",)),
    # Of FedCRef: A, B, H and R peers, Q clusters, G groups, L links.
    "cref_phase": ("int64", ()),
    "cref_iteration": ("int64", ()),
    "cref_refinement": ("int64", ()),
    "cref_counts": ("int64", ("A",)),
    "cref_rows": ("int64", ("Q",)),
    "cref_models": ("uint8", ("Q", "32")),
    "cref_told": ("bool", ("A'",)),
    "cref_table": ("uint8", ("Q'", "Z")),
    "cref_links": ("int64", ("L", "2")),
    "cref_aside": ("int64", ("V",)),
    "cref_members": ("int64", ("B", "G")),
    "cref_group_models": ("uint8", ("G", "32")),
    "cref_holders": ("bool", ("H", "G")),
    "cref_differs": ("int64", ("D",)),
    "cref_resting": ("bool", ("R",)),
    "cref_history": ("float64", ("T'", "8")),
    "cref_alone": ("int64", ("E",)),
}
_MAY_BE_EMPTY = frozenset({"P", "T", "B", "W", "A", "Q", "A'", "Q'", "Z", "L", "V", "G", "H", "D", "R", "T'", "E", "J"})
_DTYPES = {name: tuple(map(np.dtype, dtypes.split())) for name, (dtypes, _) in _SLOTS.items()}


class ContributionReader:
    """Reads the contributions that answer one state; what they must look like is worked out once for all of them."""

    def __init__(self, job: Job, state: JobState, *, n_peers: int) -> None:
        protocol = job.protocols[state.stage]
        self._n_peers = n_peers
        self._rounded: _Rounding | None = None
        if state.secured is not None:
            from p2pclust.protocols.engine.padded import layout_of  # noqa: PLC0415 - of jobs with secure sums only

            self._additive = False  # nothing can be known of padded numbers but how many there are
            self._expected = {PADDED: (np.dtype("int64"), (layout_of(job, state).size,))}
            self._names = [PADDED]
            return
        self._additive = isinstance(protocol, Additive)
        limbs = (protocol.limbs,) if isinstance(protocol, Additive) else ()
        self._expected = {
            name: (np.dtype("int64" if self._additive else slot.dtype), (*limbs, *slot.shape))
            for name, slot in protocol.expects(state.arrays).items()
        }
        self._names = list(self._expected)
        if isinstance(protocol, Additive):
            self._rounded = _Rounding(
                {name: slot.shape for name, slot in protocol.expects(state.arrays).items()},
                protocol.units(state.arrays), protocol.limbs, n_peers,
            )  # fmt: skip

    def read(self, data: bytes | Stored, *, summed: int = 1) -> Contribution:
        """Return a contribution that arrived as bytes, or a sum of several, checked against what the stage expects.

        Large arrays of what is stored are checked when they are read. Raises WireError for wrong names, dtypes or
        shapes, values that are not finite or outside the grid, and malformed bytes.
        """
        arrays = Arrays.decode_stored(data) if isinstance(data, Stored) else Arrays.decode(data)
        if list(arrays) != self._names:
            raise WireError(f"contribution: {', '.join(arrays) or 'nothing'} where {', '.join(self._names)} belong")
        if self._rounded is not None and summed == 1 and all(arrays.dtype(name) == np.float64 for name in arrays):
            return self._rounded(arrays)
        for name, (dtype, shape) in self._expected.items():
            given, size = arrays.dtype(name), arrays.shape(name)
            if given != dtype or not (size == shape or matches(size, shape)):
                found, wanted = f"{given}{list(size)}", f"{dtype}{list(shape)}"
                raise WireError(f"contribution: {name} is {found}, expected {wanted}")
            if self._additive and not fits(arrays[name], n_peers=self._n_peers, summed=summed):
                raise WireError(f"contribution: {name} lies outside the grid")
        return arrays


@dataclass(frozen=True)
class _Rounding:
    """Rounds the floats of one peer to the grid of its sums, as the peer itself would have."""

    shapes: Mapping[str, tuple[int | None, ...]]
    units: Mapping[str, ArrayLike]
    limbs: int
    n_peers: int

    def __call__(self, arrays: Contribution) -> Contribution:
        for name, shape in self.shapes.items():
            if not matches(size := arrays.shape(name), shape):
                raise WireError(f"contribution: {name} is float64{list(size)}, expected float64{list(shape)}")
        try:
            return Arrays(quantise_all(dict(arrays.items()), self.units, n_peers=self.n_peers, limbs=self.limbs))
        except GridError as error:
            raise WireError(f"contribution: {error}") from None


def decode_state(job: Job, data: bytes | Stored) -> JobState:
    """Return a state that arrived as bytes, checked to be one that this job can have.

    Raises WireError for malformed bytes, a stage that the job lacks, and arrays that its stage could not work with.
    """
    if isinstance(data, Stored):
        return _checked(job, JobState.decode_stored(data), None)
    read = _RECENT.of(job)
    if read is not None and read.data == data:
        return read.state
    before = None if read is None else read.state
    state = _checked(job, JobState.decode(data, before), before)
    _RECENT.keep(job, data, state)
    return state


@dataclass(frozen=True, slots=True)
class _Read:
    job: Job
    data: bytes
    state: JobState


class _Recent:
    """The last state that was read of each of a few jobs: the next one is mostly the same, and so are other peers'."""

    def __init__(self) -> None:
        self._read: dict[int, _Read] = {}  # by the identity of the job, which its entry keeps alive

    def of(self, job: Job) -> _Read | None:
        """Return the last state of a job that was read, and its bytes."""
        return self._read.get(id(job))

    def keep(self, job: Job, data: bytes, state: JobState) -> None:
        """Keep a state until the next one of its job, or until others are read; a large one is not kept."""
        self._read.pop(id(job), None)
        if len(data) <= _MOST_KEPT_BYTES:
            self._read[id(job)] = _Read(job, data, state)
        for other in list(self._read)[:-_MOST_KEPT]:  # a copy: another thread may read a state meanwhile
            self._read.pop(other, None)


_RECENT: Final = _Recent()


def _checked(job: Job, state: JobState, before: JobState | None) -> JobState:
    """Raise WireError for a state that the job cannot have; what it shares with the one before was checked then."""
    if state.stage >= len(job.protocols):
        raise WireError(f"job state: stage {state.stage} of a job of {len(job.protocols)}")
    if before is None or not _as_before(state.arrays, before.arrays):
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
    flaw = protocol.flaw(state.arrays, done=state.status == "done")
    if flaw:
        raise WireError(f"job state: {flaw}")
    return state


def matches(shape: tuple[int, ...], expected: tuple[int | None, ...]) -> bool:
    """Return whether a shape is the expected one, None standing for any length."""
    return len(shape) == len(expected) and all(e is None or s == e for s, e in zip(shape, expected, strict=True))


def _as_before(arrays: State, before: State) -> bool:
    """Return whether `_check_arrays` finds nothing else in these arrays than in those of the state before."""
    changed = arrays.changed_since(before)
    if changed is None or any(name in _LOOKED_AT for name in changed):
        return False
    # The movements of all rounds so far grow in each, and no other array has their length.
    return "trails" not in arrays and all(name == "shifts" for name, resized in changed.items() if resized)


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
        letters = _SLOTS[name][1]
        dtype, shape = arrays.dtype(name), arrays.shape(name)
        if dtype not in _DTYPES[name] or len(shape) != len(letters):
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
