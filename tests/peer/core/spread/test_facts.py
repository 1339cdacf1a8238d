"""Scuttlebutt, one test per sentence. Reference: van Renesse et al. 2008, "Efficient reconciliation and flow control"."""

from __future__ import annotations

from zlib import crc32

import pytest
from harness import FACTS, Net, alone
from hypothesis import given, settings
from hypothesis import strategies as st

from p2pclust.peer.core.core import Core, StoreContents
from p2pclust.peer.core.effects import Send
from p2pclust.peer.core.events import Arrived, Woken
from p2pclust.peer.core.messages import FactDelta, FactDigest, Gossip, Message, Update
from p2pclust.peer.core.spread import facts
from p2pclust.peer.core.timing import PRESETS

pytestmark = pytest.mark.usefixtures("any_key")


def told(core: Core, message: Message, source: str = "p2") -> list[Send]:
    effects = core.step(1.0, Arrived(source, message))
    return [e for e in effects if isinstance(e, Send) and isinstance(e.message, FACTS)]


def delta(after: int, *facts: tuple[str, int, bytes], owner: str = "p2") -> FactDelta:
    keys, versions, values = zip(*facts, strict=True)
    return FactDelta(owner, after, keys, versions, values)


def value(core: Core, key: str, owner: str = "p2") -> bytes | None:
    fact = core.facts.get(owner, key)
    return None if fact is None else fact.value


def published(net: Net, name: str, key: str, said: bytes) -> None:
    net.core(name).facts.publish(key, said)
    net.step(name, Woken())


def test_a_delta_that_starts_at_what_is_known_is_taken() -> None:
    """Updates of one participant are applied in order of version. Reference: section 3, "precise reconciliation"."""
    core = alone()
    told(core, delta(0, ("a", 1, b"one"), ("b", 2, b"two")))
    told(core, delta(2, ("a", 3, b"three")))
    assert (value(core, "a"), value(core, "b")) == (b"three", b"two")


def test_a_delta_above_what_is_known_is_refused_and_asked_for() -> None:
    """With a gap below it a version number would no longer mean "everything up to here". Reference: section 3."""
    core = alone()
    told(core, delta(0, ("a", 1, b"one")))
    answers = told(core, delta(5, ("a", 6, b"six")))
    assert value(core, "a") == b"one"
    assert [(s.to, s.message) for s in answers] == [("p2", FactDigest(True, ("p2",), (1,), (crc32(b"a 1"),)))]


def test_a_gap_is_asked_for_once_while_the_answer_may_be_under_way() -> None:
    """A peer that sends deltas above what is known, one after another, is not sent a digest for each."""
    core = alone()
    first = told(core, delta(5, ("a", 6, b"six")))
    again = told(core, delta(6, ("a", 7, b"seven")))
    from_another = told(core, delta(6, ("a", 7, b"seven")), source="p3")
    late = core.step(1.0 + PRESETS["fast"].probe_timeout_s, Arrived("p2", delta(7, ("a", 8, b"eight"))))
    asked = [e for e in late if isinstance(e, Send) and isinstance(e.message, FactDigest) and e.message.answer]
    assert [len(sent) for sent in (first, again, from_another, asked)] == [1, 0, 1, 1]


def test_one_delta_has_no_more_bytes_than_the_control_lane_takes() -> None:
    """Facts of one owner whose sizes differ are sent in several. Reference: section 4, "flow control"."""
    core = alone()
    for number, size in enumerate((20_000, 100, 20_000, 100, 20_000, 30_000, 100)):
        core.facts.publish(f"k{number}", bytes(size))
    core.step(1.0, Woken())
    sent = told(core, FactDigest(True, (), (), ()))
    sizes = [sum(map(len, one.message.values)) for one in sent if isinstance(one.message, FactDelta)]
    assert max(sizes) <= facts._DELTA_BYTES
    assert sizes == [40_200, 20_000, 30_100]


@pytest.mark.parametrize("valid", [True, False])
def test_a_floor_is_owed_only_for_facts_of_a_former_life_that_are_no_longer_valid(valid: bool) -> None:
    core = alone()
    core.facts.stands = lambda key, value: valid
    told(core, delta(0, ("job/a", 5, b"document"), owner="p1"))
    assert core.facts._owes_floor is not valid
    assert (value(core, "job/a", "p1") == b"document") is valid


def test_an_old_version_never_replaces_a_new_one() -> None:
    """Merging keeps the higher version. Reference: section 2, the merge operator."""
    core = alone()
    told(core, delta(0, ("a", 7, b"new")))
    told(core, delta(0, ("a", 3, b"old")))
    assert value(core, "a") == b"new"


