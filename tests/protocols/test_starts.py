"""Several sets of first centers side by side, the objective that peers add up, and what is suspect about a result."""

from __future__ import annotations

import numpy as np
import pytest

from p2pclust.clustering import objective
from p2pclust.errors import UsageError, WireError
from p2pclust.protocols import Local, cluster_job, run_in_process
from p2pclust.protocols.engine import engine, summaries
from p2pclust.protocols.engine.arrays import Arrays
from p2pclust.protocols.engine.base import SideBySide
from p2pclust.protocols.engine.compose import continued
from p2pclust.protocols.engine.job import Job, JobState
from p2pclust.protocols.engine.local import in_working_coordinates
from p2pclust.protocols.engine.registry import EVALUATING, known, protocol_class
from p2pclust.protocols.engine.runner import pooled, replay
from p2pclust.protocols.engine.wire import decode_state
from p2pclust.protocols.measuring.doubts import doubts, objective_of
from p2pclust.protocols.measuring.objective import BestStart, Objective

RNG = np.random.default_rng(8)
#: Six places, two at each of three peers: uniform starts end in many optima.
PLACES = RNG.uniform(0.0, 20.0, size=(6, 2))
PEERS = [Local(np.concatenate([RNG.normal(PLACES[2 * p + k], 0.6, size=(30, 2)) for k in range(2)])) for p in range(3)]


def several(protocol: str = "llf-cm", *, n_init: int = 4, seed: int = 3, **options: object) -> tuple[Job, JobState]:
    chosen = {"init": "uniform", "max_rounds": 60} | options
    job = cluster_job(protocol, n_clusters=6, n_init=n_init, seed=seed, **chosen)  # type: ignore[arg-type]
    return job, run_in_process(job, PEERS)


def first_states(job: Job) -> JobState:
    """The state in which the clustering opens."""
    state = engine.begin(job)
    while state.stage < job.main:
        given = [(peer, engine.contribution(job, state, local, peer, len(PEERS))) for peer, local in enumerate(PEERS)]
        state = engine.advance(job, state, given, {}, n_peers=len(PEERS))
    return state


@pytest.mark.parametrize("protocol", ["llf-cm", "llf-fcm"])
def test_the_start_with_the_smallest_objective_is_kept_with_the_bits_of_a_job_of_its_own(protocol: str) -> None:
    job, state = several(protocol)
    starts = first_states(job).arrays["starts"]
    origin, scale = state.arrays["origin"], state.arrays["scale"]
    alone = []
    for start in starts:
        own = cluster_job(protocol, n_clusters=6, init=origin + start * scale, max_rounds=60, seed=3)
        # Given centers go through the data's own units: compare from the same bits.
        opened = first_states(own)
        opened = JobState(**{**vars(opened), "arrays": opened.arrays.replace(centers=start)})
        while opened.status == "running":
            given = [(p, engine.contribution(own, opened, local, p, len(PEERS))) for p, local in enumerate(PEERS)]
            opened = engine.advance(own, opened, given, {}, n_peers=len(PEERS))
        alone.append(opened.arrays)
    objectives = [objective_of(arrays) for arrays in alone]
    winner = int(np.argmin(objectives))
    assert state.arrays["objectives"].tolist() == objectives
    assert int(state.arrays["winner"]) == winner
    for name in ("centers", "shifts", "masses"):
        assert state.arrays[name].tobytes() == alone[winner][name].tobytes(), name
    assert len({round(value, 6) for value in objectives if value is not None}) > 1, "all starts came to the same end"


def test_rounds_do_not_multiply_and_starts_that_stand_still_are_summed_no_more() -> None:
    job, state = several(n_init=6)
    clustering = [record for record in state.log if record.stage == job.main]
    state_ = first_states(job)
    sizes = []
    while state_.stage == job.main:
        sent = engine.contribution(job, state_, PEERS[0], 0, len(PEERS))
        sizes.append(sent["counts"].shape[1])
        given = [(p, engine.contribution(job, state_, local, p, len(PEERS))) for p, local in enumerate(PEERS)]
        state_ = engine.advance(job, state_, given, {}, n_peers=len(PEERS))
    assert sizes[0] == 6
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-1] < 6
    assert len(sizes) == len(clustering)


