"""Contributions as vectors of numbers that pads can hide, and the total of a set of peers from padded ones.

The integers of a contribution to an additive stage become one vector modulo 2**64, with one number more that is 1, the check
word: in a total it is the number of peers, or the total is of other peers than it should be. Limbs of totals are smaller
than 2**62, so nothing is lost modulo 2**64. Of a stage that needs only whether totals are zero (``Additive.whether``), each
number that is not zero is replaced by a secret random word: a total says that some peer has sent a number there, no more.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from p2pclust.errors import WireError
from p2pclust.protocols.engine.arrays import Arrays, Contribution
from p2pclust.protocols.engine.base import Additive
from p2pclust.protocols.engine.fixed_point import quantise_all
from p2pclust.protocols.engine.job import Job, JobState
from p2pclust.protocols.secure.pads import Numbers


class WrongCheckWordError(WireError):
    """A total whose check word is not the number of its peers."""


@dataclass(frozen=True)
class Layout:
    """How the contributions to one state become vectors.

    >>> layout = Layout({"counts": (1,)}, limbs=2)
    >>> layout.numbers(Arrays(counts=np.array([[3], [-1]]))).tolist()
    [3, 18446744073709551615, 1]
    >>> layout.contribution(np.array([3, 2**64 - 1, 1], np.uint64))["counts"].tolist()
    [[3], [-1]]
    """

    shapes: Mapping[str, tuple[int, ...]]  # the shape of each array of a contribution without its limbs, in order
    limbs: int
    whether: bool = False  # whether random words take the place of numbers that are not zero

    @cached_property
    def size(self) -> int:
        return sum(self._sizes) + 1

    @cached_property
    def _sizes(self) -> list[int]:
        each = 1 if self.whether else self.limbs
        return [each * math.prod(shape) for shape in self.shapes.values()]

    def numbers(self, contribution: Contribution, words: Numbers | None = None) -> Numbers:
        """Return all integers of a contribution, in order, and the check word, shape (size,).

        `words` are secret random numbers, shape (size,); needed only if :attr:`whether`.
        """
        if self.whether:
            assert words is not None
            flags = [(np.asarray(array) != 0).any(axis=0).ravel() for array in contribution.values()]
            flat = np.where(np.concatenate(flags), words[:-1], np.uint64(0))
            return np.append(flat, np.uint64(1))
        whole, at = np.ones(self.size, dtype=np.int64), 0
        for array in contribution.values():
            whole[at : at + array.size] = array.reshape(-1)
            at += array.size
        return whole.view(np.uint64)

    def contribution(self, numbers: Numbers) -> Contribution:
        """Return the arrays, shape (limbs, ...) each, that a vector of :meth:`numbers` or a total of some holds.

        Raises WireError if the vector has another length.
        """
        if len(numbers) != self.size:
            raise WireError(f"a padded contribution has {len(numbers)} numbers, expected {self.size}")
        pieces, at = {}, 0
        for (name, shape), size in zip(self.shapes.items(), self._sizes, strict=True):
            pieces[name], at = numbers[at : at + size].reshape(-1, *shape), at + size
        if self.whether:
            ones = {name: (piece[0] != 0).astype(np.float64) for name, piece in pieces.items()}
            return Arrays(quantise_all(ones, dict.fromkeys(ones, 1.0), n_peers=1, limbs=self.limbs))
        return Arrays({name: piece.view(np.int64) for name, piece in pieces.items()})

    def unpadded(self, padded: Iterable[Numbers], removed: Iterable[Numbers], n_members: int) -> Contribution:
        """Return the total of a set of peers.

        Raises WireError if a vector has another length, WrongCheckWordError if the check word is not `n_members`.

        - `padded` uint64: what the members sent, or sums of it.
        - `removed` uint64: what each keeper takes away.
        - `n_members`: the number of peers in the set.
        """
        total = np.zeros(self.size, dtype=np.uint64)
        for take, vectors in ((np.add, padded), (np.subtract, removed)):
            for vector in vectors:
                if vector.shape != (self.size,):
                    raise WireError(f"a padded sum has {vector.size} numbers, expected {self.size}")
                take(total, vector, out=total)
        if int(total[-1]) != n_members:
            raise WrongCheckWordError(
                f"the pads do not belong to the sum: the check word is {int(total[-1])}, expected {n_members}"
            )
        return self.contribution(total)


def layout_of(job: Job, state: JobState) -> Layout:
    """Return the layout of the contributions to a state of an additive stage.

    Raises WireError if the stage adds up nothing, or the length of an array is open.
    """
    protocol = job.protocols[state.stage]
    if not isinstance(protocol, Additive):
        raise WireError(f"{protocol.id} adds up nothing that pads could hide")
    shapes = {}
    for name, slot in protocol.expects(state.arrays).items():
        shapes[name] = tuple([length for length in slot.shape if length is not None])
        if len(shapes[name]) != len(slot.shape):
            raise WireError(f"{protocol.id}: the length of {name} is open")
    return Layout(shapes, protocol.limbs, protocol.whether)
