"""What `peers/` offers beside the configuration of one peer: each file is checked by what there is to check it here."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.throwaway import throwaway_fleet

from p2pclust.cli.fleet.inventory import InventoryFile, load_inventory
from p2pclust.cli.fleet.peer_config import load_config
from p2pclust.lab.testbed.processes.children import write_fleet

FOLDER = Path(__file__).parents[1] / "peers"
yaml = pytest.importorskip("yaml", reason="pip install pyyaml")
METERS = ("meter-0", "meter-1", "meter-2")


class TestInventory:
    @pytest.fixture
    def fleet(self, tmp_path: Path) -> Path:
        """A folder as `fleet.toml` wants it."""
        shutil.copy(FOLDER / "fleet.toml", tmp_path)
        write_fleet(tmp_path / "fleet", *throwaway_fleet(["gateway", "meter-01", "meter-02"]))
        (tmp_path / "rows").mkdir()
        for name in ("meter-01", "meter-02"):
            (tmp_path / "rows" / f"{name}.csv").write_text("kwh,volt\n1.5,230\n")
        return tmp_path / "fleet.toml"

    def test_it_is_one(self, fleet: Path) -> None:
        loaded = load_inventory(fleet)
        assert [(device.name, device.host, device.group) for device in loaded.devices] == [
            ("gateway", "gateway", "gateway"), ("meter-01", "gateway", "meter"), ("meter-02", "local", "meter"),
        ]  # fmt: skip
        listens = [device.config["listen"] for device in loaded.devices]
        assert listens == ["192.168.1.7:7000", "192.168.1.7:7001", "192.168.1.2:7002"]
        assert [device.config["fitness"] for device in loaded.devices] == [0.9, 0.3, 0.1]
        assert loaded.hosts["gateway"].ssh_options == ("-o", "ServerAliveInterval=15")

    def test_it_explains_every_key(self) -> None:
        text = (FOLDER / "fleet.toml").read_text(encoding="utf-8")
        said = set(re.findall(r"^#? ?(\w+) = ", text, re.MULTILINE))
        said |= set(re.findall(r"^\[+(\w+)", text, re.MULTILINE))
        keys: set[str] = set()
        for name, field in InventoryFile.model_fields.items():
            keys |= {field.alias or name}
        for table in ("SshTable", "HostTable", "ClassTable", "DeviceTable"):
            from p2pclust.cli.fleet import inventory

            keys |= {field.alias or name for name, field in getattr(inventory, table).model_fields.items()}
        assert keys - said == set()


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd here: apt-get install systemd")
class TestSystemd:
    @pytest.fixture
    def unit(self, tmp_path: Path) -> Path:
        """An instance of the template, with a program that exists here in the place of the installed one."""
        text = (FOLDER / "p2pclust-peer@.service").read_text(encoding="utf-8")
        program = "/opt/p2pclust/bin/p2pclust"
        assert text.count(program) == 1
        made = tmp_path / "p2pclust-peer@meter-01.service"
        made.write_text(text.replace(program, str(shutil.which("true"))))
        return made

    def test_systemd_takes_it_without_a_word(self, unit: Path) -> None:
        done = subprocess.run(
            ["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True, timeout=60, check=False
        )
        assert (done.returncode, done.stdout + done.stderr) == (0, "")

    def test_what_is_wrong_would_be_found(self, unit: Path) -> None:
        unit.write_text(unit.read_text().replace("Type=notify", "Type=notfy"))
        done = subprocess.run(
            ["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True, timeout=60, check=False
        )
        assert "notfy" in done.stderr

    def test_its_exposure_is_low(self, unit: Path) -> None:
        # Of 10; what is left is that it talks to the network. 2.0 and less is "OK" to systemd.
        done = subprocess.run(
            ["systemd-analyze", "security", "--offline=true", "--threshold=15", unit], capture_output=True, text=True,
            timeout=60, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout

    def test_the_peer_is_told_to_the_service_manager(self) -> None:
        text = (FOLDER / "p2pclust-peer@.service").read_text(encoding="utf-8")
        settings = dict(re.findall(r"^(\w+)=(.*)$", text, re.MULTILINE))
        assert (settings["Type"], settings["RestartPreventExitStatus"]) == ("notify", "2")
        # Good-byes take half a second, and nobody is killed over them.
        assert int(settings["TimeoutStopSec"]) >= 5
        assert "--state-dir /var/lib/p2pclust/%i" in settings["ExecStart"]
        assert settings["StateDirectory"] == "p2pclust/%i"


def documents(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((FOLDER / name).read_text(encoding="utf-8")))


def options_of(words: list[str]) -> dict[str, str]:
    """The options of a peer's command line."""
    assert words[0] == "peer"
    return dict(zip(words[1::2], words[2::2], strict=True))


