from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from tests.command_line import made
from tests.command_reference import commands

from p2pclust.cli.app import _value_line

from .conftest import ROOT, Cli

COMMANDS = dict(commands("p2pclust", made()))


def test_version(cli: Cli) -> None:
    ended = cli("--version")
    assert (ended.code, ended.out, ended.err) == (0, f"p2pclust {version('p2pclust')}\n", "")


@pytest.mark.parametrize("arguments", [(), ("--help",), ("-h",)])
def test_help(cli: Cli, arguments: tuple[str, ...]) -> None:
    ended = cli(*arguments)
    assert ended.code == 0
    for name in ("run", "protocols", "simulate", "keys", "peer", "doctor"):
        assert f"  {name}  " in ended.out
    parts = ended.out.split("Scenarios and your own data:")[1]
    assert "..." not in parts, "a short help is cut off"
    assert "left out" not in parts
    shown = [line.split()[0] for line in parts.splitlines() if line.startswith("  ")]
    assert sorted(shown) == sorted(made().commands), "a command without a part of the help"


def test_on_a_device_the_help_has_the_commands_of_a_fleet_and_a_wrong_one_says_where_others_are(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("p2pclust.cli.app.has_laboratory", lambda: False)
    parts = {"Scenarios and your own data": [], "Fleets of devices": ["peer", "submit"], "Research": []}
    monkeypatch.setattr("p2pclust.cli.app._PARTS", parts)
    out = cli("--help").out
    assert "\nFleets of devices:\n" in out
    assert "Research" not in out
    ended = cli("experiment")
    assert ended.code == 2
    assert "commands for experiments are in the complete p2pclust: pip install p2pclust" in ended.err


def test_every_help_has_an_example_that_begins_like_it(cli: Cli) -> None:
    without = {}
    for name in COMMANDS:
        ended = cli(*name.split()[1:], "--help")
        examples = ended.out.partition("Example")[2].split("\n\n")[0].splitlines()[1:]
        if ended.code or not examples or not examples[0].strip().startswith(name):
            without[name] = ended
    assert without == {}


@pytest.mark.parametrize(
    ("told", "line"),
    [
        ("'many' is not a valid integer", "--seed many: expected a whole number"),
        ("'wide' is not a valid float", "--seed wide: expected a number"),
        ("'fst' is not one of 'fast', 'wan'", "--seed fst: expected fast, wan (did you mean 'fast'?)"),
        ("Input should be greater than or equal to 1", "--seed: expected at least 1"),
        ("0 is not in the range x>=1", "--seed 0: expected at least 1"),
        ("7.5 is not in the range x<=5", "--seed 7.5: expected at most 5"),
    ],
)
def test_a_wrong_value_is_told_alike_whoever_found_it(told: str, line: str) -> None:
    assert _value_line("--seed", told, None) == line


def test_every_option_is_explained_and_names_its_value() -> None:
    options = [(name, item) for name, command in COMMANDS.items() for item in command.params]
    assert [f"{name} {item.name}" for name, item in options if not item.help] == []
    assert [
        f"{name} {item.name}" for name, item in options if not getattr(item, "is_flag", False) and not item.metavar
    ] == []


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("rum",), "error: no such command 'rum'"),
        (("choose",), "error: missing argument 'SCENARIO.toml'"),
        (("run", "s.toml", "--sed", "3"), "error: no such option: --sed"),
        (("run", "s.toml", "--seed", "many"), "error: --seed many: expected a whole number (see p2pclust run --help)"),
        (
            ("run", "s.toml", "--backend", "simulatd"),
            "error: --backend simulatd: expected processes, namespaces, simulated, in-process (did you mean 'simulated'?)",
        ),
        (
            ("run", "s.toml", "--backend", "cloud"),
            "error: --backend cloud: expected processes, namespaces, simulated, in",
        ),
        (("keys", "forge"), "error: no such command 'forge'"),
        (("simulate",), "error: missing option '--seeds'"),
    ],
)
def test_wrong_usage_is_one_line(cli: Cli, arguments: tuple[str, ...], line: str) -> None:
    ended = cli(*arguments)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith(line)
    assert ended.err.count("\n") == 1
    assert "--help)" in ended.err


