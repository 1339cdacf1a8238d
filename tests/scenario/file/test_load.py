from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from p2pclust.errors import DataError, UsageError
from p2pclust.lab.scenario.file.load import check_backend, load_data, load_scenario, make_job
from p2pclust.protocols.engine.registry import CLUSTERING

Write = Callable[..., str]

HEAD = '[data]\nsource = "iris"\n'
FLEET = "[fleet]\npeers = 4\n"
KNOWN = ", ".join(CLUSTERING)
JOB = '[[jobs]]\nprotocol = "llf-fcm"\nclusters = 3\n'


def message(path: str, *overrides: str) -> str:
    with pytest.raises(UsageError) as error:
        load_scenario(path, overrides)
    assert error.value.exit_code == 2
    return str(error.value)


def test_minimal(scenario_file: Write) -> None:
    scenario = load_scenario(scenario_file())
    assert scenario.data.source == "iris"
    assert scenario.fleet.peers == 4
    assert scenario.jobs[0].protocol == "llf-fcm"


ONE_LINE: list[tuple[str, str]] = [
    # Keys that do not exist.
    (HEAD + "partiton = 1\n" + FLEET + JOB, "[data]: unknown key 'partiton' (did you mean 'partition'?)"),
    ("sed = 1\n" + HEAD + FLEET + JOB, "unknown key 'sed' (did you mean 'seed'?)"),
    (HEAD + FLEET + JOB + "fuzifier = 2.0\n", "[jobs.0]: unknown key 'fuzifier' (did you mean 'fuzzifier'?)"),
    (
        HEAD + FLEET + "[fleet.overlay]\nneighbours = 4\n" + JOB,
        "[fleet.overlay]: overlay 'full': no option 'neighbours': it has none",
    ),
    (
        HEAD + '[[fleet.devices]]\nname = "a"\nlink = { delay = 1 }\n' + JOB,
        "[fleet.devices.0.link]: unknown key 'delay': expected latency_ms, jitter_ms, loss, mbit, up_mbit, down_mbit",
    ),
    (
        HEAD + '[[fleet.devices]]\nname = "a"\nlink = { mbit = 1, up_mbit = 2 }\n' + JOB,
        "[fleet.devices.0.link]: mbit is for both directions: leave it out, or up_mbit and down_mbit",
    ),
    (
        HEAD + '[[fleet.devices]]\nname = "a"\nlink = { latency_ms = 2, jitter_ms = 5 }\n' + JOB,
        "[fleet.devices.0.link]: jitter_ms = 5: expected at most latency_ms, which is 2",
    ),
    (
        HEAD + FLEET + JOB + '[[faults]]\nat = { rounds = 3 }\ndo = "kill"\nwho = "peer-01"\n',
        "[faults.0.at]: unknown key 'rounds' (did you mean 'round'?)",
    ),
    (
        HEAD + FLEET + '[[jobs]]\nprotocol = "fedcref"\nn_local_clusters = "class"\n',
        '[jobs.0]: n_local_clusters = "class": expected a whole number from 1 on, "classes" (of fedcref: as many as the '
        'device has labels), or "search" (of k-fed)',
    ),
    # Keys that are missing.
    (FLEET + JOB, "key 'data' is missing: write a table [data] with source = \"iris\""),
    (HEAD + JOB, "key 'fleet' is missing: write a table [fleet] with peers = 3"),
    (HEAD + FLEET, "key 'jobs' is missing: write a table [[jobs]] with protocol = \"llf-fcm\" and clusters = 3"),
    (HEAD + FLEET + '[[jobs]]\nprotocol = "llf-cm"\n', "[jobs.0]: protocol 'llf-cm' needs clusters"),
    # Values of the wrong type.
    ('seed = "7"\n' + HEAD + FLEET + JOB, 'seed = "7": expected an integer'),
    ("seed = 1.5\n" + HEAD + FLEET + JOB, "seed = 1.5: expected an integer"),
    ("title = 1\n" + HEAD + FLEET + JOB, "title = 1: expected text"),
    (HEAD + FLEET + JOB + 'tol = "small"\n', '[jobs.0]: tol = "small": expected a number'),
    (HEAD + FLEET + JOB + "tol = nan\n", "[jobs.0]: tol = NaN: expected a finite number"),
    (HEAD + FLEET + JOB + "privacy_gate = 1\n", "[jobs.0]: privacy_gate = 1: expected true or false or 'job'"),
    ("data = 3\n" + FLEET + JOB, "data = 3: expected a table"),
    (
        HEAD + FLEET + JOB.replace("[[jobs]]", "[jobs]"),
        "jobs = " + '{"protocol": "llf-fcm", "clusters": 3}: expected a list: write [[jobs]], with two brackets',
    ),
    ("jobs = [3]\n" + HEAD + FLEET, "jobs.0 = 3: expected a table"),
    ("jobs = []\n" + HEAD + FLEET, "jobs = []: expected at least one"),
    ("data.files = [1]\n" + FLEET + JOB, "[data]: files.0 = 1: expected text"),
    # Values out of range.
    ("seed = -1\n" + HEAD + FLEET + JOB, "seed = -1: expected at least 0"),
    (HEAD + FLEET + JOB.replace("3", "0"), "[jobs.0]: clusters = 0: expected at least 1"),
    (HEAD + FLEET + JOB + "participation = 1.5\n", "[jobs.0]: participation = 1.5: expected at most 1"),
    (HEAD + FLEET + JOB + "participation = 0\n", "[jobs.0]: participation = 0: expected more than 0"),
    (HEAD + FLEET + JOB + "fuzzifier = 1\n", "[jobs.0]: llf-fcm: fuzzifier = 1: expected a finite number above 1"),
    (HEAD + FLEET + JOB + "patience_s = -2\n", "[jobs.0]: patience_s = -2: expected at least 0.1"),
    (HEAD + FLEET + JOB + "patience_s = 1e-9\n", "[jobs.0]: patience_s = 1e-09: expected at least 0.1"),
    (
        HEAD + FLEET + JOB + '[[faults]]\nat = { seconds = -1 }\ndo = "kill"\nwho = "peer-01"\n',
        "[faults.0.at]: seconds = -1: expected at least 0",
    ),
    (
        HEAD + '[[fleet.devices]]\nname = "a"\nlink = { loss = 1.0 }\n' + JOB,
        "[fleet.devices.0.link]: loss = 1.0: expected less than 1",
    ),
    # Words that do not exist.
    (
        HEAD + 'scaling = "minmaks"\n' + FLEET + JOB,
        "[data]: scaling = \"minmaks\": expected 'none', 'minmax' or 'zscore' (did you mean 'minmax'?)",
    ),
    (
        HEAD + '[fleet]\npeers = 4\ntiming = "slow"\n' + JOB,
        "[fleet]: timing = \"slow\": expected 'default', 'wan' or 'fast'",
    ),
    (
        HEAD + FLEET + JOB.replace("llf-fcm", "llf-fmc"),
        "[jobs.0]: protocol = \"llf-fmc\": unknown protocol; did you mean 'llf-fcm'? known are " + KNOWN,
    ),
    (
        HEAD + FLEET + JOB.replace("llf-fcm", "dbscan"),
        '[jobs.0]: protocol = "dbscan": unknown protocol; known are ' + KNOWN,
    ),
    (
        HEAD + FLEET + JOB.replace("llf-fcm", "KMeans"),
        "[jobs.0]: protocol = \"KMeans\": unknown protocol; did you mean 'llf-cm'? known are " + KNOWN,
    ),
    (
        HEAD + FLEET + JOB.replace("llf-fcm", "fcm"),
        "[jobs.0]: protocol = \"fcm\": unknown protocol; did you mean 'llf-fcm'? known are " + KNOWN,
    ),
    (
        HEAD + FLEET + JOB + 'init = "kmeans"\n',
        '[jobs.0]: init = "kmeans": expected "split-merge", "k-means++", "careful", "shared-k-means++", "random", '
        '"uniform", "rows", or a list of first centers, all equally long',
    ),
    (
        HEAD + "bounds = [1, 0]\n" + FLEET + JOB,
        "[data]: bounds = [1, 0]: expected [low, high] with low < high, or one such pair for each feature",
    ),
    (
        HEAD + "label_column = 0\n" + FLEET + JOB,
        "[data]: label_column = 0: expected a column's name, or its number counted from 1",
    ),
    (
        HEAD + '[[fleet.devices]]\nname = "a b"\n' + JOB,
        '[fleet.devices.0]: name = "a b": expected at most 40 lower-case letters, digits, "-" or "_", '
        'not "aggregator" or "all"',
    ),
    (
        HEAD + FLEET + JOB + '[[faults]]\nat = { round = 3 }\ndo = "kill"\nwho = { any = 2 }\n',
        '[faults.0]: who = {"any": 2}: expected a device, a group of devices, a list of these, "all", "aggregator", or '
        "{ random = k } with k at least 1",
    ),
    # Keys that do not go together.
    ("[data]\n" + FLEET + JOB, "[data]: expected either source, or files with one file per device"),
    (
        HEAD + '[data.partition]\nscheme = "files"\n' + FLEET + JOB,
        "[data]: partition.scheme = 'files' needs files, one per device, instead of source",
    ),
    (
        '[data]\nfiles = ["a.csv"]\n[data.partition]\nscheme = "iid"\n' + FLEET + JOB,
        "[data]: files are not split: partition.scheme = 'iid' needs source",
    ),
    ('[data]\nfiles = ["a.csv"]\n' + FLEET + JOB, "[data]: 1 files for 4 devices: expected one file per device"),
    (
        HEAD + "[data.partition]\nbeta = 1.0\n" + FLEET + JOB,
        "[data.partition]: beta is for scheme = 'dirichlet' or 'distance', not 'iid'",
    ),
    (
        HEAD + '[data.partition]\nscheme = "labels"\n' + FLEET + JOB,
        "[data.partition]: scheme = 'labels' needs labels_per_peer",
    ),
    (HEAD + "[fleet]\n" + JOB, "[fleet]: expected either peers = N, or [[fleet.devices]]"),
    (
        HEAD + '[[fleet.devices]]\nname = "a-01"\n[[fleet.devices]]\nname = "a"\ncount = 2\n' + JOB,
        "[fleet]: two devices or groups are called 'a-01': give each its own name",
    ),
    (HEAD + FLEET + JOB + "suppress_singletons = true\n", "[jobs.0]: protocol 'llf-fcm' has no suppress_singletons"),
    (
        HEAD + FLEET + JOB + 'missing = "drop"\ndeadline_s = 1\npatience_s = 3\n',
        "[jobs.0]: patience_s excludes missing = 'drop': such a round ends at its deadline: set deadline_s instead",
    ),
    (
        HEAD + FLEET + JOB + "deadline_s = 3\n",
        "[jobs.0]: deadline_s needs missing = 'drop': other rounds have no deadline: set missing = 'drop'",
    ),
    (
        HEAD + FLEET + JOB + 'missing = "drop"\n',
        "[jobs.0]: missing = 'drop' needs deadline_s: the round ends at its deadline: set deadline_s above 0",
    ),
    (HEAD + FLEET + JOB + "init = [[1, 2, 3, 4]]\n", "[jobs.0]: init has 1 centers: expected clusters = 3"),
    (
        HEAD + FLEET + JOB + '[[faults]]\nat = {}\ndo = "kill"\nwho = "peer-01"\n',
        "[faults.0.at]: expected one of round, seconds, job, or rate_per_minute",
    ),
    (
        HEAD + FLEET + JOB + '[[faults]]\nat = { seconds = 1, phase = "closing" }\ndo = "kill"\nwho = "peer-01"\n',
        "[faults.0.at]: phase is for a fault at a round, not at another moment",
    ),
    (
        HEAD + FLEET + JOB + '[[faults]]\nat = { round = 1 }\ndo = "kill"\nwho = "peer-01"\nfor_s = 1\n',
        "[faults.0]: for_s is for restart, pause, cut, slow and drop, not kill",
    ),
    (
        HEAD + FLEET + JOB + '[[faults]]\nat = { round = 1, phase = "combining" }\ndo = "kill"\nwho = "peer-01"\n',
        "[faults.0]: phase 'combining' is the aggregator's: expected who = 'aggregator', or another phase",
    ),
    (
        HEAD + FLEET + JOB + '[[faults]]\nat = { round = 1, phase = "closing" }\ndo = "kill"\nwho = "peer-01"\n',
        "[faults.0]: phase 'closing' is the aggregator's: expected who = 'aggregator', or another phase",
    ),
    (HEAD + FLEET.replace("4", "4\ngive_up_s = 0") + JOB, "[fleet]: give_up_s = 0: expected more than 0"),
    (
        HEAD + FLEET + JOB + '[[faults]]\nat = { round = 1 }\ndo = "resume"\nwho = "peer-01"\n',
        "[faults.0]: a paused peer cannot resume itself at a round: expected at = { seconds = ... }",
    ),
    (
        HEAD + FLEET + JOB + '[[faults]]\nat = { seconds = 1 }\ndo = "resume"\nwho = "aggregator"\n',
        "[faults.0]: resume needs who = a device or a group: another peer is the aggregator by then",
    ),
    *[
        (HEAD + FLEET + JOB + "[[faults]]\n" + fault, said)
        for fault, said in [
            ('at = { seconds = 1 }\ndo = "kill"\n', "[faults.0]: key 'who' is missing"),
            ('at = { seconds = 1 }\ndo = "slow"\nwho = "all"\n', "[faults.0]: do = 'slow' needs factor"),
            ('at = { seconds = 1 }\ndo = "drop"\nwho = "all"\n', "[faults.0]: do = 'drop' needs probability"),
            ('at = { job = 0 }\ndo = "corrupt-data"\nwho = "all"\n', "[faults.0]: do = 'corrupt-data' needs how"),
            ('at = { job = 0 }\ndo = "lie"\nwho = "all"\n', "[faults.0]: do = 'lie' needs how"),
            (
                'at = { job = 0 }\ndo = "lie"\nwho = "all"\nhow = "nan"\n',
                "[faults.0]: how = 'nan': expected one of corner, inflate, waver",
            ),
            (
                'at = { job = 0 }\ndo = "kill"\nwho = "all"\nhow = "nan"\n',
                "[faults.0]: how is for corrupt-data and lie, not kill",
            ),
            (
                'at = { seconds = 1 }\ndo = "kill"\nwho = "all"\nfactor = 2\n',
                "[faults.0]: factor is for slow, not kill",
            ),
            (
                'at = { seconds = 1 }\ndo = "kill"\nwho = "peer-01"\nfrom = "peer-02"\n',
                "[faults.0]: from is for cut and heal, not kill",
            ),
            (
                'at = { seconds = 1 }\ndo = "cut"\nwho = "peer-01"\nfrm = "peer-02"\n',
                "[faults.0]: unknown key 'frm' (did you mean 'from'?)",
            ),
            (
                'at = { seconds = 1 }\ndo = "cut"\nwho = "peer-01"\nfrom = "per-02"\n',
                "[faults.0]: from = 'per-02': no such device or group; did you mean 'peer-02'? groups are peer",
            ),
            (
                'at = { seconds = 1 }\ndo = "cut"\nwho = "peer-01"\nfrom = 2\n',
                "[faults.0]: from = 2: expected a device, a group of devices, or a list of these",
            ),
            (
                'at = { seconds = 1 }\ndo = "cut"\nwho = "all"\n',
                "[faults.0]: no device is on the other side of the cut: expected who and from to be different devices",
            ),
            (
                'at = { round = 1 }\ndo = "join"\nwho = "peer-01"\n',
                "[faults.0]: a device cannot join itself at a round: expected at = { seconds = ... } or { job = ... }",
            ),
            (
                'at = { job = 0 }\ndo = "kill"\nwho = "aggregator"\n',
                "[faults.0]: before a job no device aggregates: expected another moment, or another device",
            ),
            (
                'at = { job = 1 }\ndo = "kill"\nwho = "peer-01"\n',
                "[faults.0]: at = { job = 1 }: the scenario has 1 jobs, counted from 0",
            ),
            (
                'at = { rate_per_minute = 2 }\ndo = "kill"\nwho = "peer-01"\n',
                "[faults.0.at]: rate_per_minute needs until_s, later than from_s (0 if it is not given)",
            ),
            (
                'at = { seconds = 2, until_s = 9 }\ndo = "kill"\nwho = "peer-01"\n',
                "[faults.0.at]: from_s and until_s are for rate_per_minute",
            ),
            (
                'at = { rate_per_minute = 2, until_s = 9 }\ndo = "heal"\n',
                "[faults.0]: heal at a rate has no meaning: expected at = { seconds = ... }",
            ),
            (
                'at = { seconds = 2 }\ndo = "join"\nwho = ["peer-01", "peer-02"]\n',
                "[[faults]]: 2 of 4 devices join late: expected a majority from the start",
            ),
        ]
    ],
    (
        HEAD + FLEET + JOB + '[[expect.values]]\nwhat = "jobs.0.metric.ari"\nat_least = 0.9\n',
        "[expect.values.0]: what = 'jobs.0.metric.ari': jobs.0 has no 'metric': did you mean 'metrics'?",
    ),
    (
        HEAD + FLEET + JOB + '[[expect.values]]\nwhat = "jobs.0.rounds"\n',
        "[expect.values.0]: what = 'jobs.0.rounds': expected one of at_least, at_most, above, below, equals",
    ),
    (
        HEAD + FLEET + JOB + '[[expect.values]]\nwhat = "jobs.0.rounds"\nequals = [1]\n',
        "[expect.values.0]: equals = [1]: expected a number, true, false, or text",
    ),
    (
        HEAD + FLEET + JOB + '[expect]\nleft_out = ["peer-09"]\n',
        "[expect]: left_out = 'peer-09': no such device",
    ),
    (
        HEAD + FLEET + JOB + '[[faults]]\nat = { seconds = 1 }\ndo = "kill"\nwho = "per-01"\n',
        "[faults.0]: who = 'per-01': no such device or group; did you mean 'peer-01'? groups are peer",
    ),
    (
        HEAD + FLEET + JOB + '[[faults]]\nat = { seconds = 1 }\ndo = "kill"\nwho = { random = 5 }\n',
        "[faults.0]: who = { random = 5 }: the fleet has 4 devices",
    ),
    (
        HEAD + FLEET + JOB + "[expect]\nfinished_at_least = 5\n",
        "[expect]: finished_at_least = 5: expected at most the 4 devices of the fleet",
    ),
]


