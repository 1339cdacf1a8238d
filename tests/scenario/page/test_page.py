from __future__ import annotations

import re
from pathlib import Path

from p2pclust.lab.scenario.page.page import Page, Picture, Section, write_page


def test_a_page_holds_everything_and_nothing_is_taken_for_markup(tmp_path: Path) -> None:
    picture = Picture("data:image/png;base64,AAAA", "a < b", '"alt"', 300)
    sections = [Section("one", "text", [picture], [picture], "earlier")]
    write_page(tmp_path / "report.html", Page("peers & <models>", "2 peers", sections))
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "<title>peers &amp; &lt;models&gt;</title>" in text
    assert "a &lt; b" in text
    assert 'alt="&#34;alt&#34;" width="300"' in text
    assert "<details><summary>earlier</summary>" in text
    assert set(re.findall(r'src="([^"]*)"', text)) == {"data:image/png;base64,AAAA"}
    assert "http" not in text
    assert [file.name for file in tmp_path.iterdir()] == ["report.html"]
