"""Blobs: large objects named by their hash, pulled in chunks from peers that have them, and resumed after a restart.

A silent source does not delay the others. One that did not have the blob may have it soon: while there is only a doubtful
one besides, it is asked again and again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from p2pclust.peer.core.context import Context, TimerKey
from p2pclust.peer.core.effects import Compute, DropBlob, SendChunk, StoreChunk
from p2pclust.peer.core.messages import BlobChunk, BlobMissing, BlobRequest, Message
from p2pclust.peer.core.reports import BlobCorrupt, BlobPulled
from p2pclust.peer.core.tasks import BlobToken, HashBlob

#: Times the usual time-out: with more, a source that is gone would hold a blob up for long.
_SLOWEST: Final = 8
#: Of the usual time-out: within that, a link can carry more.
_SOON: Final = 0.5


@dataclass
class Pull:
    """One blob on its way here."""

    digest: bytes
    size_bytes: int
    n_chunks: int
    sources: list[str]
    missing: dict[int, None]  # chunks that are not in the store yet, in order
    asked: dict[int, tuple[str, float]] = field(default_factory=dict)  # the source, and when
    lacking: dict[str, None] = field(default_factory=dict)  # sources that did not have it when they were asked
    again: dict[int, None] = field(default_factory=dict)  # asked for more than once: what comes may answer either
    came_from: dict[str, None] = field(default_factory=dict)
    turn: int = 0
    begun: bool = False  # otherwise it waits for others to end
    silent: bool = False  # nothing came in time, and nothing has since
    doubtful: bool = False  # nothing has come yet, and its source was silent when it was asked last

    @property
    def apart(self) -> bool:
        """Whether it has room of its own, so that sources that answer do not wait for one that does not."""
        return self.silent or self.doubtful


@dataclass
class PullPace:
    """How much this peer asks for at once, over all blobs, and how long it waits for each source.

    It sets the pace like a TCP sender. If it asked again too early, a slow link would carry everything twice.
    """

    most: int
    chunks: int = 1
    usual: int = 1  # how many times the usual time-out a chunk is given, since sources that live have needed it
    slowness: dict[str, int] = field(default_factory=dict)  # the same for a source that was silent

    def patience(self, source: str) -> int:
        """Return how many times the usual time-out a source is given for a chunk."""
        return max(self.usual, self.slowness.get(source, 1))

    def doubts(self, source: str) -> bool:
        """Return whether a source was silent when it was asked last, and the others are not as slow."""
        return self.patience(source) > self.usual

    def came(self, source: str, time_outs: float) -> None:
        """Note that a chunk came that many usual time-outs after it was asked for, once."""
        if time_outs < _SOON:
            self.chunks = min(self.chunks + 1, self.most)
        elif time_outs > 1:
            self.chunks = max(1, self.chunks // 2)
        if 4 * time_outs < self.patience(source):
            self.usual = max(1, self.usual // 2)
            self.slowness[source] = max(1, self.slowness.get(source, 1) // 2)

    def timed_out(self, sources: Iterable[str]) -> None:
        """No chunk came from these sources in time."""
        self.chunks = 1
        for source in sources:
            self.slowness[source] = min(2 * self.patience(source), _SLOWEST)

    def late(self, source: str) -> None:
        """Note that a chunk came after all: not only that source, but perhaps our own link needs more time."""
        self.usual = self.patience(source)


#: How many chunk time-outs a blob that was passed on is kept after the last request.
_PASSING_TIMEOUTS: Final = 10
#: At most so many holders of a blob are named to a neighbour.
_MOST_HOLDERS: Final = 8
_MOST_SPOILED: Final = 64


class Blobs:
    """Fetches and serves blobs. `stored` has the chunks of each blob that are on disk at the start."""

    def __init__(
        self, context: Context, stored: dict[bytes, tuple[int, tuple[int, ...]]], adopted: frozenset[bytes]
    ) -> None:
        self._ctx = context
        self._complete: dict[bytes, None] = {}
        self._partial: dict[bytes, dict[int, None]] = {}  # chunks that are on disk
        self._verifying: dict[bytes, tuple[str, ...]] = {}  # and the peers that its chunks came from
        #: Of blobs that came with a wrong hash: the peers whose copy is wrong, the one found first comes first. Empty: not
        #: known, so one is asked for all.
        self._spoiled: dict[bytes, dict[str, None]] = {}
        # What a former life had begun to fetch: a job may ask for it again soon.
        self._recovered: dict[bytes, None] = {}
        for digest, (n_chunks, indices) in stored.items():
            # All chunks may be there without having been hashed; what a register names was hashed before.
            if len(indices) == n_chunks and digest in adopted:
                self._complete[digest] = None
            else:
                self._partial[digest] = dict.fromkeys(indices)
                self._recovered[digest] = None
        self._pulls: dict[bytes, Pull] = {}
        self._pace = PullPace(context.limits.pulls * context.limits.window)
        # What is fetched for neighbours: until when it is kept, and which neighbours wait for which chunks.
        self._passing: dict[bytes, float] = {}
        self._askers: dict[bytes, dict[tuple[str, int], None]] = {}

    def fetching(self, digest: bytes) -> bool:
        """Return whether the blob is on its way, or being verified."""
        return digest in self._pulls or digest in self._verifying

    def verifying(self, digest: bytes) -> bool:
        """Return whether the worker hashes the blob."""
        return digest in self._verifying

    def has(self, digest: bytes) -> bool:
        """Return whether the whole blob is on disk."""
        return digest in self._complete

    def held_up(self, digest: bytes) -> bool:
        """Return whether a blob waits for this peer itself: for its worker, which hashes it, or until others are here."""
        pull = self._pulls.get(digest)
        return digest in self._verifying or (pull is not None and not pull.begun and not pull.apart)

    def left(self, digest: bytes) -> int:
        """Return how many chunks of a blob on its way are missing."""
        return len(self._pulls[digest].missing) if digest in self._pulls else 0

    def made(self, digest: bytes) -> None:
        """Note a blob that this peer's worker stored, and stop fetching it."""
        self._ctx.effects += [SendChunk(name, digest, index) for name, index in self._askers.pop(digest, {})]
        self._drop(digest)
        self._complete[digest] = None

    def any(self) -> bool:
        """Return whether there are any blobs."""
        return bool(self._complete or self._partial)

    def keep_only(self, in_use: frozenset[bytes], *, unfinished: bool) -> None:
        """Drop blobs that are not in use; those that a former life left are kept while there are `unfinished` jobs."""
        for digest in [digest for digest, until in self._passing.items() if until < self._ctx.now]:
            del self._passing[digest]
            self._askers.pop(digest, None)
        for digest in [*self._complete, *self._partial]:
            if digest not in in_use and digest not in self._passing and not (unfinished and digest in self._recovered):
                self._forget(digest)

    def _forget(self, digest: bytes) -> None:
        self._drop(digest)
        self._complete.pop(digest, None)
        self._ctx.effects.append(DropBlob(digest))

    def _drop(self, digest: bytes) -> None:
        """Forget a blob that is on its way or was."""
        self._stop(digest)
        for held in (self._verifying, self._partial, self._recovered):
            held.pop(digest, None)

    def pull(self, digest: bytes, size_bytes: int, sources: list[str]) -> None:
        """Fetch the blob from the given peers, in this order; `verified` is called when it is here."""
        # On a sparse overlay the first one should certainly have it, and be the nearest of those: neighbours that each began
        # with a source beyond the other would wait for each other.
        if self.has(digest) or digest in self._verifying or not 0 < size_bytes <= self._ctx.limits.blob_bytes:
            return
        pull = self._pulls.get(digest)
        if pull is not None and pull.size_bytes == size_bytes:
            pull.sources = [*sources, *(s for s in pull.sources if s not in sources)]
            return
        self._recovered.pop(digest, None)
        if pull is not None:
            self._forget(digest)  # one of the sizes was wrong, so the chunks so far are useless
        n_chunks = -(-size_bytes // self._ctx.limits.chunk_bytes)
        have = self._partial.setdefault(digest, {})
        missing = {index: None for index in range(n_chunks) if index not in have}
        pull = Pull(digest, size_bytes, n_chunks, list(sources), missing)
        self._ctx.report(BlobPulled(blob=digest.hex()[:12], size_bytes=size_bytes, resumed_chunks=len(have)))
        if not missing:
            self._verify(pull)
        elif sources:
            pull.doubtful = self._pace.doubts(self._way(pull, pull.sources)[0])
            self._pulls[digest] = pull
            self._go_on()

    def _go_on(self) -> None:
        """Ask for what is missing, in the order in which blobs were wanted, as long as there is room."""
        own = [pull for pull in self._pulls.values() if pull.digest not in self._passing]
        for pull in self._pulls.values():
            if pull.digest in self._passing:
                # What a neighbour waits for has room of its own: it has limited itself already, and two that wait for each
                # other's room would wait until a chunk is held lost.
                pull.begun = True
                self._ask(pull, self._ctx.limits.window - len(pull.asked))
        for apart in (False, True):
            alike = [pull for pull in own if pull.apart is apart]
            room = self._ctx.limits.pulls - sum(pull.begun for pull in alike)
            for pull in [pull for pull in alike if not pull.begun][: max(room, 0)]:
                pull.begun = True
        left = self._pace.chunks - sum(len(pull.asked) for pull in own if not pull.apart)
        for pull in own:
            if pull.begun and pull.apart:
                self._ask(pull, 1 - len(pull.asked))
            elif pull.begun:
                left -= self._ask(pull, min(left, self._ctx.limits.window - len(pull.asked)))

    def receive(self, source: str, message: Message) -> None:
        """Handle a message about blobs."""
        match message:
            case BlobRequest():
                self._asked(source, message)
            case BlobChunk():
                self._take(source, message)
            case BlobMissing():
                pull = self._pulls.get(message.digest)
                if pull is not None and source in pull.sources and len(pull.sources) > 1:
                    pull.sources.remove(source)
                    pull.lacking[source] = None
                    pull.asked = {index: asked for index, asked in pull.asked.items() if asked[0] != source}
                    self._expect(pull, source)
                    self._go_on()

    def _asked(self, source: str, message: BlobRequest) -> None:
        digest = message.digest
        if self.has(digest) or message.index in self._partial.get(digest, ()):
            self._ctx.effects.append(SendChunk(source, digest, message.index))
        elif self._passes_on(message):  # to a neighbour that has no link to the holders
            holders = [name for name in message.holders if name not in (self._ctx.me, source)]
            # It is kept for a while, because other neighbours will ask for it. The blob requested last goes to the end.
            self._passing.pop(digest, None)
            self._passing[digest] = self._ctx.now + _PASSING_TIMEOUTS * self._ctx.timing.chunk_timeout_s
            self._askers.setdefault(digest, {})[source, message.index] = None
            pull = self._pulls.get(digest)
            if pull is not None and pull.size_bytes == message.size_bytes and not self._ctx.routing.whole:
                # The present sources may have lost it, or wait for this peer.
                pull.sources += [n for n in holders if n not in pull.sources and self._ctx.routing.hop(n)]
                self._go_on()
            elif not self.fetching(digest):
                self.pull(digest, message.size_bytes, holders)
        elif self._comes(source, message):
            self._askers.setdefault(digest, {})[source, message.index] = None
        else:
            self._ctx.send(source, BlobMissing(digest))

    def _comes(self, asker: str, message: BlobRequest) -> bool:
        """Return whether a chunk comes here soon, from the source that certainly has it: then its asker gets it at once."""
        # A peer behind a single link that works would otherwise turn to sources that it cannot hear, for many time-outs.
        # Peers that ask other sources do not let anyone wait, because they could wait for each other.
        pull = self._pulls.get(message.digest)
        if pull is None or message.index not in pull.missing or pull.sources[0] == asker:
            return False
        return any(source == pull.sources[0] for source, _ in pull.asked.values())

    def _passes_on(self, message: BlobRequest) -> bool:
        """Return whether to fetch a chunk for another peer: it must be possible, and there must be room."""
        limits, size_bytes = self._ctx.limits, message.size_bytes
        if not message.holders or not 0 < size_bytes <= limits.blob_bytes:
            return False
        possible = 0 <= message.index < -(-size_bytes // limits.chunk_bytes)
        if not possible or message.digest in self._passing or len(self._passing) < limits.passing:
            return possible
        idle = next((digest for digest in self._passing if not self._askers.get(digest)), None)
        if idle is not None:
            del self._passing[idle]  # the blob with the oldest request makes room
        return idle is not None

    def fire(self, key: TimerKey) -> None:
        """Ask the next source after a time-out, when other waiting blobs have had their turn."""
        digest = bytes.fromhex(key[1])
        pull = self._pulls.get(digest)
        if pull is None:
            return
        if len(key) > 2:  # a source that did not have the blob may have it now
            if key[2] in pull.lacking:
                self._ctx.send(key[2], BlobRequest(digest, next(iter(pull.missing))))
                self._expect(pull, key[2])
            return
        del self._pulls[digest]
        self._pace.timed_out(dict.fromkeys(source for source, _ in pull.asked.values()))
        pull.silent = True
        pull.again.update(dict.fromkeys(pull.asked))
        pull.asked.clear()
        pull.turn += 1
        if digest in self._spoiled and pull.came_from:  # another source is asked for all of it
            pull.missing, pull.came_from = dict.fromkeys(range(pull.n_chunks)), {}
            self._partial[digest] = {}
            self._ctx.effects.append(DropBlob(digest))
        pull.begun = False
        self._pulls[digest] = pull
        self._go_on()

    def link_vanished(self, name: str) -> None:
        """Ask another source for what a lost neighbour was asked for, and drop its own requests."""
        for waiting in self._askers.values():
            for asker in [asker for asker in waiting if asker[0] == name]:
                del waiting[asker]
        for pull in self._pulls.values():
            for index in [index for index, (source, _) in pull.asked.items() if source == name]:
                del pull.asked[index]
                pull.again[index] = None
        self._go_on()

    def verified(self, digest: bytes, good: bool) -> None:
        """Take the result of a verification."""
        if digest not in self._verifying:
            return  # dropped meanwhile
        sources = self._verifying[digest]
        if not good:
            self._ctx.report(BlobCorrupt(blob=digest.hex()[:12], sources=list(sources)))
            wrong = self._spoiled.setdefault(digest, {})
            for source in sources if len(sources) == 1 else ():
                wrong.pop(source, None)
                wrong[source] = None
            while len(self._spoiled) > _MOST_SPOILED:
                del self._spoiled[next(iter(self._spoiled))]
            self._forget(digest)
            return
        del self._verifying[digest]
        self._spoiled.pop(digest, None)
        self._partial.pop(digest, None)
        self._complete[digest] = None

    def _take(self, source: str, message: BlobChunk) -> None:
        pull = self._pulls.get(message.digest)
        if pull is None or message.index not in pull.missing or len(message.data) != 1:
            return
        chunk_bytes = self._ctx.limits.chunk_bytes
        last = message.index == pull.n_chunks - 1
        if len(message.data[0]) != (pull.size_bytes - message.index * chunk_bytes if last else chunk_bytes):
            return
        del pull.missing[message.index]
        pull.came_from[source] = None
        asked, asked_at = pull.asked.pop(message.index, ("", 0.0))
        if asked == source and message.index not in pull.again:
            self._pace.came(source, (self._ctx.now - asked_at) / self._ctx.timing.chunk_timeout_s)
        pull.doubtful = False
        # It has the blob by now: it is asked for everything that doubtful sources were asked for.
        if source in pull.lacking:
            del pull.lacking[source]
            pull.sources = [source, *(name for name in pull.sources if name != source)]
            for index in [index for index, (of, _) in pull.asked.items() if self._pace.doubts(of)]:
                del pull.asked[index]
                pull.again[index] = None
        if pull.silent:
            pull.silent = False
            self._pace.late(source)
        self._partial[pull.digest][message.index] = None
        self._ctx.effects.append(StoreChunk(pull.digest, message.index, pull.n_chunks, message.data[0]))
        waiting = self._askers.get(pull.digest, {})
        for name, index in [asker for asker in waiting if asker[1] == message.index]:
            del waiting[name, index]
            self._ctx.effects.append(SendChunk(name, pull.digest, index))
        if pull.missing:
            self._wait(pull, source)
            self._go_on()
        else:
            self._stop(pull.digest)
            self._verify(pull)

    def _verify(self, pull: Pull) -> None:
        self._verifying[pull.digest] = tuple(pull.came_from)
        self._ctx.effects.append(Compute(BlobToken(pull.digest), HashBlob(pull.digest)))

    def _expect(self, pull: Pull, source: str) -> None:
        """Ask a source that did not have a blob again soon, if the other sources may be out of reach."""
        routing = self._ctx.routing
        if routing.whole and self._pace.doubts(self._way(pull, pull.sources)[0]):
            wait_s = self._pace.usual * self._ctx.timing.chunk_timeout_s
            self._ctx.set_timer(("blob", pull.digest.hex(), source), wait_s)

    def _ask(self, pull: Pull, most: int) -> int:
        first = pull.turn % len(pull.sources)
        source, holders = self._way(pull, pull.sources[first:] + pull.sources[:first])
        wanted = [index for index in pull.missing if index not in pull.asked][: max(most, 0)] if source else []
        for index in wanted:
            pull.asked[index] = (source, self._ctx.now)
            self._ctx.send(source, BlobRequest(pull.digest, index, *holders))
        if wanted or not source:
            self._wait(pull, source)
        return len(wanted)

    def _wait(self, pull: Pull, source: str) -> None:
        wait_s = self._pace.patience(source) * self._ctx.timing.chunk_timeout_s
        self._ctx.set_timer(("blob", pull.digest.hex()), wait_s)

    def _way(self, pull: Pull, turned: list[str]) -> tuple[str, tuple[int, tuple[str, ...]] | tuple[()]]:
        """Return the first reachable source, or the neighbour on the way to it with the blob's size and holders."""
        routing = self._ctx.routing
        turned = self._right_ones(pull, turned)
        if routing.whole:
            # The first of those that answered soonest. A peer with one link that works would begin each blob with a source
            # that it cannot hear, and wait longer for it each time.
            return min(turned, key=self._pace.patience), ()
        for name in turned:
            hop = routing.hop(name)
            if hop:
                return hop, () if hop == name else (pull.size_bytes, tuple(turned[:_MOST_HOLDERS]))
        return "", ()

    def _right_ones(self, pull: Pull, sources: list[str]) -> list[str]:
        """Return the sources whose copy is not known to be wrong; if none of these answers, one after another."""
        # If a blob was wrong and the reason is not known, one source is asked for all of it. A wrong bit may have come from
        # a disk or a link that is mended by now. So a source whose copy was wrong is tried again, the one found wrong first
        # before the others: a source whose disk stays bad may be the fastest.
        wrong = self._spoiled.get(pull.digest)
        if wrong is None:
            return sources
        whole, hop = self._ctx.routing.whole, self._ctx.routing.hop
        asked = {name: name if whole else hop(name) for name in sources}
        first = [name for name in sources if asked[name] in pull.came_from]
        right = [name for name in sources if asked[name] not in wrong]
        if first or (right and not pull.silent):
            return first or right
        age = {peer: number for number, peer in enumerate(wrong)}
        ranked = sorted(pull.sources, key=lambda name: age.get(asked[name], -1))
        turned = ranked[pull.turn % len(ranked) :] + ranked[: pull.turn % len(ranked)]
        return turned[:1] if whole else turned

    def silent(self, digest: bytes) -> bool:
        """Return whether the sources of a blob that is fetched did not answer in time, now or when they were asked last."""
        pull = self._pulls.get(digest)
        return pull is not None and pull.apart

    def spoiled_by(self, digest: bytes, source: str) -> bool:
        """Return whether the copy of a peer is known to be wrong."""
        return source in self._spoiled.get(digest, ())

    def _stop(self, digest: bytes) -> None:
        self._ctx.timers.cancel(("blob", digest.hex()))
        pull = self._pulls.pop(digest, None)
        if pull is not None:
            for source in pull.lacking:
                self._ctx.timers.cancel(("blob", digest.hex(), source))
            if digest not in self._passing:
                self._askers.pop(digest, None)
            self._go_on()
