"""Send requests to the control address of a peer: on its device over a Unix socket, from elsewhere over TCP with a key."""

from __future__ import annotations

import errno
import os
import socket as plain
import stat
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import msgpack
import zmq

from p2pclust.errors import FleetError, UsageError, WireError
from p2pclust.peer.operate.server import SOCKET, Folder, short_name
from p2pclust.tools.platforms import require_unix
from p2pclust.transport.bundle import Bundle, load_bundle, newest_roster
from p2pclust.transport.channel import set_common_options
from p2pclust.transport.links import parse_address, tcp_endpoint
from p2pclust.transport.roster import Roster
from p2pclust.transport.wire import pack, unpack

ENVIRONMENT: Final = "P2PCLUST_CONTROL"  # names the peer to ask where a command names none
DEFAULT: Final = "state/control"
_STATE: Final = "state"  # the state directory within a peer's folder

_ENTER_S = 5.0  # how long a connection may take, handshake included
_LOOK_S = 3.0
_TOGETHER = 64  # keys that are tried at the same time where the address names no peer


class Connection:
    """A connection to one peer's control address. Opens with the first request; close it, or use it with ``with``.

    The address is a Unix socket, the state directory that it is in, or the folder with that as ``state``; or
    ``NAME@HOST:PORT``, or ``HOST:PORT`` (then every key of the roster is tried), which needs a bundle. The fleet roster is
    by default the newer of the one in the bundle and ``roster.json`` in its folder.
    """

    def __init__(
        self, address: str | Path, bundle: Path | str | Bundle | None = None, roster: Path | str | Roster | None = None
    ) -> None:
        self.address = str(address)
        self._number = 0
        self._context: zmq.Context[zmq.Socket[bytes]] | None = None
        self._socket: zmq.Socket[bytes] | None = None
        self._folder: Folder | None = None
        self._keys: tuple[Bundle, Roster] | None = None
        self._name, at, rest = self.address.rpartition("@")
        self._where: tuple[str, int] | None = None  # host and port; None: on this device
        if "/" not in rest and not Path(self.address).exists():
            with suppress(UsageError):
                self._where = parse_address(rest)
        if self._where is None:
            return
        if bundle is None:
            asks = "a control address on the network asks for a key"
            raise UsageError(f"{self.address}: {asks}: name your bundle with --bundle")
        where = self.address
        if not isinstance(bundle, Bundle):
            where, beside = str(bundle), Path(bundle).with_name("roster.json")
            roster = beside if roster is None and beside.exists() else roster
            bundle = load_bundle(bundle)
        roster = roster if isinstance(roster, Roster) else newest_roster(bundle, where, roster)
        self._keys = bundle, roster
        if at and roster.curve_key(self._name) is None:
            raise UsageError(f"{self.address}: {self._name!r} is not on the fleet roster")

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; the next request opens it again."""
        if self._context is not None:
            self._context.destroy(linger=0)
        self._context = self._socket = self._folder = None

    def ask(self, verb: str, /, within_s: float = 10.0, **fields: Any) -> dict[str, Any]:
        """Send one request and return the answer; ``peer/operate/questions.py`` has the verbs and their fields."""
        self._send(verb, fields)
        answer = self._receive(within_s)
        if answer is None:
            hint = (
                "is that port its control address, not the one where peers connect (listen)? Or " if self._where else ""
            )
            late = f"does not answer within {within_s:g} s"
            raise FleetError(f"the peer at {self.address} {late}: {hint}is it very busy?")
        return answer[0]

    def follow(
        self, verb: str, /, within_s: float = float("inf"), *, in_all_s: float = float("inf"), **fields: Any
    ) -> Iterator[dict[str, Any]]:
        """Send a request and yield its answers, until the last, `within_s` without one, or `in_all_s`."""
        self._send(verb, fields)
        until, last = time.monotonic() + in_all_s, False
        while not last:
            answer = self._receive(min(within_s, until - time.monotonic()))
            if answer is None:
                return
            fields, last = answer
            yield fields

    def _send(self, verb: str, fields: dict[str, Any]) -> None:
        if self._socket is None:
            self._look()
            self.close()  # a connect that failed leaves a context
            self._context = zmq.Context()
            if self._where is None:
                socket = self._dealer()
                short, self._folder = short_name(self._path())
                socket.connect(f"ipc://{short}")
            else:
                socket = self._far(*self._where)
            socket.sndtimeo = 1000
            self._socket = socket  # only a connected one: a send on another would block without a limit
        self._number += 1
        body: bytes = msgpack.packb(fields, use_bin_type=True)
        try:
            self._socket.send_multipart(pack("ask", {"number": self._number, "verb": verb}, [body]))
        except zmq.Again:
            self.close()
            raise FleetError(f"the connection to the peer at {self.address} is gone: is it running?") from None

    def _receive(self, within_s: float) -> tuple[dict[str, Any], bool] | None:
        """Return the next answer to the last request, and whether it is the last one; None if it did not come in time."""
        assert self._socket is not None
        until = time.monotonic() + within_s
        while True:
            left_s = until - time.monotonic()
            if left_s <= 0:
                return None
            if not self._socket.poll(int(1000 * min(left_s, 1.0)) + 1):
                try:  # does it still listen?
                    self._look()
                except UsageError:
                    pass
                except FleetError:
                    self.close()
                    raise FleetError(f"the peer at {self.address} is gone") from None
                continue
            try:
                kind, header, frames = unpack(self._socket.recv_multipart())
                if header.get("number") not in (self._number, 0):
                    continue  # an answer to an earlier request
                if kind == "refused":
                    reason = frames[0].decode(errors="replace") if frames else "refused"
                    raise (UsageError if header.get("code") == UsageError.exit_code else FleetError)(reason)
                return msgpack.unpackb(b"".join(frames), raw=False, strict_map_key=False), bool(header.get("last"))
            except (WireError, ValueError, msgpack.UnpackException) as error:
                unknown = f"sends answers that this version cannot read: {error}"
                raise FleetError(f"the peer at {self.address} {unknown}") from None

    @property
    def state_dir(self) -> Path | None:
        """The state directory of the peer, if it runs on this device."""
        return self._path().parent if self._where is None else None

    def _path(self) -> Path:
        path = Path(self.address)
        if not path.is_dir():
            return path
        inside = path / _STATE / SOCKET  # a peer's folder has its state directory next to its configuration
        return inside if inside.exists() and not (path / SOCKET).exists() else path / SOCKET

    def _look(self) -> None:
        """Check that a peer listens: libzmq would wait indefinitely."""
        try:
            if self._where is not None:
                plain.create_connection(self._where, _LOOK_S).close()
                return
            require_unix(f"the control socket {self.address}", "name a control address, --peer NAME@HOST:PORT")
            path = self._path()
            if path.exists() and not stat.S_ISSOCK(path.stat().st_mode):
                raise UsageError(f"{path} is not the socket of a peer: name its state directory")
            short, _folder = short_name(path)
            if len(os.fsencode(short)) > zmq.IPC_PATH_MAX_LEN:
                raise UsageError(f"{path}: longer than a Unix socket's path may be: change into a folder nearer to it")
            with plain.socket(plain.AF_UNIX) as probe:
                probe.settimeout(_LOOK_S)
                probe.connect(short)
        except PermissionError:
            raise UsageError(
                f"{self.address}: only the user who runs the peer may ask there: ask as that user, or over the network "
                "through its control address, with an operator's key (--peer NAME@HOST:PORT --bundle FILE)"
            ) from None
        except (ConnectionRefusedError, FileNotFoundError):
            others = f" --peer, or {ENVIRONMENT} in the environment, names another" if self.address == DEFAULT else ""
            raise FleetError(f"no peer listens at {self.address}: is it running?{others}") from None
        except TimeoutError:
            hint = "is the network up, and is there no firewall in between?"
            raise FleetError(f"{self.address} does not answer: {hint}") from None
        except OSError as error:
            if error.errno == errno.EAGAIN:  # other clients fill the queue
                return
            raise FleetError(f"{self.address} cannot be reached: {error.strerror or error}") from None

    def _far(self, host: str, port: int) -> zmq.Socket[bytes]:
        """Connect with CURVE. Without a peer's name, try all keys: the right one completes the handshake."""
        assert self._keys is not None
        bundle, roster = self._keys
        names = [self._name] if self._name else list(roster.names)
        for start in range(0, len(names), _TOGETHER):
            tried = []
            poller = zmq.Poller()
            for name in names[start : start + _TOGETHER]:
                socket = self._dealer()
                socket.curve_serverkey = roster.curve_key(name)
                socket.curve_publickey, socket.curve_secretkey = bundle.curve_public, bundle.curve_secret
                socket.ipv6 = ":" in host
                socket.connect(tcp_endpoint(host, port))
                poller.register(socket, zmq.POLLOUT)  # can send only when the handshake is done
                tried.append(socket)
            ready = dict(poller.poll(round(1000 * _ENTER_S)))
            kept = next((socket for socket in tried if socket in ready), None)
            for socket in tried:
                if socket is not kept:
                    socket.close(linger=0)
            if kept is not None:
                return kept
        self.close()
        whose = f"it is not {self._name}'s control address" if self._name else "it is not a peer of this fleet"
        raise FleetError(
            f"{self.address} does not let us in: {whose}, or {bundle.name!r} is not on its fleet roster, or that "
            "port is where peers connect (listen), and not its control address"
        )

    def _dealer(self) -> zmq.Socket[bytes]:
        assert self._context is not None
        socket = self._context.socket(zmq.DEALER)
        set_common_options(socket)
        socket.set(zmq.IMMEDIATE, 1)
        return socket