@pytest.mark.slow
def test_pooling_and_replay_follow_the_start_that_was_kept() -> None:
    for protocol in ("llf-cm", "llf-fcm"):
        options = {"suppress_singletons": False} if protocol == "llf-cm" else {}
        job, state = several(protocol, **options)
        assert int(state.arrays["winner"]) > 0
        assert replay(job, PEERS, state.log) == state
        assert summaries.raw_centers(state) == pytest.approx(pooled(job, PEERS, state.log), abs=1e-9)


def test_it_goes_on_after_any_round_from_the_bytes_of_the_state() -> None:
    """Whoever aggregates next has the state and nothing else: every state of the job survives the wire."""
    job, ended = several("llf-fcm")
    state = engine.begin(job)
    while state.status == "running":
        state = decode_state(job, state.encode())
        given = [(p, engine.contribution(job, state, local, p, len(PEERS))) for p, local in enumerate(PEERS)]
        state = engine.advance(job, state, given, {}, n_peers=len(PEERS))
    assert state == ended


@pytest.mark.parametrize("init", ["split-merge", "careful", "k-means++", "random", "uniform"])
def test_every_way_to_first_centers_makes_several(init: str) -> None:
    job, state = several(init=init, n_init=3)
    assert first_states(job).arrays["starts"].shape == (3, 6, 2)
    assert state.status == "done"
    assert state.arrays["objectives"].shape == (3,)
    assert "starts" not in state.arrays


def test_the_first_of_several_starts_is_that_of_one() -> None:
    one, _ = several(n_init=1, init="split-merge")
    many, _ = several(n_init=3, init="split-merge")
    assert first_states(one).arrays["centers"].tobytes() == first_states(many).arrays["centers"].tobytes()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"init": "shared-k-means++"},
            "n_init excludes init = 'shared-k-means\\+\\+': it makes one set of first centers: leave n_init out",
        ),
        ({"init": np.zeros((6, 2))}, "n_init excludes an array of first centers"),
        ({"accelerate": True}, "accelerate excludes n_init: "),
        ({"n_init": 0}, "n_init = 0: expected a whole number from 1 to 100"),
        ({"n_init": 1.5}, "n_init = 1.5"),
    ],
)
def test_what_cannot_be_combined_is_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        several(**{"n_init": 2, **options})  # type: ignore[arg-type]


def test_stages_that_do_not_fit_each_other_fail_the_job() -> None:
    job, _ = several(n_init=2)
    stages = [stage if stage.protocol != "seeding" else type(stage)("seeding", {"n_clusters": 6, "init": "uniform"})
              for stage in job.stages]  # fmt: skip
    state = run_in_process(Job(tuple(stages), seed=0), PEERS)
    assert state.reason == "llf-cm: n_init = 2, but the stage before made 1 sets of first centers"


def test_the_next_job_of_a_series_has_one_start() -> None:
    job, state = several(n_init=3)
    following = continued(job, state)
    assert {
        stage.protocol: stage.parameters.get("n_init") for stage in following.stages if "n_init" in stage.parameters
    } == {
        "llf-cm": 1,
        "objective": 1,
    }
    assert run_in_process(following, PEERS).status == "done"


def test_every_start_counts_for_the_privacy_gate() -> None:
    """With C = 2 and F = 1 the gate is 4 rows for one start and 12 for three."""
    rows = Local(np.arange(12.0)[:, np.newaxis])
    one = cluster_job("llf-fcm", n_clusters=2, bounds=([0.0], [20.0]))
    assert run_in_process(one, [rows]).status == "done"
    three = cluster_job("llf-fcm", n_clusters=2, bounds=([0.0], [20.0]), n_init=3)
    held = run_in_process(three, [rows])
    assert held.status == "failed"
    assert (
        "privacy gate: 3 C (F + 1) / F = 12 rows or fewer: add rows, ask for fewer clusters or starts (n_init), or set"
        in held.reason
    )
    assert run_in_process(three, [Local(np.arange(13.0)[:, np.newaxis])]).status == "done"


