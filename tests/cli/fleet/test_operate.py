"""What operators are shown, with a client that gives the answers of a test in place of a running peer."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgpack
import pytest
from tests.cli.conftest import Cli

from p2pclust.hosts.client import Connection
from p2pclust.hosts.submission import FinishedJob
from p2pclust.protocols import Local, cluster_job, run_in_process

TWIN = "two processes use the key of a, at a:1 and at h:2: end one of them"
MEMBER = {"name": "b", "status": "alive", "incarnation": 1, "address": "b:1", "heard_s": 0.1, "why": "", "linked": True,
          "kernel": "c1"}  # fmt: skip


def a_job(number: int, phase: str = "done", **changed: Any) -> dict[str, Any]:
    job = {
        "job": f"job-{number}", "protocol": "llf-cm", "round": 6, "phase": phase, "aggregator": "", "waits_for": [],
        "reason": "", "within": "", "series": "", "number": 0, "every_s": 0.0, "next_s": None, "series_cancelled_by": "",
        "secured": {}, "exposed": [], "exposed_by": [], "scaling": "minmax", "verify": "",
        **changed,
    }  # fmt: skip
    return {"name": f"{job['series']}/{job['number'] + 1}" if job["series"] else job["job"], **job}


class FakeClient:
    """Answers what a test wants answered."""

    answers: dict[str, list[dict[str, Any]]]
    jobs: list[dict[str, Any]]
    asked: list[dict[str, Any]]
    more: dict[str, Any]  # in the answer to status

    def __init__(self, *_address: Any) -> None:
        self.address = "here"

    def __enter__(self) -> FakeClient:
        return self

    def __exit__(self, *_error: object) -> None:
        pass

    def ask(self, _verb: str, **_fields: Any) -> dict[str, Any]:
        return {
            "peer": "a", "kernel": "c1", "address": "a:1", "version": "1", "uptime_s": 5.0, "rss_mb": 40.0, "waiting": "",
            "twin": TWIN,
            "fleet": {"alive": 2, "enrolled": 2, "serial": 1, "majority": 2}, "members": [MEMBER], "jobs": self.jobs,
            "data": {"rows": 3, "columns": 2, "problem": ""},
        } | self.more  # fmt: skip

    def follow(self, verb: str, **fields: Any) -> Iterator[dict[str, Any]]:
        self.asked.append(fields)
        yield from self.answers[verb]


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> type[FakeClient]:
    monkeypatch.setattr("p2pclust.hosts.client.Connection", FakeClient)
    FakeClient.answers, FakeClient.jobs, FakeClient.asked, FakeClient.more = {}, [], [], {}
    return FakeClient


def test_a_series_that_was_cancelled_is_listed_as_that(cli: Cli, client: type[FakeClient]) -> None:
    client.jobs = [a_job(1, series="s", every_s=3600.0, series_cancelled_by="desk")]
    assert "turn 1 of every 1 h 0 min, series cancelled by desk" in cli("jobs").out
    client.answers["cancel"] = [
        {"job": "job-1", "outcome": "cancelled", "reason": "the series was cancelled by desk", "late": True}
    ]
    ended = cli("cancel", "job-1")
    assert (ended.code, ended.err) == (
        3,
        "error: job-1: too late, it has already ended: the series was cancelled by desk\n",
    )


@pytest.mark.parametrize("command", [["status"], ["peers"], ["peers", "--peer", "a", "--peer", "b"]])
def test_a_twin_is_shown(cli: Cli, client: type[FakeClient], command: list[str]) -> None:
    done = cli(*command)
    assert done.code == 0, done.err
    assert TWIN in done.out


def test_status_shows_jobs_that_go_on_and_the_last_few(cli: Cli, client: type[FakeClient]) -> None:
    long = (
        "align: every peer's columns are needed (a: has 38 rows where the fleet has 40, b: has 38 rows where it has 40)"
    )
    client.jobs = [a_job(0, "gathering"), *(a_job(number) for number in range(1, 8)), a_job(8, "failed", reason=long)]
    said = cli("status").out
    assert [word for word in said.split() if word.startswith("job-")] == ["job-0", "job-6", "job-7", "job-8"]
    assert "and 5 older: `p2pclust jobs` lists all" in said
    assert "align: every peer's columns are needed" in said
    assert long not in " ".join(said.split())
    said = cli("jobs").out
    assert said.count("job-") == 9
    assert "older" not in said


@pytest.fixture
def found(client: type[FakeClient], monkeypatch: pytest.MonkeyPatch) -> FinishedJob:
    """A result of three rounds before the clustering, some of it, and one of the objective."""
    job = cluster_job("llf-cm", n_clusters=2, init="uniform", scaling="zscore", seed=0)
    state = run_in_process(job, [Local([[0.0], [1.0], [2.0], [9.0], [10.0], [11.0]])])
    told = {
        "roster": ["a"], "terms": [[1, "a"]], "features": ["heat"], "number": 0,
        "secured": {}, "exposed": [], "exposed_by": [], "scaling": "minmax", "verify": "",
    }  # fmt: skip
    whole = FinishedJob("job-1", told, job, state)
    monkeypatch.setattr("p2pclust.hosts.submission.result_of", lambda _client, _job: whole)
    return whole


def test_a_result_says_what_its_rounds_were(cli: Cli, found: FinishedJob) -> None:
    rounds = [record.stage for record in found.state.log]
    own = rounds.count(found.job.main)
    said = cli("result", "job-1").out
    before = f"{len(rounds)} rounds ({own} of clustering, {len(rounds) - own} to prepare and to measure)"
    assert said.startswith(f"job-1: llf-cm, {before}, converged\n")
    assert "heat" in said


def test_a_result_names_suspects_and_who_found_them(
    cli: Cli, found: FinishedJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the log, which every peer has, and what the peer that was asked has found itself."""
    lie = replace(found.state.log[4], contributors=(), abstained={0: "implausible: a cluster has a negative weight"})
    state = replace(found.state, log=(*found.state.log[:4], lie, *found.state.log[5:]))
    told = {**found.told, "peer": "b", "suspects": [("a", 7, "it answered this round twice")]}
    lied = replace(found, state=state, told=told)
    monkeypatch.setattr("p2pclust.hosts.submission.result_of", lambda _client, _job: lied)
    said = cli("result", "job-1").out
    assert "suspect: a, in round 4: a cluster has a negative weight\n" in said
    assert "suspect: a, in round 7: it answered this round twice, as b found\n" in said
    listed = json.loads(cli("result", "job-1", "--json").out)["suspects"]
    assert [one["found_by"] for one in listed] == ["all", ["b"]]


