from __future__ import annotations

from p2pclust.cli.reference import reference

from .conftest import ROOT


def test_the_page_is_fresh() -> None:
    written = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    assert written == reference(), "run: python -m p2pclust.cli.reference > docs/cli.md"
