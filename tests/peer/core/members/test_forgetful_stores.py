"""A store that holds less than it once did is noticed, by its own count or by others, and counts as another store."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgpack
import numpy as np
import pytest
from harness import Net, toy

from p2pclust.lab.simulation.world.disk import Disk
from p2pclust.peer.core.effects import Send
from p2pclust.peer.core.job_messages import (
    Close,
    HeartbeatReply,
    HeldState,
    Open,
    PreVote,
    Reminder,
    RequestVote,
    StaleTerm,
)  # fmt: skip
from p2pclust.peer.core.messages import Ack, Gossip, Ping, Update
from p2pclust.peer.shell.store import Store

FRAME = 4096 + 24


def copied(directory: Path, to: Path) -> Path:
    """What `kill -9` leaves."""
    shutil.copytree(directory, to)
    return to


@pytest.mark.slow
def test_a_flipped_bit_in_the_newest_commit_takes_back_no_vote_in_silence(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    for trial in range(24):
        store = Store(tmp_path / f"a{trial}", log_bytes=0)  # SQLite has each commit at once
        store.write([("job", "j", b"document")])
        store.write([("ballot", "j", msgpack.packb([3, ""]))])
        store.write([("ballot", "j", msgpack.packb([4, "p2"]))])
        before = store.load()
        after_kill = copied(tmp_path / f"a{trial}", tmp_path / f"b{trial}")
        store.close()
        log = after_kill / "store.sqlite3-wal"
        data = bytearray(log.read_bytes())
        last = 32 + ((len(data) - 32) // FRAME - 1) * FRAME
        data[last + int(rng.integers(FRAME))] ^= 1 << int(rng.integers(8))
        log.write_bytes(bytes(data))
        again = Store(after_kill)
        found = again.load()
        assert found.store_id != before.store_id or found.tables == before.tables
        if again.forgot:
            assert again.forgot == before.store_id
            assert found.tables["job"] == {"j": b"document"}, "its rows are kept"
        again.close()
        third = Store(after_kill)
        assert third.load().store_id == found.store_id, "once"
        assert not third.forgot
        third.close()


def test_the_number_beside_a_store_may_be_too_low_or_missing(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.write([("job", "j", b"document")])
    store.close()
    for number in (b"", b"\0" * 16, b"x" * 16):
        (tmp_path / "store.commits").write_bytes(number)
        store = Store(tmp_path)
        assert not store.forgot
        store.close()


def restored(net: Net, name: str, *, deaf: bool = False) -> None:
    """Put the store of that peer back as it was, after two more lives of it; if `deaf`, it hears of no other peer yet."""
    rows = dict(net.peers[name].disk._synced)
    for _ in range(2):
        net.crash(name)
        net.start(name)
        net.until(net.core(name).membership.all_here)
        net.advance(2.0)
    net.crash(name)
    disk = Disk(net.peers[name].disk.store_id)
    disk._synced = rows
    net.peers[name].disk = disk
    net.manual = lambda message: deaf
    net.start(name)


def test_an_older_image_of_a_store_is_another_store() -> None:
    net = Net(3)
    net.meet()
    net.hold_work = lambda name, effect: effect.task.kind == "contribute"
    job = net.submit("p1", toy(2))
    net.until(lambda: bool(net.tasks))
    before = net.core("p2").membership.store_id("p2")
    restored(net, "p2")
    net.until(lambda: bool(net.verbs("store-forgot")))
    core = net.core("p2")
    assert core.membership.store_id("p2") != before
    assert net.peers["p2"].disk.load().store_id == core.membership.store_id("p2")
    document = net.job("p2", job).document
    assert not document.counts("p2", core.membership.store_id("p2"))
    net.until(lambda: net.core("p1").membership.store_id("p2") == core.membership.store_id("p2"))
    net.hold_work = lambda name, effect: False
    net.do_work()
    net.until(lambda: len(net.finished(job)) == 3)


def test_an_older_image_promises_nothing_before_it_hears_of_its_later_life() -> None:
    """A vote of that later life is forgotten; the first answer to a ping reports that there was one."""
    net = Net(3)
    net.meet()
    net.hold_work = lambda name, effect: effect.task.kind == "contribute"
    job = net.submit("p1", toy(2))
    net.until(lambda: bool(net.tasks))
    restored(net, "p2", deaf=True)
    term, store_id = net.job("p1", job).ledger.term + 1, net.core("p2").membership.store_id("p2")
    effects = net.arrive("p1", "p2", RequestVote(job, term, *net.job("p1", job).ledger.register.position))
    (asked,) = [effect.message for effect in effects if isinstance(effect, Send)]
    assert isinstance(asked, Ping), "no vote: it asks first"
    effects = net.arrive("p2", "p1", asked)
    (answer,) = [effect.message for effect in effects if isinstance(effect, Send) and isinstance(effect.message, Ack)]
    about = {update.name: update for update in answer.updates}["p2"]
    assert (about.status, about.store_id) == ("alive", store_id)
    assert about.incarnation > net.core("p2").membership.incarnation
    net.arrive("p1", "p2", answer)
    assert net.verbs("store-forgot"), "the first answer is enough"
    assert net.core("p2").membership.may_promise("p1")


def test_a_register_that_fell_within_a_term_is_reminded_of() -> None:
    net = Net(3)
    net.meet()
    net.hold_work = lambda name, effect: effect.task.kind == "combine"
    job = net.submit("p1", toy(2), aggregator="p1")
    net.until(lambda: bool(net.tasks))
    store_id = net.core("p2").membership.store_id("p2")
    assert net.job("p2", job).ledger.register.position == (1, 0)
    term, round_, store = net.job("p1", job)._adopted["p2"]
    net.job("p1", job)._adopted["p2"] = (term, round_ + 1, store)
    effects = net.arrive("p2", "p1", HeartbeatReply(job, term, 1, round_, store_id, False, 0))
    (reminder,) = [e.message for e in effects if isinstance(getattr(e, "message", None), Reminder)]
    assert reminder == Reminder(job, term, round_ + 1, store_id)
    assert net.core("p2").membership.store_id("p2") != store_id


def test_a_reminder_that_came_late_does_no_harm() -> None:
    net = Net(3)
    net.meet()
    net.hold_work = lambda name, effect: effect.task.kind == "combine"
    job = net.submit("p1", toy(2), aggregator="p1")
    net.until(lambda: bool(net.tasks))
    store_id = net.core("p2").membership.store_id("p2")
    for term, round_ in ((1, 0), (0, 5)):
        net.arrive("p1", "p2", Reminder(job, term, round_, store_id))
    net.arrive("p3", "p2", Reminder(job, 1, 7, store_id))  # it does not aggregate
    net.arrive("p1", "p2", Reminder(job, 1, 7, "another"))
    assert net.core("p2").membership.store_id("p2") == store_id


def test_a_claim_that_comes_in_the_middle_of_a_life_is_refuted_only() -> None:
    net = Net(3)
    net.meet()
    net.advance(60.0)
    core = net.core("p2")
    store_id = core.membership.store_id("p2")
    net.arrive("p3", "p2", Gossip((Update("p2", "alive", 99, "p2:1", store_id, ""),)))
    assert (core.membership.store_id("p2"), core.membership.incarnation) == (store_id, 100)


@pytest.mark.parametrize("kind", ["open", "close", "held-state"])
def test_no_single_message_takes_all_rounds(kind: str) -> None:
    """All adopted the round 2^62, and the next one could not be sent."""
    net = Net(3)
    net.meet()
    net.hold_work = lambda name, effect: effect.task.kind == "combine"
    job = net.submit("p1", toy(1))
    net.until(lambda: all(net.job(name, job).ledger.register.ref for name in net.names))
    term, register = net.job("p1", job).ledger.term, net.job("p1", job).ledger.register
    assert register.ref is not None
    assert register.ref.payload is not None
    state = (register.ref.digest, register.ref.size_bytes)
    message = {
        "open": Open(job, term + 1, 2**62, *state, False, -1, (register.ref.payload,)),
        "close": Close(job, term + 1, 2**62, *state, (register.ref.payload,)),
        "held-state": HeldState(job, term, term, 2**62, *state, (register.ref.payload,)),
    }[kind]
    for name in ("p1", "p2"):
        net.arrive("p3", name, message)
    assert max(net.job(name, job).ledger.register.round for name in ("p1", "p2")) < 10
    assert {told["peer"] for _, told in net.verbs("round-leap")} == {"p3"}
    net.hold_work = lambda name, effect: False
    net.do_work()
    net.until(lambda: len(net.finished(job)) == 3)


def test_no_single_word_takes_all_terms_and_peers_that_were_led_far_apart_find_together() -> None:
    net = Net(3)
    net.meet()
    net.hold_work = lambda name, effect: True
    job = net.submit("p1", toy(1))
    net.advance(3.0)
    before = net.job("p1", job).ledger.term
    for _ in range(5):
        net.arrive("p2", "p1", StaleTerm(job, 2**62))
        net.arrive("p2", "p1", PreVote(job, 2**62, 0, 0))
    assert net.job("p1", job).ledger.term <= before + 10 * 2**32, "2^30 such words take all terms, not one"
    assert len([1 for name, told in net.verbs("term-leap") if (name, told["peer"]) == ("p1", "p2")]) == 1
    net.hold_work = lambda name, effect: False
    net.do_work()
    net.until(lambda: len(net.finished(job)) == 3)