class TestObjective:
    @pytest.mark.parametrize(("protocol", "fuzzifier"), [("llf-cm", None), ("llf-fcm", 2.0)])
    def test_it_is_that_of_the_pooled_rows(self, protocol: str, fuzzifier: float | None) -> None:
        for scaling in ("none", "minmax", "zscore"):
            job = cluster_job(protocol, n_clusters=6, scaling=scaling)
            state = run_in_process(job, PEERS)
            rows = np.concatenate([local.X for local in PEERS])
            points = in_working_coordinates(rows, state.arrays["origin"], state.arrays["scale"])
            wanted = objective(points, state.arrays["centers"], fuzzifier)
            assert objective_of(state.arrays) == pytest.approx(wanted, rel=1e-12)

    def test_by_hand(self) -> None:
        job = cluster_job("llf-cm", n_clusters=2, init=[[0.5], [8.0]], suppress_singletons=False)
        state = run_in_process(job, [Local([[0.0], [1.0]]), Local([[7.0], [9.0], [8.0]])])
        assert objective_of(state.arrays) == 0.25 + 0.25 + 1.0 + 1.0
        assert state.arrays["masses"].tolist() == [2.0, 3.0]

    def test_a_peer_of_two_rows_and_a_cluster_of_one_stay_out_of_it(self) -> None:
        job = cluster_job("llf-cm", n_clusters=2, init=[[0.5], [8.0]])
        state = run_in_process(job, [Local([[0.0], [1.0]]), Local([[0.0], [7.0], [9.0], [8.0]])])
        # The first peer has too few rows. The second one's row in cluster 0 counts for the objective, in no mass.
        center = float(state.arrays["centers"][0, 0] + state.arrays["origin"][0])
        assert objective_of(state.arrays) == pytest.approx(center**2 + 2.0)
        assert state.arrays["masses"].tolist() == [0.0, 3.0]
        assert not any(record.abstained for record in state.log if record.stage == job.main + 1)

    def test_without_a_peer_that_may_report_it_there_is_none(self) -> None:
        job = cluster_job("llf-cm", n_clusters=1, bounds=([0.0], [9.0]), init=[[1.0]])
        state = run_in_process(job, [Local([[1.0], [2.0]])])
        assert state.status == "done"
        assert objective_of(state.arrays) is None

    def test_whether_the_clustering_converged_stays_what_it_was(self) -> None:
        short = cluster_job("llf-cm", n_clusters=6, init="uniform", max_rounds=1)
        assert not run_in_process(short, PEERS).converged
        assert run_in_process(cluster_job("llf-cm", n_clusters=6), PEERS).converged

    def test_a_state_without_its_starts_is_refused(self) -> None:
        job, _ = several(n_init=2)
        state = first_states(job)
        while state.stage == job.main:
            given = [(p, engine.contribution(job, state, local, p, len(PEERS))) for p, local in enumerate(PEERS)]
            state = engine.advance(job, state, given, {}, n_peers=len(PEERS))
        broken = JobState(**{**vars(state), "arrays": state.arrays.without("starts")})
        with pytest.raises(WireError, match="not the 2 starts of the job"):
            decode_state(job, broken.encode())

    def test_a_winner_that_is_no_start_is_refused(self) -> None:
        assert Objective().problem_with_state(Arrays(winner=np.int64(1)), done=True) == "start 1 of 1"


