"""The command line. Nothing heavy is imported before a command needs it."""

from __future__ import annotations

__all__ = ["main"]


def main() -> None:
    """Run the command that the process was started with, and exit with its code."""
    # Imported here, so that modules of this package can be used without typer.
    from p2pclust.cli.app import app  # noqa: PLC0415

    app(prog_name="p2pclust")
