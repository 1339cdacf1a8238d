"""The distribution for devices: it holds together with the complete one, is small, and runs a fleet."""

from __future__ import annotations

import importlib.metadata
import json
import re
import shutil
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.version import Version
from tests.installed import ROOT, Installed, checkout, environment, link
from tests.test_wheel import OLDEST_SETUPTOOLS, free_ports

from p2pclust import __version__

DEVICE = ROOT / "device"
MOST_MB = 130
LABORATORY = ["demo", "run", "run quickstart", "init rows.csv", "choose iris-kmeans", "audit iris-kmeans", "reproduce",
              "simulate --seeds 0:1", "examples list", "topology show small-world --peers 9",
              "data split iris --peers 2 --out parts"]  # fmt: skip


def _project(folder: Path) -> dict[str, Any]:
    return tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))


class TestMetadata:
    complete = _project(ROOT)
    device = _project(DEVICE)

    def test_it_is_the_same_package_without_the_laboratory(self) -> None:
        ours, theirs = (project["tool"]["setuptools"] for project in (self.device, self.complete))
        assert ours["packages"]["find"] == {
            "where": [".."], **theirs["packages"]["find"], "exclude": ["p2pclust.lab", "p2pclust.lab.*"]
        }  # fmt: skip
        (own,), (kernels,) = ours["ext-modules"], theirs["ext-modules"]
        beside = {key: [f"../{path}" for path in kernels[key]] for key in ("sources", "depends")}
        assert own == kernels | beside | {"extra-compile-args": own["extra-compile-args"]}
        assert own["extra-compile-args"] == kernels["extra-compile-args"]
        assert ours["dynamic"] == theirs["dynamic"]
        assert self.device["tool"]["distutils"] == self.complete["tool"]["distutils"]
        for key in ("dynamic", "license", "requires-python", "scripts", "authors"):
            assert self.device["project"][key] == self.complete["project"][key]
        assert set(self.device["project"]["classifiers"]) <= set(self.complete["project"]["classifiers"])

    def test_it_requires_nothing_that_the_complete_one_does_not(self) -> None:
        ours, theirs = self.device["project"], self.complete["project"]
        assert set(ours["dependencies"]) < set(theirs["dependencies"])
        everything = {
            *theirs["dependencies"],
            *(line for lines in theirs["optional-dependencies"].values() for line in lines),
        }
        for extra, lines in ours["optional-dependencies"].items():
            assert set(lines) <= everything
            if extra in theirs["optional-dependencies"]:
                assert set(theirs["optional-dependencies"][extra]) <= {*ours["dependencies"], *lines}

    def test_its_extras_are_those_that_messages_name(self) -> None:
        from p2pclust.tools import distribution

        assert sorted(self.device["project"]["optional-dependencies"]) == list(distribution._DEVICE_EXTRAS)
        left_out = {Requirement(line).name for line in self.complete["project"]["dependencies"]} - {
            Requirement(line).name for line in self.device["project"]["dependencies"]
        }
        known = {name.lower() for name in distribution._LABORATORY.values()}
        assert {name.lower() for name in left_out} == known


