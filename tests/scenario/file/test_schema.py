from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from p2pclust.jobs.fields import RandomVictims
from p2pclust.lab.scenario.file.schema import Scenario


def document(**changes: Any) -> dict[str, Any]:
    return {
        "data": {"source": "iris"},
        "fleet": {"peers": 3},
        "jobs": [{"protocol": "llf-cm", "clusters": 3}],
    } | changes


def scenario(**changes: Any) -> Scenario:
    return Scenario.model_validate(document(**changes))


def test_defaults() -> None:
    made = scenario()
    job = made.jobs[0]
    assert (made.title, made.seed, made.faults, made.data.scaling, made.data.scheme) == ("", 0, (), None, "iid")
    assert (made.fleet.timing, made.fleet.overlay.kind) == ("default", "full")
    assert (job.init, job.tol, job.max_rounds, job.participation, job.missing) == (None, None, None, 1.0, "wait")
    assert job.own == {}


def test_a_scenario_is_frozen() -> None:
    with pytest.raises(ValidationError):
        scenario().seed = 3  # type: ignore[misc]


def test_device_names_count_with_two_digits() -> None:
    fleet = {"devices": [{"name": "gateway"}, {"name": "meter", "count": 2}, {"name": "one", "count": 1}]}
    members = scenario(fleet=fleet).fleet.members
    assert [device.name for device in members] == ["gateway", "meter-01", "meter-02", "one-01"]
    assert [device.group for device in members] == ["gateway", "meter", "meter", "one"]
    assert [device.name for device in scenario(fleet={"peers": 2}).fleet.members] == ["peer-01", "peer-02"]


def test_names_sort_as_they_count() -> None:
    names = [device.name for device in scenario(fleet={"peers": 100}).fleet.members]
    assert names == sorted(names)
    assert names[-1] == "peer-100"


def test_devices_keep_what_is_known_of_them() -> None:
    spec = {"name": "g", "mains": True, "cores": 4, "link": {"latency_ms": 40, "loss": 0.02}}
    (device,) = scenario(fleet={"devices": [spec]}).fleet.members
    assert (device.spec.mains, device.spec.cores) == (True, 4)
    assert device.spec.link is not None
    assert (device.spec.link.latency_ms, device.spec.link.loss) == (40.0, 0.02)


def test_files_imply_their_scheme() -> None:
    made = scenario(data={"files": ["a.csv", "b.csv", "c.csv"]})
    assert made.data.files == ("a.csv", "b.csv", "c.csv")
    assert made.data.scheme == "files"


@pytest.mark.parametrize(
    ("given", "taken"),
    [([0, 16], ((0.0, 16.0),)), ([[0, 1], [-2.5, 3]], ((0.0, 1.0), (-2.5, 3.0)))],
)
def test_bounds_for_all_or_for_each(given: Any, taken: Any) -> None:
    assert scenario(data={"source": "iris", "bounds": given}).data.bounds == taken


def test_own_parameters_and_explicit_centers() -> None:
    job = {"protocol": "llf-fcm", "clusters": 2, "init": [[1, 2], [3, 4]], "fuzzifier": 1.5, "privacy_gate": False}
    made = scenario(jobs=[job]).jobs[0]
    assert made.own == {"fuzzifier": 1.5, "privacy_gate": False}
    assert made.init == ((1.0, 2.0), (3.0, 4.0))


@pytest.mark.parametrize(
    ("who", "at", "phase"),
    [
        ("aggregator", {"round": 3}, "opening"),
        ("peer-01", {"round": 3}, "adopting"),
        ({"random": 1}, {"round": 3}, "adopting"),
        ("aggregator", {"round": 3, "phase": "closing"}, "closing"),
    ],
)
def test_default_phase(who: Any, at: Any, phase: str) -> None:
    assert scenario(faults=[{"at": at, "do": "kill", "who": who}]).faults[0].phase == phase


def test_victims() -> None:
    fleet = {"devices": [{"name": "gateway"}, {"name": "meter", "count": 9}]}

    def victims(who: Any, seed: int = 0) -> tuple[str, ...]:
        made = scenario(fleet=fleet, faults=[{"at": {"seconds": 1}, "do": "kill", "who": who}])
        return made.victims(made.faults[0], np.random.default_rng(seed))

    assert victims("gateway") == ("gateway",)
    assert victims("meter-02") == ("meter-02",)
    assert victims("meter") == tuple(f"meter-0{i}" for i in range(1, 10))
    assert victims("aggregator") == ()
    drawn = victims({"random": 4})
    assert len(set(drawn)) == 4
    assert drawn == victims({"random": 4})
    assert list(drawn) == sorted(drawn)
    assert drawn != victims({"random": 4}, seed=1)


def test_random_victims_are_kept_as_such() -> None:
    made = scenario(faults=[{"at": {"seconds": 1}, "do": "restart", "who": {"random": 2}, "for_s": 1}])
    assert made.faults[0].who == RandomVictims(random=2)
