"""Lists the files that are installed with the package, for commands that take one of them by its name."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from p2pclust.cli.show.output import put_json, stdout


def list_examples(folder: Path, what: str, command: str, *, as_json: bool) -> None:
    """Print the names and titles of the installed files, and what each needs that is not here.

    Such a file is called `what`, and `command` takes one of the names.
    """
    from p2pclust.cli.show.tables import table  # noqa: PLC0415
    from p2pclust.lab.scenario.file.examples import examples  # noqa: PLC0415

    found = examples(folder)
    if as_json:
        put_json({f"{what}s": [asdict(example) for example in found]})
        return
    rows = ((example.name, example.title, example.needs) for example in found)
    console = stdout()
    console.print(table((what, "what it shows", "needs"), rows, wrap=("what it shows",)))
    console.print(f"\nOne of them: {command} NAME. One of your own: {command} FILE.toml", soft_wrap=True)
