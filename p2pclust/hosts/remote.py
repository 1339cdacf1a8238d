"""Reaching the hosts of a fleet: this machine, or others by the system's own ``ssh``, which never prompts."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import IO, Any, Final, TypeVar

from p2pclust.errors import FleetError
from p2pclust.hosts.inventory import Host
from p2pclust.tools.platforms import require_unix

_CONNECT_S: Final = 10
_AT_ONCE: Final = 16  # hosts that are contacted at the same time
_SSH_FAILED: Final = 255

T = TypeVar("T")


def command_for(host: Host, verb: str, arguments: Sequence[str] = ()) -> list[str]:
    """Return the command, as a list of arguments, that runs a verb on a host.

    Examples
    --------
    >>> host = Host("gateway", "pi@10.0.0.7", "python3", "~/fleet", ("-p", "2222"))
    >>> command_for(host, "status")[-3:]
    ['--', 'pi@10.0.0.7', 'exec python3 -m p2pclust.hosts.host status "$HOME"/fleet']
    """
    if host.ssh is None:
        return [host.python, "-m", "p2pclust.hosts.host", verb, host.state_dir, *arguments]
    settings = [f"{name}={value}" for name, value in host.environment.items()]
    words = [*map(_quoted, [host.python, "-m", "p2pclust.hosts.host", verb, host.state_dir, *arguments])]
    line = " ".join(["exec", *(["env", *map(shlex.quote, settings)] if settings else []), *words])
    base = ["ssh", "-o", "BatchMode=yes", "-o", f"ConnectTimeout={_CONNECT_S}", "-T"]
    return [*base, *host.ssh_options, "--", host.ssh, line]


def _quoted(word: str) -> str:
    """Quote a word for the remote shell, which replaces ``~`` by its own home folder."""
    if word == "~" or word.startswith("~/"):
        return '"$HOME"' + (shlex.quote(word[1:]) if word[1:] else "")
    return shlex.quote(word)


def ask(
    host: Host,
    verb: str,
    arguments: Sequence[str] = (),
    send: Callable[[IO[bytes]], None] | None = None,
    timeout_s: float = 120.0,
) -> dict[str, Any]:
    """Run a verb on a host, and return its answer; `send` writes the input. A FleetError names the host in one line."""
    if host.ssh is None:
        require_unix(f"{host.name}: a fleet on this machine", "reach its hosts by SSH, or start it in WSL")
    with tempfile.TemporaryFile() as content:
        if send is not None:
            send(content)
            content.seek(0)
        try:
            done = subprocess.run(
                command_for(host, verb, arguments), stdin=content, capture_output=True, timeout=timeout_s, check=False,
                env=_environment(host),
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise FleetError(f"{host.name}: no answer within {timeout_s:g} s") from None
    if done.returncode == 0:
        with contextlib.suppress(ValueError):
            answer: dict[str, Any] = json.loads(done.stdout)
            return answer
    lines = [line.strip() for line in done.stderr.decode("utf-8", "replace").splitlines() if line.strip()]
    last = lines[-1].removeprefix("error: ") if lines else f"exit code {done.returncode}, without a message"
    if host.ssh is not None and done.returncode == _SSH_FAILED:
        raise FleetError(f"{host.name}: ssh {host.ssh} failed: {last}")
    if "No module named" in last or done.returncode == 127:
        hint = "install it, or name another `python`"
        raise FleetError(f"{host.name}: {host.python} cannot run p2pclust there ({last}): {hint}")
    raise FleetError(f"{host.name}: {last}")


def _environment(host: Host) -> dict[str, str]:
    return {**os.environ, **(host.environment if host.ssh is None else {})}


def on_hosts(hosts: Sequence[Host], do: Callable[[Host], T]) -> tuple[dict[str, T], dict[str, str]]:
    """Call `do` for all hosts at the same time; return the answers, and the errors of hosts that failed, by host."""
    answers: dict[str, T] = {}
    failed: dict[str, str] = {}
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for host, answer in [(host, pool.submit(do, host)) for host in hosts]:
            try:
                answers[host.name] = answer.result()
            except FleetError as error:
                failed[host.name] = str(error)
    return answers, failed


def read_logs(hosts: Sequence[Host], arguments: Sequence[str], on_line: Callable[[str, str], None]) -> None:
    """Run ``logs`` on hosts until they have sent everything; `on_line` gets the host and each line, from a thread per host.

    When this is interrupted, the commands end with their input.
    """
    processes = [
        subprocess.Popen(
            command_for(host, "logs", arguments), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            errors="replace", env=_environment(host),
        )
        for host in hosts
    ]  # fmt: skip

    def read(name: str, lines: Iterable[str]) -> None:
        for line in lines:
            on_line(name, line.rstrip("\n"))

    threads = [
        threading.Thread(target=read, args=(host.name, process.stdout), daemon=True)
        for host, process in zip(hosts, processes, strict=True)
    ]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            thread.join()
    finally:
        for process, thread in zip(processes, threads, strict=True):
            with process:  # at its end, this closes the pipes and waits
                assert process.stdin is not None
                process.stdin.close()
                try:
                    process.wait(_CONNECT_S)
                except subprocess.TimeoutExpired:
                    process.kill()
                thread.join()
