"""The commands that the documentation shows really work.

Every line ``$ p2pclust ...`` in a fenced ``console`` block is run, block by block, each block in a folder of its own that
has the checkout's scenarios in it. A block is left alone if ``<!-- not run: reason -->`` stands directly above it, and may
say ``<!-- exit: 3 -->`` if its last command is meant to end so.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.command_line import p2pclust

ROOT = Path(__file__).parents[1]
PAGES = [
    *(ROOT / folder / "README.md" for folder in (".", "scenarios", "topology")),
    *sorted((ROOT / "docs").glob("**/*.md")),
]


@dataclass(frozen=True)
class Block:
    """The commands of one block."""

    where: str
    commands: tuple[str, ...]
    exit_code: int = 0
    not_run: str = ""


def blocks(text: str, page: str) -> list[Block]:
    """Find the blocks of a page that run p2pclust."""
    found = []
    fence = re.compile(r"(?P<above>(?:^<!--[^\n]*-->\n+)*)^```console\n(?P<body>.*?)^```", re.MULTILINE | re.DOTALL)
    for match in fence.finditer(text):
        body = match["body"].replace("\\\n", " ")
        commands = tuple(line[2:].strip() for line in body.splitlines() if line.startswith("$ p2pclust"))
        if commands:
            line = text[: match.start("body")].count("\n") + 1
            code = re.search(r"<!-- exit: (\d+) -->", match["above"])
            reason = re.search(r"<!-- not run: (.+?) -->", match["above"])
            found.append(Block(f"{page}:{line}", commands, int(code[1]) if code else 0, reason[1] if reason else ""))
    return found


ALL = [block for page in PAGES for block in blocks(page.read_text(encoding="utf-8"), str(page.relative_to(ROOT)))]


@pytest.mark.slow
@pytest.mark.parametrize("block", [block for block in ALL if not block.not_run], ids=lambda block: block.where)
@pytest.mark.usefixtures("quick_passphrases")
@pytest.mark.filterwarnings("default")
def test_commands_of(
    block: Block,
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """All run in this process, which has loaded what each would load: starts, of workers too, take most of the time."""
    monkeypatch.chdir(tmp_path)
    for module in ("reproduce", "seeds", "sweep"):
        monkeypatch.setattr(f"p2pclust.lab.commands.{module}.n_cores", lambda: 1)
    monkeypatch.setenv("P2PCLUST_PASSPHRASE", "asked for where there is a terminal")
    # No data set is here, wherever the tests run: with MNIST some commands would take hours.
    monkeypatch.setenv("P2PCLUST_DATA", str(tmp_path_factory.mktemp("data")))
    for folder in ("scenarios", "peers", "topology"):
        (tmp_path / folder).symlink_to(ROOT / folder)
    for number, command in enumerate(block.commands, start=1):
        with pytest.raises(SystemExit) as ended:
            p2pclust(*shlex.split(command, comments=True)[1:])
        expected = block.exit_code if number == len(block.commands) else 0
        assert (ended.value.code or 0) == expected, f"{command}\n{capsys.readouterr().err}"
    if block.where.startswith("README.md:"):
        # Its commands are typed in a checkout: what they leave has to be where git looks away.
        left = {path.name for path in tmp_path.iterdir() if not path.is_symlink()}
        assert left <= {"runs"}


def test_scenarios_of_blocks_are_installed() -> None:
    """Those that are not run, too, name scenarios that are installed, or files of the page's own."""
    asked = [(block.where, shlex.split(command, comments=True)) for block in ALL for command in block.commands]
    named = [(where, words[2]) for where, words in asked if words[1:2] == ["run"] and len(words) > 2]
    names = [(where, name) for where, name in named if not name.endswith(".toml")]
    assert [pair for pair in names if not (ROOT / "scenarios" / f"{pair[1]}.toml").is_file()] == []


def test_blocks_are_found() -> None:
    text = """
```console
$ p2pclust run a.toml \\
    --json
output
$ ls
$ p2pclust doctor   # a word
```
<!-- not run: takes a minute -->
```console
$ p2pclust run b.toml
```
<!-- exit: 3 -->

```console
$ p2pclust run c.toml
```
```console
$ make demo
```
"""
    assert blocks(text, "p.md") == [
        Block("p.md:3", ("p2pclust run a.toml      --json", "p2pclust doctor   # a word")),
        Block("p.md:11", ("p2pclust run b.toml",), not_run="takes a minute"),
        Block("p.md:16", ("p2pclust run c.toml",), exit_code=3),
    ]
