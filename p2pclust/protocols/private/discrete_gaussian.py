"""Whole random numbers with the probabilities of a discrete Gaussian, exactly.

The discrete Gaussian of variance parameter v has the whole number x with probability proportional to exp(-x**2 / 2v). It is
drawn as in [1]_: from a discrete Laplace distribution of scale t = floor(sqrt(v)) + 1, and kept with a probability that
corrects the difference. All events have probabilities that are fractions, or exp(-fraction). They are decided with whole
numbers only, from uniform random words. Nothing is rounded, so a promise that rests on these probabilities is exact.

How long a draw takes depends on what is drawn. A peer therefore draws its noise while it computes its contribution, where
the time of the computation hides it from other peers as far as it hides the number of rows.

References
----------
.. [1] C. Canonne, G. Kamath, T. Steinke: The discrete Gaussian for differential privacy. NeurIPS 2020, arXiv 2004.00010.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Final

import numpy as np
from numpy.typing import NDArray

#: Returns that many random bytes, each value of which is equally likely; never the same ones again.
Entropy = Callable[[int], bytes]

_WORD_BITS: Final = 64
_WORDS_AT_ONCE: Final = 512
_MOST_VARIANCE: Final = 2**110  # noise of a larger variance would not fit an int64 with all but negligible probability


def discrete_gaussians(variance: Fraction, size: int, entropy: Entropy) -> NDArray[np.int64]:
    """Return independent whole numbers from the discrete Gaussian, shape (size,); the same bytes give the same numbers.

    From v = 1 on the variance is v up to 1 part in 10**6. Raises ValueError where it is not above 0, and at most 2**110.
    """
    if not 0 < variance <= _MOST_VARIANCE:
        raise ValueError(f"a variance of {variance}: expected above 0, at most 2**110")
    words = _Words(entropy)
    a, b = variance.numerator, variance.denominator
    t = math.isqrt(a // b) + 1
    # Y is kept with probability exp(-(|Y| - v/t)**2 / 2v); the fraction, with v = a / b:
    step, scale = b * t, 2 * a * b * t * t
    found = np.empty(size, dtype=np.int64)
    for position in range(size):
        while True:
            y = _discrete_laplace(words, t)
            if _exp_minus(words, (abs(y) * step - a) ** 2, scale):
                break
        found[position] = y
    return found


class _Words:
    """Uniform random words of 64 bits, and events that are decided by them."""

    def __init__(self, entropy: Entropy) -> None:
        self._entropy = entropy
        self._left: list[int] = []

    def next(self) -> int:
        if not self._left:
            self._left = np.frombuffer(self._entropy(8 * _WORDS_AT_ONCE), dtype="<u8").tolist()
        return self._left.pop()

    def below(self, n: int) -> int:
        bits = (n - 1).bit_length()
        while True:
            value = 0
            for _ in range(-(-bits // _WORD_BITS)):
                value = value << _WORD_BITS | self.next()
            value >>= -bits % _WORD_BITS
            if value < n:
                return value

    def happens(self, p: int, q: int) -> bool:
        """Return True with probability p / q, 0 <= p <= q.

        A uniform number in [0, 1) is compared with p / q, word by word of both, until they differ.
        """
        while True:
            digit, p = divmod(p << _WORD_BITS, q)
            word = self.next()
            if word != digit:
                return word < digit


def _exp_minus(words: _Words, p: int, q: int) -> bool:
    """Return True with probability exp(-p / q), for p >= 0 and q > 0."""
    while p > q:
        if not _exp_minus_small(words, 1, 1):
            return False
        p -= q
    return _exp_minus_small(words, p, q)


def _exp_minus_small(words: _Words, p: int, q: int) -> bool:
    """Return True with probability exp(-p / q), for 0 <= p <= q.

    In a series of events of probability x, x/2, x/3, ... the first that fails has an odd number with probability exp(-x).
    """
    k = 1
    while words.happens(p, q * k):
        k += 1
    return k % 2 == 1


def _discrete_laplace(words: _Words, t: int) -> int:
    """Return x with probability proportional to exp(-|x| / t)."""
    while True:
        u = words.below(t)
        if not _exp_minus_small(words, u, t):
            continue
        v = 0
        while _exp_minus_small(words, 1, 1):
            v += 1
        negative, x = words.next() & 1, u + t * v
        if negative and x == 0:
            continue
        return -x if negative else x
