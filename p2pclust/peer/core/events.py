"""What can happen to a core: the only inputs of its `step`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from p2pclust.peer.core.messages import Message
from p2pclust.peer.core.tasks import Outcome, Token

__all__ = [
    "Arrived",
    "Cancel",
    "Computed",
    "Event",
    "Expired",
    "Hinted",
    "Leave",
    "LinkChecked",
    "Linked",
    "RosterRead",
    "Started",
    "Submit",
    "Woken",
]


@dataclass(frozen=True, slots=True)
class Event:
    """Base of all events."""


@dataclass(frozen=True, slots=True)
class Started(Event):
    """The shell is up: links may be opened and timers run."""


@dataclass(frozen=True, slots=True)
class Woken(Event):
    """The instant that the core asked to be woken at (`Core.wake_at`) has come."""


@dataclass(frozen=True, slots=True)
class Arrived(Event):
    """A message came; `source` was authenticated by the transport, or by the origin's signature if it was relayed."""

    source: str
    message: Message
    via: str = ""  # the peer that relayed it


@dataclass(frozen=True, slots=True)
class LinkChecked(Event):
    """A plain TCP connect to the peer was refused, or it was not."""

    peer: str
    refused: bool


@dataclass(frozen=True, slots=True)
class Hinted(Event):
    """Somebody who proves nothing says where a peer may be reached."""

    peer: str
    address: str


@dataclass(frozen=True, slots=True)
class Linked(Event):
    """A link of this peer's own appeared or vanished, as a radio notices; on a full mesh it means nothing."""

    peer: str
    up: bool


@dataclass(frozen=True, slots=True)
class Computed(Event):
    """A task of `Compute` ended."""

    token: Token
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class RosterRead(Event):
    """A fleet roster came, from a peer or, without a source, from a person; the shell has checked the fleet's signature."""

    source: str
    data: bytes  # the roster itself, opaque to the core
    valid: bool
    serial: int = 0
    peers: Mapping[str, str] = field(default_factory=dict)  # name -> whatever changes with its keys
    reason: str = ""  # why it is not valid


@dataclass(frozen=True, slots=True)
class Expired(Event):
    """The last day of these keys is over, by the clock on the wall, which only the shell reads."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Submit(Event):
    """A person hands in a job: the mathematics as a plain document, and how the fleet is to treat it."""

    job: bytes  # the job's mathematics, msgpack; opaque to the core
    roster: tuple[str, ...] = ()  # by default, whoever is alive
    missing: str = "wait"
    patience_s: float = 0.0  # by default, the preset's
    deadline_s: float = 0.0
    aggregator: str = ""  # of term 1; by default, elected
    collect: str = ""  # star | tree | gossip; by default, as the overlay has it
    state: bytes = b""  # the first state, where the submitter gives one
    tolerance: float = 0.0  # of collect = "gossip"; by default 1e-9
    mixing: str = ""  # of collect = "gossip"; by default push-sum, with ticks metropolis-hastings
    ticks: int = 0  # of collect = "gossip": after which each goes on from its own mixture
    every_s: float = 0.0  # above 0: again so long after each end
    asked: str = ""  # comes back in the reports `submitted` and `refused`, so that whoever asked knows its own


@dataclass(frozen=True, slots=True)
class Cancel(Event):
    """A person wants a job ended."""

    job: str
    by: str  # who
    asked: str = ""  # comes back in the report `refused`


@dataclass(frozen=True, slots=True)
class Leave(Event):
    """Say good-bye: the process is about to end."""
