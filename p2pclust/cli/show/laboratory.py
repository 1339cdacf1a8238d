"""Commands of the laboratory: on a device, where what they import is left out, one line says what to install."""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand

from p2pclust.tools.distribution import require_laboratory

__all__ = ["LaboratoryCommand"]


class LaboratoryCommand(TyperCommand):
    """A command that checks before it begins that all is installed which the laboratory imports; its help needs nothing."""

    def invoke(self, ctx: Any) -> Any:
        """Check, then run."""
        require_laboratory(ctx.command_path)
        return super().invoke(ctx)
