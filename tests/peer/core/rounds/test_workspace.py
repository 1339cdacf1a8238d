"""The desk of a job at a peer: what its rounds fetch, run, publish and keep, by hand and in virtual time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgpack
import pytest
from desks import CHILD, MODEL, DeskNet, Leaves, fetch, publishes, run
from harness import Packet, toy

from p2pclust.peer.core.document import Document
from p2pclust.peer.core.events import Woken
from p2pclust.peer.core.job_messages import Adopted, Close, Heartbeat, Open
from p2pclust.peer.core.messages import BlobChunk, BlobMissing, BlobRequest, FactDelta, Message
from p2pclust.peer.core.spread.facts import Fact
from p2pclust.peer.core.tasks import Wanted, WantedJob
from p2pclust.peer.core.timing import preset
from p2pclust.peer.core.treatment import Treatment
from p2pclust.protocols.engine.workspace import digest_of

# -- fetching ---------------------------------------------------------------------------------------------------------


class TestFetch:
    def test_what_one_laid_out_is_on_the_desk_of_all_in_the_next_round(self) -> None:
        net = DeskNet()
        net.leaves[0], net.wants[1] = publishes(), fetch()
        job = net.begin()
        net.finish(job)
        for name in net.names:
            (task,) = net.done(name, 1)
            assert task.at_hand == (digest_of(MODEL),)
            assert b"".join(net.peers[name].disk.blob(digest_of(MODEL))) == MODEL
        asked = [p for p in net.sent if isinstance(p.message, BlobRequest)]
        assert {p.target for p in asked} == {"p1"}, "the owner is asked, and not itself"
        assert len(asked) == 2 * 4
        assert net.states(job)["p2"] == "s3[0,1,2]"

    def test_of_several_owners_not_all_ask_the_same_one_first(self) -> None:
        net = DeskNet(6)
        net.leaves[0] = lambda name: {"publishes": [MODEL]} if name in ("p1", "p2") else {}
        net.wants[1] = fetch(MODEL, 0, 1)
        net.finish(net.begin())
        firsts = {p.source: p.target for p in reversed(net.sent) if isinstance(p.message, BlobRequest)}
        assert set(firsts) == {"p3", "p4", "p5", "p6"}
        assert set(firsts.values()) == {"p1", "p2"}

    def test_what_nobody_has_is_given_up_after_the_patience(self) -> None:
        net = DeskNet()
        net.wants[1] = fetch()
        job = net.begin(patience_s=3.0)
        net.until(lambda: net.job("p2", job).workspace.busy)
        began = net.now
        net.finish(job)
        assert 3.0 <= net.now - began < 5.0
        assert [fields["what"] for _, fields in net.verbs("without")] == [[digest_of(MODEL).hex()[:12]]] * 3
        assert net.done("p2", 1)[0].at_hand == ()
        assert net.states(job) == dict.fromkeys(net.names, "s3[0,1,2]"), "nobody was left out for it"

    def test_whoever_waits_says_so_and_is_waited_for(self) -> None:
        """Longer than the aggregator's patience, as long as there is progress: each chunk comes late, but it comes."""
        net = DeskNet(manual=lambda message: isinstance(message, BlobChunk))
        net.leaves[0] = publishes()
        net.wants[1] = lambda name: fetch()(name) if name == "p3" else Wanted()
        job = net.begin(patience_s=2.0)
        net.until(lambda: net.job("p3", job).workspace.busy)
        began = net.now
        for index in range(4):
            net.advance(1.8)
            net.flight = [p for p in net.flight if isinstance(p.message, BlobChunk) and p.message.index >= index]
            (first, *_) = [p for p in net.flight if p.message.index == index]  # type: ignore[attr-defined]
            net.flight.remove(first)
            net._transmit(first)
        net.finish(job)
        assert net.now - began > 2 * 2.0
        assert net.done("p3", 1)[0].at_hand == (digest_of(MODEL),)
        assert not net.verbs("without", "left-out", "relayed")
        assert net.states(job)["p1"] == "s3[0,1,2]"

    def test_of_the_dead_nothing_is_hoped_for_after_an_election_could_have_ended(self) -> None:
        net = DeskNet()
        net.leaves[0] = publishes()
        net.wants[1] = fetch()
        net.lost = lambda packet: isinstance(packet.message, BlobChunk)
        job = net.begin(patience_s=600.0, aggregator="p2")
        net.until(lambda: net.job("p2", job).workspace.busy and net.job("p3", job).workspace.busy)
        net.crash("p1")
        crashed = net.now
        net.lost = lambda packet: False
        net.finish(job, ("p2", "p3"), limit_s=20.0)
        assert net.done("p2", 1)[0].at_hand == ()
        assert net.now - crashed >= preset("fast").election_max_s

    def test_a_blob_that_is_no_longer_what_its_name_says_is_not_on_the_desk(self) -> None:
        net = DeskNet()
        net.leaves[0], net.wants[1] = publishes(), fetch()
        net.leaves[0] = lambda name: {"publishes": [MODEL]} if name == "p1" else {}
        job = net.begin(patience_s=2.0)

        def swapped(packet: Packet) -> bool:
            if isinstance(packet.message, BlobChunk) and packet.message.index == 0:
                net._auto.append(
                    lambda: net._transmit(
                        Packet(packet.source, packet.target, BlobChunk(digest_of(MODEL), 0, (bytes(60),)))
                    )
                )
                return True
            return False

        net.lost = swapped
        net.finish(job)
        assert net.done("p2", 1)[0].at_hand == ()
        assert net.done("p1", 1)[0].at_hand == (digest_of(MODEL),)
        assert {name for name, _ in net.verbs("blob-corrupt")} == {"p2", "p3"}

    @pytest.mark.parametrize("owners", [(-1,), (3,), (99, 0)])
    def test_owners_that_are_not_on_the_roster_are_nobody(self, owners: tuple[int, ...]) -> None:
        net = DeskNet()
        net.leaves[0], net.wants[1] = publishes(), fetch(MODEL, *owners)
        job = net.begin(patience_s=2.0)
        net.finish(job)
        assert net.done("p2", 1)[0].at_hand == ((digest_of(MODEL),) if 0 in owners else ())

    def test_another_round_that_begins_ends_the_wait(self) -> None:
        net = DeskNet()
        net.wants[1] = lambda name: fetch(MODEL, 1)(name) if name == "p3" else Wanted()
        job = net.begin(missing="drop", deadline_s=1.0, patience_s=60.0)
        net.until(lambda: net.job("p3", job).workspace.busy)
        net.finish(job, limit_s=10.0)
        assert not net.job("p3", job).workspace.busy
        assert net.done("p3", 1) == [], "its contribution was not made"
        assert net.states(job)["p1"] == "s3[0,1,2]"


