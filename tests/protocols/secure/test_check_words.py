"""Signed check words: which of them prove that a peer was wrong, and that no other peer can make a right one look wrong."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from p2pclust.errors import WireError
from p2pclust.protocols.secure.check_words import CheckedRound, CheckKey, CheckWord
from p2pclust.protocols.secure.key_list import FleetKeys
from p2pclust.tools.bit_sets import as_mask

N, KEEPERS, CONTEXT = 5, (0, 1, 2), b"c" * 32
ALL = as_mask(range(N))
DEVICES = [Ed25519PrivateKey.from_private_bytes(bytes([peer + 1]) * 32) for peer in range(N)]
KNOWN = FleetKeys(b"f" * 32, b"s" * 32, [device.public_key().public_bytes_raw() for device in DEVICES])
KEYS = [CheckKey(bytes([peer + 100]) * 32) for peer in range(N)]
EMPTY = CheckedRound(b"d" * 32, as_mask(KEEPERS), ALL, b"".join(key.public for key in KEYS))


def pad(contributor: int, keeper: int) -> int:
    return KEYS[keeper].pad(contributor, keeper, KEYS[contributor].public, CONTEXT)


def signed(word: CheckWord, of: CheckedRound = EMPTY, by: int = -1) -> CheckWord:
    return replace(word, signature=DEVICES[word.index if by < 0 else by].sign(of.statement(CONTEXT, word)))


def contributed(peer: int, more: int = 0) -> CheckWord:
    return CheckWord(peer, 0, (1 + sum(pad(peer, keeper) for keeper in KEEPERS) + more) % 2**64)


def kept(keeper: int, more: int = 0, members: int = ALL) -> CheckWord:
    return CheckWord(keeper, members, (sum(pad(peer, keeper) for peer in range(N)) + more) % 2**64)


def round_of(*words: CheckWord) -> CheckedRound:
    """A round with these words, and the right ones of all others."""
    given = {word.place: word for word in words}
    right = [contributed(peer) for peer in range(N)] + [kept(keeper) for keeper in KEEPERS]
    return EMPTY.with_words(given.get(one.place, signed(one)) for one in right)


def proved(of: CheckedRound, shown: Iterable[int] = range(N)) -> int:
    return of.showing({peer: KEYS[peer].private for peer in shown}).proved(KNOWN, CONTEXT)


def test_both_peers_of_a_pad_have_the_same() -> None:
    assert KEYS[3].pad(3, 1, KEYS[1].public, CONTEXT) == pad(3, 1)
    pads = {pad(3, 1), pad(1, 3), pad(1, 1), pad(3, 3), KEYS[3].pad(3, 1, KEYS[1].public, b"e" * 32)}
    assert len(pads) == 5


def test_right_words_prove_nothing() -> None:
    assert proved(round_of()) == 0
    assert round_of().showing({peer: KEYS[peer].private for peer in range(N)}).proof(KNOWN, CONTEXT) is None


@pytest.mark.parametrize(
    ("word", "shown"),
    [
        (contributed(3, 1), [3]),
        (contributed(3, 1), [0, 1, 2]),
        (contributed(3, -1), range(N)),
        (contributed(1, 1), [1]),
        (kept(1, 1), [1]),
        (kept(1, 2**63), range(N)),
    ],
)
def test_a_wrong_word_is_proved_by_its_peers_key_or_by_those_of_the_other_ends(
    word: CheckWord, shown: Iterable[int]
) -> None:
    of = round_of(signed(word))
    assert proved(of, shown) == 1 << word.index
    proof = of.showing({peer: KEYS[peer].private for peer in shown}).proof(KNOWN, CONTEXT)
    assert proof is not None
    assert CheckedRound.unpacked(proof.packed()) == proof
    assert proof.proved(KNOWN, CONTEXT) == 1 << word.index, "the shorter proof says the same"
    assert [one.index for one in proof.words if one.members == word.members] == [word.index]


@pytest.mark.parametrize(("word", "shown"), [(contributed(3, 1), [0, 1, 4]), (kept(1, 1), [0, 2, 3, 4])])
def test_without_a_key_that_is_needed_nothing_is_proved(word: CheckWord, shown: list[int]) -> None:
    of = round_of(signed(word))
    assert proved(of, shown) == 0
    assert of.showing({peer: KEYS[peer].private for peer in shown}).not_shown >> word.index & 1


def test_a_key_of_another_peer_is_not_shown() -> None:
    of = round_of().showing({3: KEYS[4].private, 4: KEYS[4].private})
    assert of.opened == ((4, KEYS[4].private),)
    made_up = replace(round_of(), opened=tuple((peer, KEYS[0].private) for peer in range(N)))
    assert made_up.proved(KNOWN, CONTEXT) == 0


def test_no_peer_makes_a_right_word_look_wrong() -> None:
    """It changes the word, signs it itself, or shows the word in a round with other peers, keepers or keys."""
    other = CheckKey(b"o" * 32).public
    keys = EMPTY.keys[:32] + other + EMPTY.keys[64:]
    fewer, moved = replace(EMPTY, keepers=0b11), replace(EMPTY, listed=ALL << 1 & ~1)
    right = signed(contributed(3))
    for of, word in (
        (EMPTY, replace(right, word=right.word + 1)),
        (EMPTY, signed(replace(contributed(3), word=7), by=4)),
        (EMPTY, replace(signed(kept(1)), members=0b1111)),
        (EMPTY, signed(kept(1, 0, 0b11110), by=0)),
        (replace(EMPTY, keys=keys), right),
        (fewer, right),
        (moved, right),
    ):
        shown = {peer: KEYS[peer].private for peer in range(N)}
        assert replace(of, words=(word,)).showing(shown).proved(KNOWN, CONTEXT) == 0
    assert replace(EMPTY, words=(right,)).proved(KNOWN, b"e" * 32) == 0, "nor in another context"


def test_a_key_without_a_secret_is_refused_and_proves_nothing() -> None:
    with pytest.raises(WireError, match="unusable"):
        KEYS[0].pad(0, 1, bytes(32), CONTEXT)
    of = replace(EMPTY, keys=bytes(32) + EMPTY.keys[32:])
    word = signed(contributed(3, 1), of)
    assert replace(of, words=(word,)).showing({3: KEYS[3].private}).proved(KNOWN, CONTEXT) == 0