@pytest.mark.parametrize(("text", "line"), ONE_LINE, ids=[line for _, line in ONE_LINE])
def test_one_line_says_it(scenario_file: Write, text: str, line: str) -> None:
    assert message(scenario_file(base=text, name="quickstart.toml")) == f"quickstart.toml: {line}"


@pytest.mark.parametrize("value", ["9" * 5000, "[" * 100_000])
def test_a_value_beyond_the_interpreters_limits_is_refused_in_one_line(scenario_file: Write, value: str) -> None:
    path = scenario_file()
    assert "nested too deeply, or a number of thousands of digits" in message(path, f"seed={value}")
    Path(path).write_text(f"seed = {value}\n", encoding="utf-8")
    assert message(path) == "s.toml: nested too deeply, or a number of thousands of digits"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("[data]\nsource = iris\n", "line 2, column 10: invalid value"),
        ("[data]\nsource 'iris'\n", "line 2, column 8: expected '=' after a key in a key/value pair"),
        ("seed = 1\nseed = 2\n", "line 2, column 9: cannot overwrite a value"),
        ("seed = [1,", "end of document: "),
    ],
)
def test_what_is_no_toml(scenario_file: Write, text: str, line: str) -> None:
    assert message(scenario_file(base=text)).startswith(f"s.toml: {line}")


