"""The application: all commands, and the handling of errors. Its exit codes are those of docs/cli.md."""

from __future__ import annotations

import errno
import importlib
import os
import re
import sys
import traceback
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup

from p2pclust import __version__
from p2pclust.cli.show.options import ServingCommand, SubmitCommand
from p2pclust.cli.show.output import complain, put_json
from p2pclust.errors import P2PClustError
from p2pclust.tools.distribution import has_laboratory, install_line, laboratory, missing_module
from p2pclust.tools.spelling import did_you_mean

_FLEET = "Fleets of devices"
#: The commands of each part of the help, in its order: typer's own order has groups of commands last.
_PARTS: dict[str, list[str]] = {"Scenarios and your own data": [], _FLEET: [], "Research": []}

_INTERRUPTED = 130
_NUMBERS = {"valid integer": "a whole number", "valid number": "a number", "valid float": "a number"}
_LIMITS = {"greater than or equal to": "at least", "less than or equal to": "at most"}


class _Unloaded(TyperCommand):
    """A name and a line of the help; its module is imported when the command is run."""

    def __init__(self, name: str, where: str, line: str, kind: type[TyperCommand]) -> None:
        super().__init__(name, callback=None, short_help=line)
        self._where, self._kind = where, kind

    def load(self) -> Any:
        module, _, attribute = self._where.partition(":")
        found = getattr(importlib.import_module(module), attribute)
        if isinstance(found, typer.Typer):
            made: Any = typer.main.get_group(found)
        else:
            alone = typer.Typer(add_completion=False, rich_markup_mode=None)
            alone.command(self.name, cls=self._kind)(found)
            made = typer.main.get_command(alone)
        made.name, made.short_help = self.name, self.short_help
        return made


class _Group(TyperGroup):
    """A group that loads a command when it is run, and turns every exception into one line and an exit code."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        # As in the documents, groups come last.
        parts = list(_PARTS)
        rows = sorted((*_OF_FLEETS, *_OTHERS), key=lambda row: (row[2].endswith(":app"), parts.index(row[0])))
        self.commands = {name: _Unloaded(name, *row) for _, name, *row in rows}

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, command, rest = super().resolve_command(ctx, args)
        if name is not None and isinstance(command, _Unloaded):
            command = self.commands[name] = command.load()
        return name, command, rest

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands of each part of the help, in the order in which they were added."""
        for part, names in _PARTS.items():
            rows = [(name, self.commands[name].get_short_help_str(formatter.width)) for name in names]
            if rows:  # a device has no laboratory
                with formatter.section(part):
                    formatter.write_dl(rows)

    def main(self, *args: Any, **settings: Any) -> Any:
        """Run a command and exit; unlike typer's own, with this module's exit codes and one line for every error."""
        settings["standalone_mode"] = False
        given = settings.get("args") or (args[0] if args else None)
        as_json = "--json" in (sys.argv[1:] if given is None else list(given))

        def refuse(message: str, code: int) -> NoReturn:
            for line in message.splitlines():
                complain(line)
            if as_json:
                put_json({"error": message, "exit_code": code})
            sys.exit(code)

        try:
            code = super().main(*args, **settings)
        except P2PClustError as error:
            refuse(str(error), error.exit_code)
        except (KeyboardInterrupt, typer.Abort):
            refuse("interrupted", _INTERRUPTED)
        except BrokenPipeError:
            # The reader closed our output; without this the interpreter would complain again at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            sys.exit(1)
        except Exception as error:  # noqa: BLE001 - the last resort: shown in full, never swallowed
            # A refused command line is known by attributes, because versions of typer use different classes.
            if hasattr(error, "format_message") and hasattr(error, "exit_code"):
                refuse(_usage_line(error), 2)
            lacking = missing_module(error) if isinstance(error, ModuleNotFoundError) else None
            if lacking is not None:
                refuse(str(lacking), lacking.exit_code)
            if getattr(error, "errno", None) in (errno.EMFILE, errno.ENFILE):  # of the system, or of libzmq
                import resource  # noqa: PLC0415 - absent on Windows, which has other errors

                few = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
                hint = f"raise the limit (`ulimit -n {4 * few}`)"
                refuse(f"too many open files: {few} are allowed here at a time: {hint}", 3)
            traceback.print_exception(error)
            complain(f"this is a bug in p2pclust {__version__}: please report it with the lines above")
            sys.exit(1)
        if code == _INTERRUPTED:  # newer versions of typer make this of a KeyboardInterrupt
            refuse("interrupted", _INTERRUPTED)
        sys.exit(code if isinstance(code, int) else 0)


