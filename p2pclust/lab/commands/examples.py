"""``p2pclust examples``: list the scenarios and sweeps that are installed, and copy one to change it."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from p2pclust.cli.show.options import AsJson, argument, group
from p2pclust.cli.show.output import note, put_json, stdout, table
from p2pclust.lab.scenario.file.examples import SCENARIOS, SWEEPS, copy_example, examples
from p2pclust.tools.spelling import quoted

app = group("""List the scenarios and sweeps that are installed with p2pclust, and copy one of them to change it.

\b
Example:
  p2pclust examples list
  p2pclust examples copy quickstart
""")


@app.command(name="list", short_help="List the installed scenarios and sweeps.")
def list_(as_json: AsJson = False) -> None:
    """List the installed scenarios, which `p2pclust run` takes by name, and sweeps, for `p2pclust topology sweep`.

    \b
    Example:
      p2pclust examples list
    """
    found = [("scenario", example) for example in examples(SCENARIOS)]
    found += [("sweep", example) for example in examples(SWEEPS)]
    if as_json:
        put_json({"examples": [{"kind": kind, **asdict(example)} for kind, example in found]})
        return
    rows = ((example.name, kind, example.title, example.needs) for kind, example in found)
    stdout().print(table(("name", "kind", "what it shows", "needs"), rows, wrap=("what it shows",)))


def list_examples(folder: Path, what: str, command: str, *, as_json: bool) -> None:
    """Print the names and titles of the installed files, and what each needs that is not here.

    Such a file is called `what`, and `command` takes one of the names.
    """
    found = examples(folder)
    if as_json:
        put_json({f"{what}s": [asdict(example) for example in found]})
        return
    rows = ((example.name, example.title, example.needs) for example in found)
    console = stdout()
    console.print(table((what, "what it shows", "needs"), rows, wrap=("what it shows",)))
    console.print(f"\nOne of them: {command} NAME. One of your own: {command} FILE.toml", soft_wrap=True)


@app.command(short_help="Copy one of them here, to change it.")
def copy(
    name: Annotated[str, argument("NAME", "A name of the list.")],
    to: Annotated[Path, argument("[DIR]", "The folder, which is made if need be; default this one.")] = Path(),
    as_json: AsJson = False,
) -> None:
    """Copy an installed scenario or sweep, with the files that it names, into a folder. No file is replaced.

    \b
    Examples:
      p2pclust examples copy quickstart
      p2pclust examples copy rice-mill mine
    """
    copies = copy_example(name, to)
    verb = "p2pclust run" if (SCENARIOS / f"{name}.toml").is_file() else "p2pclust topology sweep"
    # A path that is taken for a file, not for the name of an installed one.
    following = f"{verb} {quoted(str(copies[0]) if len(copies[0].parts) > 1 else f'./{copies[0]}')}"
    if as_json:
        put_json({"files": [str(copied) for copied in copies], "next": following})
        return
    for copied in copies:
        note(f"copied {copied}")
    note(f"run it: {following}")