def test_unreadable_files(scenario_file: Write, tmp_path: Path) -> None:
    assert message(scenario_file() + "x") == "s.tomlx: no such file (did you mean s.toml?)"
    assert message("s") == "s: no such file (did you mean s.toml?)"
    assert message("elsewhere/s.toml") == "elsewhere/s.toml: no such file"
    assert message(str(tmp_path)) == f"{tmp_path}: cannot be read (Is a directory)"
    Path("latin.toml").write_bytes(b'title = "\xe9"')
    assert message("latin.toml") == "latin.toml: not UTF-8 text (byte 10)"


def test_several_errors_are_a_line_each_and_not_too_many(scenario_file: Write) -> None:
    two = message(scenario_file('tol = -1\nmissing = "never"\n'))
    assert two == (
        "s.toml: [jobs.0]: tol = -1: expected at least 0\n"
        "s.toml: [jobs.0]: missing = \"never\": expected 'all', 'wait' or 'drop'"
    )
    keys = "".join(f"zz{i} = 1\n" for i in range(9))
    lines = message(scenario_file(keys)).split("\n")
    assert len(lines) == 6
    assert lines[0] == "s.toml: [jobs.0]: unknown key 'zz0'"
    assert lines[-1] == "s.toml: and 4 more errors"
    six = message(scenario_file("".join(f"zz{i} = 1\n" for i in range(6)))).split("\n")
    assert [line.partition("unknown key ")[2][:5] for line in six] == [f"'zz{i}'" for i in range(6)]