@pytest.fixture
def container(tmp_path: Path) -> Path:
    """A folder as a container sees /etc/p2pclust, with all bundles beside."""
    shutil.copy(FOLDER / "container.toml", tmp_path / "peer.toml")
    write_fleet(tmp_path, *throwaway_fleet(METERS))
    np.savetxt(tmp_path / "rows.csv", np.ones((3, 2)), delimiter=",", header="x,y", comments="")
    return tmp_path


def check_options(container: Path, name: str, options: dict[str, str]) -> None:
    """A peer takes this command line, once files are where they lie here."""
    assert options.pop("--config") == "/etc/p2pclust/peer.toml"
    assert options.pop("--bundle")
    given = {key.removeprefix("--").replace("-", "_"): value for key, value in options.items()}
    bundle = str(container / f"{name}.bundle")
    checked = load_config(
        container / "peer.toml",
        given | {"bundle": bundle, "data": str(container / "rows.csv"), "state_dir": str(container / "state")},
    )
    assert (checked["name"], checked["listen"]) == (name, f"{name}.meter:7000")
    assert checked["join"][name] == checked["listen"]  # one list for all: each passes over itself


class TestContainer:
    TEXT = (FOLDER / "Containerfile").read_text(encoding="utf-8")

    def test_the_last_stage_is_nobody_in_particular_and_brings_no_tools(self) -> None:
        stages = re.split(r"^FROM ", self.TEXT, flags=re.MULTILINE)[1:]
        assert len(stages) == 2
        last = stages[-1]
        assert re.search(r"^USER 10001:10001$", last, re.MULTILINE)
        assert last.index("USER") < last.index("ENTRYPOINT")
        assert "pip install" not in last
        assert "COPY --from=build" in last

    def test_what_it_copies_is_there_and_enough_to_build(self) -> None:
        copied = [
            word for line in re.findall(r"^COPY (?!--)(.+)$", self.TEXT, re.MULTILINE) for word in line.split()[:-1]
        ]
        assert copied == ["LICENSE", "MANIFEST.in", "p2pclust", "device"]
        for name in copied:
            assert (FOLDER.parent / name).exists()

    def test_its_words_are_known(self) -> None:
        joined = re.sub(r"\\\n(\s*#.*\n)*", " ", self.TEXT)
        words = {line.split()[0] for line in joined.splitlines() if line and not line.startswith("#")}
        assert words == {
            "FROM",
            "WORKDIR",
            "COPY",
            "RUN",
            "ENV",
            "USER",
            "VOLUME",
            "EXPOSE",
            "STOPSIGNAL",
            "ENTRYPOINT",
            "CMD",
        }


