"""Membership rumours, apart from the table of members: what is still to be passed on, and how often, whatever it means.

On a full mesh a claim is sent often enough to reach all peers by some way. On a sparse overlay this peer may be a
neighbour's only source, so it sends each claim to every neighbour a few times: messages get lost.
"""

from __future__ import annotations

from collections.abc import Callable, Sized
from dataclasses import dataclass, field
from typing import Final

from p2pclust.peer.core.messages import Update

_MOST: Final = 16  # in one message
_TELLINGS: Final = 3  # to each neighbour, on a sparse overlay


@dataclass(slots=True)
class _Claim:
    """A claim that is being passed on."""

    update: Update
    left: int  # how often it is still to be sent, to any peer
    told: dict[str, int] = field(default_factory=dict)  # how often it was sent to each neighbour


class News:
    """The newest claim about each member that may not have reached all peers.

    `neighbours` returns those that are alive or suspect; `whole` says whether the overlay is a full mesh.
    """

    def __init__(self, members: Sized, neighbours: Callable[[], list[str]], *, whole: bool) -> None:
        self._whole = whole
        self._members = members
        self._neighbours = neighbours
        self._claims: dict[str, _Claim] = {}  # by the member that they are about

    def __bool__(self) -> bool:
        return bool(self._claims)

    def forget(self, name: str) -> None:
        """Drop the claim about a peer that is no longer a member."""
        self._claims.pop(name, None)

    def add(self, update: Update) -> None:
        """Begin to pass on a claim, in place of an earlier one about the same member."""
        n_digits = len(str(len(self._members) + 1))  # ceil(log10(N + 1)) for the N that matter
        self._claims[update.name] = _Claim(update, 4 * n_digits)

    def tell(self, to: str) -> list[Update]:
        """Return the claims to send to that member now, the least-sent first, and count them as sent."""
        claims = [self._claims[name] for name in self.least_sent(to)[:_MOST]]
        for claim in claims:
            claim.left -= 1
            claim.told[to] = claim.told.get(to, 0) + 1
            if self._spent(claim):
                del self._claims[claim.update.name]
        return [claim.update for claim in claims]

    def drop_spent(self) -> None:
        """Drop claims that were sent often enough; their receivers may be gone."""
        for name in [name for name, claim in self._claims.items() if self._spent(claim)]:
            del self._claims[name]

    def least_sent(self, to: str) -> list[str]:
        """Return the members that there are claims about to send to that member, the least-sent first."""
        names = sorted(self._claims, key=lambda name: -self._claims[name].left)
        if self._whole:
            return names
        return [name for name in names if name != to and self._claims[name].told.get(to, 0) < _TELLINGS]

    def _spent(self, claim: _Claim) -> bool:
        if self._whole:
            return claim.left <= 0
        return all(claim.told.get(name, 0) >= _TELLINGS for name in self._neighbours() if name != claim.update.name)