def test_with_json_a_refusal_is_an_object_too(cli: Cli) -> None:
    ended = cli("run", "absent.toml", "--json")
    assert ended.code == 2
    assert json.loads(ended.out) == {"error": "absent.toml: no such file", "exit_code": 2}
    assert ended.err == "error: absent.toml: no such file\n"


def test_a_bug_shows_its_traceback_and_asks_to_be_reported(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> list[Any]:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr("p2pclust.cli.fleet.doctor.examine", broken)
    ended = cli("doctor")
    assert (ended.code, ended.out) == (1, "")
    assert "Traceback" in ended.err
    assert "ZeroDivisionError: a bug" in ended.err
    assert "please report it" in ended.err.splitlines()[-1]


def test_an_interrupt_is_no_bug(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted() -> list[Any]:
        raise KeyboardInterrupt

    monkeypatch.setattr("p2pclust.cli.fleet.doctor.examine", interrupted)
    ended = cli("doctor", "--json")
    assert ended.code == 130
    assert json.loads(ended.out) == {"error": "interrupted", "exit_code": 130}
    assert ended.err.strip() == "error: interrupted"


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [["--help"], ["run", "--help"], ["--version"]])
def test_starts_light(arguments: list[str]) -> None:
    code = (
        "import sys\nfrom p2pclust.cli import main\n"
        f"sys.argv[1:] = {arguments!r}\n"
        "try:\n    main()\nexcept SystemExit as ended:\n    assert not ended.code\n"
        "heavy = {'numpy', 'scipy', 'sklearn', 'torch', 'networkx', 'zmq'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_a_reader_that_has_enough_is_no_error() -> None:
    command = f"{sys.executable} -m p2pclust simulate --seeds 0:1 --jobs 1 --seed-trace | head -0"
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command}"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert "Traceback" not in done.stderr
    assert "BrokenPipe" not in done.stderr


def test_no_summary_of_a_command_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """In 80 columns, as most terminals have."""
    monkeypatch.setenv("COLUMNS", "80")
    cut = [
        f"{name}: {line.strip()}"
        for name, command in commands("p2pclust", made())
        for line in command.get_help(
            command.make_context(name.split()[-1], ["--help"], resilient_parsing=True)
        ).splitlines()
        if re.fullmatch(r" +\S+ {2,}\S.*\.\.\.", line)
    ]
    assert cut == []


def test_errors_name_an_argument_as_the_help_does(cli: Cli) -> None:
    missing, wrong = cli("fleet", "fault", "f.toml", "a"), cli("fleet", "fault", "f.toml", "a", "explode")
    assert missing.err.startswith("error: missing argument 'FAULT'")
    assert wrong.err == "error: FAULT explode: expected kill, pause, resume (see p2pclust fleet fault --help)\n"
    assert (missing.code, wrong.code) == (2, 2)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "place", "offered"),
    [
        ("p2pclust fl", 1, ["fleet"]),
        ("p2pclust examples ", 2, ["list", "copy"]),
        ("p2pclust run --backend s", 3, ["simulated"]),
    ],
)
def test_bash_completes_commands_options_and_values(words: str, place: int, offered: list[str]) -> None:
    told = {"_P2PCLUST_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(place)}
    code = "from p2pclust.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | told, capture_output=True, text=True, check=False
    )
    assert done.stdout.split() == offered, done.stderr


@pytest.mark.slow
def test_the_script_for_bash_is_one_that_bash_takes(tmp_path: Path) -> None:
    # The shell is the nearest process above that is one: this one, which stays while the command runs.
    asks = f"{sys.executable} -m p2pclust --show-completion; exit $?"
    shown = subprocess.run(
        ["bash", "-c", asks], env=os.environ | {"HOME": str(tmp_path)}, capture_output=True, text=True, check=False
    )
    assert shown.returncode == 0, shown.stderr
    line = f"{shown.stdout}\ncomplete -p p2pclust"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=False)
    assert "-F _p2pclust_completion p2pclust" in done.stdout, done.stderr
