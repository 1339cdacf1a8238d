"""What faults and devices' plans do to single peers: the port that each kind of fleet carries out in its own way."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from p2pclust.lab.testbed.faults import PAIR, Cuts
from p2pclust.lab.testbed.power import Use
from p2pclust.lab.testbed.record import Record
from p2pclust.lab.testbed.spec import FleetSpec


class Actions(Protocol):
    """What faults, plans and batteries need of a fleet. Times are seconds of the fleet: real or virtual."""

    spec: FleetSpec
    record: Record

    def report(self, name: str, verb: str, fields: Mapping[str, Any]) -> None:
        self.record.take(self.now, name, verb, fields)

    @property
    @abstractmethod
    def now(self) -> float:
        """Seconds since the fleet was made."""

    @abstractmethod
    def at(self, delay_s: float, action: Callable[[], None]) -> None:
        """Run `action` after so many seconds."""

    def after_step(self, action: Callable[[], None]) -> None:
        """Run `action` after the step that a peer is in the middle of; by default no step is seen."""
        action()

    @abstractmethod
    def alive(self, name: str) -> bool:
        """Whether a peer runs, or is being started."""

    @abstractmethod
    def bring_up(self, name: str) -> None:
        """Start a peer that is down."""

    @abstractmethod
    def kill(self, name: str) -> None:
        """End a peer at once."""

    @abstractmethod
    def leave(self, name: str, *, by_round: bool) -> None:
        """Let a peer say goodbye and end; `by_round`: the peer has reached the round of the fault."""

    @abstractmethod
    def pause(self, name: str, for_s: float | None) -> None:
        """Stop a peer's process for so long, or until it is resumed."""

    @abstractmethod
    def resume(self, name: str) -> None:
        """Resume a paused process."""

    @abstractmethod
    def stopped_for_good(self, name: str) -> bool:
        """Whether a peer runs and is paused without an end."""

    @abstractmethod
    def sleep(self, name: str) -> None:
        """Stop a device; messages to it wait."""

    @abstractmethod
    def wake(self, name: str) -> None:
        """End the sleep of a device; a fault may still keep it stopped."""

    @abstractmethod
    def measure(self, name: str) -> Use | None:
        """Return what a device has done so far; None if its answer comes later, or not at all."""

    @abstractmethod
    def impose(self, name: str, conditions: Mapping[str, Any]) -> None:
        """Impose conditions on a peer; see `p2pclust.lab.testbed.fault_engine.conditions_of`."""

    @abstractmethod
    def cut(self, cuts: Cuts, pairs: Sequence[PAIR]) -> None:
        """Apply `cuts`, of which these directions may have changed."""

    @abstractmethod
    def revoke(self, name: str, revoked: Sequence[str]) -> None:
        """Give one peer a roster without `revoked`, of which `name` is the newest; the others hear of it from that peer."""

    @abstractmethod
    def neighbours(self) -> Mapping[str, Sequence[str]] | None:
        """Return the neighbours of each peer; None where all are linked to all."""

    @abstractmethod
    def relink(self, a: str, b: str, *, up: bool) -> None:
        """Let a link appear or vanish."""
