"""Lists the files that are installed with the package, for commands that take one of them by its name."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from p2pclust.cli.show.output import put_json, stdout

__all__ = ["list_examples"]


def list_examples(folder: Path, what: str, command: str, *, as_json: bool) -> None:
    """Print the names and titles of the installed files, and what each needs that is not here.

    Parameters
    ----------
    folder : Path
        Of the files.
    what : str
        What such a file is called.
    command : str
        Takes one of the names.
    as_json : bool
    """
    from p2pclust.cli.show.live import table  # noqa: PLC0415
    from p2pclust.scenario.file.examples import examples  # noqa: PLC0415

    found = examples(folder)
    if as_json:
        put_json({f"{what}s": [asdict(example) for example in found]})
        return
    shown = table((what, "left"), ("what it shows", "left"), ("needs", "left"))
    shown.columns[1].no_wrap = False
    for example in found:
        shown.add_row(example.name, example.title, example.needs)
    console = stdout()
    console.print(shown)
    console.print(f"\nOne of them: {command} NAME. One of your own: {command} FILE.toml", soft_wrap=True)
