"""Who takes part where nobody aggregates: majorities, deaths, returns, and proposals that meet."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import msgpack
import numpy as np
import pytest

from p2pclust.errors import UsageError, WireError
from p2pclust.peer.core.context import Context
from p2pclust.peer.core.document import Document, links_of
from p2pclust.peer.core.effects import Send
from p2pclust.peer.core.gossip.members import GossipMembers, GossipMembership
from p2pclust.peer.core.job_messages import Join
from p2pclust.peer.core.ledger import Ledger
from p2pclust.peer.core.reports import Report
from p2pclust.peer.core.routing import Routing
from p2pclust.peer.core.timing import Limits, preset
from p2pclust.peer.core.treatment import Treatment

ROSTER = tuple("abcde")
RING = {name: [ROSTER[i - 1], ROSTER[(i + 1) % 5]] for i, name in enumerate(ROSTER)}
STORES = tuple(f"s-{name}" for name in ROSTER)


def document(missing: str = "wait", links: bytes | None = None, **more: object) -> Document:
    given = {"collect": "gossip", "gossip_tolerance": 1e-9, "mixing": "push-sum"} | more
    treatment = Treatment(missing, 1.0, 60.0, **given)  # type: ignore[arg-type]
    packed = links_of(Routing("a", RING), treatment, ROSTER) if links is None else links
    return Document(b"job", ROSTER, STORES, treatment, "a", "n", packed)


def test_links_are_pairs_of_roster_indices_and_those_to_others_are_left_out() -> None:
    overlay = {"a": ["b"], "b": ["a", "c"], "c": ["b", "z"], "z": ["c"]}
    packed = links_of(Routing("a", overlay), Treatment(collect="gossip"), ("a", "b", "c"))
    assert list(packed) == [0, 0, 1, 0, 1, 0, 2, 0]


class Members:
    """A membership by hand."""

    def __init__(self) -> None:
        self.dead: set[str] = set()
        self.stores = dict(zip(ROSTER, STORES, strict=True))

    def gone(self, name: str) -> bool:
        return self.status(name) in ("dead", "left")

    def status(self, name: str) -> str:
        return "dead" if name in self.dead else "alive"

    def present(self, name: str) -> bool:
        return name not in self.dead

    def store_id(self, name: str) -> str:
        return self.stores[name]


class One:
    """One peer's circles."""

    def __init__(self, me: str = "a", missing: str = "wait", ballot: bytes | None = None) -> None:
        self.ctx = Context(me, preset("fast"), Limits(), np.random.default_rng(0), f"s-{me}")
        self.members = Members()
        self.ledger = Ledger(self.ctx, document(missing), ballot, None)
        self.said: list[str] = []
        job = SimpleNamespace(
            context=self.ctx, membership=self.members, blobs=None, document=document(missing), ledger=self.ledger
        )
        self.circles = GossipMembership(cast(Any, job), self)

    def entered(self) -> None:
        self.said.append("entered")

    def outside(self) -> None:
        self.said.append("outside")

    def greet(self, name: str) -> None:
        self.said.append(f"greet {name}")

    def reports(self, verb: str) -> list[dict[str, object]]:
        return [dict(e.fields) for e in self.ctx.effects if isinstance(e, Report) and e.verb == verb]


def test_the_first_circle_is_the_roster() -> None:
    one = One()
    one.circles.begin()
    assert one.circles.circle == GossipMembers(0, (0, 1, 2, 3, 4))
    assert one.said == ["entered"]


def test_a_death_makes_a_circle_of_the_others() -> None:
    one = One()
    one.circles.begin()
    one.members.dead = {"c"}
    one.circles.look()
    circle = one.circles.circle
    assert circle is not None
    assert circle.members == (0, 1, 3, 4)
    assert circle.epoch > 0
    assert one.ledger.term == circle.epoch, "on disk before it is told"
    assert one.said[-3:] == ["entered", "greet b", "greet e"]


def test_what_is_no_majority_waits_and_says_so_once() -> None:
    one = One()
    one.circles.begin()
    one.members.dead = {"c", "e"}
    one.circles.look()
    one.circles.look()
    assert one.circles.circle == GossipMembers(0, (0, 1, 2, 3, 4))
    assert [(told["present"], told["of"]) for told in one.reports("waiting")] == [(2, 5)], "d is out of reach"


def test_everybody_is_waited_for_where_all_are_wanted() -> None:
    one = One(missing="all")
    one.circles.begin()
    one.members.dead = {"c"}
    one.circles.look()
    assert one.circles.circle == GossipMembers(0, (0, 1, 2, 3, 4))
    assert one.reports("waiting")


def test_a_job_that_is_to_end_waits_for_a_majority_only() -> None:
    one = One(missing="all")
    one.circles.begin()
    one.members.dead = {"c"}
    one.circles.look()
    one.circles.settle()
    circle = one.circles.circle
    assert circle is not None
    assert circle.members == (0, 1, 3, 4)


def test_a_lost_store_counts_for_no_majority() -> None:
    one = One()
    one.circles.begin()
    one.members.stores |= {"b": "new", "e": "new"}
    one.members.dead = {"c"}
    one.circles.look()
    assert one.circles.circle == GossipMembers(0, (0, 1, 2, 3, 4)), "a and d are two of five"