def test_a_key_that_was_missed_is_taken_whatever_its_number() -> None:
    """An owner that lost its store may have spoken before it was reminded of what it had said."""
    core = alone()
    told(core, delta(0, ("a", 5, b"five"), ("b", 4, b"four")))
    assert (value(core, "a"), value(core, "b")) == (b"five", b"four")
    told(core, delta(0, ("b", 3, b"three")))
    assert value(core, "b") == b"four"


def test_who_has_the_same_highest_version_and_other_facts_exchanges_all() -> None:
    core = alone()
    told(core, delta(0, ("a", 5, b"five")))
    answers = told(core, FactDigest(False, ("p2",), (5,), (77,)), source="p3")
    assert [s.message for s in answers] == [
        delta(0, ("a", 5, b"five")),
        FactDigest(True, ("p2",), (5,), (crc32(b"a 5"),)),
    ]
    assert told(core, FactDigest(True, ("p2",), (5,), (crc32(b"a 5"),)), source="p3") == []


@pytest.mark.parametrize(
    "message",
    [
        pytest.param(FactDelta("p2", 0, ("a", "b"), (1,), (b"x",)), id="fewer-versions"),
        pytest.param(FactDelta("p2", 0, ("a",), (1,), ()), id="no-value"),
        pytest.param(FactDelta("stranger", 0, ("a",), (1,), (b"x",)), id="an-owner-who-is-not-enrolled"),
    ],
)
def test_an_odd_delta_is_ignored(message: FactDelta) -> None:
    """Nothing is stored for strangers, or by halves. Reference: docs/peer/facts.md, "Facts"."""
    core = alone()
    assert told(core, message) == []
    assert all(core.facts.get(owner, key) is None for owner in ("p2", "stranger") for key in ("a", "b"))


def test_a_digest_is_answered_with_exactly_what_is_newer() -> None:
    """Participants send only the deltas that the other lacks. Reference: section 3."""
    core = alone()
    told(core, delta(0, ("a", 1, b"one"), ("b", 2, b"two"), ("c", 3, b"three")))
    answers = told(core, FactDigest(False, ("p2",), (1,), (0,)), source="p3")
    assert [(s.to, s.message) for s in answers] == [("p3", delta(1, ("b", 2, b"two"), ("c", 3, b"three")))]
    assert told(core, FactDigest(False, ("p2",), (3,), (0,)), source="p3") == []


def test_a_digest_with_too_few_prints_is_compared_by_its_versions() -> None:
    core = alone()
    told(core, delta(0, ("a", 5, b"five")))
    answers = told(core, FactDigest(False, ("p2",), (4,), ()), source="p3")
    assert [s.message for s in answers if isinstance(s.message, FactDelta)] == [delta(4, ("a", 5, b"five"))]


def test_who_is_behind_asks_back_once() -> None:
    """A digest with higher versions is answered by the own digest; an answer is not. Reference: section 3."""
    core = alone()
    asked = told(core, FactDigest(False, ("p3",), (9,), (0,)))
    assert [s.message for s in asked] == [FactDigest(True, (), (), ())]
    assert told(core, FactDigest(True, ("p3",), (9,), (0,))) == []


def test_much_is_sent_in_parts_that_follow_one_another() -> None:
    """Each part starts where the one before ended, so each can be applied alone.

    Reference: section 4 (flow control).
    """
    core = alone()
    for i in range(20):
        told(core, delta(i, (f"k{i}", i + 1, bytes(10_000))))
    parts = [s.message for s in told(core, FactDigest(False, (), (), ()), source="p3")]
    after = 0
    for part in parts:
        assert isinstance(part, FactDelta)
        assert part.after == after
        assert len(part.values) <= 7  # a relay puts its own header before them, in one of eight frames
        assert sum(map(len, part.values)) <= 48 * 1024
        after = part.versions[-1]
    assert after == 20


def test_a_change_is_pushed_and_a_lost_push_is_repaired() -> None:
    """Anti-entropy repairs what a push lost. Reference: section 2."""
    net = Net(4)
    net.meet()
    net.lost = lambda packet: packet.target == "p4" and isinstance(packet.message, FactDelta)
    published(net, "p1", "colour", b"red")
    assert value(net.core("p2"), "colour", "p1") == b"red"
    assert value(net.core("p4"), "colour", "p1") is None
    net.lost = lambda packet: packet.source == "p1"  # p1 is silent from now on: others must have it for p4
    net.until(lambda: value(net.core("p4"), "colour", "p1") == b"red", limit_s=15)


