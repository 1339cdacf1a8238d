"""The page on protocols of one's own is right: its package is installed and runs everywhere, with the same bits."""

from __future__ import annotations

import importlib
import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from p2pclust import FederatedClustering
from p2pclust.cli.app import app
from p2pclust.errors import UsageError
from p2pclust.jobs.submission import request_from
from p2pclust.lab.scenario.file.load import load_scenario, make_job
from p2pclust.lab.testbed import backend
from p2pclust.peer.core.tasks import Contribute, NoResult, Ref
from p2pclust.peer.core.timing import Limits
from p2pclust.peer.work.states import BlobAccess, job_of
from p2pclust.peer.work.tasks import perform
from p2pclust.protocols import Job, Local, Stage, cluster_job, run_in_process
from p2pclust.protocols.engine import engine
from p2pclust.protocols.engine.registry import clusterings, plugins
from p2pclust.protocols.engine.runner import conclude
from p2pclust.protocols.engine.summaries import raw_centers

sys.path.insert(0, str(Path(__file__).parents[1] / "processes"))
sys.path.insert(0, str(Path(__file__).parents[1] / "fleet"))

import by_hand
from runs import until

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("own protocol")]  # it is installed once

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "own-protocol.md").read_text(encoding="utf-8")
PEERS = [
    np.random.default_rng(peer).normal(size=(30, 2)) + 4.0 * (np.arange(30) % 3)[:, np.newaxis] for peer in range(3)
]


def listings(language: str) -> list[str]:
    """Return the page's blocks in a language."""
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


SCENARIO = listings("toml")[1].replace("noise = 0.05", "{}")
"""The page's, without the value of `noise`."""
MEDIANS = listings("toml")[1].replace("noisy-cm", "hist-medians").replace("noise = 0.05", "")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page's package, installed into a folder."""
    home = tmp_path_factory.mktemp("own")
    (home / "package").mkdir()
    files = {"pyproject.toml": listings("toml")[0]}
    (files["noisy_cm.py"],) = listings("python")
    files["hist_medians.py"] = (DOCS / "own-protocol" / "hist_medians.py").read_text(encoding="utf-8")
    for name, text in files.items():
        (home / "package" / name).write_text(text, encoding="utf-8")
    install = ["install", "--quiet", "--no-index", "--no-build-isolation", "--no-deps", "--no-compile", "--target"]
    subprocess.run([sys.executable, "-m", "pip", *install, home / "site", home / "package"], check=True, timeout=100)
    return home / "site"


