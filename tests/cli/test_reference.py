from __future__ import annotations

from tests.command_reference import reference

from .conftest import ROOT


def test_the_page_is_fresh() -> None:
    written = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    assert written == reference(), "run: python -m tests.command_reference > docs/cli.md"
