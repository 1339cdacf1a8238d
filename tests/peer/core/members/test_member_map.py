"""The members of a fleet, each made when it is first looked at."""

from __future__ import annotations

import numpy as np

from p2pclust.peer.core.context import Context
from p2pclust.peer.core.members.member_table import Member, MemberMap
from p2pclust.peer.core.members.membership import Membership
from p2pclust.peer.core.routing import Routing
from p2pclust.peer.core.timing import Limits, preset

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


def test_a_member_that_was_looked_at_before_the_start_gets_its_address_all_the_same() -> None:
    context = Context("a", preset("fast"), Limits(), np.random.default_rng(1), "store", Routing("a", None, None))
    membership = Membership(context, ("a", "b", "c"), "a:1", 1)
    assert membership.members["b"].address == ""
    membership.start({"b": "b:1", "c": "c:1"})
    assert [membership.members[name].address for name in "bc"] == ["b:1", "c:1"]
