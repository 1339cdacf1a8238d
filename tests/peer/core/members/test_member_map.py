"""The members of a fleet, each made when it is first looked at."""

from __future__ import annotations

from p2pclust.peer.core.members.member_table import Member, MemberMap

NAMES = ("c", "a", "d", "b")


def test_members_are_made_when_they_are_looked_at() -> None:
    members = MemberMap(NAMES, "c", lambda name: Member(name, "alive"))
    assert (list(members), len(members), "c" in members, "z" in members) == (["a", "b", "d"], 3, False, False)
    assert members.looked_at() == []
    assert members.known("d") is None
    members["d"].status = "dead"
    assert members["b"].status == "alive"
    assert [member.name for member in members.looked_at()] == ["b", "d"]
    assert [member.status for member in members.among(["d", "z", "c", "a"])] == ["dead", "alive"]
    assert members.get("z") is members.get("c") is None


def test_each_table_has_its_own_members() -> None:
    one, other = (MemberMap(NAMES, "c", Member) for _ in range(2))
    one.enrol(Member("aa"))
    assert one.expel("b") is not None
    assert one.expel("b") is None
    assert (list(one), list(other)) == (["a", "aa", "d"], ["a", "b", "d"])
    one.enrol(Member("b"))
    assert list(one) == ["a", "aa", "b", "d"]
