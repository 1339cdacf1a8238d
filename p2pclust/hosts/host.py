"""What `p2pclust fleet` does on one host, here or through SSH: ``python -m p2pclust.hosts.host VERB FOLDER [NAME...]``.

It makes sure that one supervisor runs in the folder, and prints one JSON object.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import select
import shutil
import socket
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO, Any, Final

from p2pclust.errors import FleetError, P2PClustError, UsageError
from p2pclust.hosts.guard import LOCK, added, last_line, tail
from p2pclust.hosts.restarts import ORDERS
from p2pclust.hosts.supervisor import ASK, LOG, PLAN, STATE
from p2pclust.tools.files import expanded, make_folder, replacing
from p2pclust.tools.platforms import exclusive_lock

#: Of the fleet's signing key; the supervisor, which may run for months, must not inherit it.
_PASSPHRASE: Final = "P2PCLUST_PASSPHRASE"
_LOOK_S: Final = 0.1
_START_S: Final = 20.0  # a supervisor that does not answer by then has failed
_ANSWER_S: Final = 5.0
_CONTROL_S: Final = 3.0  # for the answer of a peer
_AT_ONCE: Final = 8  # peers that are asked at the same time
_GRACE_S: Final = 5.0  # beyond the deadline by which the peers are killed


def up(wait_s: float, source: IO[bytes]) -> dict[str, Any]:
    """Install a plan and its files from a tar archive, let the supervisor apply it, and give started peers some time.

    Return ``changes``, ``roster`` (the answer of a running peer to the new roster), and what `status` returns.
    """
    with _alone():
        plan = _unpack(source)
        _write(Path(PLAN), io.BytesIO(plan), 0o600)  # last: an interrupted copy changes nothing that runs
        changes = _ask({"do": "reload"}) if _kept() else None
        if changes is None or changes.get("ending"):
            _until(lambda: not _kept(), _START_S, "the supervisor that is ending has not ended")
            _start_supervisor()
            there = _peers()
            stopped = [name for name in sorted(there) if there[name]["stopped"]]
            changes = {"new": [name for name in sorted(json.loads(plan)["peers"]) if name not in stopped]}
            changes |= {"stopped": stopped} if stopped else {}
        roster: dict[str, Any] = {}  # started peers read it, but a running one must get it, so that others admit them
        for name in changes.get("unchanged", ()) if Path("roster.json").exists() else ():
            roster = _ask_peer(name, "roster", data=Path("roster.json").read_bytes())
            if "error" not in roster:
                break
            roster = {"error": f"{name}: {roster['error']}"}
        _until_settled([name for key in ("new", "changed", "again") for name in changes.get(key, ())], wait_s)
        return {"changes": changes, "roster": roster} | status()


def status() -> dict[str, Any]:
    """Return the state of the supervisor, and the status that the peers report."""
    if _kept():
        answer = _ask({"do": "status"})
        asked = [name for name, peer in answer["peers"].items() if peer["pid"] and peer["status"] != "paused"]
        if asked:
            from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415 - seldom needed

            with ThreadPoolExecutor(_AT_ONCE) as pool:
                for name, snapshot in zip(asked, pool.map(partial(_ask_peer, verb="status"), asked), strict=True):
                    answer["peers"][name]["snapshot"] = snapshot
        return {"supervisor": {key: answer[key] for key in ("pid", "since", "ending")}, "peers": answer["peers"]}
    # No supervisor runs, so no peer does: return the last state.
    known = json.loads(Path(STATE).read_text(encoding="utf-8"))["peers"] if Path(STATE).exists() else {}
    for peer in known.values():
        peer |= {"status": "given-up" if peer["status"] == "given-up" else "left", "pid": 0}
    return {"supervisor": None, "peers": known}


def down(deadline_s: float) -> dict[str, Any]:
    """Ask all peers and the supervisor to end, and kill the peers after the deadline."""
    with _alone():
        if _kept():
            _ask({"do": "down", "deadline_s": deadline_s})
            _until(lambda: not _kept(), deadline_s + _GRACE_S, "the supervisor has not ended")
        return status()


def order(verb: str, names: Sequence[str], wait_s: float, deadline_s: float) -> dict[str, Any]:
    """Let the supervisor carry out an order on all of these peers, or on no peer if one of them is refused.

    Return ``refused`` (reasons by name), and ``peers`` as they are now, without their own status.
    """
    if not _kept():
        raise FleetError("the fleet is not up: no supervisor runs there: run `p2pclust fleet up` first")
    before = _peers()
    answer = _ask({"do": verb, "names": names, "deadline_s": deadline_s})
    if answer.get("ending"):
        raise FleetError("the fleet is being brought down")
    if not answer["refused"]:
        late = f"{', '.join(names)}: not ended"
        if verb == "kill":
            _until(lambda: all(_peers()[name]["pid"] != before[name]["pid"] for name in names), _GRACE_S, late)
        elif verb in ("stop", "restart"):
            ended = ("stopped",) if verb == "stop" else ("waiting", "starting", "running", "given-up")
            _until(lambda: _are(names, *ended), deadline_s + _GRACE_S, late)
        if verb == "restart":
            _until_settled(names, wait_s)
    peers = _peers()
    return {"refused": answer["refused"], "peers": {name: peers[name] for name in names if name in peers}}


def logs(names: Sequence[str], lines: int, *, follow: bool, out: IO[str]) -> None:
    """Print the last lines of peers' logs, and with `follow` those that are added until standard input ends."""
    known = sorted(path.parent.name for path in Path("peers").glob("*/peer.log"))
    files = {name: Path("peers", name, "peer.log") for name in (names or known) if name in known}
    if not names:
        files["supervisor"] = Path(LOG)
    places: dict[str, int] = {}
    while True:
        for name, file in files.items():
            found, places[name] = added(file, places[name]) if name in places else tail(file, lines)
            out.writelines(f"{name}\t{line}\n" for line in found)
        out.flush()
        if not follow or (select.select([sys.stdin], [], [], _LOOK_S)[0] and not sys.stdin.buffer.read(1)):
            return


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """Keep other commands from changing this folder at the same time."""
    with Path("changing").open("a", encoding="utf-8") as file:
        exclusive_lock(file.fileno(), wait=True)
        yield


