from __future__ import annotations

from pathlib import Path

from p2pclust.lab.pictures.drawing import Drawing
from p2pclust.lab.scenario.page.page import Page, Section, picture_of, write_page


def test_a_page_holds_everything_and_nothing_is_taken_for_markup(tmp_path: Path) -> None:
    picture = picture_of(Drawing(300, 200, "a > b"), '"alt"', "a < b")
    sections = [Section("one", "text", [picture], [picture], "earlier")]
    write_page(tmp_path / "report.html", Page("peers & <models>", "2 peers", sections))
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "<title>peers &amp; &lt;models&gt;</title>" in text
    assert "a &lt; b" in text
    assert text.count('<svg class="drawing" role="img" aria-label="&quot;alt&quot;"') == 2
    assert "a &gt; b" in text
    assert "<details><summary>earlier</summary>" in text
    assert "src=" not in text
    assert "http" not in text
    assert [file.name for file in tmp_path.iterdir()] == ["report.html"]
