"""The page in headless Chromium: it draws, follows an election, survives the peer that it asks and the server itself."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("aiohttp", reason="pip install 'p2pclust[live]' installs aiohttp")

from tests.live.conftest import Browser
from tests.processes.by_hand import Fleet

from p2pclust.hosts.client import Connection
from p2pclust.lab.live.ask import FleetFollower
from p2pclust.lab.live.server import Address, LivePage
from p2pclust.lab.live.shown import FollowedRun, Replay
from p2pclust.lab.run.events import RunEvent
from p2pclust.lab.run.scene import Scene, recorded
from p2pclust.lab.scenario.file.load import load_scenario
from p2pclust.lab.scenario.run import carry_out
from p2pclust.protocols.engine.compose import cluster_job

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser")]

Until = Callable[[Callable[[], Any]], Any]

KILLED = """
title = "Four peers, and the aggregator dies"
[data]
source = "iris"
scaling = "minmax"
[fleet]
peers = 4
[[jobs]]
protocol = "llf-fcm"
clusters = 3
[[faults]]
at = { round = 8 }
do = "kill"
who = "aggregator"
"""


class Played:
    """A page of a run that ended, paused, and moved by the test."""

    def __init__(self, folder: Path) -> None:
        self.scene, self.events = recorded(folder)
        self.replay = Replay(self.scene, self.events)
        self.replay.control("pause", 0.0)
        self.page = LivePage(self.replay, Address.of("127.0.0.1:0"))
        self.replay.on_change = self.page.changed

    def at(self, t: float) -> None:
        self.replay.control("seek", t)

    def when(self, verb: str, **fields: Any) -> float:
        """The time of the first such event."""
        return next(
            event.t
            for event in self.events
            if event.verb == verb and all(getattr(event.what, key) == value for key, value in fields.items())
        )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("killed")
    (home / "s.toml").write_text(KILLED, encoding="utf-8")
    carry_out(load_scenario(home / "s.toml"), "simulated", out=home / "out")
    return home / "out"


@pytest.fixture
def played(folder: Path) -> Iterator[Played]:
    one = Played(folder)
    with one.page:
        yield one


def followed(scene: Scene) -> tuple[FollowedRun, Callable[..., None]]:
    """A run whose events the test makes."""
    run = FollowedRun(scene, scene.begun(), mode="run")

    def take(verb: str, **event: Any) -> None:
        with run.changing() as state:
            state.take(RunEvent.of({"t": 1.0, "peer": "", "verb": verb, **event}))

    return run, take


def roles(browser: Browser) -> dict[str, str]:
    """The status and the role of each peer, as it is drawn."""
    peers = "[...document.querySelectorAll('#overlay [data-peer]')]"
    found = browser.run(f"return {peers}.map(peer => [peer.dataset.peer, peer.getAttribute('class')])")
    return {name: kind.strip() for name, kind in found}


#: What is wider than the window, unless it scrolls in a box of its own.
WIDE = """
return [...document.querySelectorAll("body *")].filter(part => {
  if (part.closest(".table") && !part.matches(".table")) return false;
  if (part.closest("svg") && part.tagName !== "svg") return false;
  const box = part.getBoundingClientRect();
  return box.width > 0 && (box.right > window.innerWidth + 0.5 || box.left < -0.5);
}).map(part => `${part.tagName} ${part.id}`);
"""
#: Names of peers that overlap each other.
OVERLAPS = """
const names = [...document.querySelectorAll("#overlay .name")].filter(text => text.textContent);
const boxes = names.map(text => text.getBoundingClientRect());
const overlap = (a, b) => a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;
return boxes.filter((box, at) => boxes.slice(at + 1).some(other => overlap(box, other))).length;
"""


def test_it_draws_a_run_at_rest_and_asks_nothing_of_another_host(browser: Browser, played: Played) -> None:
    played.at(played.replay.end)
    browser.open(played.page.url)
    assert browser.run("return document.getElementById('title').textContent") == "Four peers, and the aggregator dies"
    shown = roles(browser)
    assert sorted(kind.split()[0] for kind in shown.values()) == ["finished", "finished", "finished", "lost"]
    assert browser.run("return document.querySelectorAll('#plane polyline').length") == 3
    assert browser.run("return document.querySelector('#moves canvas').width > 200")
    assert browser.run("return document.querySelectorAll('#devices tr').length") == 4
    kinds = browser.run("return [...document.querySelectorAll('#time [data-kind]')].map(mark => mark.dataset.kind)")
    assert kinds.count("election") == 2
    assert {"fault", "end"} <= set(kinds)
    assert browser.run(OVERLAPS) == 0
    hosts = browser.run("return performance.getEntriesByType('resource').map(e => new URL(e.name).host)")
    assert set(hosts) == {f"127.0.0.1:{played.page.port}"}
    assert browser.complaints() == []


def test_it_follows_an_election(browser: Browser, played: Played) -> None:
    killed, elected = played.when("fault", do="kill"), played.when("elected", term=1)
    played.at((killed + elected) / 2)
    browser.open(played.page.url)
    victim = browser.until("return live.snapshot.job?.aggregator")
    assert roles(browser)[victim] == "alive aggregates"
    played.at(killed + 0.001)
    browser.until("return live.snapshot.devices.some(d => d.status === 'lost')")
    assert roles(browser)[victim] == "lost waited", "the others wait for it"
    assert browser.run("return document.getElementById('job').textContent").count(f"{victim} (gone)") == 1
    played.at(played.replay.end)
    browser.until(f"return live.snapshot.job.aggregator !== '{victim}'")
    assert "aggregates" in "".join(roles(browser).values())
    assert roles(browser)[victim] == "lost"


def test_a_replay_is_played_paused_and_moved_on_the_page(browser: Browser, played: Played, until: Until) -> None:
    browser.open(played.page.url)
    slider, end = browser.driver.find_element("id", "moment"), played.replay.end
    browser.run(
        "arguments[0].value = arguments[1]; arguments[0].dispatchEvent(new Event('input'));"
        "arguments[0].dispatchEvent(new Event('change'));",
        slider, 0.9 * end,
    )  # fmt: skip
    browser.until(f"return Math.abs(live.snapshot.player.t - {0.9 * end}) < 0.01")
    played.at(0.0)
    browser.until("return live.snapshot.player.t === 0 && live.snapshot.job === null")
    browser.run("const s = document.getElementById('speed'); s.value = '50'; s.onchange();")
    browser.until("return live.snapshot.player.speed === 50")
    browser.driver.find_element("id", "play").click()
    browser.until("return live.snapshot.player.playing")

    def ticked() -> Any:
        played.replay.tick()
        return not browser.run("return live.snapshot.player.playing")

    until(ticked)
    browser.until("return live.snapshot.player.t === live.snapshot.player.end && live.snapshot.job.finished === 3")
    assert browser.complaints() == []


def test_on_a_phone_nothing_is_wider_than_the_screen(browser: Browser, played: Played) -> None:
    played.at(played.replay.end)
    with browser.wide(500):
        browser.open(played.page.url)
        assert browser.run("return document.documentElement.scrollWidth") <= 500
        assert browser.run(WIDE) == []
        lefts = browser.run(
            "return [...document.querySelectorAll('main > section')].filter(section => !section.hidden)"
            ".map(section => section.getBoundingClientRect().left)"
        )
        assert len(set(lefts)) == 1, "one column"
        letters = browser.run(
            "return [...document.querySelectorAll('svg text')].filter(text => text.textContent)"
            ".map(text => text.getBoundingClientRect().height)"
        )
        assert min(letters) >= 10


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_letters_can_be_read_on_a_light_and_on_a_dark_page(browser: Browser, played: Played, scheme: str) -> None:
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    browser.open(played.page.url)
    of = "const of = (what, how) => getComputedStyle(document.querySelector(what))[how];"
    paper, *inks = browser.run(
        of
        + "return [of('section', 'backgroundColor'), of('body', 'color'), of('dt', 'color'), of('#overlay .name', 'fill'),"
        "of('#state', 'color'), of('#time .soft', 'fill')].map(c => c.match(/[0-9.]+/g).slice(0, 3).map(Number))"
    )
    browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    assert (luminance(paper) > 0.5) == (scheme == "light")
    for ink in inks:
        high, low = max(luminance(ink), luminance(paper)), min(luminance(ink), luminance(paper))
        assert (high + 0.05) / (low + 0.05) > 4.5, "the contrast that WCAG asks of text"


def luminance(colour: list[float]) -> float:
    parts = [part / 255 for part in colour]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_the_association_graph_is_drawn_as_it_forms(browser: Browser) -> None:
    names = ["a", "b", "c"]
    run, take = followed(Scene("FedCRef", "", dict.fromkeys(names, ""), [["fedcref"]]))
    closed = {"job": "j", "term": 1, "stage": 0, "status": "running", "contributors": names, "iteration": 1}
    with LivePage(run, Address.of("127.0.0.1:0")) as page:
        run.on_change = page.changed
        take("submitted", job="j", roster=names)
        take("combined", round=0, phase="models", clusters=[2, 1, 1], **closed)
        browser.open(page.url)
        browser.until("return document.querySelectorAll('#graph .nodes > *').length === 4")
        assert browser.run("return document.querySelectorAll('#graph .links line').length") == 0
        take(
            "combined", round=2, phase="graph", clusters=[2, 1, 1], links=[[0, 2], [2, 3]], groups=[[0, 2, 3]],
            isolated=[1], **closed,
        )  # fmt: skip
        browser.until("return document.querySelectorAll('#graph .links line').length === 2")
        letters = browser.run(
            "return [...document.querySelectorAll('#graph .nodes text')].map(text => text.textContent)"
        )
        assert letters == ["A", "", "A", "A"]
        words = browser.run("return document.getElementById('graph-words').textContent")
        assert words == "4 clusters, 2 links, 1 communities, 1 isolated; now: graph"
        assert browser.run("return document.getElementById('s-moves').hidden")


def test_what_a_scene_is_called_is_text_and_never_markup(browser: Browser) -> None:
    bad = "<img src=x onerror=alert(1)>"
    run, take = followed(Scene(bad, bad, {bad: bad}, [["llf-cm"]]))
    with LivePage(run, Address.of("127.0.0.1:0")) as page:
        take("refused", peer=bad, reason=bad)
        browser.open(page.url)
        assert browser.run("return document.querySelectorAll('img').length") == 0
        assert browser.run("return document.getElementById('title').textContent") == bad
        assert browser.complaints() == []


def test_a_browser_goes_on_after_the_server_was_started_again(browser: Browser) -> None:
    run, take = followed(Scene("one", "", {"a": ""}))
    with LivePage(run, Address.of("127.0.0.1:0")) as page:
        browser.open(page.url)
        browser.until("return document.getElementById('state').textContent === 'live'")
    browser.until("return document.getElementById('state').textContent.startsWith('connection lost since')")
    take("started", peer="a")
    with LivePage(run, Address("127.0.0.1", page.port)):
        browser.until("return document.getElementById('state').textContent === 'live'")
        assert roles(browser) == {"a": "alive"}
        run.say(ended=True, outcome="all jobs are done")
    browser.until("return document.getElementById('state').textContent === 'ended: all jobs are done'")


def test_a_token_opens_the_page_and_leaves_the_address(browser: Browser) -> None:
    run, _ = followed(Scene("one", "", {"a": ""}))
    with LivePage(run, Address.of("0.0.0.0:0")) as page:
        token = page.url.partition("?token=")[2]
        browser.driver.get(f"http://127.0.0.1:{page.port}/")
        assert "with its token" in browser.run("return document.body.textContent")
        browser.open(f"http://127.0.0.1:{page.port}/?token={token}")
        browser.until("return document.getElementById('state').textContent === 'live'")
        assert browser.run("return location.href") == f"http://127.0.0.1:{page.port}/"
        assert browser.run("return document.cookie") == "", "no script reads it"


def test_a_hundred_peers_are_drawn_while_much_happens(browser: Browser) -> None:
    names = [f"node-{number:03d}" for number in range(100)]
    run, take = followed(Scene("many", "", dict.fromkeys(names, "meter"), [["llf-cm"]]))
    with LivePage(run, Address.of("127.0.0.1:0")) as page:
        run.on_change = page.changed
        browser.open(page.url)
        for number in range(1_200):
            status, before = ("suspect", "alive") if number // 100 % 2 else ("alive", "suspect")
            take("member", peer=names[0], member=names[number % 100], status=status, before=before, incarnation=1)
        take("submitted", job="j", roster=names)
        browser.until("return live.snapshot.job !== null")
        assert len(roles(browser)) == 100
        assert set(roles(browser).values()) == {"suspect waited"}
        drawn, sent = browser.run("return [live.counts.drawn, live.counts.snapshots]")
        assert drawn <= sent < 300, "many events are one picture"


@pytest.mark.processes
def test_it_survives_the_death_of_the_peer_that_it_asks(browser: Browser, tmp_path: Path, until: Until) -> None:
    rng = np.random.default_rng(0)
    arrays = [np.concatenate([rng.normal(center, 0.5, (30, 2)) for center in ((0, 0), (4, 4))]) for _ in range(4)]
    with Fleet(tmp_path, arrays) as fleet:
        fleet.start()
        until(fleet.linked)
        run = FollowedRun(scene := Scene("fleet", "", {}, testbed=False), scene.begun(), mode="watch")
        clients = [Connection(tmp_path / name / "state") for name in fleet.names[:2]]
        now = [0.0]
        follower = FleetFollower(clients, run, lambda: now[0])
        with LivePage(run, Address.of("127.0.0.1:0")) as page:
            run.on_change = page.changed
            asked_of(follower, run, "p00")
            browser.open(page.url)
            browser.until("return document.getElementById('state').textContent === 'live, p00 answers'")
            fleet.submit(cluster_job("llf-cm", n_clusters=2), missing="wait")

            def done() -> Any:
                follower.ask()
                return browser.run("return live.snapshot.job?.finished > 0")

            until(done)
            assert browser.run("return live.snapshot.plane") is None, "centers of real devices are not shown"
            assert browser.run("return live.snapshot.moves.shifts.length") > 0
            os.kill(fleet.processes["p00"].pid, signal.SIGKILL)
            fleet.processes["p00"].wait()
            asked_of(follower, run, "p01")
            browser.until("return document.getElementById('state').textContent === 'live, p01 answers'")

            def noticed() -> Any:
                follower.ask()
                return roles(browser)["p00"].startswith("lost")

            until(noticed)
            os.kill(fleet.processes["p01"].pid, signal.SIGKILL)
            fleet.processes["p01"].wait()
            follower.ask()
            browser.until("return document.getElementById('trouble').textContent.startsWith('no peer answers: ')")
            assert browser.run("return document.getElementById('state').textContent") == "no peer answers"
        for client in clients:
            client.close()


def asked_of(follower: FleetFollower, run: FollowedRun, name: str) -> None:
    follower.ask()
    assert f'"asked":"{name}"' in run.to_json()