def _unpack(source: IO[bytes]) -> bytes:
    plan = b""
    try:
        with tarfile.open(fileobj=source, mode="r|") as archive:
            for member in archive:
                path = PurePosixPath(member.name)
                content = archive.extractfile(member) if member.isfile() else None
                if content is None or path.is_absolute() or ".." in path.parts:
                    raise UsageError(f"{member.name} does not belong in a fleet's folder")
                if path.name == PLAN:
                    plan = content.read()
                else:
                    _write(Path(path), content, member.mode & 0o755)
    except tarfile.TarError as error:
        raise UsageError(f"the input is not a tar archive of a fleet: {error}") from None
    if not plan:
        raise UsageError("the archive has no plan")
    return plan


def _write(path: Path, content: IO[bytes], mode: int) -> None:
    make_folder(path.parent, 0o700)
    with replacing(path, mode=mode, durable=True) as file:
        shutil.copyfileobj(content, file)


def _kept() -> bool:
    import fcntl  # noqa: PLC0415 - absent on Windows, which is not a host

    try:
        with Path(LOCK).open(encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def _start_supervisor() -> None:
    """Start it so that it outlives this process, its terminal and its connection."""
    with Path(LOG).open("ab") as log:
        began = log.seek(0, os.SEEK_END)
        process = subprocess.Popen(
            [sys.executable, "-m", "p2pclust.hosts.supervisor", str(Path.cwd())],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            env={name: value for name, value in os.environ.items() if name != _PASSPHRASE},
        )  # fmt: skip

    def answers() -> bool:
        if process.poll() is not None:
            raise FleetError(f"the supervisor ended at once: {last_line(Path(LOG), began) or 'without a message'}")
        try:
            return "peers" in _ask({"do": "status"})
        except FleetError:
            return False

    _until(answers, _START_S, "the supervisor does not answer")


def _ask(request: Mapping[str, Any]) -> dict[str, Any]:
    """Send a request to the supervisor; its socket is in the current folder, so the path is always short."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(_ANSWER_S)
            connection.connect(ASK)
            connection.sendall(json.dumps(request).encode() + b"\n")
            return dict(json.loads(connection.makefile("rb").read()))
    except (OSError, ValueError) as error:
        raise FleetError(f"the supervisor of {Path.cwd()} does not answer ({error}): see {LOG} there") from None


def _peers() -> dict[str, Any]:
    return dict(_ask({"do": "status"})["peers"])


def _are(names: Sequence[str], *statuses: str) -> bool:
    peers = _peers()
    return all(peers[name]["status"] in statuses for name in names if name in peers)


def _until_settled(names: Sequence[str], wait_s: float) -> None:
    """Wait until each of these peers runs, or was given up; the answer shows which peers are not ready by then."""
    with contextlib.suppress(FleetError):
        _until(lambda: _are(names, "running", "given-up"), wait_s, "")


def _ask_peer(name: str, verb: str, **fields: Any) -> dict[str, Any]:
    from p2pclust.hosts.client import Connection  # noqa: PLC0415 - seldom needed

    try:
        with Connection(Path("peers", name, "state")) as connection:
            return connection.ask(verb, within_s=_CONTROL_S, **fields)
    except P2PClustError as error:
        return {"error": str(error)}


def _until(holds: Callable[[], bool], timeout_s: float, complaint: str) -> None:
    deadline = time.monotonic() + timeout_s
    while not holds():
        if time.monotonic() > deadline:
            raise FleetError(f"{complaint} after {timeout_s:g} s: see {LOG} in {Path.cwd()}")
        select.select([], [], [], _LOOK_S)


def main(arguments: Sequence[str] | None = None) -> int:
    """Start, look at or end the peers of one host, as the operator's machine asks over ssh; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m p2pclust.hosts.host")
    parser.add_argument("verb", choices=("up", "status", "down", "logs", *ORDERS))
    parser.add_argument("folder")
    parser.add_argument("names", nargs="*")
    parser.add_argument("--wait", type=float, default=20.0)
    parser.add_argument("--deadline", type=float, default=10.0)
    parser.add_argument("--lines", type=int, default=10)
    parser.add_argument("--follow", action="store_true")
    asked = parser.parse_args(arguments)
    folder = expanded(asked.folder)
    os.umask(0o077)  # keys, stores and logs are private to their owner
    try:
        if asked.verb == "up":
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        elif not folder.is_dir() and asked.verb in ORDERS:
            raise FleetError("the fleet is not up: nothing was started there: run `p2pclust fleet up` first")
        elif not folder.is_dir():
            sys.stdout.write('{"supervisor": null, "peers": {}}\n' if asked.verb != "logs" else "")
            return 0
        os.chdir(folder)
        if asked.verb == "logs":
            logs(asked.names, asked.lines, follow=asked.follow, out=sys.stdout)
            return 0
        if asked.verb == "up":
            answer = up(asked.wait, sys.stdin.buffer)
        elif asked.verb in ORDERS:
            answer = order(asked.verb, asked.names, asked.wait, asked.deadline)
        else:
            answer = status() if asked.verb == "status" else down(asked.deadline)
    except BrokenPipeError:  # the reader of the logs has closed its end
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 0
    except (P2PClustError, OSError) as error:
        sys.stderr.write(f"error: {error}\n")
        return error.exit_code if isinstance(error, P2PClustError) else 2
    sys.stdout.write(json.dumps(answer) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
