"""``report.html`` in a real browser, offline: nothing complains, every picture is there, and what can be moved moves.

Needs Chromium with its driver, and selenium; where one is missing the tests are skipped with what installs it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.chromium import headless

from p2pclust.lab.pictures.graph import association_drawing
from p2pclust.lab.scenario.file.load import load_scenario
from p2pclust.lab.scenario.page.page import Page, Picture, Section, write_page
from p2pclust.lab.scenario.run import carry_out
from p2pclust.protocols.models.association import Association, Clusters

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("report")]  # one browser is started, and one run made

SMALL = """
title = "Four peers, and one that dies"
[data]
source = "iris"
scaling = "minmax"
[fleet]
peers = 4
[[jobs]]
protocol = "llf-fcm"
clusters = 3
[[faults]]
at = { round = 3 }
do = "kill"
who = "aggregator"
[expect]
finished_at_least = 3
"""

#: For each picture its size on the screen, and how much is drawn in it.
DRAWN = """
return [...document.querySelectorAll("svg.drawing")].map(picture => {
  const box = picture.getBoundingClientRect();
  const inside = [...picture.querySelectorAll("path, text, use, image")].filter(part => {
    const own = part.getBoundingClientRect(); return own.width > 0 || own.height > 0; }).length;
  return [picture.getAttribute("aria-label"), box.width, box.height, inside];
});
"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with headless(tmp_path_factory.mktemp("browser"), performance="ALL") as driver:
        yield driver


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("small")
    (folder / "s.toml").write_text(SMALL, encoding="utf-8")
    carry_out(load_scenario(folder / "s.toml"), "simulated", out=folder / "out")
    return folder / "out" / "report.html"


def opened(browser: Any, page: Path) -> list[str]:
    """Open a page with no network, and return which addresses it asked for."""
    browser.get("about:blank")  # what the browser shows at first has asked for all that it wants then
    browser.get_log("browser")
    browser.get_log("performance")
    browser.execute_cdp_cmd("Network.enable", {})
    browser.execute_cdp_cmd(
        "Network.emulateNetworkConditions",
        {"offline": True, "latency": 0, "downloadThroughput": 0, "uploadThroughput": 0},
    )
    browser.get(page.as_uri())
    told = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    asked = [m["params"]["request"]["url"] for m in told if m["method"] == "Network.requestWillBeSent"]
    return [address for address in asked if not address.startswith("data:")]


def move(browser: Any, slider: Any, value: float) -> None:
    script = "arguments[0].value = arguments[1]; arguments[0].dispatchEvent(new Event('input'));"
    browser.execute_script(script, slider, value)


def test_every_picture_is_there_and_nothing_is_asked_of_anybody(browser: Any, report: Path) -> None:
    assert opened(browser, report) == [report.as_uri()]
    pictures = browser.execute_script(DRAWN)
    assert len(pictures) == report.read_text(encoding="utf-8").count('<svg class="drawing"') >= 12
    for label, width, height, inside in pictures:
        assert label
        assert width > 200, label
        assert height > 60, label
        assert inside > 5, label
    assert browser.get_log("browser") == []
    assert browser.execute_script("return document.documentElement.scrollWidth <= window.innerWidth"), (
        "no sideways scrolling"
    )


#: What is wider than the window, unless it scrolls in a box of its own.
WIDE = """
return [...document.querySelectorAll("body *")].filter(part => {
  if (part.closest(".table, .broad, .either > :not(.narrow)") && !part.matches(".table, .broad")) return false;
  if (part.closest("svg") && part.tagName !== "svg") return false;
  const box = part.getBoundingClientRect();
  return box.width > 0 && (box.right > window.innerWidth + 0.5 || box.left < -0.5);
}).map(part => `${part.tagName} ${part.className.baseVal ?? part.className}`);
"""


