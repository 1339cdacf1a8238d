"""Rows of a command's output, and what others are told of rows that cannot be read."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from p2pclust.data.sources import public_reason, read_source
from p2pclust.errors import DataError


def command(program: str, **more: Any) -> dict[str, Any]:
    return {"data": {"command": [sys.executable, "-c", program], "format": "csv", **more}}


def test_a_file_and_a_folder_are_read_as_everywhere(tmp_path: Path) -> None:
    (tmp_path / "b.csv").write_text("w,h\n3,4\n")
    (tmp_path / "a.csv").write_text("w,h\n1,?\n")
    assert read_source({"data": str(tmp_path / "b.csv"), "columns": ["h"]}).X.tolist() == [[4.0]]
    assert read_source({"data": str(tmp_path), "missing_values": {"fill": 0.0}}).X.tolist() == [[1.0, 0.0], [3.0, 4.0]]


def test_a_folder_names_the_file_that_is_not_as_the_others(tmp_path: Path) -> None:
    (tmp_path / "2026-01.csv").write_text("w,h\n3,4\n")
    (tmp_path / "2026-02.csv").write_text("w,h,g\n1,2,3\n")
    with pytest.raises(DataError, match=r"2026-02\.csv: columns w, h, g, but .*2026-01\.csv has w, h"):
        read_source({"data": str(tmp_path)})


def test_it_is_read_anew_each_time(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("w\n1\n")
    config = command("print(open('rows.csv').read())", cwd=str(tmp_path))
    assert read_source(config).n_rows == 1
    (tmp_path / "rows.csv").write_text("w\n1\n2\n")
    assert read_source(config).n_rows == 2


def test_arguments_are_no_shell_s_business() -> None:
    data = command("import sys; print('w'); print(len(sys.argv[1]))")["data"]
    assert read_source({"data": data | {"command": [*data["command"], "$HOME; *"]}}).X.tolist() == [[8.0]]


def test_a_command_cannot_speak_for_the_peer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", "/run/systemd/notify")
    monkeypatch.setenv("METER", "3")
    program = "import os; print('w'); print(os.environ['METER'] + str(int('NOTIFY_SOCKET' in os.environ)))"
    assert read_source(command(program)).X.tolist() == [[30.0]]


@pytest.mark.slow
def test_every_format_comes_out_of_a_command() -> None:
    X = [[1.0, 2.0], [3.0, 4.0]]
    npy = "import sys, numpy; numpy.save(sys.stdout.buffer, [[1., 2.], [3., 4.]])"
    assert read_source(command(npy, format="npy")).X.tolist() == X
    npz = (
        "import io, sys, numpy; f = io.BytesIO(); numpy.savez(f, X=[[1., 2.], [3., 4.]]); "
        "sys.stdout.buffer.write(f.getvalue())"
    )
    assert read_source(command(npz, format="npz")).X.tolist() == X
    arff = "print('@relation r\\n@attribute a real\\n@attribute b real\\n@data\\n1,2\\n3,4')"
    assert read_source(command(arff, format="arff") | {"columns": ["b"]}).X.tolist() == [[2.0], [4.0]]


@pytest.mark.parametrize(
    ("program", "more", "line"),
    [
        ("import sys; sys.exit('first\\nno meter at /dev/tty9')", {}, "ended with code 1: no meter at /dev/tty9"),
        ("import sys; sys.exit(7)", {}, "ended with code 7: it said nothing"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", {}, "was ended by signal 15: it said nothing"),
        ("print('w'); print('x1')", {}, "its output: row 2, column 1 (w): 'x1' is text: expected a number"),
        ("pass", {}, "its output: no rows: expected at least one"),
        ("print('1' * 10**6)", {"max_mb": 0.5}, "writes more than 0.5 MB: raise max_mb, or let it write less"),
        ("print('no numbers')", {"format": "npy"}, "its output: not a NumPy file of numbers, or it holds Python"),
    ],
)
def test_refusals_are_one_line(program: str, more: dict[str, Any], line: str) -> None:
    with pytest.raises(DataError) as error:
        read_source(command(program, **more))
    assert str(error.value).startswith(f"command {sys.executable}: {line}")
    assert "\n" not in str(error.value)


def test_a_program_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"^command ./read-meter: cannot be started \(No such file or directory\)$"):
        read_source({"data": {"command": ["./read-meter"], "format": "csv", "cwd": str(tmp_path)}})


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.slow
@pytest.mark.parametrize("why", ["deadline", "the peer leaves"])
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_command_that_hangs_is_ended_with_all_that_it_started(tmp_path: Path, why: str) -> None:
    pids = tmp_path / "pids"
    program = (
        "import os, signal, subprocess, sys\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import signal; signal.pause()'])\n"
        f"open({str(pids)!r}, 'w').write(f'{{os.getpid()}} {{child.pid}}')\n"
        "print('waiting for the meter', file=sys.stderr, flush=True)\n"
        "signal.pause()"
    )
    began = time.monotonic()
    if why == "deadline":
        with pytest.raises(DataError, match="not ready after 10 s: waiting for the meter"):
            read_source(command(program, timeout_s=10.0))
    else:
        with pytest.raises(DataError, match="ended, because the peer leaves"):
            read_source(command(program), lambda: pids.exists() and len(pids.read_text().split()) == 2)
    assert time.monotonic() - began < 25.0, "not after its thirty seconds"
    started = [int(pid) for pid in pids.read_text().split()]
    deadline = time.monotonic() + 10.0
    while any(alive(pid) for pid in started):
        assert time.monotonic() < deadline
        os.sched_yield()
    assert len(started) == 2


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_what_a_command_leaves_behind_with_its_output_is_ended_too(tmp_path: Path) -> None:
    program = (
        "import subprocess, sys\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import signal; signal.pause()'])\n"
        f"open({str(tmp_path / 'pid')!r}, 'w').write(str(child.pid))\n"
        "print('w'); print(1)"
    )
    with pytest.raises(DataError, match="not ready after 10 s"):
        read_source(command(program, timeout_s=10.0))
    pid, deadline = int((tmp_path / "pid").read_text()), time.monotonic() + 10.0
    while alive(pid):
        assert time.monotonic() < deadline
        os.sched_yield()


def test_others_hear_where_it_is_wrong_and_neither_path_nor_value() -> None:
    error = DataError("/home/anna/rows.csv: row 12, column 2 (kwh): 'secret' is text: expected a number")
    assert public_reason(error) == "its data cannot be used (row 12, column 2)"
    assert public_reason(DataError("command ./read: ended with code 3: password")) == "its data cannot be used"


def test_no_descriptor_is_left() -> None:
    before = sorted(os.listdir("/dev/fd"))
    read_source(command("print('w'); print(1)"))
    with pytest.raises(DataError):
        read_source(command("import sys; sys.exit(1)"))
    assert sorted(os.listdir("/dev/fd")) == before
