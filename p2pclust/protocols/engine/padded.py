"""Contributions as vectors of numbers that pads can hide, and the total of a set of peers from padded ones.

A contribution to an additive stage is integers (see ``fixed_point``). Here all of them become one vector modulo 2**64, with
one number more that is 1, the check word: in a total it is the number of peers, or the total is of other peers than it
should be. Limbs of totals are smaller than 2**62, so nothing is lost modulo 2**64: the total has the bits of a plain one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from p2pclust.errors import WireError
from p2pclust.protocols.engine.arrays import Arrays, Contribution
from p2pclust.protocols.secure.pads import Numbers

__all__ = ["contribution_of", "numbers_of", "unpadded"]

#: The shape of each array of a contribution, in order, limbs first.
Shapes = Mapping[str, tuple[int, ...]]


def numbers_of(contribution: Contribution) -> Numbers:
    """Return all integers of a contribution, in order, and the check word, shape (n + 1,).

    Examples
    --------
    >>> numbers_of(Arrays(counts=np.array([[3], [-1]]))).tolist()
    [3, 18446744073709551615, 1]
    """
    flat = [np.asarray(array, dtype=np.int64).ravel() for array in contribution.values()]
    return np.concatenate([*flat, np.ones(1, dtype=np.int64)]).view(np.uint64)


def contribution_of(numbers: Numbers, shapes: Shapes) -> Contribution:
    """Return the arrays that a vector of :func:`numbers_of` holds.

    Raises
    ------
    WireError
        If the vector has another length.
    """
    sizes = [int(np.prod(shape)) for shape in shapes.values()]
    if len(numbers) != sum(sizes) + 1:
        raise WireError(f"a padded contribution has {len(numbers)} numbers, expected {sum(sizes) + 1}")
    pieces = np.split(numbers[:-1].view(np.int64), np.cumsum(sizes)[:-1])
    return Arrays({name: piece.reshape(shape) for (name, shape), piece in zip(shapes.items(), pieces, strict=True)})


def unpadded(padded: Iterable[Numbers], removed: Iterable[Numbers], shapes: Shapes, n_members: int) -> Contribution:
    """Return the total of a set of peers.

    Parameters
    ----------
    padded : iterable of ndarray of uint64
        What the members sent, or sums of it.
    removed : iterable of ndarray of uint64
        What each keeper takes away.
    shapes : mapping of str to tuple of int
    n_members : int
        The number of peers in the set.

    Raises
    ------
    WireError
        If these do not belong together: a vector has another length, or the check word is not `n_members`.
    """
    length = sum(int(np.prod(shape)) for shape in shapes.values()) + 1
    total = np.zeros(length, dtype=np.uint64)
    for vector in padded:
        total += _of_length(vector, length)
    for vector in removed:
        total -= _of_length(vector, length)
    if int(total[-1]) != n_members:
        raise WireError(f"the pads do not belong to the sum: the check word is {int(total[-1])}, expected {n_members}")
    return contribution_of(total, shapes)


def _of_length(vector: Numbers, length: int) -> Numbers:
    if vector.shape != (length,):
        raise WireError(f"a padded sum has {vector.size} numbers, expected {length}")
    return vector