def test_overrides(scenario_file: Write) -> None:
    overrides = [
        "fleet.timing=wan",
        "jobs.0.tol=1e-6",
        "jobs.0.init = [[0,0,0,0],[1,1,1,1],[2,2,2,2]]",
        "data.partition.scheme=dirichlet",
        "data.partition.beta = 0.5",
        'title="a = b"',
        "seed=5",
        "expect.identical_centers=true",
    ]
    scenario = load_scenario(scenario_file(), overrides)
    assert scenario.fleet.timing == "wan"
    assert scenario.jobs[0].tol == 1e-6
    assert scenario.jobs[0].init == ((0.0,) * 4, (1.0,) * 4, (2.0,) * 4)
    assert scenario.data.partition is not None
    assert scenario.data.partition.beta == 0.5
    assert scenario.title == "a = b"
    assert scenario.seed == 5
    assert scenario.expect.identical_centers is True


def test_the_seed_argument_wins(scenario_file: Write) -> None:
    assert load_scenario(scenario_file(), ["seed=5"], seed=9).seed == 9


@pytest.mark.parametrize(
    ("override", "line"),
    [
        ("fleet.timing", "--set fleet.timing: expected KEY=VALUE, such as fleet.timing=wan"),
        ("=3", "--set =3: expected KEY=VALUE, such as fleet.timing=wan"),
        ("fleet..timing=3", "--set fleet..timing=3: expected KEY=VALUE, such as fleet.timing=wan"),
        (
            "jobs.1.tol=1",
            "--set jobs.1.tol=1: jobs has no '1': expected a position from jobs.0, and it has 1",
        ),
        ("jobs.tol=1", "--set jobs.tol=1: jobs has no 'tol': expected a position from jobs.0, and it has 1"),
        ("fleet.peers.x=1", "--set fleet.peers.x=1: fleet.peers is a value, not a table"),
        ("fleet.timng=wan", "s.toml: [fleet]: unknown key 'timng' (did you mean 'timing'?)"),
        ("jobs.0.clusters=many", 's.toml: [jobs.0]: clusters = "many": expected an integer'),
        ("title=1\nseed=2", "s.toml: title = 1\nseed=2"),
    ],
)
def test_wrong_overrides(scenario_file: Write, override: str, line: str) -> None:
    if override.startswith("title"):  # Two lines are one text, never a second key.
        assert load_scenario(scenario_file(), [override]).title == "1\nseed=2"
        return
    assert message(scenario_file(), override) == line


