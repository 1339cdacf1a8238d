"""Read a peer's rows from a file, a folder of files, or the output of a command."""

from __future__ import annotations

import contextlib
import os
import select
import selectors
import signal
import tempfile
import time
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from p2pclust.data.columns import HowRead
from p2pclust.data.dataset import DataSet
from p2pclust.data.readers import SUFFIXES, read_as, read_chosen
from p2pclust.data.schema import Schema, SchemaError
from p2pclust.data.table import Choice
from p2pclust.errors import DataError

if TYPE_CHECKING:
    import subprocess

FORMATS = tuple(suffix.removeprefix(".") for suffix in SUFFIXES)  # of a command's output
TIMEOUT_S = 30.0  # how long a command may take, unless the configuration says otherwise
MAX_MB = 256.0  # how much a command may write, unless the configuration says otherwise
_PIECE = 1 << 16
_LOOK_S = 0.1  # how soon a cancelled command is ended
_MAX_SAID = 200
# What only the peer itself is to say to its service manager.
_ITS_OWN = {"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"}


def read_source(config: Mapping[str, Any], cancelled: Callable[[], bool] = lambda: False) -> DataSet:
    """Read a peer's rows as its configuration says, again whenever it is called.

    In `config`, ``data`` is the path of a file or a folder, or a table with ``command`` (the program and its arguments),
    ``format`` (one of `FORMATS`), and perhaps ``timeout_s``, ``max_mb`` and ``cwd`` (the folder in which it runs);
    ``columns``, ``missing_values``, ``id_column``, ``schema`` (as plain values) and what `HowRead` has are as
    `p2pclust.data.readers.read` takes them.
    A command is ended when `cancelled` says that the peer leaves.

    A command is started without a shell: its arguments arrive as they are written. It has no input. When it is ended
    before it is ready, so is what it started.

    >>> import sys
    >>> program = "print('watt,volt'); print('3,230')"
    >>> data = {"command": [sys.executable, "-c", program], "format": "csv"}
    >>> read_source({"data": data}).X.tolist()
    [[3.0, 230.0]]
    """
    data, missing_values = config["data"], config.get("missing_values", "error")
    how_read = HowRead.of(config)
    schema = None if config.get("schema") is None else Schema.from_dict(config["schema"])
    choice = Choice(config.get("columns"), None, None, missing_values, config.get("id_column"), how_read, schema)
    if isinstance(data, str | Path):
        return read_chosen(Path(data), choice)
    named = f"command {data['command'][0]}"
    with tempfile.TemporaryFile() as output:  # it has no name, so it vanishes even if the peer is killed
        _run(data, named, output, cancelled)
        file = Path(f"/dev/fd/{output.fileno()}")
        try:
            return read_as(file, f".{data['format']}", choice)
        except SchemaError as error:
            raise SchemaError(error.reason, f"{named}: its output") from None
        except DataError as error:
            raise DataError(str(error).replace(str(file), f"{named}: its output")) from None


def public_reason(error: DataError) -> str:
    """Return the reason that other peers may see for data that cannot be read: the place of the error, no path and no value.

    A table that does not fit a schema has the name of the column, which the job's schema has, too.

    >>> public_reason(DataError("/home/me/rows.csv: row 7, column 2 (watt): 'secret' is text: expected a number"))
    'its data cannot be used (row 7, column 2)'
    """
    if isinstance(error, SchemaError):
        return f"its data cannot be used: {error.reason}"
    words = str(error).replace(",", " ").replace(":", " ").split()
    places = [f"{a} {b}" for a, b in pairwise(words) if a in ("row", "column") and b.isdigit()]
    return "its data cannot be used" + (f" ({', '.join(places[:2])})" if places else "")


def _run(data: Mapping[str, Any], named: str, output: IO[bytes], cancelled: Callable[[], bool]) -> None:
    """Let the command write into the file; return when it has ended well."""
    import subprocess  # noqa: PLC0415 - few peers have a command

    try:
        process = subprocess.Popen(
            data["command"], cwd=data.get("cwd"), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, start_new_session=True, env={k: v for k, v in os.environ.items() if k not in _ITS_OWN},
        )  # fmt: skip
    except OSError as error:
        raise DataError(f"{named}: cannot be started ({error.strerror})") from None
    with process:
        try:
            said = _drain(process, data, named, output, cancelled)
        finally:  # end the command and all that it started, even if the command itself has ended
            if process.returncode is None:  # not reaped yet, so its process id still belongs to its group
                with contextlib.suppress(ProcessLookupError, PermissionError):  # the group has ended
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    if (code := process.returncode) != 0:
        how = f"ended with code {code}" if code > 0 else f"was ended by signal {-code}"
        raise DataError(f"{named}: {how}: {said}")


def _drain(
    process: subprocess.Popen[bytes], data: Mapping[str, Any], named: str, output: IO[bytes],
    cancelled: Callable[[], bool],
) -> str:  # fmt: skip
    """Read all that the command writes; return the last line of its standard error."""
    timeout_s, max_mb = float(data.get("timeout_s", TIMEOUT_S)), float(data.get("max_mb", MAX_MB))
    assert process.stdout is not None
    assert process.stderr is not None
    deadline, size, said = time.monotonic() + timeout_s, 0, b""
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        selector.register(process.stderr, selectors.EVENT_READ)
        while (left_s := deadline - time.monotonic()) > 0 and selector.get_map():
            if cancelled():
                raise DataError(f"{named}: ended, because the peer leaves")
            for key, _ in selector.select(min(left_s, _LOOK_S)):
                piece = os.read(key.fd, _PIECE)
                if not piece:
                    selector.unregister(key.fileobj)
                elif key.fileobj is process.stderr:
                    said = (said + piece)[-_PIECE:]
                else:
                    size += len(piece)
                    if size > max_mb * 1e6:
                        raise DataError(f"{named}: writes more than {max_mb:g} MB: raise max_mb, or let it write less")
                    output.write(piece)
        complete = not selector.get_map()
    output.flush()
    while complete and process.poll() is None and time.monotonic() < deadline:  # it closed its output and continues
        select.select([], [], [], _LOOK_S)
    lines = [line.strip() for line in said.decode("utf-8", "replace").splitlines() if line.strip()]
    last = lines[-1] if lines else "it said nothing"
    last = (last if last.isprintable() else repr(last))[:_MAX_SAID]
    if not complete or process.poll() is None:  # otherwise it is not reaped: its group is to be ended
        raise DataError(f"{named}: not ready after {timeout_s:g} s: {last}")
    return last