# -- jobs within a job ------------------------------------------------------------------------------------------------


class TestRun:
    def test_all_of_its_roster_run_the_same_job_and_have_its_result(self) -> None:
        net = DeskNet(4)
        net.wants[1] = run(0, 2, 3, aggregator=2)
        job = net.begin()
        net.finish(job)
        made = {name: fields["job"] for name, fields in net.verbs("job") if fields.get("within") == job}
        assert set(made) == {"p1", "p3", "p4"}
        (child,) = set(made.values())
        results = {net.done(name, 1)[0].results for name in made}
        (((wanted, ref),),) = results
        assert (wanted.name, wanted.mathematics) == ("g", CHILD)
        assert ref.payload == b"s1[0,1,2]"
        assert net.done("p2", 1)[0].results == ()
        assert [(who, f["term"]) for who, f in net.verbs("elected") if f["job"] == child] == [("p3", 1)]

    def test_nobody_is_told_its_document(self) -> None:
        net = DeskNet()
        net.wants[1] = run(0, 1, 2)
        job = net.begin()
        net.finish(job)
        told = {key for p in net.sent if isinstance(p.message, FactDelta) for key in p.message.keys}
        assert told == {"job/" + job}

    def test_two_jobs_at_once_have_aggregators_of_their_own(self) -> None:
        net = DeskNet(4)
        runs = (WantedJob("a", CHILD, (0, 1, 2), 0), WantedJob("b", CHILD, (1, 2, 3), 2))
        net.wants[1] = lambda name: Wanted(jobs=tuple(job for job in runs if int(name[1:]) - 1 in job.roster))
        job = net.begin()
        net.finish(job)
        assert [wanted.name for wanted, _ in net.done("p2", 1)[0].results] == ["a", "b"]
        assert [wanted.name for wanted, _ in net.done("p4", 1)[0].results] == ["b"]
        assert {who for who, f in net.verbs("elected") if f["job"] != job} == {"p1", "p3"}

    def test_words_about_a_job_that_is_not_known_yet_are_kept_until_it_is(self) -> None:
        net = DeskNet()
        net.hold_work = lambda name, effect: name == "p3" and effect.task.kind == "contribute"
        net.wants[1] = run(0, 1, 2)
        job = net.begin()
        net.until(lambda: bool(net.tasks))
        net.do_work()  # its contribution to round 0
        net.until(lambda: any(name == "p1" for name, fields in net.verbs("elected") if fields["job"] != job))
        assert net.within("p3") == []
        (key,) = [key for key in net.core("p3").jobs._early._messages if key[0] != job]
        assert isinstance(net.core("p3").jobs._early._messages[key], Open | Heartbeat)
        net.hold_work = lambda name, effect: getattr(effect.task, "mathematics", b"") == CHILD
        before = net.now
        net.do_work()
        assert [j.ledger.register.term for j in net.within("p3")] == [1], "what came before it was known counts"
        assert net.now == before
        assert all(key[0] == job for key in net.core("p3").jobs._early._messages)
        net.hold_work = lambda name, effect: False
        net.do_work()
        net.finish(job)
        assert net.done("p3", 1)[0].results[0][1].payload == b"s1[0,1,2]"

    def test_strangers_to_the_job_have_no_word_in_it(self) -> None:
        net = DeskNet(4)
        net.wants[1] = run(0, 1, 2)
        net.hold_work = lambda name, effect: getattr(effect.task, "mathematics", b"") == CHILD
        job = net.begin()
        net.until(lambda: all(net.within(name) for name in ("p1", "p2", "p3")))
        (child,) = net.within("p2")
        state = b"s1[0,3]"
        for message in (Open(child.id, 9, 1, digest_of(state), len(state), False, -1, (state,)),
                        Close(child.id, 9, 1, digest_of(state), len(state), (state,))):  # fmt: skip
            assert net.arrive("p4", "p2", message) == []
        assert child.ledger.register.ref is None
        net.hold_work = lambda name, effect: False
        net.do_work()
        net.finish(job)

    def test_many_early_words_do_not_fill_the_memory(self) -> None:
        net = DeskNet()
        net.meet()
        for number in range(600):
            net.arrive("p2", "p1", Heartbeat(f"job-{number:032x}", 1, 0))
        assert len(net.core("p1").jobs._early._messages) == 256

    def test_the_death_of_its_aggregator_is_the_affair_of_its_roster(self) -> None:
        net = DeskNet(5)
        net.wants[1] = run(1, 2, 3, aggregator=3, mathematics=toy(2))
        net.hold_work = lambda name, effect: (
            getattr(effect.task, "mathematics", b"") == toy(2) and effect.task.kind == "combine"
        )
        job = net.begin(aggregator="p1")
        net.until(lambda: bool(net.tasks))
        net.do_work()
        net.until(lambda: bool(net.tasks))
        assert net.within("p4")[0].ledger.register.round == 1
        net.crash("p4")
        net.hold_work = lambda name, effect: False
        net.finish(job, ("p1", "p2", "p3", "p5"))
        for name in ("p2", "p3"):
            assert net.done(name, 1)[-1].results[0][1].payload == b"s2[0,1]"
        elected = [(name, f["term"] > 1) for name, f in net.verbs("elected") if f["job"] != job]
        assert elected[0] == ("p4", False)
        assert elected[1][1]
        assert net.states(job)["p1"] == "s3[0,1,2,4]"

    def test_without_its_majority_it_is_given_up_and_the_round_goes_on(self) -> None:
        net = DeskNet(5)
        net.wants[1] = run(1, 3, aggregator=3)
        net.hold_work = lambda name, effect: getattr(effect.task, "mathematics", b"") == CHILD
        job = net.begin(patience_s=600.0, aggregator="p1")
        net.until(lambda: bool(net.within("p2")))
        net.crash("p4")
        net.finish(job, ("p1", "p2", "p3", "p5"), limit_s=20.0)
        assert net.done("p2", 1)[0].results == ()
        assert [(name, fields["what"]) for name, fields in net.verbs("without")] == [("p2", ["g"])]

    @pytest.mark.parametrize("roster", [(1, 3), (1, 2, 3)])
    def test_a_store_that_was_lost_counts_for_no_majority_and_holds_nobody_up(self, roster: tuple[int, ...]) -> None:
        """Its peer answers every heartbeat; and yet nothing that it adopts ever counts."""
        net = DeskNet(5)
        net.wants[1] = run(*roster, aggregator=1)
        net.hold_work = lambda name, effect: (
            effect.task.kind == "contribute" and getattr(effect.task, "mathematics", b"") != CHILD
        )
        job = net.begin(patience_s=600.0, aggregator="p1")
        net.until(lambda: len(net.tasks) == 5)
        net.crash("p4", wiped=True)
        net.start("p4")
        net.until(lambda: len(net.tasks) == 6)
        net.hold_work = lambda name, effect: getattr(effect.task, "mathematics", b"") == CHILD
        net.do_work()
        net.until(lambda: bool(net.within("p2")))
        if len(roster) == 3:
            net.crash("p3")
        net.hold_work = lambda name, effect: False
        net.do_work()
        net.finish(job, ("p1", "p2", "p4", "p5"), limit_s=30.0)
        assert net.done("p2", 1)[0].results == ()
        assert ("p2", ["g"]) in [(name, fields["what"]) for name, fields in net.verbs("without")]

    def test_of_its_three_stores_one_may_be_lost(self) -> None:
        net = DeskNet(5)
        net.wants[1] = run(1, 2, 3, aggregator=1)
        net.hold_work = lambda name, effect: (
            effect.task.kind == "contribute" and getattr(effect.task, "mathematics", b"") != CHILD
        )
        job = net.begin(patience_s=600.0, aggregator="p1")
        net.until(lambda: len(net.tasks) == 5)
        net.crash("p4", wiped=True)
        net.start("p4")
        net.hold_work = lambda name, effect: False
        net.do_work()
        net.finish(job, limit_s=60.0)
        assert {net.done(name, 1)[-1].results[0][1].payload for name in ("p2", "p3", "p4")} == {b"s1[0,1,2]"}

    @pytest.mark.parametrize(
        ("roster", "aggregator", "padding"),
        [
            pytest.param((0, 7), 0, 0, id="beyond the roster"),
            pytest.param((0, -1), 0, 0, id="negative"),
            pytest.param((0, 1), 5, 0, id="aggregator beyond"),
            pytest.param((0, 1), 2, 0, id="aggregator aside"),
            pytest.param((), 0, 0, id="nobody"),
            pytest.param((1, 0), 0, 0, id="unsorted"),
            pytest.param((0, 0, 1), 0, 0, id="twice"),
            pytest.param((0, 1), 0, 56 * 1024, id="too large"),
        ],
    )
    def test_what_can_be_no_job_is_not_run(self, roster: tuple[int, ...], aggregator: int, padding: int) -> None:
        net = DeskNet()
        net.wants[1] = lambda name: Wanted(jobs=(WantedJob("g", CHILD + bytes(padding), roster, aggregator),))
        job = net.begin()
        net.finish(job)
        assert [fields for _, fields in net.verbs("job") if "within" in fields] == []
        assert net.done("p1", 1)[0].results == ()

    def test_a_document_without_a_submitter_is_not_learnt(self) -> None:
        net = DeskNet()
        job = net.begin(rounds=2)
        net.finish(job)
        stores = ("store-p1", "store-p2", "store-p3")
        for nonce in (f"{job}/0/g", "7", "job-1/x/y", ""):
            document = Document(CHILD, net.names, stores, Treatment("wait", 5.0, 60.0, collect="star"), "", nonce)
            net.core("p1").jobs.learn(Fact("p2", "job/" + document.id, 2**40, document.encode()))
            delta = FactDelta("p2", 0, ("job/" + document.id,), (2**40,), (document.encode(),))
            net.arrive("p2", "p1", delta)
        net.advance(10)
        assert list(net.core("p1").jobs.jobs) == [job]
        assert net.rows("p1")["job"] == [job]
        with_one = Document(CHILD, net.names, stores, Treatment("wait", 5.0, 60.0, collect="star"), "p2", f"{job}/0/g")
        net.core("p1").jobs.learn(Fact("p2", "job/" + with_one.id, 2**40, with_one.encode()))
        assert with_one.id in net.core("p1").jobs.jobs
        assert with_one.parent == "", "whatever its nonce looks like"


