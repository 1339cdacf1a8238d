"""Take the pictures of the gallery from the reports of simulated runs: ``python -m tests.doc_pictures [NAME]...``.

Without names all are taken, which needs the data sets, torch, and ten minutes. Needs Chromium
with its driver, as `tests/scenario/test_browser.py` does.
"""

from __future__ import annotations

import io
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

PICTURES = Path(__file__).parents[1] / "docs" / "gallery"
#: By scenario, the label of the report's picture that shows most.
LABELS = {
    "admissions": "the centers",
    "absent-digits": "what each peer holds",
    "activity-by-user": "communities by refinement",
    "broken-tablet": "rows in a plane: clusters found",
    "curious-aggregator": "rows in a plane: clusters found",
    "fedcref-digits": "association graph of iteration 1",
    "fedcref-mnist": "communities by refinement",
    "gossip-ring": "the overlay with roles and failures",
    "hidden-cluster": "rows in a plane: clusters found",
    "hospitals": "the overlay with roles and failures",
    "iris-kmeans": "time line of all peers",
    "late-motes": "time line of all peers",
    "liar": "rows in a plane: clusters found",
    "library-nodes": "what each peer holds",
    "library-sensors": "rows in a plane: clusters found",
    "lost-majority": "time line of all peers",
    "mobile-swarm": "the overlay with roles and failures",
    "quickstart": "rows in a plane: clusters found",
    "rice-mill": "the overlay with roles and failures",
    "satellite-passes": "time line of all peers",
    "smart-meters": "the centers",
    "stream-machines": "how far the centers moved",
    "thousand-sensors": "rows in a plane: clusters found",
    "vertical-wine": "rows in a plane: clusters found",
    "wearables": "time line of all peers",
}
_WIDTH = 900  # pixels
_FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--window-size=1300,2600")


def _browser() -> Any:
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    for flag in _FLAGS:
        options.add_argument(flag)
    options.binary_location = shutil.which("chromium") or sys.exit("no Chromium: apt install chromium chromium-driver")
    return webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))


def _take(browser: Any, report: Path, label: str, file: Path) -> None:
    """Write one picture of a report as a PNG with few colours."""
    from PIL import Image

    browser.get(report.as_uri())
    shown = [
        one for one in browser.find_elements("css selector", f'svg[aria-label="{label}"]') if one.size["width"] > 0
    ]
    drawn = shown[0].find_element("xpath", "..")  # with the legend below it
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", drawn)
    picture = Image.open(io.BytesIO(drawn.screenshot_as_png)).convert("RGB")
    if picture.width > _WIDTH:
        picture = picture.resize((_WIDTH, picture.height * _WIDTH // picture.width), Image.Resampling.LANCZOS)
    picture.quantize(48).save(file, optimize=True)


def main(names: list[str], runs: Path) -> None:
    """Run these scenarios, unless `runs` has their reports, and take their pictures."""
    browser = _browser()
    try:
        for name in names or LABELS:
            if not (runs / name / "report.html").exists():
                command = ["-m", "p2pclust", "run", name, "--backend", "simulated", "--out", str(runs / name)]
                subprocess.run([sys.executable, *command], check=False)  # lost-majority ends with 3, as it should
            _take(browser, runs / name / "report.html", LABELS[name], PICTURES / f"{name}.png")
    finally:
        browser.quit()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(sys.argv[1:], Path(folder))
