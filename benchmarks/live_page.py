"""How smoothly the live page draws a fleet, by the clock of the browser.

python benchmarks/live_page.py [--seconds 20]

Needs Chromium with its driver, and selenium. Made-up events, 60 a second, are followed by the page's own server; headless
Chromium counts its frames and the tasks of 50 ms or more that hold them up.
"""

from __future__ import annotations

import argparse
import shutil
import threading
import time
from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any

import numpy as np

from p2pclust.lab.live.server import Address, LivePage
from p2pclust.lab.live.shown import FollowedRun
from p2pclust.lab.run.events import RunEvent
from p2pclust.lab.run.scene import Scene

EVENTS_PER_S = 60
SIZES = (100, 1_000)
WARM_UP_S = 3.0
STAGES = ["range", "minmax", "split-merge", "llf-fcm", "objective"]

WATCH = """
window.held = []; window.shownFor = []; window.before = {...live.counts};
new PerformanceObserver(list => list.getEntries().forEach(one => held.push(one.duration))).observe({type: "longtask"});
let last = performance.now();
(function frame(now) { shownFor.push(now - last); last = now; requestAnimationFrame(frame); })(last);
"""
READ = """
const frames = shownFor.slice(2);
return {frames: frames.length, longest: Math.max(...frames), over: frames.filter(ms => ms > 50).length,
        held: held.length, worst: Math.max(0, ...held), drawn: live.counts.drawn - before.drawn};
"""


def made_up(names: list[str]) -> Iterator[Mapping[str, Any]]:
    """Yield what happens: a round and its centers once a second, costs, and a death with an election every fourth."""
    rng = np.random.default_rng(1)
    leader, term = names[0], 1
    yield from ({"t": 0.0, "peer": name, "verb": "started"} for name in names)
    yield {"t": 0.1, "peer": leader, "verb": "submitted", "job": "job", "roster": names}
    for number in count():
        t, round_, part = 0.2 + number / EVENTS_PER_S, number // EVENTS_PER_S + 1, number % EVENTS_PER_S
        about = {"t": t, "peer": leader, "job": "job", "term": term, "round": round_}
        if part == 0:
            shift = 10 / round_**1.5
            yield {
                **about,
                "verb": "combined",
                "status": "running",
                "stage": 3,
                "contributors": names[5:],
                "shift": shift,
            }
        elif part == 1:
            places = rng.normal(scale=1 / round_, size=(8, 2)) + np.array([[own, own % 3 * 2] for own in range(8)])
            yield {**about, "verb": "centers", "centers": places.tolist()}
        elif part == 2:
            sent = dict.fromkeys(names, round_ * 1000)
            yield {"t": t, "peer": "", "verb": "load", "messages_sent": round_, "bytes_sent": round_ * 10**5, "sent": sent,
                   "busiest": leader, "busiest_bytes": 1}  # fmt: skip
        elif part == 30 and round_ % 4 == 0:
            yield {"t": t, "peer": leader, "verb": "fault", "do": "kill"}
        elif part == 31 and round_ % 4 == 0:
            leader, term = names[int(rng.integers(len(names)))], term + 1
            yield {**about, "peer": leader, "verb": "elected", "term": term, "votes": len(names), "of": len(names)}
        elif part % 3 == 0:
            yield {**about, "peer": names[int(rng.integers(len(names)))], "verb": "phase", "phase": "adopting"}
        else:
            seen, by = rng.integers(len(names), size=2)
            status = str(rng.choice(["suspect", "alive"]))
            changed = {"status": status, "before": "alive" if status == "suspect" else "suspect", "incarnation": 1}
            yield {"t": t, "peer": names[by], "verb": "member", "member": names[seen], **changed}


def follow(run: FollowedRun, names: list[str], stop: threading.Event) -> None:
    """Let the page follow the events at their pace."""
    begun = time.monotonic()
    for event in made_up(names):
        if stop.wait(max(0.0, begun + float(event["t"]) - time.monotonic())):
            return
        with run.changing() as state:
            state.take(RunEvent.of(event))


def measure(driver: Any, n_peers: int, seconds: float) -> tuple[dict[str, float], int]:
    """Return what the browser counted, and the bytes of the last snapshot."""
    names = [f"node-{number:04d}" for number in range(n_peers)]
    links = [(name, names[(own + step) % n_peers]) for own, name in enumerate(names) for step in (1, 2, 3)]
    groups = {name: "gateway" if own < n_peers // 10 else "meter" for own, name in enumerate(names)}
    scene = Scene(f"{n_peers} devices", "made up", groups, [STAGES], [1e-9], sorted(links), {}, ["u", "v"])
    run, stop = FollowedRun(scene, scene.begun(), mode="run"), threading.Event()
    source = threading.Thread(target=follow, args=(run, names, stop), daemon=True)
    with LivePage(run, Address.of("127.0.0.1:0")) as page:
        run.on_change = page.changed
        source.start()
        driver.get(page.url)
        time.sleep(WARM_UP_S)
        driver.execute_script(WATCH)
        time.sleep(seconds)
        counted: dict[str, float] = driver.execute_script(READ)
        stop.set()
        source.join()
        return counted, len(run.to_json())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20.0)
    arguments = parser.parse_args()
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    for flag in ("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
                 "--window-size=1200,1500"):  # fmt: skip
        options.add_argument(flag)
    options.binary_location = shutil.which("chromium") or shutil.which("google-chrome") or ""
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver") or ""))
    print(f"{'peers':>6} {'frames':>7} {'longest ms':>11} {'over 50 ms':>11} {'long tasks':>11} {'longest ms':>11} "
          f"{'drawn':>6} {'snapshot kB':>12}")  # fmt: skip
    for n_peers in SIZES:
        found, size_bytes = measure(driver, n_peers, arguments.seconds)
        print(f"{n_peers:6} {found['frames']:7.0f} {found['longest']:11.0f} {found['over']:11.0f} {found['held']:11.0f} "
              f"{found['worst']:11.0f} {found['drawn']:6.0f} {size_bytes / 1e3:12.0f}")  # fmt: skip
    driver.quit()


if __name__ == "__main__":
    main()
