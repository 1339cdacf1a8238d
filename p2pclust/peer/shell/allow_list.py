"""The allow-list of a running peer: the signed fleet roster in force, without expired keys.

The shell's half of `p2pclust.peer.core.enrolment`. Nothing else in a peer reads the wall clock.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from p2pclust.errors import FleetError, UsageError
from p2pclust.peer.core.effects import CheckRoster, Send, SendRoster, TakeRoster
from p2pclust.peer.core.enrolment import BEFORE, CURRENT, TABLE, fleet_rosters, rows_in_force
from p2pclust.peer.core.events import Expired, RosterRead
from p2pclust.peer.core.fleet_roster import FleetRoster, RosterName
from p2pclust.peer.core.messages import RosterCopy
from p2pclust.peer.shell.logs import Watch
from p2pclust.peer.shell.store import Store
from p2pclust.transport.bundle import Bundle, load_bundle, newest_roster
from p2pclust.transport.roster import PEER, Roster, fingerprint, parse, signed_by
from p2pclust.transport.wire import MAX_FRAME_BYTES

if TYPE_CHECKING:
    from p2pclust.peer.shell.shell import Shell

_MOST_STRANGERS: Final = 100  # named in the log
_LOOK_S: Final = 60.0  # how often to look at the wall clock, which people may set
_WARNING_S: Final = 14 * 86400.0
_DAY_S: Final = 86400.0


def _wall() -> float:
    return datetime.now(UTC).timestamp()


def begin(config: Mapping[str, Any], store: Store, watch: Watch) -> tuple[Bundle, AllowList]:
    """Read a peer's keys and its newest roster: that of its bundle, of a file, or of its store, which gets the newest."""
    bundle = load_bundle(config["bundle"])
    # The process that checked the configuration has verified it; that of the store was verified on arrival.
    roster = newest_roster(bundle, config["bundle"], config.get("roster") or None, verified=True)
    current = store.row(TABLE, CURRENT)
    kept = None if current is None else store.row(TABLE, current.decode())
    if kept is not None:
        other = parse(kept)
        if other.fleet_id == roster.fleet_id:  # otherwise the state directory was used in another fleet
            roster = max(roster, other, key=lambda one: one.serial)
    if kept != roster.to_bytes():
        store.write(rows_in_force(roster.to_bytes(), current))
    check_own(bundle, roster, _wall())
    if config.get("insecure"):
        watch(
            "insecure",
            {"peers": list(roster.names), "hint": "no keys: anyone who can reach this peer can pose as any other"},
        )
    return bundle, AllowList(bundle, roster, watch, asyncio.get_running_loop(), insecure=bool(config.get("insecure")))


def check_own(bundle: Bundle, roster: Roster, now: float) -> None:
    """Raise FleetError unless the roster lists this device with this key, as a peer, and the key is valid now."""
    name, entry = bundle.name, roster.by_name.get(bundle.name)
    if entry is None:
        raise FleetError(f"{name} was revoked: it is not on fleet roster {roster.serial}; stop it, or enrol it again")
    if entry.curve_public != bundle.curve_public:
        raise FleetError(f"{name} has new keys since fleet roster {roster.serial}: copy its new bundle here")
    if entry.role != PEER:
        raise FleetError(f"{name} is enrolled as {entry.role}: it can ask peers, but cannot be one")
    if now >= entry.expires_at:
        raise FleetError(f"the key of {name} expired on {entry.expires}: `p2pclust keys rotate {name}` makes a new one")


