"""The supervisor of a host, with small programs in the place of peers: what it starts, what it leaves alone, how it ends."""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from runs import until

from p2pclust.hosts.host import down, order, status
from p2pclust.hosts.inventory import Host
from p2pclust.hosts.remote import read_logs

# One program in the place of a peer that lives until it is told to leave, one that fails at once.
LIVES = "import signal,sys; signal.signal(15, lambda *_: sys.exit(0)); print('here', flush=True); signal.pause()"
STUBBORN = "import signal; signal.signal(15, lambda *_: None); print('no', flush=True)\nwhile True: signal.pause()"
FAILS = "import sys; print('one'); sys.exit('error: the disk is full')"
READY = (
    "import os,signal,socket,sys; signal.signal(15, lambda *_: sys.exit(0));"
    "socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b'READY=1\\nSTATUS=linked', os.environ['NOTIFY_SOCKET']);"
    "signal.pause()"
)

pytestmark = [pytest.mark.processes, pytest.mark.slow]

Entries = Mapping[str, str]


def archive(plan: Mapping[str, Any] | None, files: Mapping[str, bytes] | None = None) -> bytes:
    """What a host is sent."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w|") as made:
        for name, content in {
            **(files or {}),
            **({} if plan is None else {"plan.json": json.dumps(plan).encode()}),
        }.items():
            information = tarfile.TarInfo(name)
            information.size, information.mode = len(content), 0o600
            made.addfile(information, io.BytesIO(content))
    return stream.getvalue()


class HostFolder:
    """A folder on a host, and what is done there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def do(self, verb: str, *options: str, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        command = [sys.executable, "-m", "p2pclust.hosts.host", verb, str(self.folder), *options]
        return subprocess.run(command, input=given, capture_output=True, timeout=60, check=False)

    def up(self, programs: Entries, wait_s: float = 0.0) -> dict[str, Any]:
        peers = {name: {"command": ["-c", text], "print": text} for name, text in programs.items()}
        done = self.do("up", "--wait", f"{wait_s}", given=archive({"peers": peers}))
        assert done.returncode == 0, done.stderr
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer

    def status(self) -> dict[str, Any]:
        with contextlib.chdir(self.folder):  # in this process: a new one for each look would take most of the time
            return status()

    def down(self, deadline_s: float = 10.0) -> dict[str, Any]:
        with contextlib.chdir(self.folder):
            return down(deadline_s)

    def order(self, verb: str, *names: str, wait_s: float = 0.0) -> dict[str, Any]:
        with contextlib.chdir(self.folder):
            answer = order(verb, names, wait_s, 10.0)
        assert answer["refused"] == {}
        return answer

    def refused(self, verb: str, *names: str) -> dict[str, str]:
        with contextlib.chdir(self.folder):
            found: dict[str, str] = order(verb, names, 0.0, 10.0)["refused"]
        return found

    def peer(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.status()["peers"][name]
        return found

    def log(self, name: str) -> str:
        file = self.folder / "peers" / name / "peer.log"
        return file.read_text() if file.exists() else ""

    @property
    def said(self) -> str:
        return (self.folder / "supervisor.log").read_text()


def gone(pid: int) -> bool:
    """Whether a process has ended; one that nobody has asked about since has, too."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def state(pid: int) -> str:
    """How the kernel calls what a process does: T is one that was stopped."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


@pytest.fixture
def host(tmp_path: Path) -> Iterator[HostFolder]:
    made = HostFolder(tmp_path / "fleet")
    yield made
    if made.folder.exists():
        made.down(0.0)
    state = made.folder / "state.json"
    if state.exists():
        until(lambda: gone(json.loads(state.read_text())["pid"]))


class TestUp:
    def test_twice_changes_nothing(self, host: HostFolder) -> None:
        first = host.up({"a": LIVES, "b": LIVES})
        assert first["changes"] == {"new": ["a", "b"]}
        second = host.up({"a": LIVES, "b": LIVES})
        assert second["changes"] == {
            "new": [],
            "changed": [],
            "removed": [],
            "again": [],
            "stopped": [],
            "unchanged": ["a", "b"],
        }
        assert second["supervisor"] == first["supervisor"]
        assert [second["peers"][name]["pid"] for name in "ab"] == [first["peers"][name]["pid"] for name in "ab"]

    def test_only_what_changed_is_started_again_and_what_is_removed_leaves(self, host: HostFolder) -> None:
        first = host.up({"a": LIVES, "b": LIVES, "c": LIVES})["peers"]
        until(lambda: all("here" in host.log(name) for name in "abc"))
        changes = host.up({"a": LIVES, "b": LIVES + "\n"})["changes"]
        assert (changes["changed"], changes["removed"], changes["unchanged"]) == (["b"], ["c"], ["a"])
        until(lambda: "c" not in host.status()["peers"] and host.peer("b")["pid"] not in (0, first["b"]["pid"]))
        peers = host.status()["peers"]
        assert peers["a"]["pid"] == first["a"]["pid"]
        assert peers["b"]["restarts"] == 0  # as asked: no failure
        assert gone(first["c"]["pid"])
        assert (host.folder / "peers" / "c").is_dir()  # its store stays

    def test_a_peer_that_says_that_it_is_ready_is_waited_for(self, host: HostFolder) -> None:
        peer = host.up({"a": READY}, wait_s=20.0)["peers"]["a"]
        assert (peer["status"], peer["says"]) == ("running", "linked")

    @pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a Unix socket's path may be too long to be told")
    def test_also_in_a_folder_that_lies_deep(self, tmp_path: Path) -> None:
        host = HostFolder(tmp_path / "a-name-of-many-letters" / ("n" * 90))
        try:
            peer = host.up({"a": READY}, wait_s=20.0)["peers"]["a"]
            assert (peer["status"], peer["says"]) == ("running", "linked")
        finally:
            host.down(0.0)

    def test_a_passphrase_that_was_in_the_environment_is_not_in_that_of_peers(
        self, host: HostFolder, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("P2PCLUST_PASSPHRASE", "secret")
        monkeypatch.setenv("A_SETTING", "kept")
        host.up({"a": "import os; print(sorted(os.environ), flush=True); import signal; signal.pause()"})
        until(lambda: "A_SETTING" in host.log("a"))
        assert "P2PCLUST_PASSPHRASE" not in host.log("a")

    def test_a_second_supervisor_is_refused(self, host: HostFolder) -> None:
        host.up({"a": LIVES})
        command = [sys.executable, "-m", "p2pclust.hosts.supervisor", str(host.folder)]
        second = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert second.returncode == 3
        assert "another supervisor runs in this folder" in second.stderr

    @pytest.mark.parametrize("name", ["/etc/x", "../x", "peers/../../x"])
    def test_a_file_that_would_lie_elsewhere_is_refused(self, host: HostFolder, name: str) -> None:
        done = host.do("up", given=archive({"peers": {}}, {name: b"x"}))
        assert (done.returncode, done.stdout) == (2, b"")
        assert done.stderr == f"error: {name} does not belong in a fleet's folder\n".encode()

    def test_a_copy_that_breaks_off_starts_nothing(self, host: HostFolder) -> None:
        done = host.do("up", given=archive(None, {"peers/a/peer.toml": b"x"}))
        assert (done.returncode, done.stderr) == (2, b"error: the archive has no plan\n")
        assert json.loads(host.do("status").stdout) == {"supervisor": None, "peers": {}}


class TestFailures:
    def test_one_that_is_killed_comes_back_and_nobody_else_notices(self, host: HostFolder) -> None:
        first = host.up({"a": LIVES, "b": LIVES})["peers"]
        os.kill(first["a"]["pid"], signal.SIGKILL)
        until(lambda: host.peer("a")["restarts"] == 1 and host.peer("a")["pid"] != 0)
        assert host.peer("a")["pid"] != first["a"]["pid"]
        assert host.peer("a")["ended"] == "killed by SIGKILL"
        assert host.peer("b")["pid"] == first["b"]["pid"]

    def test_one_that_fails_is_given_up_with_its_last_line_and_tried_again_by_the_next_up(
        self, host: HostFolder
    ) -> None:
        # It fails until its disk has room. The supervisor is the real one, but does not wait as long.
        program = "import os,signal,sys; os.path.exists('room') or sys.exit('error: the disk is full'); signal.pause()"
        hasty = "from p2pclust.hosts import restarts, supervisor; restarts._FIRST_WAIT_S = 0.01; supervisor.main()"
        host.folder.mkdir()
        (host.folder / "plan.json").write_text('{"peers": {}}')
        with subprocess.Popen([sys.executable, "-c", hasty, host.folder], stderr=subprocess.PIPE, text=True) as process:
            try:
                until((host.folder / "ask").exists)
                self._is_given_up(host, program)
            finally:
                host.down(0.0)
            assert process.stderr is not None
            assert "a is given up: it failed 5 times in a row" in process.stderr.read()

    def _is_given_up(self, host: HostFolder, program: str) -> None:
        host.up({"a": program})
        until(lambda: host.peer("a")["status"] == "given-up")
        peer = host.peer("a")
        assert (peer["restarts"], peer["ended"], peer["last_line"]) == (4, "exit code 1", "the disk is full")
        (host.folder / "room").touch()
        assert host.up({"a": program})["changes"]["again"] == ["a"]
        until(lambda: host.peer("a")["pid"] != 0)

    def test_one_that_hangs_is_killed_and_one_that_never_spoke_is_left_alone(self, host: HostFolder) -> None:
        hangs = READY.replace("STATUS=linked", "WATCHDOG=1")
        hasty = "from p2pclust.hosts import supervisor; supervisor.WATCHDOG_S = 0.3; supervisor.main()"
        host.folder.mkdir()
        (host.folder / "plan.json").write_text('{"peers": {}}')
        with subprocess.Popen([sys.executable, "-c", hasty, host.folder], stderr=subprocess.PIPE, text=True) as process:
            try:
                until((host.folder / "ask").exists)
                quiet = host.up({"a": hangs, "b": READY})["peers"]["b"]["pid"]
                until(lambda: host.peer("a")["restarts"] >= 1)
            finally:
                peers = host.down(0.0)["peers"]
            assert process.stderr is not None
            assert "a has not moved for 0.3 s: killed" in process.stderr.read()
        assert peers["b"]["restarts"] == 0
        assert quiet != 0

    def test_whoever_says_nonsense_is_noted_and_answered_no_more(self, host: HostFolder) -> None:
        host.up({"a": LIVES})
        code = (
            "import os,socket,sys; os.chdir(sys.argv[1]); s=socket.socket(socket.AF_UNIX); s.connect('ask');"
            "s.sendall(sys.argv[2].encode()+b'\\n'); print(s.recv(10))"
        )
        for nonsense in ("{", "[]", "{}", '{"do": "down", "deadline_s": "x"}'):
            done = subprocess.run([sys.executable, "-c", code, host.folder, nonsense], capture_output=True, check=True)
            assert done.stdout == b"b''\n"
        assert host.peer("a")["pid"]
        assert host.said.count("a request that was not understood") == 4


class TestSinglePeers:
    def test_a_stopped_one_stays_down_also_over_up_and_is_started_by_its_name(self, host: HostFolder) -> None:
        first = host.up({"a": LIVES, "b": LIVES})["peers"]
        until(lambda: "here" in host.log("a"))
        stopped = host.order("stop", "a")["peers"]["a"]
        assert (stopped["status"], stopped["pid"], stopped["ended"]) == ("stopped", 0, "exit code 0")
        assert gone(first["a"]["pid"])
        changes = host.up({"a": LIVES, "b": LIVES})["changes"]
        assert (changes["stopped"], changes["unchanged"]) == (["a"], ["b"])
        assert host.peer("a")["status"] == "stopped"
        assert host.refused("stop", "a", "b") == {"a": "is stopped already"}
        again = host.order("restart", "a", "b", wait_s=0.0)["peers"]
        assert "b" in again
        until(lambda: all(host.peer(name)["pid"] not in (0, first[name]["pid"]) for name in "ab"))
        assert [host.peer(name)["restarts"] for name in "ab"] == [0, 0]  # as asked: no failure

    @pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells children that their parent is gone")
    def test_also_over_the_death_of_its_supervisor_and_only_down_forgets_it(self, host: HostFolder) -> None:
        up = host.up({"a": LIVES, "b": LIVES})
        host.order("stop", "a")
        os.kill(up["supervisor"]["pid"], signal.SIGKILL)
        until(lambda: gone(up["peers"]["b"]["pid"]))
        again = host.up({"a": LIVES, "b": LIVES})
        assert again["changes"] == {"new": ["b"], "stopped": ["a"]}
        assert (again["peers"]["a"]["status"], again["peers"]["a"]["pid"]) == ("stopped", 0)
        host.down()
        assert host.up({"a": LIVES, "b": LIVES})["changes"] == {"new": ["a", "b"]}

    def test_a_killed_one_is_started_again_as_after_any_crash(self, host: HostFolder) -> None:
        first = host.up({"a": LIVES})["peers"]["a"]["pid"]
        killed = host.order("kill", "a")["peers"]["a"]
        assert (killed["ended"], killed["restarts"]) == ("killed by SIGKILL", 1)
        until(lambda: host.peer("a")["pid"] not in (0, first))

    def test_a_paused_one_stands_still_and_no_watchdog_kills_it(self, host: HostFolder) -> None:
        # It says that it is ready, and then again and again that it is well.
        feeds = READY.replace("sys.exit(0)", "(signal.setitimer(0, 0), sys.exit(0))").replace(
            "signal.pause()",
            "notify=lambda *_: socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b'WATCHDOG=1',"
            "os.environ['NOTIFY_SOCKET']); signal.signal(14, notify); signal.setitimer(0, 0.02, 0.02)"
            "\nwhile True: signal.pause()",
        )
        hasty = "from p2pclust.hosts import supervisor; supervisor.WATCHDOG_S = 2.0; supervisor.main()"
        host.folder.mkdir()
        (host.folder / "plan.json").write_text('{"peers": {}}')
        with subprocess.Popen([sys.executable, "-c", hasty, host.folder], stderr=subprocess.PIPE, text=True):
            try:
                until((host.folder / "ask").exists)
                # The second one hangs: when it is killed, the first one has stood still for as long.
                peers = host.up({"a": feeds, "b": READY.replace("STATUS=linked", "WATCHDOG=1")}, wait_s=20.0)["peers"]
                assert host.order("pause", "a")["peers"]["a"]["status"] == "paused"
                until(lambda: state(peers["a"]["pid"]) == "T")  # a signal arrives when the process runs next
                assert host.refused("pause", "a") == {"a": "is paused already"}
                fresh = host.order("restart", "b", wait_s=20.0)["peers"]["b"]["pid"]
                until(lambda: host.peer("b")["pid"] != fresh)
                paused = host.status()["peers"]["a"]
                assert (paused["status"], paused["pid"]) == ("paused", peers["a"]["pid"])
                assert "snapshot" not in paused  # nobody waits for its answer
                assert host.order("resume", "a")["peers"]["a"]["status"] == "running"
                until(lambda: state(peers["a"]["pid"]) != "T")
                assert host.refused("resume", "a") == {"a": "is not paused"}
                assert host.order("stop", "a")["peers"]["a"]["ended"] == "exit code 0"
                assert host.refused("kill", "a") == {"a": "does not run: it is stopped"}
            finally:
                host.down(0.0)

    def test_what_is_not_kept_there_is_refused_and_nothing_is_done(self, host: HostFolder) -> None:
        pid = host.up({"a": LIVES})["peers"]["a"]["pid"]
        assert host.refused("stop", "a", "z") == {"z": "is not supervised here: run `p2pclust fleet up` first"}
        assert host.peer("a")["pid"] == pid

    def test_where_no_fleet_is_up(self, host: HostFolder) -> None:
        done = host.do("stop", "a")
        assert (done.returncode, done.stderr) == (
            3,
            b"error: the fleet is not up: nothing was started there: run `p2pclust fleet up` first\n",
        )
        host.up({"a": LIVES})
        host.down()
        done = host.do("kill", "a")
        assert (done.returncode, done.stderr) == (
            3,
            b"error: the fleet is not up: no supervisor runs there: run `p2pclust fleet up` first\n",
        )


class TestDown:
    def test_everybody_leaves_and_the_supervisor_too(self, host: HostFolder) -> None:
        up = host.up({"a": LIVES, "b": FAILS})
        until(lambda: "here" in host.log("a"))
        host.down()
        until(lambda: gone(up["supervisor"]["pid"]))
        assert gone(up["peers"]["a"]["pid"])
        assert not (host.folder / "ask").exists()
        assert not (host.folder / "peers" / "a" / "notify").exists()
        status = host.status()
        assert status["supervisor"] is None
        assert (status["peers"]["a"]["status"], status["peers"]["a"]["ended"]) == ("left", "exit code 0")

    def test_one_that_does_not_leave_is_killed_and_one_that_stands_still_is_woken(self, host: HostFolder) -> None:
        peers = host.up({"a": STUBBORN, "b": LIVES})["peers"]
        until(lambda: "no" in host.log("a") and "here" in host.log("b"))
        os.kill(peers["b"]["pid"], signal.SIGSTOP)
        ended = host.down(3.0)["peers"]
        assert (ended["a"]["ended"], ended["b"]["ended"]) == ("killed by SIGKILL", "exit code 0")
        assert "a did not leave in time: killed" in host.said

    def test_twice_does_nothing_and_neither_does_down_where_nothing_was(self, host: HostFolder) -> None:
        assert json.loads(host.do("down").stdout) == {"supervisor": None, "peers": {}}
        assert not host.folder.exists()
        host.up({"a": LIVES})
        assert host.down() == host.down()

    def test_a_closed_terminal_ends_nothing_and_a_polite_signal_everything(self, host: HostFolder) -> None:
        up = host.up({"a": LIVES})
        pid = up["supervisor"]["pid"]
        until(lambda: "here" in host.log("a"))
        os.kill(pid, signal.SIGHUP)
        assert host.status()["supervisor"]["pid"] == pid
        os.kill(pid, signal.SIGTERM)
        until(lambda: gone(pid))
        assert gone(up["peers"]["a"]["pid"])

    @pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells children that their parent is gone")
    def test_a_killed_supervisor_takes_its_peers_with_it_and_the_next_one_starts_them(self, host: HostFolder) -> None:
        up = host.up({"a": LIVES})
        until(lambda: "here" in host.log("a"))
        os.kill(up["supervisor"]["pid"], signal.SIGKILL)
        until(lambda: gone(up["peers"]["a"]["pid"]))
        assert host.status()["peers"]["a"]["status"] == "left"
        again = host.up({"a": LIVES})
        assert again["supervisor"]["pid"] != up["supervisor"]["pid"]
        assert again["peers"]["a"]["pid"] != 0


class TestLogs:
    def test_the_last_lines_of_all_or_of_one(self, host: HostFolder) -> None:
        host.up({"a": "import signal; print('1\\n2\\n3', flush=True); signal.pause()", "b": LIVES})
        until(lambda: "3" in host.log("a") and "here" in host.log("b"))
        assert host.do("logs", "a", "--lines", "2").stdout == b"a\t2\na\t3\n"
        lines = host.do("logs").stdout.decode().splitlines()
        assert lines[:4] == ["a\t1", "a\t2", "a\t3", "b\there"]
        assert lines[4].startswith("supervisor\t")

    def test_what_is_added_is_followed_until_the_input_ends(self, host: HostFolder) -> None:
        host.up({"a": LIVES})
        until(lambda: "here" in host.log("a"))
        command = [
            sys.executable,
            "-m",
            "p2pclust.hosts.host",
            "logs",
            str(host.folder),
            "a",
            "--follow",
            "--lines",
            "1",
        ]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            assert process.stdout.readline() == b"a\there\n"  # from here on it follows
            os.kill(host.peer("a")["pid"], signal.SIGKILL)
            assert process.stdout.readline() == b"a\there\n"  # its next life
            process.stdin.close()
            assert process.wait(60) == 0

    def test_the_operator_reads_until_all_hosts_have_sent_everything_or_it_is_interrupted(
        self, host: HostFolder
    ) -> None:
        host.up({"a": LIVES})
        until(lambda: "here" in host.log("a"))
        here = Host("here", None, sys.executable, str(host.folder))
        lines: list[tuple[str, str]] = []
        read_logs([here], ["a", "--lines", "1"], lambda name, line: lines.append((name, line)))
        assert lines == [("here", "a\there")]
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            with pytest.raises(KeyboardInterrupt):
                read_logs([here], ["a", "--lines", "1", "--follow"], lambda *_: os.kill(os.getpid(), signal.SIGINT))
        finally:
            signal.signal(signal.SIGINT, before)


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_it_loads_nothing_heavy(host: HostFolder) -> None:
    pid = host.up({"a": LIVES})["supervisor"]["pid"]
    maps = Path(f"/proc/{pid}/maps").read_text()
    assert "numpy" not in maps
    assert "zmq" not in maps