def test_a_restarted_owner_numbers_on_above() -> None:
    """What an owner says in its next life is newer than anything it said before.

    Reference: docs/peer/facts.md, "Facts".
    """
    net = Net(3)
    net.meet()
    for i in range(5):
        published(net, "p1", "colour", b"old %d" % i)
    net.crash("p1")
    net.start("p1")
    net.advance(0.1)
    published(net, "p1", "colour", b"new")
    net.advance(5)
    assert all(value(net.core(n), "colour", "p1") == b"new" for n in net.names)


def test_an_owner_that_lost_its_store_takes_its_word_back_up() -> None:
    """Others return what it said in its former life, and it stands by it under new versions."""
    net = Net(3)
    net.meet()
    for i in range(3):
        net.crash("p1")
        net.start("p1")
        net.advance(0.1)
        published(net, "p1", "colour", b"old %d" % i)
    net.crash("p1", wiped=True)
    net.start("p1")
    net.advance(1)
    assert value(net.core("p1"), "colour", "p1") == b"old 2"
    published(net, "p1", "shape", b"round")
    net.advance(5)
    for name in net.names:
        assert (value(net.core(name), "colour", "p1"), value(net.core(name), "shape", "p1")) == (b"old 2", b"round")


def test_an_owner_with_more_facts_than_others_keep_takes_back_none(monkeypatch: pytest.MonkeyPatch) -> None:
    core = alone()
    monkeypatch.setattr(facts, "_MOST_BYTES", 3 * 260)
    for key in ("a", "b", "c"):
        core.facts.publish(key, b"own")
    told(core, delta(0, ("d", 1, b"lost"), ("e", 2, b"lost"), owner="p1"))
    assert [value(core, key, "p1") for key in "cde"] == [b"own", None, None]


def test_an_owner_that_speaks_before_it_was_reminded_takes_its_word_back_up() -> None:
    """Its new word has a higher number, so that whoever missed the old one would never hear of it again."""
    net = Net(3)
    net.meet()
    net.crash("p3")
    published(net, "p1", "colour", b"red")
    net.crash("p1", wiped=True)
    net.start("p1")
    published(net, "p1", "shape", b"round")
    net.start("p3")
    net.advance(10)
    for name in net.names:
        assert (value(net.core(name), "colour", "p1"), value(net.core(name), "shape", "p1")) == (b"red", b"round")


@pytest.mark.parametrize("links", ["12 23 34 45", "12 23 34 45 15", "12 13 14 15"])
def test_news_goes_from_neighbour_to_neighbour_once_over_each_link(links: str) -> None:
    net = Net(5, links=links)
    net.meet()
    before = len(net.sent)
    published(net, "p1", "colour", b"red")
    assert all(value(net.core(name), "colour", "p1") == b"red" for name in net.names)
    deltas = [p for p in net.sent[before:] if isinstance(p.message, FactDelta)]
    n_links, n = len(links.split()), 5
    # Everybody tells all neighbours but the one that told it: 2 E - N + 1 messages.
    assert len(deltas) == 2 * n_links - n + 1


def test_news_is_passed_on_as_it_is_held_here() -> None:
    """What is not newer was not checked by the performer, so it may be forged: the next peer would blame this one."""
    net = Net(3, links="12 23")
    net.meet()
    net.arrive("p1", "p2", delta(0, ("a", 2**40 + 5, b"five"), ("c", 2**40 + 9, b"nine"), owner="p1"))
    forged = (("a", 2**40 + 3, b"forged"), ("b", 2**40 + 7, b"seven"), ("c", 2**40 + 6, b"forged"))
    before = len(net.sent)
    net.arrive("p1", "p2", delta(0, *forged, owner="p1"))
    passed_on = [p.message for p in net.sent[before:] if isinstance(p.message, FactDelta) and p.target == "p3"]
    assert passed_on == [delta(0, ("a", 2**40 + 5, b"five"), ("b", 2**40 + 7, b"seven"), owner="p1")]


def test_a_life_begins_above_the_versions_of_the_last() -> None:
    """Versions begin at the incarnation times two to the twenty. Reference: `p2pclust/peer/core/spread/facts.py`."""
    first, second = (alone(stored=StoreContents("s", incarnation=i)) for i in (3, 4))
    first.facts.publish("a", b"")
    second.facts.publish("a", b"")
    one, two = first.facts.get("p1", "a"), second.facts.get("p1", "a")
    assert one is not None
    assert two is not None
    assert two.version - one.version == 2**20


Op = tuple[str, int, int]


