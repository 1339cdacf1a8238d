"""Pads: they vanish from the total of exactly the peers that count, and nothing else makes them vanish."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pclust.errors import WireError
from p2pclust.protocols.secure.pads import ENTROPY_BYTES, KeyPair, Numbers, Sealed

CONTEXT = bytes(range(32))
ALL_BITS = st.integers(0, 2**64 - 1)


def pairs(n_peers: int) -> list[KeyPair]:
    rng = np.random.default_rng(7)
    return [KeyPair(rng.bytes(ENTROPY_BYTES)) for _ in range(n_peers)]


def keys(of: list[KeyPair], *peers: int) -> dict[int, bytes]:
    return {peer: of[peer].public for peer in peers}


def words(*values: int) -> Numbers:
    return np.array(values, dtype=np.uint64)


@pytest.mark.slow
@given(
    contributions=st.lists(st.lists(ALL_BITS, min_size=3, max_size=3), min_size=2, max_size=6),
    data=st.data(),
)
def test_the_total_of_those_who_count_is_exact(contributions: list[list[int]], data: st.DataObject) -> None:
    n_peers = len(contributions)
    drawn = st.sets(st.integers(0, n_peers - 1), min_size=1)
    keepers, members = sorted(data.draw(drawn)), sorted(data.draw(drawn))
    all_pairs = pairs(n_peers)
    kept = keys(all_pairs, *keepers)
    padded = [
        pair.padded(words(*x), i, kept, CONTEXT)
        for i, (pair, x) in enumerate(zip(all_pairs, contributions, strict=True))
    ]
    total = sum((padded[member] for member in members), words(0, 0, 0))
    for keeper in keepers:
        total -= all_pairs[keeper].removed(keeper, keys(all_pairs, *members), 3, CONTEXT)
    assert total.tolist() == [sum(contributions[member][k] for member in members) % 2**64 for k in range(3)]


def test_a_set_that_lacks_one_peer_leaves_noise() -> None:
    all_pairs = pairs(4)
    kept = keys(all_pairs, 0, 1)
    total = sum((pair.padded(words(1), i, kept, CONTEXT) for i, pair in enumerate(all_pairs)), words(0))
    for keeper in kept:
        total -= all_pairs[keeper].removed(keeper, keys(all_pairs, 0, 1, 2), 1, CONTEXT)
    assert total.tolist() != [4]
    assert total.tolist() != [3]


def test_every_keeper_alone_hides_a_contribution() -> None:
    """What is left if all keepers but one pool their pads is still a pad that they lack."""
    all_pairs = pairs(3)
    for hidden in range(3):
        others = [keeper for keeper in range(3) if keeper != hidden]
        seen = all_pairs[2].padded(words(5, 5), 2, keys(all_pairs, 0, 1, 2), CONTEXT)
        for keeper in others:
            seen -= all_pairs[keeper].removed(keeper, keys(all_pairs, 2), 2, CONTEXT)
        assert (
            seen.tolist() == (words(5, 5) + all_pairs[hidden].removed(hidden, keys(all_pairs, 2), 2, CONTEXT)).tolist()
        )
        assert seen.tolist() != [5, 5]


def test_pads_differ_by_context_pair_direction_and_place() -> None:
    all_pairs = pairs(3)
    nothing = np.zeros(4, dtype=np.uint64)
    pads = [
        all_pairs[0].padded(nothing, 0, keys(all_pairs, 1), CONTEXT),
        all_pairs[1].padded(nothing, 1, keys(all_pairs, 0), CONTEXT),  # the same pair, in the other direction
        all_pairs[0].padded(nothing, 0, keys(all_pairs, 1), CONTEXT[::-1]),
        all_pairs[0].padded(nothing, 0, keys(all_pairs, 2), CONTEXT),
        all_pairs[0].padded(nothing, 0, keys(all_pairs, 0), CONTEXT),  # its own pad
        all_pairs[1].padded(nothing, 1, keys(all_pairs, 1), CONTEXT),
    ]
    values = np.concatenate(pads).tolist()
    assert len(set(values)) == len(values)


def test_own_pads_come_from_a_secret_of_their_own() -> None:
    same_key = [KeyPair(bytes(32) + own * 32) for own in (b"a", b"b")]
    assert same_key[0].public[:32] == same_key[1].public[:32]
    own = [pair.padded(words(0), 0, {0: pair.public}, CONTEXT).tolist() for pair in same_key]
    assert own[0] != own[1]


def test_only_the_maker_opens_what_a_keeper_sends() -> None:
    keeper, maker, other = pairs(3)
    sealed = keeper.seal(words(3, 2**64 - 1), 0, maker.public, CONTEXT, [2, 0])
    assert maker.unseal(sealed, keeper.public, CONTEXT, [0, 2], 2).tolist() == [3, 2**64 - 1]
    for opener, key, context, members in (
        (other, keeper.public, CONTEXT, [0, 2]),
        (maker, other.public, CONTEXT, [0, 2]),
        (maker, keeper.public, CONTEXT[::-1], [0, 2]),
        (maker, keeper.public, CONTEXT, [0, 1]),
    ):
        with pytest.raises(WireError, match="pads of keeper 0 are not for this context"):
            opener.unseal(sealed, key, context, members, 2)
    with pytest.raises(WireError, match="pads of keeper 1 are not"):
        maker.unseal(Sealed(1, sealed.data), keeper.public, CONTEXT, [0, 2], 2)


def test_an_answer_of_another_size_is_refused() -> None:
    keeper, maker = pairs(2)
    sealed = keeper.seal(words(1), 0, maker.public, CONTEXT, [0])
    with pytest.raises(WireError, match="keeper 0 have 8 bytes, expected 24"):
        maker.unseal(sealed, keeper.public, CONTEXT, [0], 3)


def test_nothing_is_sent_in_the_clear() -> None:
    with pytest.raises(ValueError, match="no keeper"):
        pairs(1)[0].padded(words(1), 0, {}, CONTEXT)
    with pytest.raises(TypeError, match="a contribution of float64"):
        pairs(1)[0].padded(np.ones(2), 0, {0: bytes(32)}, CONTEXT)  # type: ignore[arg-type]


@pytest.mark.parametrize("public", [bytes(64), b"short", pairs(2)[1].public[:32] + bytes(32)])
def test_a_key_that_gives_no_secret_is_refused(public: bytes) -> None:
    with pytest.raises(WireError, match="unusable"):
        pairs(1)[0].padded(words(1), 0, {1: public}, CONTEXT)


def test_secrets_are_not_printed() -> None:
    pair = KeyPair(b"s" * ENTROPY_BYTES)
    pair.padded(words(1), 0, {1: pairs(1)[0].public}, CONTEXT)
    assert "s" * 4 not in repr(pair)
    assert repr(pair) == "KeyPair()"


def test_entropy_of_another_length_is_refused() -> None:
    with pytest.raises(ValueError, match="32 bytes of entropy: expected 64"):
        KeyPair(bytes(32))