def test_files_start_beside_the_scenario(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("w,h\n1,2\n3,4\n", encoding="utf-8")
    (tmp_path / "b.csv").write_text("w,h\n5,6\n", encoding="utf-8")
    file = tmp_path / "s.toml"
    file.write_text('[data]\nfiles = ["a.csv", "b.csv"]\n[fleet]\npeers = 2\n' + JOB, encoding="utf-8")
    shares = load_data(load_scenario(file))
    assert {name: share.X.tolist() for name, share in shares.items()} == {
        "peer-01": [[1.0, 2.0], [3.0, 4.0]],
        "peer-02": [[5.0, 6.0]],
    }
    file.write_text('[data]\nsource = "a.csv"\n[fleet]\npeers = 2\n' + JOB.replace("3", "2"), encoding="utf-8")
    assert sorted(share.X.tolist() for share in load_data(load_scenario(file)).values()) == [[[1.0, 2.0]], [[3.0, 4.0]]]


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ("w\n1\n", "peer-02: b.csv: 1 features, but a.csv of peer-01 has 2: all peers need the same columns"),
        (
            "h,w\n1,2\n",
            "peer-02: b.csv: columns h, w, but a.csv of peer-01 has w, h: all peers need the same columns in the "
            "same order",
        ),
        (
            "w,h\n1,nan\n",
            "peer-02: b.csv: row 2, column 2 (h): 'nan' means a missing value: fill it in or leave the row out, as "
            'missing_values = "drop" (--missing-values drop) does',
        ),
    ],
)
def test_files_that_do_not_fit_together(scenario_file: Write, other: str, message: str) -> None:
    Path("a.csv").write_text("w,h\n1,2\n3,4\n", encoding="utf-8")
    Path("b.csv").write_text(other, encoding="utf-8")
    path = scenario_file(base='[data]\nfiles = ["a.csv", "b.csv"]\n[fleet]\npeers = 2\n' + JOB)
    with pytest.raises(DataError) as error:
        load_data(load_scenario(path))
    assert str(error.value) == message


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("jobs.0.clusters=151", "[jobs.0]: clusters = 151: expected at most the 150 rows of data"),
        (
            "jobs.0.init=[[1],[2],[3]]",
            "[jobs.0]: init has centers of 1 values: expected 4, one for each feature",
        ),
        ("data.bounds=[[0,9],[0,9]]", "[data]: bounds has 2 pairs: expected 1, or 4 for as many features"),
    ],
)
def test_what_only_the_data_can_tell(scenario_file: Write, override: str, message: str) -> None:
    with pytest.raises(DataError) as error:
        load_data(load_scenario(scenario_file(), [override]))
    assert str(error.value) == message


