"""A simulated fleet of real cores and workers, and an attacker that speaks for one enrolled peer.

The attacker's peer keeps its place in membership, but the messages of its own core about jobs are not sent: the test
speaks instead.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgpack
import numpy as np

from p2pclust.lab.simulation.world.network import Conditions, Network
from p2pclust.lab.simulation.world.peer import device_secrets, signer_of
from p2pclust.lab.simulation.world.world import Observer, World
from p2pclust.peer.core.codec import decode, encode
from p2pclust.peer.core.document import Document
from p2pclust.peer.core.effects import Send
from p2pclust.peer.core.events import Arrived, Submit
from p2pclust.peer.core.evidence import Evidence, Majority, Statement
from p2pclust.peer.core.job_messages import Adopted, Open, Pads, ShowEvidence, Unpad
from p2pclust.peer.core.messages import JobMessage, Message
from p2pclust.peer.core.reports import Report
from p2pclust.peer.core.timing import Limits, preset
from p2pclust.peer.core.treatment import Treatment
from p2pclust.peer.work.states import job_of
from p2pclust.peer.work.verified import Verifier
from p2pclust.protocols.engine import engine, secure_rounds
from p2pclust.protocols.engine.arrays import Arrays
from p2pclust.protocols.engine.job import Job
from p2pclust.protocols.engine.local import Local
from p2pclust.protocols.engine.padded import layout_of
from p2pclust.protocols.engine.secure_rounds import SecuredState
from p2pclust.protocols.engine.wire import PADDED
from p2pclust.protocols.engine.workspace import digest_of
from p2pclust.protocols.secure.key_list import KeyEntry
from p2pclust.protocols.secure.pads import Sealed
from p2pclust.protocols.secure.proofs import OpenPads, Proof, SignedAnswer
from p2pclust.protocols.secure.secured import Maker
from p2pclust.tools.bit_sets import as_mask, packed


class Ears(Observer):
    """The messages that honest peers send to the attacker, and the reports of all peers."""

    watches = (Send, Report)

    def __init__(self, me):
        self.me, self.heard, self.reports = me, [], []

    def effect(self, world, peer, effect):
        if isinstance(effect, Send):
            if effect.to == self.me:
                self.heard.append((peer.name, effect.message))
        else:
            self.reports.append((round(world.now, 2), peer.name, effect.verb, dict(effect.fields)))


def fleet(rows: list[Any], me: str = "p0", seed: int = 1, timing: str = "default") -> tuple[World, Ears]:
    """A keyed fleet p0, p1, ... over these rows, linked; the attacker's own core is silent about jobs."""
    ears = Ears(me)
    rng = np.random.default_rng(seed)
    locals_ = {f"p{i}": x if isinstance(x, Local) else Local(x) for i, x in enumerate(rows)}
    world = World(
        locals_,
        Network(Conditions(), np.random.default_rng(seed + 1)),
        preset(timing),
        Limits(),
        rng,
        (ears,),
        keyed=True,
    )
    world.forge = lambda peer, to, frames: (
        [] if peer.name == me and isinstance(decode(frames), JobMessage) else [frames]
    )
    for name in locals_:
        world.start(name)
    ok = world.run_until(
        30.0, lambda: all(p.core is not None and p.core.membership.all_here() for p in world.peers.values())
    )
    assert ok
    return world, ears


def submit(world: World, job: Job, at: str = "p1", roster: tuple[str, ...] = (), **treatment: Any) -> str:
    """Submit a job at a peer; return the job's id."""
    world.step(world.peers[at], Submit(msgpack.packb(job.to_dict()), roster, Treatment(**treatment)))
    world.run_until(world.now + 0.2)
    (job_id,) = world.peers[at].core.jobs.jobs
    return job_id


def inject(world: World, me: str, to: str, message: Message) -> None:
    """Let a message from `me` arrive at a peer now."""
    world.step(world.peers[to], Arrived(me, decode(encode(message))))