class TestCompose:
    FILE = documents("compose.yaml")[0]

    @pytest.mark.parametrize("name", METERS)
    def test_each_peer_is_told_who_it_is(self, container: Path, name: str) -> None:
        service = self.FILE["services"][name]
        check_options(container, name, options_of(service["command"]))
        assert service["networks"]["fleet"]["aliases"] == [f"{name}.meter"]
        assert service["secrets"] == [f"{name}.bundle"]
        assert f"{name}:/var/lib/p2pclust" in service["volumes"]
        assert service["command"][service["command"].index("--bundle") + 1] == f"/run/secrets/{name}.bundle"
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]

    def test_all_that_is_named_is_declared(self) -> None:
        assert set(self.FILE) == {"x-peer", "x-config", "x-roster", "services", "networks", "volumes", "secrets"}
        assert set(self.FILE["services"]) == set(self.FILE["volumes"]) == set(METERS)
        assert set(self.FILE["secrets"]) == {f"{name}.bundle" for name in METERS}
        for service in self.FILE["services"].values():
            build = service["build"]
            assert (FOLDER / build["context"] / build["dockerfile"]).resolve() == FOLDER / "Containerfile"
            assert "./container.toml:/etc/p2pclust/peer.toml:ro" in service["volumes"]
        assert (FOLDER / "container.toml").exists()


class TestKubernetes:
    DOCUMENTS = documents("kubernetes.yaml")
    SET = next(document for document in DOCUMENTS if document["kind"] == "StatefulSet")

    def test_kubernetes_schemas_take_it(self) -> None:
        validate = pytest.importorskip("kubernetes_validate", reason="pip install kubernetes-validate")
        for document in self.DOCUMENTS:
            for version in ("1.29", validate.latest_version()):
                validate.validate(document, version, strict=True)
        broken = self.SET | {"spec": self.SET["spec"] | {"replicas": "three"}}
        with pytest.raises(validate.ValidationError):
            validate.validate(broken, "1.29", strict=True)

    def test_what_belongs_together_has_the_same_names(self) -> None:
        kinds = {document["kind"]: document for document in self.DOCUMENTS}
        labels = kinds["Service"]["spec"]["selector"]
        spec = self.SET["spec"]
        assert spec["selector"]["matchLabels"] == spec["template"]["metadata"]["labels"] == labels
        assert kinds["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"] == labels
        assert kinds["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"] == labels
        assert spec["serviceName"] == kinds["Service"]["metadata"]["name"] == self.SET["metadata"]["name"] == "meter"
        assert (kinds["Service"]["spec"]["clusterIP"], kinds["Service"]["spec"]["publishNotReadyAddresses"]) == (
            "None",
            True,
        )
        pod = spec["template"]["spec"]
        volumes = {
            volume["name"]
            for volume in (*pod["volumes"], *(claim["metadata"] for claim in spec["volumeClaimTemplates"]))
        }
        mounted = {
            mount["name"] for part in (*pod["initContainers"], *pod["containers"]) for mount in part["volumeMounts"]
        }
        assert volumes == mounted

    @pytest.mark.parametrize("number", range(3))
    def test_each_pod_is_the_peer_of_its_name(self, container: Path, number: int) -> None:
        name = f"{self.SET['metadata']['name']}-{number}"
        (peer,) = self.SET["spec"]["template"]["spec"]["containers"]
        check_options(container, name, options_of([word.replace("$(POD_NAME)", name) for word in peer["args"]]))

    def test_a_pod_sees_its_own_bundle_only_and_nobody_else_reads_it(self) -> None:
        pod = self.SET["spec"]["template"]["spec"]
        (init,) = pod["initContainers"]
        secret = next(mount for mount in init["volumeMounts"] if mount["name"] == "bundles")
        assert secret["subPathExpr"] == "$(POD_NAME).bundle"
        assert not any(mount["name"] == "bundles" for part in pod["containers"] for mount in part["volumeMounts"])
        assert init["command"][:3] == ["install", "-m", "0600"]
        (peer,) = pod["containers"]
        assert init["command"][-1] == options_of(peer["args"])["--bundle"]
        assert pod["securityContext"]["runAsNonRoot"] is True
        for part in (init, peer):
            assert part["securityContext"]["readOnlyRootFilesystem"] is True
            assert part["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def test_the_guide_walks_through_every_file() -> None:
    guide = (FOLDER / "README.md").read_text(encoding="utf-8")
    for file in sorted(FOLDER.iterdir()):
        if file.name != "README.md":
            assert f"({file.name}{'/README.md' if file.is_dir() else ''})" in guide, file.name