# -- what is kept, and for how long -----------------------------------------------------------------------------------


class TestKeep:
    def notes(self, **changes: Leaves) -> dict[int, Leaves]:
        return {r: (lambda name, r=r: {"note": b"%d of %s" % (r, name.encode())}) for r in range(6)}  # type: ignore[misc]

    def test_a_contribution_finds_the_note_of_the_round_before(self) -> None:
        net = DeskNet()
        net.leaves = self.notes()
        del net.leaves[2]
        job = net.begin(rounds=5)
        net.finish(job)
        assert [net.done("p2", r)[0].note for r in range(5)] == [b"", b"0 of p2", b"1 of p2", b"1 of p2", b"3 of p2"]
        assert net.job("p2", job).workspace.note == b"4 of p2"

    def test_a_job_within_finds_the_note_that_its_round_finds(self) -> None:
        net = DeskNet()
        net.leaves = self.notes()
        net.wants[2] = run(0, 1, 2)
        found: list[tuple[str, bytes]] = []
        net.hold_work = lambda name, effect: (
            effect.task.kind == "contribute"
            and getattr(effect.task, "mathematics", b"") == CHILD
            and bool(found.append((name, effect.task.note)))
        )
        net.finish(net.begin(rounds=4))
        assert sorted(found) == [(name, b"1 of " + name.encode()) for name in net.names]

    def test_a_note_is_on_disk_before_anybody_hears_of_the_contribution(self) -> None:
        net = DeskNet()
        net.leaves = self.notes()
        job = net.begin(rounds=2, aggregator="p1")
        net.finish(job)
        effects = net.peers["p2"].effects
        seen = [
            effect.table if hasattr(effect, "table") else effect.message.kind for effect in effects
            if getattr(effect, "table", "") == "note" or isinstance(getattr(effect, "message", None), Adopted)
        ]  # fmt: skip
        assert seen[:4] == ["note", "adopted", "note", "adopted"]

    def test_a_restart_finds_notes_and_what_was_laid_out(self) -> None:
        net = DeskNet()
        net.leaves = self.notes()
        net.leaves[0] = lambda name: {"publishes": [MODEL], "note": b"0"} if name == "p1" else {}
        net.hold_work = lambda name, effect: (
            name == "p1" and effect.task.kind == "contribute" and bool(net.done("p1", 0))
        )
        net.wants[1] = fetch()
        net.lost = lambda packet: isinstance(packet.message, BlobChunk)  # nobody has it but its owner
        job = net.begin(rounds=3, aggregator="p2", patience_s=60.0)
        net.until(lambda: bool(net.tasks))
        net.crash("p1")
        net.hold_work = lambda name, effect: name == "p1" and effect.task.kind == "hash"
        net.start("p1")
        assert not net.core("p1").blobs.has(digest_of(MODEL)), "its disk may have changed since: it is hashed first"
        net.lost = lambda packet: False
        net.advance(1.0)
        net.hold_work = lambda name, effect: False
        net.do_work()
        assert net.core("p1").blobs.has(digest_of(MODEL))
        net.finish(job)
        assert net.done("p1", 1)[-1].note == b"0"
        assert {net.done(name, 1)[-1].at_hand for name in net.names} == {(digest_of(MODEL),)}

    def test_what_is_not_wanted_any_more_goes(self) -> None:
        net = DeskNet()
        net.leaves[0], net.wants[1] = publishes(), fetch()
        other = b"other " * 50
        net.leaves[1] = lambda name: {"publishes": [other]} if name == "p2" else {}
        net.wants[2] = fetch(other, 1)
        job = net.begin(rounds=4)
        net.finish(job)
        net.advance(5)
        for name in net.names:
            assert net.peers[name].disk.blob(digest_of(MODEL)) == []
            assert b"".join(net.peers[name].disk.blob(digest_of(other))) == other

    def test_jobs_within_are_dropped_two_rounds_later(self) -> None:
        net = DeskNet()
        net.wants = {1: run(0, 1, 2), 3: run(0, 1, 2)}
        kept: list[tuple[int, list[int]]] = []

        def watch(name: str) -> Mapping[str, Any]:
            if name == "p2":
                jobs = net.within("p2")
                round_ = net.job("p2", job).ledger.register.round
                kept.append((round_, [j.document.parent_round for j in jobs]))
            return {}

        net.leaves = dict.fromkeys(range(7), watch)
        job = net.begin(rounds=7)
        net.finish(job)
        assert kept == [(0, []), (1, [1]), (2, [1]), (3, [1, 3]), (4, [3]), (5, [3]), (6, [])]

    def test_after_the_end_nothing_of_them_is_left(self) -> None:
        net = DeskNet()
        net.leaves = self.notes()
        net.wants = {3: run(0, 1, 2)}
        job = net.begin(rounds=4)
        net.finish(job)
        net.advance(5)
        for name in net.names:
            assert list(net.core(name).jobs.jobs) == [job]
            rows = net.rows(name)
            assert rows["note"] == rows["job"] == rows["register"] == [job]
            assert set(rows.get("ballot", [])) <= {job}
            assert all(key[1] in ("", job) or key[0] != "job" for key in net.core(name)._ctx.timers._at)

    def test_who_comes_back_after_the_end_drops_them_too(self) -> None:
        net = DeskNet()
        net.wants = {1: run(0, 1, 2, mathematics=toy(50))}
        net.hold_work = lambda name, effect: getattr(effect.task, "mathematics", b"") == toy(50)
        job = net.begin(rounds=2, aggregator="p1", patience_s=600.0)
        net.until(lambda: all(net.within(name) for name in net.names))
        net.crash("p3")
        assert len(net.rows("p3")["job"]) == 2
        net.hold_work = lambda name, effect: False
        net.do_work()
        net.finish(job, ("p1", "p2"), limit_s=120)
        net.start("p3")
        net.finish(job)
        assert list(net.core("p3").jobs.jobs) == [job]
        net.crash("p3")
        net.start("p3")
        net.advance(3)
        assert list(net.core("p3").jobs.jobs) == [job]
        assert net.rows("p3")["job"] == [job]

    def test_a_job_within_whose_job_is_over_is_dropped_at_the_start(self) -> None:
        """It ended between the end of the one and the forgetting of the other."""
        net = DeskNet()
        net.wants = {1: run(0, 1, 2)}
        job = net.begin(rounds=2)
        net.finish(job)
        child = Document(
            CHILD,
            net.names,
            ("store-p1", "store-p2", "store-p3"),
            Treatment("wait", 5.0, 60.0, aggregator="p1", collect="star"),
            "",
            f"{job}/1/x",
        )
        orphan = Document(
            CHILD,
            net.names,
            ("store-p1", "store-p2", "store-p3"),
            Treatment("wait", 5.0, 60.0, aggregator="p1", collect="star"),
            "",
            "job-9/1/x",
        )
        net.crash("p2")
        for document in (child, orphan):
            net.peers["p2"].disk.write("job", document.id, document.encode())
        net.peers["p2"].disk.sync()
        net.start("p2")
        net.advance(2)
        assert list(net.core("p2").jobs.jobs) == [job]
        assert net.rows("p2")["job"] == [job]

    def test_after_the_end_nothing_is_asked_for(self) -> None:
        """What could not be had by then is of no use, and would be asked for without end."""
        net = DeskNet()
        net.wants[2] = fetch(MODEL, 1)
        net.leaves[2] = lambda name: {"note": b"the last"}
        job = net.begin(rounds=3, patience_s=1.0)
        net.finish(job)
        net.advance(2)
        before = len(net.sent)
        net.advance(20)
        assert not [p for p in net.sent[before:] if isinstance(p.message, BlobRequest | BlobMissing)]
        for name in net.names:
            net.crash(name)
        net.start()
        net.advance(20)
        assert not [p for p in net.sent[before:] if isinstance(p.message, BlobRequest | BlobMissing)]
        assert net.job("p1", job).workspace.note == b"the last"

    def test_a_row_that_only_the_end_wrote_is_deleted_with_the_job(self) -> None:
        """Its only blob never came, so the end writes a row with neither notes nor blobs."""
        net = DeskNet()
        net.wants[1] = fetch(MODEL, 1)
        job = net.begin(rounds=2, patience_s=1.0)
        net.finish(job)
        assert net.rows("p1")["note"] == [job]
        net.core("p1").jobs.forget(job)
        net.step("p1", Woken())
        assert "note" not in net.rows("p1")

    def test_whoever_learns_the_end_while_it_checks_its_disk_keeps_what_lies_there(self) -> None:
        net = DeskNet()
        net.leaves = {0: publishes(), 2: lambda name: {"note": b"end"}}
        net.wants = {1: fetch(), 2: fetch()}
        job = net.begin(rounds=3, aggregator="p1")
        net.until(lambda: bool(net.done("p3", 2)))
        net.crash("p3")
        net.finish(job, ("p1", "p2"))
        net.hold_work = lambda name, effect: effect.task.kind == "hash"
        net.start("p3")
        net.finish(job)
        net.hold_work = lambda name, effect: False
        net.do_work()
        assert net.core("p3").blobs.has(digest_of(MODEL))


