"""What arrives from another peer is checked against the job before anything is computed with it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from p2pclust.clustering.blocks import width
from p2pclust.errors import WireError
from p2pclust.protocols.engine.arrays import LIST_OF, Arrays, Contribution, State, layout
from p2pclust.protocols.engine.base import Additive, Protocol, Slot
from p2pclust.protocols.engine.fixed_point import GridError, fits, is_unit, quantise_all
from p2pclust.protocols.engine.job import Job, JobState
from p2pclust.protocols.engine.stored_arrays import Stored

#: The arrays of which `_check_arrays` looks at the numbers; of others at shapes only.
_LOOKED_AT: Final = frozenset(("scale", "unit", "stream", "lo", "hi"))

PADDED = "padded"  # the only array of a padded contribution
SIGNED = "signed"  # but where check words are signed: the signature
_SIGNATURE: Final = Slot((8,), "int64")


class ContributionReader:
    """Reads the contributions that answer one state; what they must look like is worked out once for all of them."""

    def __init__(self, job: Job, state: JobState, *, n_peers: int) -> None:
        protocol = job.protocols[state.stage]
        self._n_peers = n_peers
        self._grid: tuple[Mapping[str, ArrayLike], int] | None = None  # units and limbs of sums
        self._slots: dict[str, Slot]
        if state.secured is not None:
            from p2pclust.protocols.engine.padded import layout_of  # noqa: PLC0415 - of jobs with secure sums only

            # Nothing can be known of padded numbers but how many there are.
            self._slots = {PADDED: Slot((layout_of(job, state).size,), "int64")}
            self._slots |= {SIGNED: _SIGNATURE} if state.secured.strict else {}
            return
        self._slots = dict(protocol.expects(state.arrays))
        if isinstance(protocol, Additive):
            self._grid = (protocol.units(state.arrays), protocol.limbs)

    def read(self, data: bytes | Stored, *, summed: int = 1) -> Contribution:
        """Return a contribution that arrived as bytes, or a sum of several, checked against what the stage expects.

        Large arrays of what is stored are checked when they are read. Raises WireError for wrong names, dtypes or
        shapes, values that are not finite or outside the grid, and malformed bytes.
        """
        arrays = Arrays.decode_stored(data) if isinstance(data, Stored) else Arrays.decode(data)
        if list(arrays) != list(self._slots):
            raise WireError(f"contribution: {', '.join(arrays) or 'nothing'} where {', '.join(self._slots)} belong")
        # The floats of one peer are rounded to the grid of its sums, as the peer itself would have.
        floats = self._grid is not None and summed == 1 and all(arrays.dtype(name) == np.float64 for name in arrays)
        for name, slot in self._slots.items():
            dtype, shape = slot.dtype, slot.shape
            if self._grid is not None:
                dtype, shape = ("float64", shape) if floats else ("int64", (self._grid[1], *shape))
            given, size = arrays.dtype(name), arrays.shape(name)
            if given != dtype or not matches(size, shape):
                raise WireError(f"contribution: {name} is {given}{list(size)}, expected {dtype}{list(shape)}")
            if self._grid is not None and not floats and not fits(arrays[name], n_peers=self._n_peers, summed=summed):
                raise WireError(f"contribution: {name} lies outside the grid")
        return Arrays(self._on_grid(dict(arrays.items()))) if floats else arrays

    def _on_grid(self, floats: Mapping[str, NDArray[np.float64]]) -> dict[str, NDArray[np.int64]]:
        assert self._grid is not None
        units, limbs = self._grid
        try:
            return quantise_all(floats, units, n_peers=self._n_peers, limbs=limbs)
        except GridError as error:
            raise WireError(f"contribution: {error}") from None

    def stacked(self, sent: Sequence[bytes]) -> Contribution | None:
        """Return the sum of contributions of single peers to an additive stage, all as one array; None if that cannot be.

        It can be where their bytes differ in numbers only, and no number is refused. Otherwise :meth:`read` says of each
        what is wrong with it. The sum has the same bits.
        """
        numbers = self._numbers(sent)
        if numbers is None:
            return None
        if self._grid is None:
            return Arrays({name: np.add.reduce(own, axis=0, dtype=np.int64) for name, own in numbers.items()})
        try:
            limbs = self._on_grid(numbers)
        except WireError:
            return None
        return Arrays({name: np.add.reduce(own, axis=1) for name, own in limbs.items()})

    def _numbers(self, sent: Sequence[bytes]) -> dict[str, NDArray[Any]] | None:
        """Return the numbers of contributions, peers first, or None if these differ in more."""
        numbers: dict[str, NDArray[Any]] = {}
        begin, head = 0, LIST_OF[len(self._slots)]
        for name, slot in self._slots.items():
            shape = tuple([length for length in slot.shape if length is not None])
            if len(shape) < len(slot.shape):
                return None
            wire, n_bytes, own = layout(name, "i8" if self._grid is None else "f8", shape)
            head += own
            middle, end = begin + len(head), begin + len(head) + n_bytes
            raw = b"".join([data[middle:end] for data in sent])
            if [data[begin:middle] for data in sent].count(head) < len(sent) or len(raw) < n_bytes * len(sent):
                return None
            numbers[name] = np.frombuffer(raw, wire).reshape(len(sent), *shape)
            begin, head = end, b""
        return numbers if [len(data) for data in sent].count(begin) == len(sent) else None


def decode_state(
    job: Job, data: bytes | Stored, before: JobState | None = None, problem_with: Callable[[JobState], str] | None = None
) -> JobState:  # fmt: skip
    """Return a state that arrived as bytes, checked to be one that this job can have.

    Raises WireError for malformed bytes, a stage that the job lacks, arrays that its stage could not work with, and what
    `problem_with` says of its secured part. What a state has in common with `before`, the last one of the job, is mostly
    neither read nor checked again.
    """
    state = None
    # Movements of several starts have as many numbers as all rounds have: then two arrays grow.
    if before is not None and isinstance(data, bytes) and "trails" not in before.arrays:
        state = before.following(data, fixed=_LOOKED_AT)
    if state is None:
        state = JobState.decode_stored(data) if isinstance(data, Stored) else JobState.decode(data, before)
        if state.stage >= len(job.protocols):
            raise WireError(f"job state: stage {state.stage} of a job of {len(job.protocols)}")
        _check_arrays(job, state.arrays)
        _check_stage(job, state)
        if problem_with is not None and (problem := problem_with(state)):
            raise WireError(f"job state: {problem}")
    if state.status == "failed":
        return state
    protocol = job.protocols[state.stage]
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
    """Raise WireError for arrays that no state of the job has."""
    lengths: dict[str, int] = {}
    kinds = [type(protocol) for protocol in job.protocols]
    held = {name: line for kind in kinds for name, line in _held(kind).items()}
    own = {name: slot for kind in kinds for name, slot in kind.own_arrays.items()}
    for name in arrays:
        dtype, shape = arrays.dtype(name), arrays.shape(name)
        if name not in held and name not in own:
            raise WireError(f"job state: unknown array {name!r}")
        if name not in held:
            if dtype != own[name].dtype or not matches(shape, own[name].shape):
                raise WireError(f"job state: {name} is {dtype}{list(shape)}")
            continue
        dtypes, letters = held[name]
        if str(dtype) not in dtypes or len(shape) != len(letters):
            raise WireError(f"job state: {name} is {dtype}{list(shape)}")
        for letter, length in zip(letters, shape, strict=True):
            known = int(letter) if letter.isdigit() else lengths.setdefault(letter, length)
            if known != length or (length == 0 and not letter[0].islower()):
                raise WireError(f"job state: {name} has shape {list(shape)}, which does not fit the others")
    if job.levels and (columns := lengths.get("F", wanted := width(job.levels))) != wanted:
        raise WireError(f"job state: {columns} columns of centers, expected {wanted}, one for each number and value")
    if "scale" in arrays and not (arrays["scale"] > 0).all():
        raise WireError("job state: a scale is not positive")
    if "unit" in arrays and not is_unit(arrays["unit"]):
        raise WireError("job state: a unit is not a power of two")
    if "stream" in arrays and arrays["stream"] < 0:
        raise WireError("job state: a stream has a negative number")
    if "lo" in arrays and "hi" in arrays and not np.less_equal(arrays["lo"], arrays["hi"]).all():
        raise WireError("job state: a range ends below its beginning")


def _check_stage(job: Job, state: JobState) -> None:
    """Raise WireError for arrays that its stage could not work with."""
    arrays, protocol = state.arrays, job.protocols[state.stage]
    if state.status == "failed":
        return
    if missing := [name for name in protocol.works_on if name not in arrays]:
        raise WireError(f"job state: stage {protocol.id} lacks {', '.join(missing)}")
    wanted = getattr(protocol, "n_clusters", None)
    if "centers" in arrays and wanted is not None and len(arrays["centers"]) != wanted:
        raise WireError(f"job state: {len(arrays['centers'])} centers, expected {wanted}")


@lru_cache(maxsize=64)
def _held(kind: type[Protocol]) -> Mapping[str, tuple[list[str], list[str]]]:
    """Return the dtypes and lengths of what the states of a stage may hold; see :attr:`.Protocol.holds`."""
    found: dict[str, tuple[list[str], list[str]]] = {}
    for part in "; ".join(filter(None, (vars(base).get("holds") for base in kind.__mro__))).split("; "):
        declared, _, names = part.partition(": ")
        dtypes, *letters = declared.split() or [""]
        found |= dict.fromkeys(names.split(), (dtypes.split("|"), letters))
    return found