@dataclass(eq=False)
class AllowList:
    """The roster in force at one peer: as signed, with expired entries. `wall` returns the seconds since 1970."""

    bundle: Bundle
    roster: Roster
    watch: Watch
    loop: asyncio.AbstractEventLoop
    wall: Callable[[], float] = _wall
    insecure: bool = False
    #: Peers that tried to connect with keys of an earlier roster, since the one in force came.
    outdated: dict[str, None] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self.admitted = self.roster.valid_at(self.wall())
        self._former: dict[bytes, str] = {}  # keys of earlier rosters
        self._reported: dict[bytes, None] = {}
        self._warned: dict[str, float] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._shell: Shell
        self._followers: tuple[Callable[[Roster], None], ...] = ()

    @property
    def keys(self) -> dict[str, str]:
        return _keys(self.admitted)

    def fleet_rosters(self, rows: Mapping[str, bytes]) -> tuple[list[FleetRoster], bytes]:
        """Return the rosters in the store, the one in force first, and the digest of the one before; none without keys.

        They were verified when they came.
        """
        if self.insecure:
            return [], b""
        now = self.roster.to_bytes()
        held = [now, *(data for data in fleet_rosters(rows) if data != now)]
        return [_fleet_roster(parse(data)) for data in held], bytes.fromhex(rows.get(BEFORE, b"").decode())

    def follow(self, shell: Shell, *followers: Callable[[Roster], None]) -> None:
        """Start: hand every change to the shell and these followers from now on."""
        self._shell, self._followers = shell, followers
        self._look()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def perform(self, effect: CheckRoster | TakeRoster | SendRoster) -> None:
        match effect:
            case CheckRoster():
                event = self._check(effect.source, effect.data)
                self.loop.call_soon(self._shell.step, event)  # not within the present step
            case SendRoster():
                kept = self._shell.store.row(TABLE, effect.digest.hex()) if effect.digest else None
                data = kept or self.roster.to_bytes()
                parts = tuple(data[i : i + MAX_FRAME_BYTES] for i in range(0, len(data), MAX_FRAME_BYTES))
                self._shell.performer.perform(Send(effect.to, RosterCopy(parts), True, effect.via))
            case TakeRoster():
                self._take(parse(effect.data))

    def _check(self, source: str, data: bytes) -> RosterRead:
        try:
            read = signed_by(data, self.bundle.fleet_public)
        except ValueError as error:
            return RosterRead(source, b"", False, reason=str(error))
        devices = None if self.insecure else _fleet_roster(read).devices
        return RosterRead(
            source, read.to_bytes(), True, read.serial, _keys(read.valid_at(self.wall())), devices=devices
        )

    def _take(self, roster: Roster) -> None:
        for entry in self.roster.peers:
            if entry.curve_public not in roster.by_key:
                self._former[entry.curve_public] = entry.name
                self.watch("revoked", {"member": entry.name, "key": fingerprint(entry.curve_public)})
        self.roster = roster
        self._reported.clear()
        self.outdated.clear()
        self._admit()
        self._check_own()

    def _admit(self) -> None:
        self.admitted = self.roster.valid_at(self.wall())
        for follower in self._followers:
            follower(self.admitted)

    def _check_own(self) -> None:
        try:
            check_own(self.bundle, self.roster, self.wall())
        except FleetError as error:
            self._shell.failed(error)

    def take(self, data: bytes) -> bool:
        """Take a roster that a person provides, if the fleet signed it; return whether it was newer than ours."""
        event, before = self._check("", data), self.roster.serial
        if not event.valid:
            raise UsageError(f"this is not a roster of this fleet: {event.reason}")
        if event.serial > before:
            self._shell.step(event)
        return event.serial > before

    def read_again(self, bundle: Path | str, file: Path | str | None) -> None:
        """Take a newer roster from the files; report an error in them, and change nothing."""
        try:
            if not self.take(newest_roster(load_bundle(bundle), bundle, file).to_bytes()):
                hint = {} if file else {"hint": "no roster file is configured (roster = ...): only the bundle was read"}
                self.watch("roster-unchanged", {"serial": self.roster.serial, **hint})
        except UsageError as error:
            self.watch("roster-refused", {"peer": "this device", "reason": str(error)})

    def _look(self) -> None:
        now = self.wall()
        over = tuple(peer.name for peer in self.admitted.peers if peer.expires_at <= now)
        if over:
            self._admit()
            self._shell.step(Expired(over))
            self._check_own()
        for peer in self.admitted.peers:
            near = peer.expires_at - now < _WARNING_S
            if near and now - self._warned.get(peer.name, float("-inf")) >= _DAY_S:
                self._warned[peer.name] = now
                hint = f"`p2pclust keys rotate {peer.name}` makes a new key"
                self.watch("expires-soon", {"member": peer.name, "last_day": peer.expires, "hint": hint})
        ends = min((peer.expires_at for peer in self.admitted.peers), default=float("inf"))
        self._timer = self.loop.call_later(min(_LOOK_S, max(0.0, ends - now)), self._look)

    def stranger(self, curve_public: bytes) -> None:
        """Report a key that was refused: each one once, and not more than `_MOST_STRANGERS`."""
        if curve_public in self._reported or len(self._reported) >= _MOST_STRANGERS:
            return
        self._reported[curve_public] = None
        entry = self.roster.by_key.get(curve_public)
        key = fingerprint(curve_public)
        if entry is not None and entry.role != PEER:
            self.watch(
                "refused-operator", {"member": entry.name, "key": key, "hint": "operators ask at the control address"}
            )
        elif entry is not None:
            self.watch("refused-expired", {"member": entry.name, "key": key, "last_day": entry.expires})
        elif curve_public in self._former:
            self.outdated[self._former[curve_public]] = None
            self.watch("refused-revoked", {"member": self._former[curve_public], "key": key})
        else:
            hint = f"it is not on fleet roster {self.roster.serial}"
            self.watch("refused-stranger", {"key": curve_public.decode("ascii", "replace"), "print": key, "hint": hint})


def _fleet_roster(roster: Roster) -> FleetRoster:
    name = RosterName(roster.serial, hashlib.sha256(roster.to_bytes()).digest())
    return FleetRoster(name, {peer.name: peer.sign_public for peer in roster.peers if peer.role == PEER})


def _keys(roster: Roster) -> dict[str, str]:
    return {peer.name: fingerprint(peer.curve_public) for peer in roster.peers if peer.role == PEER}
