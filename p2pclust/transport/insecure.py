"""Keys that protect nothing: they are derived from the peers' names, which are public.

With them a fleet without keys uses the same code as any other, and connects only to peers without keys: the fleet's key is
derived as well, and differs from that of every fleet with keys.
"""

from __future__ import annotations

import hashlib
import ipaddress
from collections.abc import Iterable
from dataclasses import replace

import zmq
from zmq.utils import z85

from p2pclust.transport.bundle import Bundle, check_name
from p2pclust.transport.roster import RosterPeer, sign


def beyond_this_device(host: str) -> bool:
    """Return True if other devices may reach a socket that listens at that host.

    Examples
    --------
    >>> [beyond_this_device(host) for host in ("127.0.0.1", "::1", "localhost", "10.0.0.1", "meter-01.local")]
    [False, False, False, True, True]
    """
    try:
        return host != "localhost" and not ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:  # another name, which may mean another address later
        return True


def insecure_bundle(me: str, names: Iterable[str]) -> Bundle:
    """Return the bundle, with roster, of the peer `me` in a fleet of these names; it is the same on every device.

    Examples
    --------
    >>> one, other = insecure_bundle("a", ["a", "b"]), insecure_bundle("b", ["b", "a"])
    >>> one.roster == other.roster, one.roster.name_of(other.curve_public)
    (True, 'b')
    """
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # noqa: PLC0415

    fleet = Ed25519PrivateKey.from_private_bytes(_derived("fleet", ""))
    bundles = {}
    for name in sorted({check_name(name) for name in (me, *names)}):
        secret, key = z85.encode(_derived("curve", name)), Ed25519PrivateKey.from_private_bytes(_derived("sign", name))
        bundles[name] = Bundle(
            name, zmq.curve_public(secret), secret, key.public_key().public_bytes_raw(), key.private_bytes_raw(),
            fleet.public_key().public_bytes_raw(),
        )  # fmt: skip
    entries = [RosterPeer(name, bundle.curve_public, bundle.sign_public) for name, bundle in bundles.items()]
    return replace(bundles[me], roster=sign(fleet, 1, entries))


def _derived(what: str, name: str) -> bytes:
    return hashlib.sha256(f"p2pclust: this key protects nothing: {what} {name}".encode()).digest()