def test_the_higher_epoch_wins_if_this_peer_and_a_majority_are_in_it() -> None:
    one = One()
    one.circles.begin()
    assert one.circles.heard("b", 7, GossipMembers(7, (0, 1, 2)).mask)
    assert one.circles.circle == GossipMembers(7, (0, 1, 2))
    assert not one.circles.heard("b", 6, GossipMembers(6, (0, 1, 2, 3)).mask)
    assert one.circles.heard("b", 7, GossipMembers(7, (0, 1, 2)).mask)
    assert one.circles.circle == GossipMembers(7, (0, 1, 2))


@pytest.mark.parametrize(("epoch", "mask"), [(9, b""), (9, b"\xff"), (2**61, b"\x1f"), (9, b"\x00\x00\x00\x01")])
def test_circles_of_nobody_or_of_strangers_are_not_entered(epoch: int, mask: bytes) -> None:
    one = One()
    one.circles.begin()
    assert not one.circles.heard("b", epoch, mask)
    assert one.circles.circle == GossipMembers(0, (0, 1, 2, 3, 4))


def test_who_is_left_out_asks_to_be_in() -> None:
    one = One()
    one.circles.begin()
    one.ctx.now = 5.0
    assert not one.circles.heard("b", 7, GossipMembers(7, (1, 2, 3)).mask)
    assert "outside" in one.said
    circle = one.circles.circle
    assert circle is not None
    assert circle.members == (0, 1, 2, 3)
    assert circle.epoch > 7


def test_who_comes_back_begins_another_circle_even_if_it_is_in_the_present_one() -> None:
    one = One(ballot=b"\x92\x07\xa0")  # term 7, nobody voted for
    one.ctx.now = 5.0
    one.circles.join()
    asked = [effect.to for effect in one.ctx.effects if isinstance(effect, Send) and isinstance(effect.message, Join)]
    assert asked == ["b", "e"]
    assert not one.circles.heard("b", 7, GossipMembers(7, (0, 1, 2, 3, 4)).mask)
    circle = one.circles.circle
    assert circle is not None
    assert circle.members == (0, 1, 2, 3, 4)
    assert circle.epoch > 7


def test_who_comes_back_enters_what_was_proposed_since() -> None:
    one = One(ballot=b"\x92\x07\xa0")
    one.circles.join()
    assert one.circles.heard("b", 9, GossipMembers(9, (0, 1, 2, 3)).mask)
    assert one.circles.circle == GossipMembers(9, (0, 1, 2, 3))


def test_where_nobody_has_a_circle_one_is_made_after_a_while() -> None:
    one = One(ballot=b"\x92\x07\xa0")
    one.circles.join()
    one.members.dead = {"c"}
    for _ in range(10):
        one.ctx.now += 0.3
        one.circles.fire()
    circle = one.circles.circle
    assert circle is not None
    assert circle.members == (0, 1, 3, 4)


def test_a_circle_that_cannot_get_on_is_replaced_by_one_above_it() -> None:
    one = One()
    one.circles.begin()
    one.members.stores["b"] = "new"
    one.ctx.now = 5.0
    assert not one.circles.heard("b", 9, GossipMembers(9, (0, 1, 2)).mask), "only a and c are intact"
    circle = one.circles.circle
    assert circle is not None
    assert circle.members == (0, 1, 2, 3, 4)
    assert circle.epoch > 9


def test_two_stores_never_propose_the_same_epoch() -> None:
    epochs = set()
    for store in ("s-a", "other"):
        one = One()
        one.ctx.store_id = store
        one.circles.begin()
        one.circles.renew()
        assert one.circles.circle is not None
        epochs.add(one.circles.circle.epoch)
    assert len(epochs) == 2


# -- the document of such a job ---------------------------------------------------------------------------------------


def test_the_document_survives_the_wire() -> None:
    again = Document.decode(document().encode())
    assert again == document()
    assert again.peers_links.near[0] == (1, 4)
    whole = document(links=b"")
    assert whole.peers_links.near[0] == (1, 2, 3, 4)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"links": b"\x00\x00\x01\x00"}, "connect"),
        ({"links": b"\x00\x00\x01"}, "pairs"),
        ({"links": b"\x00\x00\x09\x00"}, "pairs"),
        ({"links": b"\x01\x00\x00\x00"}, "pairs"),
        ({"gossip_tolerance": 0.0}, "tolerance"),
        ({"gossip_tolerance": float("nan")}, "tolerance"),
        ({"mixing": "slow"}, "mixing"),
        ({"collect": "star"}, "gossip"),
    ],
)
def test_documents_that_cannot_be_are_refused(more: dict[str, object], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        document(**more)


def test_no_aggregator_and_no_deadline() -> None:
    with pytest.raises(UsageError, match="has no aggregator"):
        document("drop", deadline_s=1.0)
    with pytest.raises(UsageError, match="excludes aggregator"):
        document(aggregator="b")


def test_hostile_documents_raise_nothing_else() -> None:
    good = document().encode()
    for cut in range(0, len(good), 7):
        with pytest.raises(WireError):
            Document.decode(good[:cut])


@pytest.mark.parametrize("epoch", [7, 10])
def test_a_restarted_peer_enters_no_epoch_up_to_the_one_that_it_was_in(epoch: int) -> None:
    """Others may hold masses of its former life."""
    one = One(ballot=msgpack.packb([10, ""]))
    one.circles.join()
    assert not one.circles.heard("b", epoch, GossipMembers(epoch, (0, 1, 2, 3, 4)).mask)
    circle = one.circles.circle
    assert circle is None or circle.epoch > 10
    assert one.ledger.term >= 10
    assert (circle is None) is (epoch < 10), "who is in an older epoch hears of the newer one"
