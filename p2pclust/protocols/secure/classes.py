"""What the sums of one job expose: the classes of peers that no revealed sum separates (docs/secure-sums.md, Promise 2).

Sets of peers are bit masks by roster index.
"""

from __future__ import annotations

from collections.abc import Sequence


def classes(revealed: Sequence[int]) -> list[int]:
    """Return the classes of the peers that are in any revealed set: two are in one class if they are in the same sets.

    Whatever can be computed from revealed totals is a function of the sums over classes.

    Comparing sets two by two would not show that these three reveal peer 0 alone.

    >>> [bin(one) for one in classes([0b00111, 0b11001, 0b11110])]
    ['0b1', '0b110', '0b11000']
    """
    found: list[int] = []
    for mask in dict.fromkeys(revealed):
        split = [part for one in found for part in (one & mask, one & ~mask)]
        rest = mask
        for one in found:
            rest &= ~one
        found = [one for one in (*split, rest) if one]
    return sorted(found, key=lambda one: one & -one)


def exposed(revealed: Sequence[int], cohort: int, unknown: Sequence[int] = ()) -> int:
    """Return the peers in classes of fewer than `cohort` peers: sums over so few can be computed.

    Of each set in `unknown`, any part may have been revealed as a set of its own: all its peers are exposed, with all others
    of their classes.

    Six peers, then without one of them: it is exposed, and the five others are not.

    >>> bin(exposed([0b111111, 0b011111], cohort=5))
    '0b100000'
    """
    found = 0
    for one in unknown:
        found |= one
    for one in classes(revealed):
        if one.bit_count() < cohort or any(one & other for other in unknown):
            found |= one
    return found


def grouped(available: int, revealed: Sequence[int], cohort: int, order: Sequence[int]) -> int:
    """Return which of the available peers may be a set that leaves no class of fewer than `cohort` peers.

    A class of which some peers are missing loses others with them, or all. A class that is too small already is left out:
    another sum would say more about it. Peers of no class are a new one.

    - `available`: the peers that can contribute.
    - `revealed`: the sets whose classes count.
    - `order`: roster indices: those that come last are left out first.

    Returns as many peers as this rule gives; perhaps none.

    Ten peers were revealed. Now one is missing, and takes two others with it.

    >>> bin(grouped(0b1111111110, [0b1111111111], 3, range(10)))
    '0b11111110'
    """
    found = 0
    known = 0
    for one in classes(revealed):
        known |= one
        here = one & available
        gone = one & ~available
        if gone:
            for peer in reversed(order):
                if gone.bit_count() >= cohort:
                    break
                bit = 1 << peer & here
                here, gone = here & ~bit, gone | bit
        if here.bit_count() >= cohort:
            found |= here
    fresh = available & ~known
    return found | (fresh if fresh.bit_count() >= cohort else 0)


def parted(members: int, groups: Sequence[int]) -> tuple[int, ...]:
    """Return the sets whose sums are revealed of these members: one for each group that has any, or one without groups.

    >>> [bin(one) for one in parted(0b0111, [0b0011, 0b1100])], [bin(one) for one in parted(0b0111, [])]
    (['0b11', '0b100'], ['0b111'])
    """
    return tuple([members & own for own in groups if members & own]) or (members,)


def in_cohorts(members: int, groups: Sequence[int], cohort: int) -> int:
    """Return which of these members are in groups with at least `cohort` of them; without groups, all are one.

    >>> bin(in_cohorts(0b011111, [0b000111, 0b111000], cohort=3)), in_cohorts(0b011, [], cohort=3)
    ('0b111', 0)
    """
    return sum([one for one in parted(members, groups) if one.bit_count() >= cohort])
