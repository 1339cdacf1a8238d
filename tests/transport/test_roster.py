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
from p2pclust.transport.new_keys import generate, new_device
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
    assert (again.names, again.operators) == (("a", "c"), ("b",))
    assert again.name_of(ENTRIES[1].curve_public) is None
    assert again.entry_of(ENTRIES[1].curve_public) == replace(ENTRIES[1], role=OPERATOR)
    assert again.peers[2].expires_at == datetime(2027, 2, 1, tzinfo=UTC).timestamp()


def test_format_1_is_still_read() -> None:
    roster = Roster(rosters.fleet_id_of(PUBLIC), 4, tuple(ENTRIES), b"", format=1)
    old = replace(roster, signature=KEY.sign(rosters._to_sign(roster)))
    document = json.loads(old.to_bytes())
    assert sorted(document) == ["fleet_id", "peers", "serial", "signature"]
    assert signed_by(old.to_bytes(), PUBLIC).names == ("a", "b", "c")


def test_a_signature_of_one_format_is_none_of_the_other() -> None:
    roster = signed(*ENTRIES)
    assert is_signed(roster, PUBLIC)
    assert not is_signed(replace(roster, format=1), PUBLIC)


def test_format_3_says_that_peers_sign_their_facts_and_only_the_fleet_can_say_so() -> None:
    old, new = signed(*ENTRIES), sign(KEY, 8, ENTRIES, signs_facts=True)
    assert (old.format, old.signs_facts, new.format, new.signs_facts) == (2, False, 3, True)
    assert signed_by(new.to_bytes(), PUBLIC) == new
    assert new.valid_at(0.0).signs_facts
    assert not is_signed(replace(new, format=2), PUBLIC)
    assert not is_signed(replace(old, format=3), PUBLIC)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"format": 4}, "its format is 4, this version reads 1 to 3"),
        ({"format": True}, "its format is True"),
        ({"format": 1}, "a peer needs a name"),
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
