"""The signed fleet roster: formats, roles and days."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pclust.transport import roster as rosters
from p2pclust.transport.keys import generate, new_device
from p2pclust.transport.roster import OPERATOR, Roster, RosterPeer, is_signed, parse, sign, signed_by

KEY = generate()
PUBLIC = KEY.public_key().public_bytes_raw()
ENTRIES = [new_device(name, PUBLIC)[0] for name in ("a", "b", "c")]


def signed(*entries: RosterPeer, serial: int = 1) -> Roster:
    return sign(KEY, serial, entries)


def test_roles_and_days_go_to_a_file_and_back() -> None:
    roster = signed(ENTRIES[0], replace(ENTRIES[1], role=OPERATOR), replace(ENTRIES[2], expires="2027-01-31"))
    again = signed_by(roster.to_bytes(), PUBLIC)
    assert again == roster
    assert again.names == ("a", "c")
    assert [peer.name for peer in again.peers if peer.role == OPERATOR] == ["b"]
    assert again.name_of(ENTRIES[1].curve_public) is None
    assert again.by_key[ENTRIES[1].curve_public] == replace(ENTRIES[1], role=OPERATOR)
    assert again.peers[2].expires_at == datetime(2027, 2, 1, tzinfo=UTC).timestamp()


def test_the_signature_covers_the_format_and_whether_peers_sign_their_facts(monkeypatch: pytest.MonkeyPatch) -> None:
    roster = sign(KEY, 8, ENTRIES, signs_facts=True)
    assert signed_by(roster.to_bytes(), PUBLIC) == roster
    assert roster.valid_at(0.0).signs_facts
    assert not is_signed(replace(roster, signs_facts=False), PUBLIC)
    monkeypatch.setattr(rosters, "_FORMAT", 2)
    assert not is_signed(roster, PUBLIC)


def test_the_signature_covers_who_may_ask_at_control_addresses() -> None:
    roster = sign(KEY, 8, ENTRIES, operators_only=True)
    assert signed_by(roster.to_bytes(), PUBLIC) == roster
    assert not is_signed(replace(roster, operators_only=False), PUBLIC)
    assert b"operators_only" not in sign(KEY, 8, ENTRIES).to_bytes()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"operators_only": 1}, "it needs exactly a format"),
        ({"format": 2}, "its format is 2, this version of p2pclust reads format 1"),
        ({"format": True}, "it needs exactly a format"),
        ({"signs_facts": 1}, "it needs exactly a format"),
        ({"peers": [{"role": "peer"}]}, "not a role that a roster may name"),
        ({"peers": [{"role": "king"}]}, "'king' is not a role"),
        ({"peers": [{"role": 1}]}, "must be text"),
        ({"peers": [{"expires": "2027-1-31"}]}, "not a day"),
        ({"peers": [{"expires": "2027-02-30"}]}, "not a day"),
        ({"peers": [{"expires": ""}]}, "not a day"),
        ({"peers": [{"since": "2027-01-01"}]}, "a peer needs a name"),
    ],
    ids=str,
)
def test_what_is_not_understood_is_not_believed(change: dict[str, Any], words: str) -> None:
    document = json.loads(signed(replace(ENTRIES[0], role=OPERATOR)).to_bytes())
    for key, value in change.items():
        if key == "peers":
            document["peers"][0].update(value[0])
        else:
            document[key] = value
    with pytest.raises(ValueError, match=words):
        parse(json.dumps(document).encode())


def test_the_last_day_is_good_to_its_end() -> None:
    roster = signed(ENTRIES[0], replace(ENTRIES[1], expires="2027-01-31"))
    end = roster.peers[1].expires_at
    assert roster.valid_at(end - 0.001) is roster
    assert roster.valid_at(end).names == ("a",)
    assert roster.valid_at(end).serial == roster.serial


@given(st.binary(max_size=300) | st.text(max_size=300).map(str.encode))
def test_hostile_bytes_are_a_value_error(data: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 (any: what is wrong is told elsewhere)
        parse(data)