def test_the_seed_decides_the_partition(scenario_file: Write) -> None:
    def rows(seed: int, *overrides: str) -> bytes:
        scenario = load_scenario(scenario_file(), overrides, seed=seed)
        return b"".join(share.X.tobytes() for share in load_data(scenario).values())

    assert rows(1) == rows(1, "jobs.0.clusters=2", "fleet.timing=wan")
    assert rows(1) != rows(2)


def test_make_job(scenario_file: Write) -> None:
    more = "fuzzifier = 1.5\nparticipation = 0.5\nmax_rounds = 7\nsecure = false\n"
    scenario = load_scenario(scenario_file(more), ["data.scaling=minmax", "data.bounds=[0,8]", "seed=3"])
    job = make_job(scenario, 0, 4)
    assert [stage.protocol for stage in job.stages] == ["range", "minmax", "split-merge", "llf-fcm", "objective"]
    assert (job.seed, job.participation) == (3, 0.5)
    ranges = job.stages[0].parameters
    assert (ranges["lo"], ranges["hi"]) == ([0.0] * 4, [8.0] * 4)
    assert job.stages[job.main].parameters == {"n_clusters": 3, "tol": 5e-3, "max_rounds": 7, "fuzzifier": 1.5}


def test_an_init_that_the_protocol_does_not_have_names_its_job(scenario_file: Write) -> None:
    scenario = load_scenario(scenario_file('init = "rows"\n'))
    with pytest.raises(UsageError, match=r"^\[jobs\.0\]: init = 'rows': expected one of split-merge, "):
        make_job(scenario, 0, 4)