@pytest.fixture
def installed(site: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(site)
    monkeypatch.setenv("PYTHONPATH", str(site))  # of processes that a fleet starts
    importlib.invalidate_caches()
    return site


def noisy(**parameters: Any) -> Job:
    return cluster_job("noisy-cm", n_clusters=3, seed=1, **({"noise": 0.2} | parameters))


@pytest.mark.usefixtures("installed")
def test_it_runs_on_arrays() -> None:
    job = noisy().here()
    state = run_in_process(job, [Local(rows) for rows in PEERS])
    simulated = backend("simulated").run(job, PEERS)
    assert state.arrays["centers"].tobytes() == simulated.arrays["centers"].tobytes()
    quiet = run_in_process(noisy(noise=0).here(), [Local(rows) for rows in PEERS])
    plain = run_in_process(cluster_job("llf-cm", n_clusters=3, seed=1).here(), [Local(rows) for rows in PEERS])
    assert quiet.arrays["centers"].tobytes() == plain.arrays["centers"].tobytes()
    assert state.arrays["centers"].tobytes() != plain.arrays["centers"].tobytes()
    model = FederatedClustering("noisy-cm", n_clusters=3, parameters={"noise": 0.2}, random_state=1).fit(PEERS)
    assert model._centers.tobytes() == state.arrays["centers"].tobytes()


def medians(**parameters: Any) -> Job:
    return cluster_job("hist-medians", n_clusters=3, scaling="minmax", seed=1, **parameters)


@pytest.mark.usefixtures("installed")
def test_the_second_example_finds_medians() -> None:
    job, locals_ = medians(bins=512), [Local(rows) for rows in PEERS]
    state = run_in_process(job, locals_)
    assert (state.status, state.converged) == ("done", True)
    assert state.arrays["centers"].tobytes() == backend("simulated").run(job, PEERS).arrays["centers"].tobytes()
    found = conclude(job, state, locals_)
    labels, rows = np.concatenate([own["labels"] for own in found]), np.concatenate(PEERS)
    exact = np.array([np.median(rows[labels == cluster], axis=0) for cluster in range(3)])
    assert np.abs(raw_centers(state) - exact).max() < 0.15, "the two rows in the middle lie that far apart"


@pytest.mark.usefixtures("installed")
def test_an_array_that_is_not_declared_is_refused_as_peers_refuse_it(monkeypatch: pytest.MonkeyPatch) -> None:
    job = medians()
    monkeypatch.setattr(kind_of(job), "own_arrays", {})
    message = "hist-medians: peers would refuse this state: job state: unknown array 'low'"
    with pytest.raises(UsageError, match=f"^{re.escape(message)}$"):
        run_in_process(job, [Local(rows) for rows in PEERS])


def broken(*_: object) -> None:
    raise KeyError("sums")


def kind_of(job: Job) -> type:
    return type(job.protocols[job.main])


@pytest.mark.usefixtures("installed")
def test_a_failure_in_combine_is_narrated_and_ends_the_line_about_no_progress(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(kind_of(medians()), "combine", broken)
    file = tmp_path / "medians.toml"
    file.write_text(MEDIANS, encoding="utf-8")
    with pytest.raises(SystemExit) as ended:
        app(["run", str(file), "--backend", "simulated", "--out", str(tmp_path / "out")])
    assert ended.value.code == 3
    shown = capsys.readouterr()
    assert "cannot continue with the job: failed: KeyError: 'sums'" in shown.out
    failure = json.loads((tmp_path / "out" / "result.json").read_text(encoding="utf-8"))["failure"]
    assert re.fullmatch(
        r"no progress for \d+ virtual seconds at round \d+: peer-\d\d could not continue: failed: KeyError: 'sums'",
        failure,
    )


@pytest.mark.parametrize("function", ["pooled_step", "conclude"])
@pytest.mark.usefixtures("installed")
def test_a_run_keeps_its_result_if_code_for_comparison_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: str
) -> None:
    monkeypatch.setattr(kind_of(medians()), function, broken)
    file = tmp_path / "medians.toml"
    file.write_text(MEDIANS, encoding="utf-8")
    with pytest.raises(SystemExit) as ended:
        app(["run", str(file), "--backend", "in-process", "--out", str(tmp_path / "out")])
    assert not ended.value.code
    (entry,) = json.loads((tmp_path / "out" / "result.json").read_text(encoding="utf-8"))["jobs"]
    said = f"not measured: {function} of hist-medians (p2pclust-noisy 1.0) failed: KeyError: 'sums'"
    assert said in entry["doubts"]
    assert len(entry["centers"]) == 3
    if function == "pooled_step":
        assert (entry["gap"], entry["best_pooled"]) == (None, None)
    else:
        assert entry["gap"]["to"] == "pooled k-medians"
        assert (entry["metrics"], (tmp_path / "out" / "labels.csv").exists()) == ({}, False)


@pytest.mark.usefixtures("installed")
def test_the_job_document_names_the_package() -> None:
    document = noisy().to_dict()
    assert [stage.get("package") for stage in document["stages"]][-2:] == ["p2pclust-noisy 1.0", None]
    assert Job.from_dict(document) == noisy()
    assert "package" not in str(cluster_job("llf-cm", n_clusters=3).to_dict())


@pytest.mark.usefixtures("installed")
def test_another_version_is_refused_by_name() -> None:
    stages = [
        replace(stage, package="p2pclust-noisy 2.0") if stage.protocol == "noisy-cm" else stage
        for stage in noisy().stages
    ]
    message = (
        "noisy-cm needs p2pclust-noisy 2.0, which is not what is installed here (p2pclust-noisy 1.0): "
        "pip install 'p2pclust-noisy==2.0'"
    )
    with pytest.raises(UsageError, match=f"^{re.escape(message)}$"):
        Job(tuple(stages), 1)
    with pytest.raises(UsageError, match=r"^llf-cm is a protocol of p2pclust's own, not of p2pclust-noisy 1.0$"):
        Job((Stage("llf-cm", {"n_clusters": 3}, "p2pclust-noisy 1.0"),), 1)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('noise = "much"', '[jobs.0]: noise = "much": expected a number'),
        ("noise = true", "[jobs.0]: noise = true: expected a number"),
        ("nois = 0.1", "[jobs.0]: unknown key 'nois' (did you mean 'noise'?)"),
        ("fuzzifier = 2.0", "[jobs.0]: protocol 'noisy-cm' has no fuzzifier"),
    ],
)
@pytest.mark.usefixtures("installed")
def test_a_wrong_parameter_is_refused_in_one_line(tmp_path: Path, line: str, message: str) -> None:
    file = tmp_path / "noisy.toml"
    file.write_text(SCENARIO.format(line), encoding="utf-8")
    with pytest.raises(UsageError) as refused:
        load_scenario(file)
    assert str(refused.value) == f"{file}: {message}"


