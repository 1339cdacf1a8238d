"""Generate docs/cli.md from the commands: ``python -m tests.command_reference > docs/cli.md``."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from typing import Any

import typer

from p2pclust.cli.app import app

_LONGEST = 350  # characters of a row's text

_HEAD = """# The command line

<!-- Made from the commands' own help by `python -m tests.command_reference`; a test compares. -->

Results go to standard output, progress and errors to standard error. With `--json`, standard output holds exactly one
object, also when a command is refused.

| exit code | meaning |
|---|---|
| 0 | done, and all expectations held |
| 1 | an expectation failed, a check warned, or a seed found a fault |
| 2 | bad usage or input; one line says what is wrong, where, and what to do |
| 3 | the fleet could not finish |
| 130 | interrupted; every peer has ended |

"""


def reference() -> str:
    top: Any = typer.main.get_command(app)
    return _HEAD + "\n".join(text for name, command in commands("p2pclust", top) for text in _section(name, command))


def commands(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    yield name, command
    for below, item in getattr(command, "commands", {}).items():
        yield from commands(f"{name} {below}", item.load() if hasattr(item, "load") else item)


def _section(name: str, command: Any) -> Iterator[str]:
    arguments = [item for item in command.params if item.param_type_name == "argument"]
    options = [item for item in command.params if item.param_type_name == "option" and not item.hidden]
    places = " ".join(item.metavar or item.name.upper() for item in arguments)
    yield f"## {name}\n"
    yield "```\n" + " ".join(filter(None, [name, "[OPTIONS]", places])) + "\n```\n"
    for paragraph in inspect.cleandoc(command.help or "").split("\n\n"):
        if paragraph.startswith("\b"):
            title, *lines = paragraph.removeprefix("\b").strip("\n").split("\n")
            yield f"{title}\n\n```\n" + inspect.cleandoc("\n".join(lines)) + "\n```\n"
        else:
            yield " ".join(paragraph.split()) + "\n"
    spelled = [(item.metavar or item.name.upper(), item) for item in arguments]
    # Every option has a metavar, because typer's own names for types differ between versions.
    spelled += [(", ".join(item.opts) + (f" {item.metavar}" if item.metavar else ""), item) for item in options]
    if spelled:
        yield "| | |\n|---|---|"
        for spelling, item in spelled:
            meaning = _meaning(item)
            shown = spelling.replace("|", "\\|")
            yield f"| `{shown}` | {meaning if len(meaning) <= _LONGEST else 'See below.'} |"
        yield ""
    # A code host shows long rows badly.
    for spelling, item in spelled:
        if len(_meaning(item)) > _LONGEST:
            yield f"`{spelling}`: {_meaning(item)}\n"


def _meaning(item: Any) -> str:
    default = getattr(item.default, "value", item.default)
    shown = "" if item.required or default in (None, False, ()) or callable(default) else f" Default: `{default}`."
    return f"{item.help or ''}{shown}"


if __name__ == "__main__":
    sys.stdout.write(reference())