def test_make_job_with_explicit_centers_and_bounds(scenario_file: Write) -> None:
    overrides = ["data.bounds=[[0,1],[2,3]]", "jobs.0.clusters=1", "jobs.0.init=[[0.5,2.5]]"]
    job = make_job(load_scenario(scenario_file(), overrides), 0, 2)
    assert [stage.protocol for stage in job.stages] == [
        "enough-rows",
        "range",
        "none",
        "seeding",
        "llf-fcm",
        "objective",
    ]
    assert job.stages[1].parameters["lo"] == [0.0, 2.0]
    assert np.array_equal(job.stages[3].parameters["centers"], [[0.5, 2.5]])


def test_backends_refuse_what_they_cannot_do(scenario_file: Write) -> None:
    linked = load_scenario(
        scenario_file(base=HEAD + '[[fleet.devices]]\nname = "meter"\ncount = 2\nlink = { loss = 0.1 }\n' + JOB)
    )
    check_backend(linked, "simulated")
    check_backend(linked, "processes")
    with pytest.raises(UsageError) as error:
        check_backend(linked, "in-process")
    assert str(error.value).startswith("a run in one process excludes a description of single devices: it has none: ")
    faulty = load_scenario(scenario_file('[[faults]]\nat = { seconds = 1 }\ndo = "kill"\nwho = "peer"\n'))
    check_backend(faulty, "processes")
    with pytest.raises(UsageError) as error:
        check_backend(faulty, "in-process")
    assert str(error.value) == (
        "a run in one process excludes [[faults]]: it has no peers that can fail: run peers: 'simulated' or 'processes'; or "
        "--set 'faults=[]'"
    )