def signed(document: Document, by: str, term: int, aggregator: str, at: tuple[int, int, bytes, bool]) -> Statement:
    """A vote or an acknowledgement of one simulated device; `at` is a register: term, round, digest and final."""
    index = document.index(by)
    bare = Statement(term, document.index(aggregator), index, document.store_ids[index], *at)
    return replace(bare, signature=signer_of(by, "")(bare.statement(document.id)))


def certificate(
    document: Document, me: str, term: int, at: tuple[int, int, bytes, bool] = (0, 0, b"", False)
) -> ShowEvidence:
    """What shows that a majority has elected `me` with that register: a test lets any peer lie, or be elected."""
    votes = [signed(document, name, term, me, at) for name in document.roster]
    data = Evidence(Majority.of(votes, document.majority)).encode()
    return ShowEvidence(document.id, term, (data,))


class Aggressor:
    """Is elected in a high term of one secured job, and opens what it likes."""

    def __init__(self, world, ears, job_id, me="p0", term=100, document=None, secrets=None, keys=None):
        self.world, self.ears, self.me, self.term, self.round = world, ears, me, term, 0
        self.document = document or world.peers["p1"].core.jobs.jobs[job_id].document
        self.id, self.job = job_id, job_of(self.document.mathematics)
        self.keys = keys or world.peers["p1"].core.jobs.jobs[job_id].keys
        self.secrets = secrets or device_secrets(me, np.random.default_rng(99))
        self.index, self.n = self.document.index(me), len(self.document.roster)
        self.verifier = Verifier(self.job, self.n, self.keys, self.secrets)
        self.terms = self.secrets.terms(self.keys)
        self.others = [
            name for name in self.document.roster if name != me and world is not None and name in world.peers
        ]
        self.say(certificate(self.document, me, term), wait=0.05)

    def say(self, message, to=None, wait=0.4):
        for name in to or self.others:
            inject(self.world, self.me, name, message)
        self.world.run_until(self.world.now + wait)

    def open(self, state):
        """Open a state; return its digest and the payloads of the answers, by roster index."""
        self.round += 1
        data = state.encode()
        digest = digest_of(data)
        self.ears.heard.clear()
        self.say(Open(self.id, self.term, self.round, digest, len(data), False, -1, (data,)))
        found, refused = {}, {}
        for source, message in self.ears.heard:
            if isinstance(message, Adopted) and message.digest == digest:
                index = self.document.index(source)
                if message.payload and not message.abstains:
                    found[index] = message.payload[0]
                else:
                    refused[index] = message.abstains
        return digest, found, refused

    def bodies(self, payloads):
        return {i: SignedAnswer.decode(p) for i, p in payloads.items()} if self.keys.verify else payloads

    def body(self, answer):
        return answer.body if self.keys.verify else answer

    def signed(self, state, digest, body):
        if not self.keys.verify:
            return body
        bare = replace(state, proof=b"").encode()
        one = SignedAnswer(self.index, "", body)
        return replace(
            one, signature=self.secrets.sign(one.statement(self.secrets.fleet, self.id, digest, digest_of(bare)))
        )

    def keys_round(self, state, columns):
        """Open a state for keys; return what :meth:`padded_from` needs."""
        digest, payloads, refused = self.open(state)
        given = self.bodies(payloads)
        entry = self.secrets.renew(self.keys, digest, KeyEntry(self.index, bytes(64), columns, insists=False))
        given[self.index] = self.signed(state, digest, entry.encode())
        return state, digest, given, refused

    def padded_from(self, closing, round_):
        """The padded state that follows from keys, made for that round."""
        state, digest, given, refused = closing
        maker = Maker(self.index, self.term, round_)
        if self.keys.verify:
            left = {i: "left out: late" for i in range(self.n) if i not in given}
            proof = Proof(
                replace(state, proof=b"").encode(), digest, [given[i] for i in sorted(given)], [], left, (), maker
            )
            return replace(self.verifier.follows(replace(state, proof=b""), proof), proof=proof.encode())
        answers = {i: KeyEntry.decode(i, body) for i, body in given.items()}
        return SecuredState(self.job, state, self.terms, digest).keys_closed(answers, dict(refused), maker)

    def padded_round(self, state):
        """Open a padded state; return its digest, and the answers by index; its own is only the check word."""
        digest, payloads, refused = self.open(state)
        given = self.bodies(payloads)
        part, layout = state.secured, layout_of(self.job, state)
        if part.asked >> self.index & 1:
            pair = self.secrets.pair(self.keys, self.index, part)
            numbers = np.zeros(layout.size, np.uint64)
            numbers[-1] = 1
            y = pair.padded(
                numbers, self.index, self.secrets.keepers(self.keys, part), secure_rounds.context_of(self.terms, digest)
            )
            given[self.index] = self.signed(state, digest, Arrays({PADDED: y.view(np.int64)}).encode())
        return digest, given, refused

    def unpad(self, state, digest, given, members):
        """Ask the keepers for one set; return the total's numbers, the pads, and refusals."""
        part, layout = state.secured, layout_of(self.job, state)
        keepers = self.secrets.keepers(self.keys, part)
        context = secure_rounds.context_of(self.terms, digest)
        vectors = {i: np.array(Arrays.decode(self.body(given[i]))[PADDED]).view(np.uint64) for i in members}
        Y = np.zeros(layout.size, np.uint64)
        for vector in vectors.values():
            Y += vector
        data = Arrays({PADDED: Y.view(np.int64)}).encode()
        mask = as_mask(members)
        self.ears.heard.clear()
        asked = [self.document.roster[k] for k in keepers if k != self.index and self.document.roster[k] in self.others]
        self.say(
            Unpad(self.id, self.term, self.round, digest, packed(mask), digest_of(data), len(data), (data,)), asked
        )
        pads, refusals = {}, {}
        pair = self.secrets.pair(self.keys, self.index, part)
        for source, message in self.ears.heard:
            if isinstance(message, Pads) and message.digest == digest:
                k = self.document.index(source)
                if message.refusal:
                    refusals[source] = message.refusal
                elif self.keys.verify:
                    pads[k] = OpenPads.decode(message.payload[0])
                else:
                    pads[k] = pair.unseal(Sealed(k, message.payload[0]), keepers[k], context, members, layout.size)
        total = Y.copy()
        for k in keepers:
            if k == self.index:
                public = {e.index: e.public for e in part.entries}
                total -= pair.removed(self.index, {i: public[i] for i in members}, layout.size, context)
            elif k in pads:
                total -= np.frombuffer(pads[k].numbers, "<u8").astype(np.uint64) if self.keys.verify else pads[k]
        return total, pads, refusals

    def next_from(self, state, digest, given, pads, members, total, round_):
        """The state that follows from a total."""
        maker = Maker(self.index, self.term, round_)
        if self.keys.verify:
            left = {i: "left out: late" for i in range(self.n) if i not in members}
            opened = [pads[k] for k in sorted(pads)]
            own = next((k for k in self.secrets.keepers(self.keys, state.secured) if k == self.index), None)
            assert own is None
            proof = Proof(
                replace(state, proof=b"").encode(), digest, [given[i] for i in sorted(members)], opened, left, (), maker
            )
            return replace(self.verifier.follows(replace(state, proof=b""), proof), proof=proof.encode())
        found = layout_of(self.job, state).contribution(total)
        return SecuredState(self.job, state, self.terms).closed(found, as_mask(members), {}, maker)


def truth(job, state, local, index, n):
    """The contribution of one peer, as numbers."""
    return engine.contribution(job, replace(state, secured=None, proof=b""), local, index, n)