@pytest.mark.usefixtures("installed")
def test_a_parameter_out_of_range_or_of_another_type_is_refused_everywhere() -> None:
    with pytest.raises(UsageError, match=r"^noisy-cm: noise = -1: "):
        noisy(noise=-1)
    with pytest.raises(UsageError, match=r"^noisy-cm: noise = 'much': expected a number$"):
        noisy(noise="much")
    with pytest.raises(UsageError, match=r"^submit: noise = \"much\": expected a number$"):
        request_from({"protocol": "noisy-cm", "clusters": 3, "noise": "much"}, 5)
    request, _ = request_from({"protocol": "noisy-cm", "clusters": 3, "noise": 0.2, "seed": 1, "secure": False}, 5)
    assert request.job == noisy()


@pytest.mark.parametrize("where", ["in-process", "simulated", pytest.param("processes", marks=pytest.mark.processes)])
@pytest.mark.usefixtures("installed")
def test_it_runs_from_a_scenario(tmp_path: Path, where: str, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "noisy.toml"
    file.write_text(SCENARIO.format("noise = 0.05"), encoding="utf-8")
    with pytest.raises(SystemExit) as ended:
        app(["run", str(file), "--backend", where, "--out", str(tmp_path / "out"), "--json"])
    assert not ended.value.code
    (told,) = json.loads(capsys.readouterr().out)["jobs"]
    assert (told["protocol"], told["parameters"]["noise"]) == ("noisy-cm", 0.05)
    job = make_job(load_scenario(file), 0, 4)
    assert job.stages[job.main].package == "p2pclust-noisy 1.0"
    assert "noisy-cm" in (tmp_path / "out" / "report.html").read_text(encoding="utf-8")


@pytest.mark.usefixtures("installed")
def test_it_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        app(["protocols", "--json"])
    told = json.loads(capsys.readouterr().out)["protocols"][-1]
    assert (told["id"], told["package"], told["parameters"]["noise"]) == ("noisy-cm", "p2pclust-noisy 1.0", 0.1)
    assert told["what"] == "K-means with noise added to each peer's sums."
    assert clusterings()[-1] == "noisy-cm"


def test_without_the_package_it_is_unknown() -> None:
    assert "noisy-cm" not in plugins()
    with pytest.raises(UsageError, match=r"^unknown protocol 'noisy-cm' \(known: llf-cm, "):
        cluster_job("noisy-cm", n_clusters=3)


@pytest.mark.usefixtures("installed")
def test_its_errors_do_not_end_a_peer(monkeypatch: pytest.MonkeyPatch) -> None:
    import msgpack

    data = msgpack.packb(noisy().to_dict())
    job, local = job_of(data), Local(PEERS[0])
    state = engine.begin(job)
    while state.stage < job.main:
        proposed = [(0, engine.contribution(job, state, local, 0, 1))]
        state = engine.advance(job, state, proposed, {}, n_peers=1)

    monkeypatch.setattr(kind_of(job), "contribute", broken)
    encoded = state.encode()
    ref = by_hand_ref(encoded)
    blobs = BlobAccess(lambda digest: iter([encoded]), lambda *_: None, lambda digest: None, Limits())
    assert perform(Contribute(data, 1, ref, me=0), local, blobs) == NoResult("failed: KeyError: 'sums'")


def by_hand_ref(data: bytes) -> Any:
    from p2pclust.protocols.engine.workspace import digest_of

    return Ref(digest_of(data), len(data), data)


@pytest.mark.processes
def test_a_peer_without_the_package_abstains_by_name(
    installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with by_hand.Fleet(tmp_path, PEERS) as fleet:
        monkeypatch.setattr(by_hand, "ENVIRONMENT", {**os.environ, "OMP_NUM_THREADS": "1"})
        fleet.start("p00", "p01")
        monkeypatch.delenv("PYTHONPATH")
        monkeypatch.setattr(by_hand, "ENVIRONMENT", {**os.environ, "OMP_NUM_THREADS": "1"})
        fleet.start("p02")
        until(fleet.linked, 60.0, "not all peers have heard of the others")
        job_id = fleet.submit(noisy())
        until(lambda: len(fleet.finished()) == 3, 60.0, "not finished")
        state = fleet.state(job_id)
    assert state.status == "done"
    assert {peer: why for record in state.log for peer, why in record.abstained.items()} == {
        2: "failed: noisy-cm needs p2pclust-noisy 1.0, which is not installed here: pip install 'p2pclust-noisy==1.0'"
    }
    assert {record.contributors for record in state.log} == {(0, 1)}


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`([a-z_]+)\((?:state|previous|points)", PAGE))))
def test_what_the_page_names_is_there(name: str) -> None:
    from p2pclust.protocols.engine.base import Additive, Clustering

    assert callable(getattr(Additive if name == "units" else Clustering, name))