@pytest.mark.parametrize(
    ("file", "what"), [("c.csv", "centers"), ("c.npz", "centers"), ("c.json", "the result with its centers")]
)
def test_a_result_that_goes_into_a_file_is_not_shown_as_well(
    cli: Cli, found: FinishedJob, file: str, what: str
) -> None:
    ended = cli("result", "job-1", "-o", file)
    assert (ended.code, ended.out) == (0, "")
    assert ended.err == f"{file}: {what} of job-1, 2 clusters of 1 features\n"
    assert cli("result", "job-1", "-o", file, "--json").err == ""


def test_a_peers_folder_is_as_good_as_the_state_directory_in_it(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir()
    assert Connection(tmp_path).state_dir == tmp_path, "nothing is there yet"
    (state / "control").touch()
    assert Connection(tmp_path).state_dir == Connection(state).state_dir == state
    (tmp_path / "control").touch()
    assert Connection(tmp_path).state_dir == tmp_path


def watched(cli: Cli, client: type[FakeClient], *events: dict[str, Any]) -> list[str]:
    """The lines of a watch without their times."""
    standing = {"verb": "standing", **a_job(1, "gathering", round=0)}
    finished = {"verb": "finished", "job": "job-1", "round": 2, "outcome": "done", "reason": ""}
    client.answers["watch"] = [standing, *({"job": "job-1", "term": 1, **event} for event in events), finished]
    ended = cli("watch", "job-1")
    assert ended.code == 0
    return [line[len("00:00:00 ") :] for line in ended.out.splitlines()][1:]


def test_a_round_is_one_line_whoever_is_asked(cli: Cli, client: type[FakeClient]) -> None:
    def phase(name: str, number: int) -> dict[str, Any]:
        return {"verb": "phase", "phase": name, "round": number, "aggregator": "a"}

    combined = {"verb": "combined", "contributors": ["a"], "shift": 0.5}
    of_the_aggregator = [
        phase("opening", 0), phase("adopting", 0), phase("combining", 0),
        {**combined, "round": 0, "abstained": dict.fromkeys("bc", "has 2 columns where the fleet has 4") | {"d": "no data"}},
        phase("opening", 1), phase("adopting", 1), phase("combining", 1), {**combined, "round": 1},
        phase("closing", 2), phase("adopting", 2),
    ]  # fmt: skip
    assert watched(cli, client, *of_the_aggregator) == [
        "round 0 combined from 1 peer, centers moved 0.5; b, c abstained: has 2 columns where the fleet has 4; d abstained: "
        "no data",
        "round 1 combined from 1 peer, centers moved 0.5",
        "done after 2 rounds",
    ]
    of_a_follower = [phase("adopting", number) for number in (0, 1, 1, 2)]
    assert watched(cli, client, *of_a_follower) == [
        "round 0 is over (term 1, a aggregates)",
        "round 1 is over (term 1, a aggregates)",
        "done after 2 rounds",
    ]


@pytest.mark.parametrize(
    ("bounds", "low", "high"),
    [("[0, 1]", [0, 0], [1, 1]), ("[[0, 1]]", [0, 0], [1, 1]), ("[[0, 1], [0, 5]]", [0, 0], [1, 5])],
)
def test_one_pair_of_bounds_is_for_all_columns_of_the_peer(
    cli: Cli, client: type[FakeClient], bounds: str, low: list[float], high: list[float]
) -> None:
    client.answers["submit"] = [{"job": "job-1", "roster": ["a"], "accepted": True}]
    ended = cli("submit", "llf-cm", "--clusters", "3", "--bounds", bounds, "--seed", "5", "--patience", "2")
    assert (ended.code, ended.out) == (0, "job-1\n")
    (asked,) = client.asked
    job = msgpack.unpackb(asked["mathematics"])
    (ranges,) = (stage["parameters"] for stage in job["stages"] if stage["protocol"] == "range")
    assert (ranges["lo"], ranges["hi"]) == (low, high)
    assert (job["seed"], asked["patience_s"]) == (5, 2.0)


def test_a_value_after_an_option_without_one_is_explained(cli: Cli) -> None:
    ended = cli("submit", "llf-cm", "--clusters", "3", "--secure", "true")
    assert (ended.code, ended.err) == (
        2,
        "error: submit: 'true': expected --PARAMETER VALUE; --secure, --no-secure, --wait and --json take no value: "
        "write --secure alone\n",
    )


@pytest.mark.parametrize(("names", "secure"), [("a", False), ("ab", False), ("abc", False), ("abcd", True)])
@pytest.mark.parametrize("named", [False, True])
def test_fewer_than_four_peers_run_plain_and_a_line_says_so(
    cli: Cli, client: type[FakeClient], names: str, secure: bool, named: bool
) -> None:
    client.answers["submit"] = [{"job": "job-1", "roster": list(names), "accepted": True}]
    client.more = {"members": [MEMBER | {"name": name, "status": "alive"} for name in names[1:]]}
    ended = cli("submit", "llf-cm", "--clusters", "3", *(["--roster", ",".join(names)] if named else []))
    assert (ended.code, ended.out) == (0, "job-1\n")
    assert ("runs without secure sums, which need 4" in ended.err) != secure
    (asked,) = client.asked
    assert asked["secure"] is secure
    stages = [stage["protocol"] for stage in msgpack.unpackb(asked["mathematics"])["stages"]]
    assert ("range-by-sums" in stages) is secure
    # With one peer more the decision would be another one.
    assert asked["roster"] == ([] if secure and not named else list(names))


def test_what_excludes_secure_sums_is_refused_with_four_peers_and_not_with_three(
    cli: Cli, client: type[FakeClient]
) -> None:
    client.answers["submit"] = [{"job": "job-1", "roster": ["a"], "accepted": True}]
    words = ("submit", "llf-cm", "--clusters", "3", "--participation", "0.5")
    for others, more, code in (("bc", (), 0), ("bcd", (), 2), ("bcd", ("--no-secure",), 0)):
        client.more = {"members": [MEMBER | {"name": name, "status": "alive"} for name in others]}
        ended = cli(*words, *more)
        assert ended.code == code
        assert ("or set secure = false: from 4 peers on llf-cm has secure sums by default" in ended.err) == (code == 2)


def test_submit_asks_the_floor_first(cli: Cli, client: type[FakeClient]) -> None:
    client.answers["submit"] = [{"job": "job-1", "roster": ["a"], "accepted": True}]
    client.more = {"privacy": {"secure": True, "protocols": []}}
    for protocol in ("fkm", "llf-cm"):
        ended = cli("submit", protocol, "--clusters", "3", "--no-secure")
        assert "warning: a will contribute nothing, nor will devices with the same [privacy]: this device" in ended.err
    assert "warning" not in cli("submit", "llf-cm", "--clusters", "3", "--cohort", "3", "--roster", "a,b,c,d").err


def test_a_repeated_job_is_known_by_its_series(cli: Cli, client: type[FakeClient]) -> None:
    client.answers["submit"] = [
        {"job": "job-1", "series": "series-9", "roster": ["a", "b"], "accepted": False},
        {"job": "job-1", "accepted": True},
    ]
    assert cli("submit", "llf-cm", "--clusters", "3", "--every", "1h").out == "series-9\n"
    first, second = (
        a_job(2, series="series-9", every_s=3600.0),
        a_job(3, name="series-9/2", series="series-9", phase="following"),
    )
    client.jobs = [a_job(1), first, second | {"number": 1}]
    listed = cli("jobs").out
    assert "series-9/1" in listed
    assert "series-9/2" in listed
    for named in ("series-9", "9"):
        of_series = cli("jobs", named).out
        assert "job-1" not in of_series
        assert "series-9/2" in of_series
    assert "job-1" in cli("jobs", "job-1").out
    ended = cli("jobs", "series-8")
    assert (ended.code, ended.err) == (
        2,
        "error: a does not know the job: 'series-8': `p2pclust jobs` lists what it knows\n",
    )
    client.answers["cancel"] = [
        {"job": "job-3", "series": "series-9", "outcome": "cancelled", "reason": "cancelled by a", "late": False}
    ]
    assert cli("cancel", "series-9").out == "series-9: cancelled by a\n"


def test_how_often_a_job_is_repeated_needs_a_unit(cli: Cli, client: type[FakeClient]) -> None:
    ended = cli("submit", "llf-cm", "--clusters", "3", "--every", "1")
    assert (ended.code, ended.err) == (2, "error: submit: every = \"1\": '1' has no unit: write 1s, 1m, 1h or 1d\n")


@pytest.fixture
def asked_at(client: type[FakeClient], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """The addresses that are asked, and an inventory of three devices: two here, one elsewhere with a control address."""
    (tmp_path / "fleet.toml").write_text(
        'keys = "keys"\nstate_dir = "there"\n[[devices]]\nname = "a"\nport = 7001\ndata = "a.csv"\n'
        '[[devices]]\nname = "b"\nport = 7002\ndata = "b.csv"\n'
        '[[devices]]\nname = "far"\nport = 7003\nhost = "10.0.0.9"\ndata = "/rows.csv"\n'
        'settings = { control = "10.0.0.9:7400" }\n'
    )
    at: list[tuple[Any, ...]] = []
    monkeypatch.setattr(FakeClient, "__init__", lambda self, *address: at.append(address))
    client.answers["cancel"] = [{"job": "job-1", "outcome": "cancelled", "reason": ""}]
    client.jobs = [a_job(1)]
    return at


@pytest.mark.parametrize("command", [["status"], ["jobs"], ["peers"], ["cancel", "job-1"]])
def test_a_device_is_named_by_an_inventory(
    cli: Cli, asked_at: list[tuple[Any, ...]], tmp_path: Path, command: list[str]
) -> None:
    done = cli(*command, "--inventory", "fleet.toml", "--peer", "b")
    assert done.code == 0, done.err
    assert asked_at.pop() == (str(tmp_path / "there" / "peers" / "b"), None, tmp_path / "keys" / "roster.json")
    assert cli(*command, "--inventory", "fleet.toml").code == 0
    assert asked_at.pop()[0] == str(tmp_path / "there" / "peers" / "a")
    (tmp_path / "there" / "peers" / "b" / "state").mkdir(parents=True)
    (tmp_path / "there" / "peers" / "b" / "state" / "control").touch()
    assert cli(*command, "--inventory", "fleet.toml").code == 0
    assert asked_at.pop()[0] == str(tmp_path / "there" / "peers" / "b")


def test_a_device_elsewhere_is_asked_with_a_key(cli: Cli, asked_at: list[tuple[Any, ...]], tmp_path: Path) -> None:
    done = cli("status", "--inventory", "fleet.toml", "--peer", "far", "--bundle", "me.bundle")
    assert done.code == 0, done.err
    assert asked_at.pop() == ("far@10.0.0.9:7400", Path("me.bundle"), tmp_path / "keys" / "roster.json")
    done = cli("status", "--inventory", "fleet.toml", "--peer", "far")
    control = 'set control = "HOST:PORT" in the settings of a device, and name your key with --bundle'
    assert done.err == f"error: fleet.toml: far cannot be asked from here: {control}\n"
    done = cli("status", "--inventory", "fleet.toml", "--peer", "fra")
    assert done.err == "error: fleet.toml: no device is named 'fra' (did you mean 'far'?)\n"
