"""Events: the only inputs of a core's `step`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from p2pclust.peer.core.messages import Message
from p2pclust.peer.core.structs import Struct
from p2pclust.peer.core.tasks import Outcome, Token
from p2pclust.peer.core.treatment import Treatment


class Event(Struct):
    """Base of all events."""


class Started(Event):
    """The shell is up: links may be opened and timers run."""


class Woken(Event):
    """The instant that the core asked to be woken at (`Core.wake_at`) has come."""


class Arrived(Event):
    """A message came. The transport, or for a relayed message the origin's signature, authenticated `source`."""

    source: str
    message: Message
    via: str = ""  # the peer that relayed it


class LinkChecked(Event):
    """The result of a plain TCP connect to the peer."""

    peer: str
    refused: bool


class Hinted(Event):
    """An unproven address of a peer."""

    peer: str
    address: str


class Linked(Event):
    """A link of this peer appeared or vanished, as a radio notices; ignored on a full mesh."""

    peer: str
    up: bool


class Computed(Event):
    """A task of `Compute` ended."""

    token: Token
    outcome: Outcome


class RosterRead(Event):
    """A fleet roster came, from a peer or, without a source, from a person; the shell has checked the fleet's signature."""

    source: str
    data: bytes  # the roster itself, opaque to the core
    valid: bool
    serial: int = 0
    peers: Mapping[str, str] = field(default_factory=dict)  # name -> a text that changes with its keys
    reason: str = ""  # why it is not valid
    devices: Mapping[str, bytes] | None = None  # the device keys of the peers on it; None in a fleet without keys


class Expired(Event):
    """Keys that have expired, by wall-clock time, which only the shell reads."""

    names: tuple[str, ...]


class Submit(Event):
    """A job is submitted: its mathematics as a plain document, and how the fleet is to treat it."""

    mathematics: bytes  # msgpack, opaque to the core
    roster: tuple[str, ...] = ()  # by default, all peers that are alive
    treatment: Treatment = field(default_factory=Treatment)
    asked: str = ""  # repeated in the reports `submitted` and `refused`, so that the asker recognises its own
    request: str = ""  # the client's id for this submission: with the same one it is the same job


class Cancel(Event):
    """A job is cancelled."""

    job: str
    by: str  # who
    asked: str = ""  # repeated in the report `refused`


class Leave(Event):
    """Leave the fleet: the process is about to end."""
