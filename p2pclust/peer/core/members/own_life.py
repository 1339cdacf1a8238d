"""What this peer claims of itself in this life: its incarnation, and the store whose promises it keeps."""

from __future__ import annotations

from collections.abc import Callable

from p2pclust.peer.core.context import Context
from p2pclust.peer.core.members.member_table import Member
from p2pclust.peer.core.messages import Update
from p2pclust.peer.core.reports import Refuted, StoreForgot

#: The statuses against which a peer defends itself.
_WORSE = ("suspect", "dead", "left")


class OwnLife:
    """This peer's claim about itself, which only this peer raises.

    Parameters
    ----------
    context : Context
        This peer.
    me : Member
        Its own entry; it is changed here.
    spread : callable
        Passes a claim on.
    elsewhere : callable
        Takes a claim that this peer is another process.
    """

    def __init__(
        self, context: Context, me: Member, spread: Callable[[Update], None], elsewhere: Callable[[Update], None]
    ) -> None:  # fmt: skip
        self._ctx = context
        self._me = me
        self._spread = spread
        self._elsewhere = elsewhere
        self._began_at = 0.0
        self._first = me.incarnation <= 1
        self._left = self._forgot = False

    @property
    def is_first(self) -> bool:
        """Whether the store has had no earlier life."""
        return self._first

    @property
    def has_forgotten(self) -> bool:
        """Whether `take_forgot` has something to return."""
        return self._forgot

    def begin(self) -> None:
        """Note when this life begins."""
        self._began_at = self._ctx.now

    def leave(self) -> Update:
        """Return the claim that this peer leaves; from now on it refutes nothing."""
        self._left = True
        self._me.status = "left"
        return self._me.update()

    def refute(self, update: Update) -> None:
        """Refute a claim that this peer is not alive, or a claim of another process: from its past, or of a twin."""
        other_process = update.store_id not in ("", self._ctx.store_id) or update.address not in ("", self._me.address)
        if self._left or update.incarnation < self._me.incarnation:
            return
        if other_process:
            self._elsewhere(update)
        if update.store_id == self._ctx.store_id and update.incarnation > self._me.incarnation:
            self.forgot("others have heard of a later life of it")
        if update.status in _WORSE or other_process or update.incarnation > self._me.incarnation:
            self._announce(update.incarnation + 1)
            self._ctx.report(Refuted(incarnation=self._me.incarnation))

    def forgot(self, why: str) -> None:
        """Take a new store id: the store was restored from an older image, or the disk lost its newest rows.

        The promises made since then are unknown, so the store counts for no majority of the running jobs any more. Other
        peers' word is believed only shortly after the start: an image is restored between two lives, and a liar could
        otherwise take a healthy store's votes at any time.
        """
        if self._late():
            return
        store_id = "".join(f"{int(self._ctx.rng.integers(2**32)):08x}" for _ in range(4))
        self._ctx.report(StoreForgot(reason=why, store=self._ctx.store_id))
        self._ctx.persist("self", "store_id", store_id.encode())
        self._ctx.store_id = self._me.store_id = store_id
        self._announce(self._me.incarnation + 1)
        self._forgot = True

    def take_forgot(self) -> bool:
        """Return whether the store id changed since the last call."""
        forgot, self._forgot = self._forgot, False
        return forgot

    def may_promise(self, member: Member) -> bool:
        """Return whether a neighbour has had the occasion to report a later life of this peer's store.

        Its answer to a ping of this life reports it. Until then this peer promises that neighbour nothing: it could break
        a promise of that later life.
        """
        return self._first or member.replied or self._late()

    def _late(self) -> bool:
        """Return whether other peers' word about an earlier life is not believed any more."""
        return self._ctx.now - self._began_at > self._ctx.timing.patience_s

    def _announce(self, incarnation: int) -> None:
        self._me.incarnation = incarnation
        self._ctx.persist("self", "incarnation", str(incarnation).encode())
        self._spread(self._me.update())
