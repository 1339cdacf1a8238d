"""A reader follows docs/operations.md, or a tutorial, by copy and paste, from its first line to its last.

All ``sh`` blocks of the page are run in one shell, one after the other, in an empty folder. A block is left out if
``<!-- not run: reason -->`` stands directly above it, and may say ``<!-- exit: 3 -->`` if its last command is meant to end
so. Ports are replaced by free ones. Every line of a ``text`` block is a line of the output.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from runs import processes_alive, until

from p2pclust.lab.testbed.processes.children import ReservedPorts

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "operations.md"
PAGES = [
    pytest.param(PAGE, id="operations", marks=pytest.mark.long),
    *(
        pytest.param(ROOT / "docs" / "tutorials" / f"{name}.md", id=name)
        for name in ("own-scenario", "three-devices", "messy-files")
    ),
]
N_PORTS = 10
TEXT = re.compile(r"^```text\n(.*?)^```", re.MULTILINE | re.DOTALL)

pytestmark = [
    pytest.mark.processes,
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(shutil.which("bash") is None, reason="no bash here: apt-get install bash"),
]


@dataclass(frozen=True)
class Block:
    """Some lines to paste."""

    line: int
    body: str
    exit_code: int = 0


def blocks(text: str) -> list[Block]:
    """Find the blocks of a page that are to be run."""
    found = []
    fence = re.compile(r"(?P<above>(?:^<!--[^\n]*-->\n+)*)^```sh\n(?P<body>.*?)^```", re.MULTILINE | re.DOTALL)
    for match in fence.finditer(text):
        if "<!-- not run: " in match["above"]:
            continue
        code = re.search(r"<!-- exit: (\d+) -->", match["above"])
        found.append(Block(text[: match.start("body")].count("\n") + 1, match["body"], int(code[1]) if code else 0))
    return found


def script(found: list[Block], ports: tuple[int, ...]) -> str:
    """Join blocks to one script that stops at the first that does not end as it should."""
    parts = ["set -e -o pipefail"]
    for block in found:
        body = re.sub(r"\b700(\d)\b", lambda match: str(ports[int(match[1])]), block.body)
        # The port of a loop's device, `700$n`.
        assert "700$" not in body, "write ports with all their digits: the test puts others in their place"
        parts.append(f"echo '=== line {block.line}' >&2")
        if block.exit_code:
            parts.append(f"set +e\n{body}code=$?\nset -e\n[ $code = {block.exit_code} ]")
        else:
            parts.append(body)
    return "\n".join([*parts, "echo '=== the end' >&2", ""])


@pytest.fixture
def short() -> Iterator[Path]:
    """A folder whose path is as short as a home folder's: of a Unix socket's path the kernel takes 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="p2p") as made:
        yield Path(made)


@pytest.mark.parametrize("page", PAGES)
def test_the_page_works_by_copy_and_paste(short: Path, page: Path) -> None:
    home = short
    found = blocks(page.read_text(encoding="utf-8"))
    assert len(found) >= 5
    (home / "bin").mkdir()
    command = home / "bin" / "p2pclust"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m p2pclust "$@"\n')
    command.chmod(0o755)
    ports = ReservedPorts(N_PORTS)
    environment = {
        **os.environ, "PATH": f"{home / 'bin'}:{os.environ['PATH']}", "HOME": str(home), "PYTHONPATH": str(ROOT),
        "P2PCLUST_PASSPHRASE": "correct horse battery staple", "COLUMNS": "160",
    }  # fmt: skip
    (home / "script").write_text(script(found, ports.numbers))
    log = home / "said"
    with log.open("wb") as said:
        shell = subprocess.Popen(
            ["bash", home / "script"], cwd=home, env=environment, stdin=subprocess.DEVNULL, stdout=said,
            stderr=said, start_new_session=True,
        )  # fmt: skip
    try:
        code = shell.wait(580)
    finally:
        # Of what it started, nothing may be left, however it ended; the page itself ends all that it starts.
        left = processes_alive(home) if shell.poll() == 0 else {}
        for pid in processes_alive(home):
            os.kill(pid, signal.SIGKILL)
        shell.wait(10)
        ports.release()
    until(lambda: not processes_alive(home))
    told = log.read_text()
    assert code == 0, told[-3000:]
    assert "=== the end" in told
    lines = {line.rstrip() for line in told.splitlines()}
    assert [
        line
        for block in TEXT.findall(page.read_text(encoding="utf-8"))
        for line in block.splitlines()
        if line not in lines
    ] == []
    assert left == {}


def test_blocks_are_found() -> None:
    text = """
```sh
one
```
<!-- not run: needs a disk -->
```sh
two
```
<!-- exit: 3 -->

```sh
three 7001
```
```
four
```
"""
    assert blocks(text) == [Block(3, "one\n"), Block(12, "three 7001\n", 3)]
    made = script(blocks(text), tuple(range(30000, 30010)))
    assert "three 30001\ncode=$?\nset -e\n[ $code = 3 ]" in made


def test_no_process_has_to_be_looked_for() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert "pkill" not in text
    assert "fleet fault fleet.toml" in text