class TestAnotherTerm:
    """A round that no majority adopted is done again, and the one before it may be too."""

    def test_the_round_before_finds_its_own_note_and_its_jobs(self) -> None:
        net = DeskNet(5)
        net.leaves = {r: (lambda name, r=r: {"note": b"%d" % r}) for r in range(6)}  # type: ignore[misc]
        net.wants = {1: run(1, 2, 3, aggregator=1)}
        # Round 2 reaches p2 only, and then its aggregator dies.
        net.lost = lambda packet: _opens(packet, 2) and packet.target != "p2"
        job = net.begin(rounds=4, aggregator="p1")
        net.until(lambda: net.job("p2", job).ledger.register.round == 2)
        assert net.done("p2", 2)
        net.crash("p1")
        net.lost = lambda packet: packet.source == "p2"  # or it would be elected, and continue
        net.hold_work = lambda name, effect: effect.task.kind == "contribute" and effect.task.mathematics == net.parent
        net.until(lambda: net.aggregator(job) != "", limit_s=30)
        assert net.job(net.aggregator(job), job).ledger.register.round == 1
        net.lost, net.hold_work = lambda packet: False, lambda name, effect: False
        net.do_work()
        net.finish(job, ("p2", "p3", "p4", "p5"))
        again = net.done("p2", 1)
        assert len(again) == 2
        assert [task.note for task in again] == [b"0", b"0"], "and not the one that it kept later"
        assert [task.results[0][1].payload for task in again] == [b"s1[0,1,2]"] * 2
        children = [fields["job"] for name, fields in net.verbs("job") if name == "p2" and "within" in fields]
        assert len(children) == 1, "what was run is not run again"
        assert [task.note for task in net.done("p2", 2)] == [b"1", b"1"]
        assert net.job("p2", job).workspace.note == b"3"

    def test_who_waits_goes_on_waiting_when_only_the_aggregator_changed(self) -> None:
        net = DeskNet(5)
        net.leaves[0] = lambda name: {"publishes": [MODEL]} if name == "p2" else {}
        net.wants[1] = fetch(MODEL, 1)
        net.lost = lambda packet: isinstance(packet.message, BlobChunk)
        job = net.begin(rounds=3, aggregator="p1", patience_s=60.0)
        net.until(lambda: all(net.job(name, job).workspace.busy for name in ("p3", "p4", "p5")))
        pulls = len(net.verbs("pulling"))
        net.crash("p1")
        net.until(lambda: net.aggregator(job) not in ("", "p1"), limit_s=30)
        net.lost = lambda packet: False
        net.finish(job, ("p2", "p3", "p4", "p5"))
        assert len(net.verbs("pulling")) == pulls, "what was on its way still is"
        assert net.done("p4", 1)[0].at_hand == (digest_of(MODEL),)

    def test_a_contribution_that_comes_too_late_leaves_no_note(self) -> None:
        net = DeskNet()
        net.leaves = {r: (lambda name, r=r: {"note": b"%d" % r}) for r in range(6)}  # type: ignore[misc]
        net.hold_work = lambda name, effect: (
            name == "p3" and effect.task.kind == "contribute" and bool(net.done("p3", 0))
        )
        job = net.begin(rounds=3, missing="drop", deadline_s=0.5)
        net.finish(job)
        assert net.job("p3", job).workspace.note == b"0"
        net.hold_work = lambda name, effect: False
        net.do_work()
        assert net.job("p3", job).workspace.note == b"0"
        assert net.states(job)["p3"] == net.states(job)["p1"]


def _opens(packet: Packet, round_: int) -> bool:
    message: Message = packet.message
    return isinstance(message, Open) and message.round == round_


def test_a_document_tells_whether_a_job_is_within_another() -> None:
    stores = ("a", "b")
    within = Document(b"", ("p1", "p2"), stores, Treatment("wait", 5.0, 60.0, collect="star"), "", "job-7/12/1.0.3")
    assert (within.parent, within.parent_round) == ("job-7", 12)
    handed_in = Document(
        b"", ("p1", "p2"), stores, Treatment("wait", 5.0, 60.0, collect="star"), "p1", "job-7/12/1.0.3"
    )
    assert handed_in.parent == ""
    assert Document.decode(within.encode()) == within
    treatment = ["wait", 5.0, 60.0, 0.0, "", "star", 0.0, "", 0, 0.0, False, 0, 0, "", "", "", 0, 0]
    assert msgpack.unpackb(within.encode()) == [
        b"", ["p1", "p2"], ["a", "b"], treatment, "", "job-7/12/1.0.3", b"", None, None,
    ]  # fmt: skip