@pytest.mark.slow
@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 2), st.integers(0, 255)), min_size=1, max_size=25),
    st.data(),
)
def test_whatever_is_lost_all_end_equal_and_each_number_means_all_below_it(ops: list[Op], data: st.DataObject) -> None:
    """For every key a participant holds its newest version up to the highest that it knows. Reference: section 3."""
    net = Net(3, manual=lambda message: isinstance(message, FACTS))
    net.start()
    net.drop()
    history: list[dict[int, tuple[str, bytes]]] = [{}, {}, {}]
    for key, owner, said in ops:
        name = net.names[owner]
        published(net, name, key, bytes([said]))
        fact = net.core(name).facts.get(name, key)
        assert fact is not None
        history[owner][fact.version] = (key, fact.value)
        kept = set(data.draw(st.lists(st.integers(0, 5), max_size=3)))
        net.deliver(lambda packet, kept=kept: net.flight.index(packet) in kept)  # type: ignore[misc]
        if data.draw(st.booleans()):
            net.drop()
        _check_invariant(net, history)
    net.manual = lambda message: False
    net.deliver()
    net.advance(30)
    _check_invariant(net, history)
    held = [
        {o: {k: f.value for k in "abc" if (f := net.core(n).facts.get(o, k))} for o in net.names} for n in net.names
    ]
    assert held[0] == held[1] == held[2]


def _check_invariant(net: Net, history: list[dict[int, tuple[str, bytes]]]) -> None:
    for name in net.names:
        facts = net.core(name).facts
        for owner, said in zip(net.names, history, strict=True):
            held = {key: fact for key in "abc" if (fact := facts.get(owner, key)) is not None}
            highest = max((fact.version for fact in held.values()), default=0)
            newest: dict[str, bytes] = {}
            for version in sorted(v for v in said if v <= highest):
                newest[said[version][0]] = said[version][1]
            assert {key: fact.value for key, fact in held.items()} == newest


def test_a_member_that_appears_is_compared_with_at_once() -> None:
    """The turn of anti-entropy is not waited for. Reference: docs/peer/facts.md, "Facts"."""
    core = alone()
    effects = core.step(1.0, Arrived("p2", Gossip((Update("p2", "alive", 1, "p2:1", "s", ""),))))
    assert any(isinstance(e, Send) and isinstance(e.message, FactDigest) and e.to == "p2" for e in effects)


def test_peers_publish_their_kernel() -> None:
    net = Net(3, kernels={"p1": "c1", "p2": "c1"})
    net.meet()
    for name in net.names:
        core = net.peers[name].core
        assert core is not None
        assert [core.kernel_of(other) for other in net.names] == ["c1", "c1", ""]


@pytest.mark.parametrize("told_value", [b"", b"c9", b"numpy", b"\xff"])
def test_a_kernel_that_is_not_known_counts_as_numpy(told_value: bytes) -> None:
    core = alone()
    told(core, delta(0, ("kernel", 1, told_value)))
    assert core.kernel_of("p2") == "numpy"


@pytest.mark.parametrize(("size", "copies"), [(4096, 2), (4097, 1)])
def test_a_large_fact_is_named_to_neighbours_and_sent_once_to_those_that_lack_it(size: int, copies: int) -> None:
    net = Net(4, links="12 13 24 34")
    net.meet()
    net.sent.clear()
    published(net, "p1", "large", b"x" * size)
    net.advance(1)
    for name in ("p2", "p3", "p4"):
        core = net.peers[name].core
        assert core is not None
        assert value(core, "large", "p1") == b"x" * size
    deltas = [packet for packet in net.sent if packet.target == "p4" and isinstance(packet.message, FactDelta)]
    assert sum("large" in packet.message.keys for packet in deltas) == copies  # type: ignore[union-attr]


def test_a_floor_stays_and_voids_what_lies_below_it() -> None:
    core = alone()
    told(core, delta(0, ("a", 5, b"void"), ("b", 6, b"void")))
    told(core, delta(6, ("floor", 10, b""), ("b", 11, b"again")))
    floor = core.facts.get("p2", "floor")
    assert floor is not None, "it says what is void"
    assert floor.version == 10
    assert (value(core, "a"), value(core, "b")) == (None, b"again")
    told(core, delta(0, ("a", 5, b"void")))
    assert value(core, "a") is None


def test_own_facts_rise_above_the_numbers_of_a_life_whose_store_is_lost() -> None:
    """Others hold newer numbers of this peer: below them, no peer would take what it publishes now."""
    core = alone()
    core.facts.publish("here", b"published in this life")
    core.facts.stands = lambda key, value: True
    told(core, delta(0, ("job/a", 2**40, b"document"), owner="p1"))
    core.facts.publish("later", b"published after others reminded it")
    for key, said in (("here", b"published in this life"), ("job/a", b"document"), ("later", None)):
        fact = core.facts.get("p1", key)
        assert fact is not None
        assert fact.version > 2**40
        assert said is None or fact.value == said