def _usage_line(error: Any) -> str:
    context = getattr(error, "ctx", None)
    hint = f" (see {context.command_path} --help)" if context is not None else ""
    text = " ".join(str(error.format_message()).split()).rstrip(".")
    if text.startswith("No such command") and not has_laboratory():
        text += f"; commands for experiments are in the complete p2pclust: {install_line()}"
    wrong = re.fullmatch(r"Invalid value for '([^']+)': (.*)", text)
    if wrong is not None:
        return _value_line(wrong[1], wrong[2], error.__cause__) + hint
    return text[:1].lower() + text[1:] + hint


def _value_line(option: str, words: str, cause: Any) -> str:
    """Return what an option expects; every version of typer words it differently, newer ones as pydantic does."""
    quoted = re.match(r"'(.*?)' is not ", words)
    given = str(cause.errors()[0]["input"]) if hasattr(cause, "errors") else quoted[1] if quoted else ""
    where = f"{option} {given[:40]}".rstrip()
    _, choice, names = words.partition(" is not one of ")
    if choice:
        choices = re.findall(r"'([^']*)'", names)
        return f"{where}: expected {', '.join(choices)}{did_you_mean(given, choices)}"
    for known, expected in _NUMBERS.items():
        if known in words:
            return f"{where}: expected {expected}"
    if limit := re.fullmatch(r"(\S+) is not in the range x([<>])=(\S+)", words):
        return f"{option} {limit[1]}: expected {'at least' if limit[2] == '>' else 'at most'} {limit[3]}"
    for known, expected in _LIMITS.items():
        words = words.replace(f"Input should be {known}", f"expected {expected}")
    return f"{where}: {words.removeprefix('Value error, ')}"


app = typer.Typer(
    cls=_Group,
    add_completion=True,
    # Plain help: the same on every terminal, in a pipe and in the documentation, and no rich to import for it.
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"p2pclust {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def top(
    context: typer.Context,
    _version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Cluster data that is spread over devices, without a server and without moving a row.

    \b
    Example:
      p2pclust run quickstart
    """
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


#: As `COMMANDS` of the laboratory: the part of the help, the name, the command or group, its line there, its class.
_OF_FLEETS: tuple[tuple[str, str, str, str, type[TyperCommand]], ...] = (
    (_FLEET, "keys", "p2pclust.cli.fleet.keys:app", "Make a fleet's keys, enrol devices.", TyperCommand),
    (_FLEET, "peer", "p2pclust.cli.fleet.peer:peer", "Run one peer beside this device's data.", TyperCommand),
    (_FLEET, "fleet", "p2pclust.cli.fleet.fleet:app", "Start, keep and end the peers of an inventory.", TyperCommand),
    (_FLEET, "protocols", "p2pclust.cli.fleet.submit:protocols", "List the clustering protocols.", TyperCommand),
    (_FLEET, "submit", "p2pclust.cli.fleet.submit:submit", "Hand in a job.", SubmitCommand),
    (_FLEET, "jobs", "p2pclust.cli.fleet.operate:jobs", "List the jobs of a running peer.", TyperCommand),
    (_FLEET, "watch", "p2pclust.cli.fleet.submit:watch", "Show what happens to a job until it ends.", ServingCommand),
    (_FLEET, "result", "p2pclust.cli.fleet.result:result", "Show or write the result of a job.", TyperCommand),
    (_FLEET, "assign", "p2pclust.cli.fleet.result:assign", "Label rows with what the fleet agreed on.", TyperCommand),
    (_FLEET, "cancel", "p2pclust.cli.fleet.submit:cancel", "End a job in the whole fleet.", TyperCommand),
    (_FLEET, "status", "p2pclust.cli.fleet.operate:status", "Show what a running peer knows.", TyperCommand),
    (_FLEET, "peers", "p2pclust.cli.fleet.operate:peers", "Show which peers see each other, and why not.", TyperCommand),
    (_FLEET, "doctor", "p2pclust.cli.fleet.doctor:doctor", "Check that this machine can run peers.", TyperCommand),
)  # fmt: skip
_OTHERS = laboratory("commands", "the laboratory").COMMANDS if has_laboratory() else ()  # a device has none
for _part, _name, *_ in (*_OF_FLEETS, *_OTHERS):
    _PARTS[_part].append(_name)
