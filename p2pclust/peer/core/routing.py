"""Routes: directly to a neighbour, otherwise from peer to peer along a shortest path of the overlay.

On a full mesh all peers are neighbours, and none of this is used. On any other overlay a peer has links to its neighbours
only. It knows the other links from its configuration, where a fleet was started as a whole, and from facts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final
from zlib import crc32

import msgpack

from p2pclust.errors import WireError
from p2pclust.overlay.routes import Ways, even_tree, mutual, paired, spanning_tree

#: The key of the fact with a peer's neighbours.
LINKS: Final = "links"

_MOST_BYTES: Final = 48 * 1024
#: The overlay that was given last, and the ways on it: simulated peers are given the same object, and share them.
_last: tuple[Mapping[str, Sequence[str]], Ways] = ({}, Ways({}))


def _ways_on(overlay: Mapping[str, Sequence[str]]) -> Ways:
    global _last  # noqa: PLW0603 - what follows from the same overlay is the same
    if _last[0] is not overlay:
        _last = (overlay, Ways(mutual(overlay)))
    return _last[1]


class Routing:
    """The map of one peer.

    `overlay` has the neighbours of each peer, as far as they are known from the start; this peer's own at least. Without it
    the overlay is a full mesh. `links` are this peer's own neighbours now, where they are no longer those of `overlay`.
    """

    def __init__(
        self, me: str, overlay: Mapping[str, Sequence[str]] | None = None, links: Sequence[str] | None = None
    ) -> None:
        self._me = me
        self.whole = overlay is None  # a full mesh
        self.mapped = overlay is not None and len(overlay) > 1  # all links were known at the start
        self._given: Mapping[str, Sequence[str]] = overlay or {}
        self._claims: dict[str, tuple[str, ...]] = {}  # those that differ from these
        #: Whether all peers were given this peer's links at the start: then it need not publish them.
        self.links_known = self.whole or (self.mapped and links is None)
        self._silent: dict[str, None] = {}  # peers that carry no messages
        self._broken: dict[str, None] = {}  # neighbours that live, but do not answer over their links
        self._ways = Ways({}) if overlay is None else _ways_on(overlay)
        self._changed: dict[str, None] = {}  # peers whose neighbours may differ from those in these ways
        self._reach = 0  # 0: not computed yet
        if links is not None and not self.whole:
            self._claim(me, tuple(links))
        self._own: dict[str, None] = dict.fromkeys(self._claimed_by(me))

    def linked(self, name: str) -> bool:
        """Return whether the peer is a neighbour, or this peer itself."""
        return self.whole or name in self._own or name == self._me

    @property
    def own(self) -> tuple[str, ...]:
        """This peer's neighbours; meaningless on a full mesh."""
        return tuple(self._own)

    @property
    def broken(self) -> tuple[str, ...]:
        """The neighbours that live, but do not answer over their links."""
        return tuple(self._broken)

    def neighbours_of(self, name: str) -> tuple[str, ...]:
        """Return the neighbours of any peer, as far as they are known and alive; meaningless on a full mesh."""
        return self._map().neighbours(name)

    def hop(self, target: str, source: str = "") -> str:
        """Return the neighbour that a message to `target` goes to next, not its `source`; empty without a known route."""
        if self.linked(target) and target not in self._broken:
            return target
        hops = [name for name in self._map().next_hops(self._me, target) if name != source]
        if hops:  # each pair of peers has its own of equally short ways, so that not all take the same
            return hops[crc32(f"{self._me} {target}".encode()) % len(hops)]
        return target if target in self._broken else ""

    def nearest_first(self, names: Sequence[str]) -> list[str]:
        """Return these peers by distance in links; those without a known route come last."""
        far = self._map().distances(self._me)
        return sorted(names, key=lambda name: (far.get(name, len(far)), name))

    def others(self, target: str) -> list[str]:
        """Return the neighbours through which a message could go instead, nearest to the target first."""
        ways, first = self._map(), self.hop(target)
        here = ways.distance(self._me, target)
        far = {name: ways.distance(name, target) for name in self._working() if name != first}
        # A peer that is farther away than this one would send it back here.
        return sorted((name for name in far if 0 <= far[name] <= here), key=lambda name: (far[name], name))

    @property
    def reach(self) -> int:
        """The distance of the farthest peer in links; 1 on a full mesh."""
        if self._reach == 0:
            self._reach = 1 if self.whole else max(1, self._map().radius(self._me))
        return self._reach

    def tree(self, members: Sequence[str]) -> dict[str, str]:
        """Return the parent of each of these peers in a tree of sums with this peer at its root; skip unreachable peers."""
        return even_tree(self._me, members) if self.whole else spanning_tree(self._map(), self._me, members)

    # -- what changes the map -------------------------------------------------------------------------------------------

    @property
    def own_claim(self) -> bytes:
        """The value of the fact with this peer's links, as far as they work."""
        claim: bytes = msgpack.packb(sorted(self._working()))
        return claim

    def link(self, name: str, *, up: bool) -> bool:
        """Note that a link of this peer appeared or vanished; return whether that is new."""
        if self.whole or name == self._me or up == (name in self._own):
            return False
        if up:
            self._own[name] = None
        else:
            del self._own[name]
            self._broken.pop(name, None)
        self._claim(self._me, self._working())
        return True

    def set_works(self, name: str, works: bool) -> bool:
        """Note whether a link of this peer carries messages; return whether that is new."""
        # One that does not is kept, so that it can be probed. All other messages go around it.
        if self.whole or name not in self._own or works == (name not in self._broken):
            return False
        if works:
            del self._broken[name]
        else:
            self._broken[name] = None
        self._claim(self._me, self._working())
        return True

    def _working(self) -> tuple[str, ...]:
        return tuple(name for name in self._own if name not in self._broken)

    def replacement(self, lost: str) -> str:
        """Return a peer to link to in place of a dead neighbour; empty if there is none."""
        # From the links at the start: all compute the same, although some have made their new links and published them.
        return paired(self.neighbours_of(lost), self._given).get(self._me, "")

    def learn(self, owner: str, claim: bytes) -> None:
        """Take the links that a peer has published; raise `WireError` if these are not names."""
        if len(claim) > _MOST_BYTES:
            raise WireError(f"links of {len(claim)} bytes, at most {_MOST_BYTES} are possible")
        try:
            names = msgpack.unpackb(claim, raw=False, strict_map_key=True, max_ext_len=0)
        except (ValueError, TypeError, msgpack.UnpackException, RecursionError) as error:
            raise WireError(f"links: {type(error).__name__}") from None
        if not isinstance(names, list) or not all(type(name) is str for name in names):
            raise WireError("links: no list of names")
        known = self._knows(owner) and self._claimed_by(owner) == tuple(names)
        if not self.whole and owner != self._me and not known:
            self._claim(owner, tuple(names))

    def set_carries(self, name: str, carries: bool) -> None:
        """Note whether a peer can carry messages."""
        if self.whole or carries == (name not in self._silent):
            return
        if carries:
            del self._silent[name]
        else:
            self._silent[name] = None
        self._changes(name, self._claimed_by(name))

    @contextmanager
    def around(self, name: str) -> Iterator[None]:
        """Let messages go around a peer that may be dead, which the shortest paths between its neighbours go through."""
        carried = name not in self._silent
        self.set_carries(name, False)
        try:
            yield
        finally:
            self.set_carries(name, carried)

    def _claim(self, owner: str, names: tuple[str, ...]) -> None:
        before, self._claims[owner] = self._claimed_by(owner), names
        self._changes(owner, (*before, *names))

    def _knows(self, name: str) -> bool:
        return name in self._claims or name in self._given

    def _claimed_by(self, name: str) -> tuple[str, ...]:
        """Return the neighbours that a peer claims; none if it is not known."""
        own = self._claims.get(name)
        return tuple(self._given.get(name, ())) if own is None else own

    def _changes(self, name: str, near: Sequence[str]) -> None:
        self._changed.update(dict.fromkeys((name, *near)))
        self._reach = 0

    def _map(self) -> Ways:
        if self._changed:
            near: dict[str, list[str]] = {}
            # Links that both ends claim, to peers that carry messages.
            for name in filter(self._knows, self._changed):
                others = sorted({*self._claimed_by(name)} - {name, *self._silent})
                near[name] = [other for other in others if name in self._claimed_by(other)]
            self._ways = self._ways.changed(near, self._silent, self._me)
            self._changed.clear()
        return self._ways
