"""The end of a job, checked outside of a peer, with real signatures."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgpack
import pytest
from tests.throwaway import throwaway_fleet

from p2pclust.cli.fleet.result import result
from p2pclust.errors import FleetError, UsageError
from p2pclust.hosts.evidence import CONTRADICTS, contradictions, read_proof
from p2pclust.peer.core.document import Document
from p2pclust.peer.core.evidence import PROOF_FORMAT, Evidence, Majority, Statement
from p2pclust.peer.core.fleet_roster import RosterName
from p2pclust.peer.core.treatment import Treatment
from p2pclust.transport.bundle import Bundle
from p2pclust.transport.roster import Roster
from p2pclust.transport.wire import signed

_NAMES = ("p0", "p1", "p2")
_ONE, _OTHER = bytes([1]) * 32, bytes([2]) * 32
_Register = tuple[int, int, bytes, bool]


class _Fleet:
    def __init__(self) -> None:
        self.roster: Roster
        self.bundles: dict[str, Bundle]
        self.roster, self.bundles = throwaway_fleet(list(_NAMES))
        self.paper = self.roster.to_bytes()
        named = RosterName(self.roster.serial, hashlib.sha256(self.paper).digest())
        treatment = Treatment(patience_s=1.0, compute_limit_s=1.0, collect="star")
        self.document = Document(
            b"\x80", _NAMES, tuple(f"store-{name}" for name in _NAMES), treatment, "p0", "1", fleet_roster=named
        )

    @property
    def public(self) -> bytes:
        return self.bundles["p0"].fleet_public

    def statement(self, by: str, term: int, aggregator: str, register: _Register) -> Statement:
        index = self.document.index(by)
        bare = Statement(term, self.document.index(aggregator), index, self.document.store_ids[index], *register)
        return replace(bare, signature=signed(self.bundles[by].sign_secret, bare.statement(self.document.id)))

    def proof(self, state: bytes, *, term: int, aggregator: str, by: tuple[str, ...], voted: _Register) -> bytes:
        votes = Majority.of([self.statement(name, term, aggregator, voted) for name in by], 2)
        end = Majority.of([self.statement(name, term, aggregator, (term, 9, state, True)) for name in by], 2)
        evidence = Evidence(votes, end).encode()
        return bytes(msgpack.packb([PROOF_FORMAT, self.document.encode(), self.paper, evidence]))


@pytest.fixture(scope="module")
def fleet() -> _Fleet:
    return _Fleet()


_OLD: _Register = (1, 4, _OTHER, False)


def test_an_end_names_who_has_signed_it(fleet: _Fleet) -> None:
    data = fleet.proof(_ONE, term=2, aggregator="p1", by=("p0", "p1"), voted=_OLD)
    shown = read_proof(data, fleet.public, "here")
    told = shown.to_dict(fleet.roster)
    assert (told["aggregator"], told["term"], told["acknowledged"], told["voted"]) == (
        "p1",
        2,
        ["p0", "p1"],
        ["p0", "p1"],
    )
    assert (told["revoked_since"], told["new_keys_since"]) == ([], [])
    assert not contradictions([shown, shown])


def test_a_signer_that_was_revoked_since_is_named(fleet: _Fleet) -> None:
    shown = read_proof(fleet.proof(_ONE, term=2, aggregator="p1", by=("p0", "p1"), voted=_OLD), fleet.public, "here")
    left = replace(fleet.roster, peers=tuple(peer for peer in fleet.roster.peers if peer.name != "p1"))
    assert shown.to_dict(left)["revoked_since"] == ["p1"]


@pytest.mark.parametrize(
    ("first", "second", "guilty"),
    [
        # Two aggregators of one term, and two ends in it: p1 has voted and acknowledged twice.
        (("p0", 2, ("p0", "p1"), _ONE, _OLD), ("p2", 2, ("p1", "p2"), _OTHER, _OLD), ["p1"]),
        # p0 acknowledged a final state in term 2 and voted for an older register in term 3.
        (("p1", 2, ("p0", "p1"), _ONE, _OLD), ("p2", 3, ("p0", "p2"), _OTHER, (2, 5, _OTHER, False)), ["p0"]),
        # One end with the signatures of two majorities: nothing is wrong.
        (("p1", 2, ("p0", "p1"), _ONE, _OLD), ("p1", 2, ("p1", "p2"), _ONE, _OLD), []),
        # The final state is opened again: nothing is wrong.
        (("p1", 2, ("p0", "p1"), _ONE, _OLD), ("p2", 3, ("p0", "p2"), _ONE, (2, 9, _ONE, True)), []),
    ],
)
def test_two_ends_show_who_contradicts_itself(fleet: _Fleet, first: Any, second: Any, guilty: list[str]) -> None:
    shown = [
        read_proof(fleet.proof(state, term=term, aggregator=who, by=by, voted=voted), fleet.public, "here")
        for who, term, by, state, voted in (first, second)
    ]
    assert list(contradictions(shown)) == guilty


@pytest.mark.parametrize("flaw", ["another fleet", "one signature", "another roster", "a changed state", "no proof"])
def test_a_proof_with_anything_wrong_is_refused(fleet: _Fleet, flaw: str) -> None:
    data = fleet.proof(_ONE, term=2, aggregator="p1", by=("p0", "p1"), voted=_OLD)
    public, fields = fleet.public, msgpack.unpackb(data)
    evidence = Evidence.decode(fields[3])
    assert evidence.end is not None
    if flaw == "another fleet":
        public = _Fleet().public
    elif flaw == "one signature":
        end = replace(evidence.end, signatures={0: evidence.end.signatures[0]})
        fields[3] = replace(evidence, end=end).encode()
    elif flaw == "another roster":
        fields[2] = _Fleet().paper
    elif flaw == "a changed state":
        end = replace(evidence.end, statement=replace(evidence.end.statement, digest=_OTHER))
        fields[3] = replace(evidence, end=end).encode()
    else:
        fields[0] = "something else"
    with pytest.raises(FleetError, match="not proved"):
        read_proof(msgpack.packb(fields), public, "here")


def test_the_command_checks_two_files_and_names_the_device(
    fleet: _Fleet, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one, two, bundle = tmp_path / "one", tmp_path / "two", tmp_path / "me.bundle"
    one.write_bytes(fleet.proof(_ONE, term=2, aggregator="p0", by=("p0", "p1"), voted=_OLD))
    two.write_bytes(fleet.proof(_OTHER, term=2, aggregator="p2", by=("p1", "p2"), voted=_OLD))
    bundle.write_bytes(fleet.bundles["p0"].to_bytes())
    bundle.chmod(0o600)
    result(str(one), check=True, bundle=bundle)
    assert "acknowledged by 2 of 3: p0, p1" in capsys.readouterr().out
    with pytest.raises(FleetError, match="p1"):
        result(str(one), check=True, against=two, bundle=bundle)
    assert CONTRADICTS in " ".join(capsys.readouterr().out.split())


def test_comparing_needs_a_check() -> None:
    with pytest.raises(UsageError, match="--check"):
        result("job-1", against=Path("x"))