def test_on_a_phone_nothing_is_wider_than_the_screen(browser: Any, report: Path) -> None:
    opened(browser, report)
    metrics = {"width": 500, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    try:
        assert browser.execute_script("return window.innerWidth") == 500
        for part in browser.find_elements("css selector", "details"):
            browser.execute_script("arguments[0].open = true", part)
        assert browser.execute_script("return document.documentElement.scrollWidth") <= 500
        assert browser.execute_script(WIDE) == []
        wide, narrow = (browser.find_element("css selector", f".either > {kind}") for kind in (".wide", ".narrow"))
        assert not wide.is_displayed()
        assert narrow.is_displayed()
        letters = browser.execute_script(
            "return [...document.querySelectorAll('.narrow text')].map(text => text.getBoundingClientRect().height)"
        )
        assert min(letters) > 7, "letters keep a size that can be read"
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    # The window has its size back a little later.
    pytest.importorskip("selenium.webdriver.support.ui").WebDriverWait(browser, 30).until(lambda _: wide.is_displayed())
    assert not narrow.is_displayed()


def test_a_moment_can_be_chosen(browser: Any, report: Path) -> None:
    opened(browser, report)
    slider = browser.find_element("css selector", "input.moment")
    parts = browser.find_elements("css selector", "[data-when]")
    assert all(part.is_displayed() for part in parts)
    cursor = browser.find_element("css selector", ".cursor path")
    assert not cursor.is_displayed()
    move(browser, slider, 0.001)
    assert not any(part.is_displayed() for part in parts), "nobody aggregates yet, and nobody is away"
    assert cursor.is_displayed()
    before = cursor.rect["x"]
    move(browser, slider, 0.9 * float(slider.get_attribute("max")))
    assert 0 < sum(part.is_displayed() for part in parts) < len(parts)
    assert cursor.rect["x"] > before + 100
    assert browser.find_element("css selector", "input.moment + output").text.endswith(" s")
    move(browser, slider, float(slider.get_attribute("max")))
    assert browser.find_element("css selector", "input.moment + output").text == "the whole run"
    assert all(part.is_displayed() for part in parts)


def test_pointing_at_a_peer_shows_it_everywhere(browser: Any, report: Path) -> None:
    opened(browser, report)
    script = "arguments[0].dispatchEvent(new MouseEvent('mouseover', {bubbles: true}));"
    browser.execute_script(script, browser.find_element("css selector", "[data-peer=peer-02] path"))
    own = browser.execute_script("return [...document.querySelectorAll('.own')].map(part => part.dataset.peer)")
    assert len(own) > 5
    assert set(own) == {"peer-02"}
    browser.execute_script(script, browser.find_element("css selector", "h1"))
    assert browser.execute_script("return document.querySelectorAll('.own').length") == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_letters_can_be_read_on_a_light_and_on_a_dark_page(browser: Any, report: Path, scheme: str) -> None:
    opened(browser, report)
    browser.execute_cdp_cmd(
        "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    )
    colours = browser.execute_script(
        "const of = (what, how) => getComputedStyle(document.querySelector(what))[how];"
        "return [of('body', 'backgroundColor'), of('body', 'color'), of('.drawing text', 'fill'), of('figcaption', 'color')]"
    )
    paper, *inks = [_luminance(colour) for colour in colours]
    assert (paper > 0.5) == (scheme == "light")
    for ink in inks:
        high, low = max(ink, paper), min(ink, paper)
        assert (high + 0.05) / (low + 0.05) > 4.5, "the contrast that WCAG asks of text"


def _luminance(colour: str) -> float:
    parts = [int(part) / 255 for part in colour[colour.index("(") + 1 : -1].split(",")[:3]]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_two_half_sections_share_a_row_only_where_one_follows_the_other(browser: Any, tmp_path: Path) -> None:
    kinds = [True, False, True, True, True]
    file = tmp_path / "report.html"
    write_page(file, Page("t", "", [Section(str(number), half=half) for number, half in enumerate(kinds)]))
    opened(browser, file)
    places = [section.rect for section in browser.find_elements("css selector", "section")]
    tops = [place["y"] for place in places]
    assert tops[0] < tops[1] < tops[2] == tops[3] < tops[4]
    assert places[3]["x"] > places[2]["x"] == places[4]["x"]
    assert places[1]["width"] > places[2]["width"] + places[3]["width"]


def test_the_graph_of_each_iteration_can_be_chosen(browser: Any, tmp_path: Path) -> None:
    graphs = [Association(Clusters((1, 1, 1)), links) for links in ([], [(0, 1)], [(0, 1), (1, 2)])]
    steps = [Picture(association_drawing(graph).element("a graph"), "", 800) for graph in graphs]
    file = tmp_path / "report.html"
    write_page(file, Page("three iterations", "", [Section("graphs", steps=steps, step="iteration")]))
    opened(browser, file)
    slider = browser.find_element("css selector", "input.choose")
    shown = browser.find_elements("css selector", ".step")
    assert [step.is_displayed() for step in shown] == [False, False, True], "the last one first"
    move(browser, slider, 1)
    assert [step.is_displayed() for step in shown] == [True, False, False]
    assert browser.find_element("css selector", "input.choose + output").text == "1 of 3"
    slider.send_keys("\ue014")  # the right arrow: a keyboard does as well as a mouse
    assert [step.is_displayed() for step in shown] == [False, True, False]
    assert browser.get_log("browser") == []