@pytest.fixture(scope="module")
def device(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """What the command of the README makes of a checkout that is not there any more."""
    if Version(importlib.metadata.version("setuptools")) < Version(OLDEST_SETUPTOOLS):
        pytest.skip(f"an older setuptools is here: pip install 'setuptools>={OLDEST_SETUPTOOLS}'")
    home = tmp_path_factory.mktemp("device")
    source = checkout(home)
    made = environment(home, _project(DEVICE)["project"]["dependencies"])
    builders = link(importlib.metadata.distribution("setuptools"), made.packages)
    for line in ("pip wheel --no-deps --wheel-dir dist ./device", "pip install dist/p2pclust_device-*.whl"):
        done = made.sh(line, source)
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
    for path in builders:
        path.unlink()
    shutil.rmtree(source)
    return made


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.xdist_group("wheel")
class TestInstalled:
    def test_it_is_small(self, device: Installed) -> None:
        """With everything that it requires, and all modules compiled, as pip does."""
        done = device.sh(f"python -m compileall -q {device.packages / 'p2pclust'}")
        assert done.returncode == 0, done.stdout
        size = 0
        for top in device.packages.iterdir():
            if not top.name.startswith(("setuptools", "pip", "pkg_resources", "_distutils", "distutils-precedence")):
                files = [top.resolve()] if top.is_file() else top.resolve().rglob("*")
                # pytest and pip leave files in these folders that no installation has.
                size += sum(f.stat().st_size for f in files if f.is_file() and not re.search(r"pytest|opt-\d", f.name))
        assert size / 1e6 < MOST_MB

    def test_it_is_without_the_laboratory(self, device: Installed) -> None:
        assert not (device.packages / "p2pclust" / "lab").exists()
        out = device.sh("p2pclust --help").stdout
        assert "Fleets of devices" in out
        assert "Research" not in out

    def test_it_says_which_it_is(self, device: Installed) -> None:
        assert device.sh("p2pclust --version").stdout == f"p2pclust {__version__}\n"
        told = json.loads(device.sh("p2pclust doctor --json").stdout)
        (found,) = (check for check in told["checks"] if check["what"] == "installed")
        assert (found["ok"], found["found"]) == (True, f"p2pclust-device {__version__}")

    @pytest.mark.parametrize("line", LABORATORY)
    def test_the_laboratory_says_in_one_line_what_to_install(self, device: Installed, line: str) -> None:
        (device.folder / "rows.csv").write_text("a,b\n1,2\n3,4\n")
        done = device.sh(f"p2pclust {line}")
        assert (done.returncode, done.stdout) == (2, "")
        (said,) = done.stderr.splitlines()
        assert said.startswith("error: no such command ")
        assert "commands for experiments are in the complete p2pclust: install p2pclust in another environment" in said

    def test_so_do_the_estimators(self, device: Installed) -> None:
        done = device.sh("python -c 'from p2pclust import LosslessCMeans'")
        last = done.stderr.splitlines()[-1]
        assert last.startswith(
            "ImportError: p2pclust.LosslessCMeans: this needs scikit-learn, which p2pclust-device leaves out"
        )

    def test_an_extra_is_named_with_this_distribution(self, device: Installed) -> None:
        (device.folder / "peer.toml").write_text(
            'name = "a"\nlisten = "127.0.0.1:7000"\nstate_dir = "state"\ndata = "rows.csv"\nmetrics = "127.0.0.1:9100"\n'
        )
        (device.folder / "rows.csv").write_text("a,b\n1,2\n3,4\n")
        done = device.sh("p2pclust peer --config peer.toml --check")
        assert "pip install 'p2pclust-device[metrics]'" in done.stderr

    def test_a_fleet_of_three(self, device: Installed) -> None:
        port, devices = free_ports(3), []
        for number, name in enumerate("abc"):
            rows = "\n".join(f"{10 * (row % 2) + row / 50},{row % 2}" for row in range(40))
            (device.folder / f"{name}.csv").write_text(f"kwh,volt\n{rows}\n")
            devices.append(f'[[devices]]\nname = "{name}"\nport = {port + number}\ndata = "{name}.csv"\n')
        (device.folder / "fleet.toml").write_text('keys = "keys"\nstate_dir = "state"\n' + "".join(devices))
        where = "--peer state/peers/a/state"
        lines = [
            "p2pclust keys init keys", "p2pclust keys device a b c --fleet keys", "p2pclust fleet up fleet.toml",
            f"p2pclust status {where}", f"p2pclust submit llf-cm --clusters 2 {where} --wait",
        ]  # fmt: skip
        try:
            for line in lines:
                done = device.sh(line)
                assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
            job = json.loads(device.sh(f"p2pclust jobs {where} --json").stdout)["jobs"][0]["job"]
            for line in (
                f"p2pclust result {job} {where} -o centers.csv",
                f"p2pclust assign {job} {where} -o labels.csv",
            ):
                done = device.sh(line)
                assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
            assert len((device.folder / "labels.csv").read_text().splitlines()) == 41
        finally:
            ended = device.sh("p2pclust fleet down fleet.toml")
        assert ended.returncode == 0, ended.stdout + ended.stderr
