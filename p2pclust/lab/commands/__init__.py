"""The commands of the laboratory, in the order of the help."""

from __future__ import annotations

from typing import Final

from typer.core import TyperCommand

from p2pclust.cli.show.options import ServingCommand

_HERE: Final = "Scenarios and your own data"
_RESEARCH: Final = "Research"
_M: Final = "p2pclust.lab.commands."

#: The part of the help, the name, where the command or group is, its line there, and the class of a command.
COMMANDS: Final[tuple[tuple[str, str, str, str, type[TyperCommand]], ...]] = (
    (_HERE, "demo", f"{_M}run:demo", "Run the quick start, and show where its report is.", TyperCommand),
    (_HERE, "init", f"{_M}init:init", "Begin with a file of your own.", TyperCommand),
    (_HERE, "run", f"{_M}run:run", "Run a scenario and check what it expects.", ServingCommand),
    (_HERE, "replay", f"{_M}served:replay", "Show a run that ended, at any speed.", ServingCommand),
    (_HERE, "compare", f"{_M}compare:compare", "Put runs side by side.", TyperCommand),
    (_HERE, "choose", f"{_M}choose:choose", "Let the fleet choose the number of clusters.", TyperCommand),
    (_HERE, "describe", f"{_M}describe:describe", "Let the fleet describe its table.", TyperCommand),
    (_HERE, "examples", f"{_M}examples:app", "List the installed scenarios, copy one.", TyperCommand),
    (_HERE, "data", f"{_M}data:app", "List, fetch and split data sets.", TyperCommand),
    (_RESEARCH, "topology", f"{_M}topology:app", "Make, measure, draw and compare overlays.", TyperCommand),
    (_RESEARCH, "audit", f"{_M}audit:audit", "Attack a scenario's jobs with what their messages show.", TyperCommand),
    (_RESEARCH, "simulate", f"{_M}seeds:simulate", "Test simulated fleets under faults.", TyperCommand),
    (_RESEARCH, "reproduce", f"{_M}reproduce:reproduce", "Measure the papers' tables again, next to their numbers.",
     TyperCommand),
)  # fmt: skip
