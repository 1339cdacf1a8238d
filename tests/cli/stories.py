"""What is to be known of each scenario beside its file: how it ends, what it needs, and its short form.

The short form is for `make test`, in virtual time: fewer peers or rounds, and what is expected of so many. `make scenarios`
runs each scenario as it stands, on real processes.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from p2pclust.lab.scenario.file.examples import needs
from p2pclust.tools.toml_files import read_toml

__all__ = ["FOLDER", "STORIES", "Story", "absent"]

FOLDER = Path(__file__).parents[2] / "scenarios"


@dataclass(frozen=True)
class Story:
    """One scenario of the folder."""

    #: Exit code. 3: the fleet is meant to wait for good.
    ends: int = 0
    #: Overrides for the short form in virtual time.
    short: tuple[str, ...] = ()
    #: Overrides for real processes, where the file as it stands is for virtual time only.
    real: tuple[str, ...] = ()


def _set(*lines: str) -> tuple[str, ...]:
    return tuple(part for line in lines for part in ("--set", line))


STORIES: dict[str, Story] = {
    "admissions": Story(),
    "absent-digits": Story(
        short=_set(*(f"jobs.{job}.{key}" for job in range(3) for key in ("clusters=3", "max_rounds=2")))
    ),
    "activity-by-user": Story(
        # Rows by activity, for few phones would hold all rows of many people.
        short=_set(
            'data.partition={scheme="by-class", rows_per_class=15}', "fleet.devices.0.count=4", "jobs.0.epochs=3"
        )
        + _set("jobs.0.hidden=[8, 4, 8]", "jobs.0.max_refinements=1", "expect.finished_at_least=4")
    ),
    "broken-tablet": Story(short=_set("jobs.0.max_rounds=8", "expect.ari_at_least=0.4")),
    "curious-aggregator": Story(
        short=_set("fleet.peers=12", "jobs.0.max_rounds=4", "jobs.1.max_rounds=4", "expect.finished_at_least=12")
    ),
    "fedcref-digits": Story(),
    "fedcref-mnist": Story(
        short=_set("fleet.peers=3", "data.partition.rows_per_class=30", "jobs.0.epochs=2", "jobs.0.max_refinements=1")
        + _set("jobs.0.hidden=[32, 8, 32]", "jobs.0.initial=kmeans", "expect.finished_at_least=3")
    ),
    "gossip-ring": Story(short=_set("fleet.peers=9", "jobs.0.max_rounds=8", "expect.finished_at_least=8")),
    "hidden-cluster": Story(),
    "hospitals": Story(),
    "iris-kmeans": Story(),
    "late-motes": Story(),
    "liar": Story(short=_set("faults.0.how=corner")),
    "library-nodes": Story(short=_set("jobs.0.max_rounds=24")),
    "library-sensors": Story(short=_set("jobs.0.max_rounds=15")),
    "lost-majority": Story(ends=3),
    "mobile-swarm": Story(),
    "quickstart": Story(),
    "rice-mill": Story(),
    "satellite-passes": Story(short=_set("jobs.0.max_rounds=2", "expect.ari_at_least=0.3")),
    "smart-meters": Story(),
    "stream-machines": Story(),
    "thousand-sensors": Story(
        short=_set("fleet.peers=80", "data.options.n_rows=1600", "jobs.0.max_rounds=6", "expect.finished_at_least=75"),
        real=_set("fleet.peers=40", "data.options.n_rows=2000", "expect.finished_at_least=35", "fleet.timing=default"),
    ),
    "vertical-wine": Story(),
    # Eight watches for thirty-six people, of which one is old.
    "wearables": Story(
        short=_set(
            "fleet.devices.0.count=1", "fleet.devices.1.count=6", "fleet.devices.2.count=1", "jobs.0.max_rounds=6"
        )
        + _set("expect.finished_at_least=7", "expect.lost_at_most=1")
    ),
}
"""By the file's name without its suffix."""


def absent(file: Path) -> str:
    """Return the command that brings what a scenario lacks here; empty if it lacks nothing."""
    return needs(read_toml(file))