class TestDoubts:
    SOUND = Arrays(centers=[[0.0], [9.0], [20.0]], masses=[60.0, 30.0, 40.0], objectives=[130.0], winner=0)

    def test_a_sound_result_has_none(self) -> None:
        assert doubts(self.SOUND) == ()
        assert doubts(self.SOUND.without("objectives")) == ()

    def test_hardly_any_row(self) -> None:
        found = doubts(self.SOUND.replace(masses=[60.0, 0.3, 0.0]))
        assert found == ("hardly any row belongs to centers 1, 2: ask for fewer clusters, or look for outliers",)

    def test_rows_that_were_kept_back_are_named_with_the_option(self) -> None:
        sent = self.SOUND.replace(suppressed=np.int64(3))
        assert doubts(sent) == (), "every cluster has rows"
        (found,) = doubts(sent.replace(masses=[60.0, 30.0, 0.0]))
        assert found == (
            "hardly any row belongs to center 2: ask for fewer clusters, or look for outliers (clusters of one row at a "
            "peer were sent as zeros, 3 in all rounds, so a lone row may be there: suppress_singletons = false counts it, "
            "and reveals it)"
        )

    def test_of_local_centers_those_beyond_one_per_peer_share_no_cluster(self) -> None:
        """Up to three in ten are let pass."""
        told = Arrays(centers=[[0.0], [9.0]], further=np.int64(10), merged=np.int64(3))
        assert doubts(told) == ()
        (found,) = doubts(told.replace(merged=np.int64(4)))
        assert "4 of the 10 local centers beyond one per peer share a cluster with another of their peer" in found
        assert "set n_local_clusters" in found
        assert doubts(told.replace(further=np.int64(0), merged=np.int64(0))) == ()

    def test_centers_that_nearly_coincide(self) -> None:
        # Rows lie 1 from their centers in the mean: a tenth of that is near.
        near, apart = (
            self.SOUND.replace(centers=[[0.0], [0.09], [20.0]]),
            self.SOUND.replace(centers=[[0.0], [0.11], [20.0]]),
        )
        assert doubts(near) == (
            "centers 0 and 1 nearly coincide: ask for fewer clusters or other first centers, or look for outliers",
        )  # fmt: skip
        assert doubts(apart) == ()

    def test_centers_that_nearly_coincide_are_named_once_together(self) -> None:
        # Rows lie 1 from their centers in the mean; 0, 1 and 3 are a chain of steps below 0.1, and so are 2 and 4.
        chain = Arrays(
            centers=[[0.0], [0.09], [9.0], [0.17], [9.05], [20.0]],
            masses=[30.0, 20.0, 20.0, 20.0, 20.0, 20.0],
            objectives=[130.0],
            winner=0,
        )
        assert [doubt.partition(" nearly")[0] for doubt in doubts(chain)] == ["centers 0, 1 and 3", "centers 2 and 4"]

    def test_one_far_row_is_named_as_a_cause_of_centers_that_nearly_coincide(self) -> None:
        # Two sound clusters of 40 rows, 4 apart, and one row 10,000 away that no center stands for.
        far = Arrays(centers=[[0.0], [4.0]], masses=[40.0, 41.0], objectives=[1e8], winner=0)
        (doubt,) = doubts(far)
        assert doubt.endswith("look for outliers")

    def test_one_start_that_is_clearly_better_than_all_others(self) -> None:
        found = doubts(self.SOUND.replace(objectives=[100.0, 103.0, 104.0]))
        assert len(found) == 1
        assert found[0].startswith("one of 3 starts came to the best objective, and the next one is 3 % worse")
        assert doubts(self.SOUND.replace(objectives=[100.0, 100.5, 140.0])) == ()
        assert doubts(self.SOUND.replace(objectives=[100.0, 140.0])) == ()


@pytest.mark.slow
def test_the_stages_that_only_evaluate_are_known_by_their_names() -> None:
    assert tuple(sorted(name for name in known() if protocol_class(name).evaluates)) == EVALUATING


def test_what_works_side_by_side_has_a_parameter_for_it_and_is_evaluated() -> None:
    for name in known():
        kind = protocol_class(name)
        if issubclass(kind, SideBySide):
            assert issubclass(protocol_class(kind.after[0]), BestStart)
            assert kind(n_clusters=2, n_init=3).n_init == 3  # type: ignore[call-arg]
