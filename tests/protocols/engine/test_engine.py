from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from p2pclust.protocols.engine import engine, random_streams, summaries
from p2pclust.protocols.engine.base import Abstain, Additive
from p2pclust.protocols.engine.compose import cluster_job
from p2pclust.protocols.engine.engine import MAX_EMPTY_ROUNDS, added_up
from p2pclust.protocols.engine.job import Job, JobState, Stage
from p2pclust.protocols.engine.local import Local
from p2pclust.protocols.engine.reasons import NOT_DRAWN
from p2pclust.protocols.engine.runner import run_in_process
from p2pclust.protocols.engine.wire import ContributionReader

OPTIONS = {"n_clusters": 2, "bounds": ([0.0], [9.0]), "init": [[0.0], [9.0]]}
PEERS = [Local([[0.0], [1.0]]), Local([[8.0], [9.0]]), Local([[0.5], [0.5], [8.5], [8.5]])]


def contributions(job: Job, state: JobState, peers: list[Local], n_peers: int | None = None):
    n_peers = n_peers or len(peers)
    return [(peer, engine.contribution(job, state, local, peer, n_peers)) for peer, local in enumerate(peers)]


def empty(job: Job, state: JobState, abstained: dict[int, str] | None = None, n_peers: int = 3) -> JobState:
    return engine.advance(job, state, [], abstained or {}, n_peers=n_peers)


def test_a_device_without_the_kernel_of_a_job_abstains(monkeypatch: pytest.MonkeyPatch) -> None:
    job = replace(cluster_job("llf-cm", **OPTIONS), kernel="c1")
    monkeypatch.setattr(engine, "installed", lambda: ("numpy",))
    with pytest.raises(
        Abstain, match="this device has no kernel c1: install p2pclust on it where there is a C compiler"
    ):
        engine.contribution(job, engine.begin(job), PEERS[0], 0, 3)


def test_stages_that_need_no_round_are_passed_at_once() -> None:
    state = engine.begin(cluster_job("llf-cm", **OPTIONS))
    assert (state.round, state.stage, state.stage_round, state.status) == (0, 3, 0, "running")
    assert state.log == ()


def test_a_job_of_such_stages_alone_is_done_when_it_begins() -> None:
    state = engine.begin(Job([Stage("range", {"lo": [0.0], "hi": [2.0]}), Stage("minmax")], seed=0))
    assert state.status == "done"
    assert state.arrays["scale"].tolist() == [2.0]


def test_a_round_makes_a_step_and_records_who_contributed() -> None:
    job = cluster_job("llf-cm", **OPTIONS)
    state = engine.begin(job)
    after = engine.advance(job, state, contributions(job, state, PEERS), {}, n_peers=3)
    assert summaries.raw_centers(after).tolist() == [[0.5], [8.5]]
    assert (after.round, after.stage_round, after.empty_rounds) == (1, 1, 0)
    assert after.log[0].contributors == (0, 1, 2)
    assert float(after.arrays["shifts"][0]) == pytest.approx(np.sqrt(0.5))
    assert state.round == 0, "states are values"


def test_contributions_are_read_one_by_one() -> None:
    job = cluster_job("llf-cm", **OPTIONS)
    state = engine.begin(job)
    alive = 0
    most = 0

    def stream():
        nonlocal alive, most
        for item in contributions(job, state, PEERS):
            alive += 1
            most = max(most, alive)
            yield item
            alive -= 1

    assert engine.advance(job, state, stream(), {}, n_peers=3).round == 1
    assert most == 1


def test_integer_sums_may_be_added_on_the_way() -> None:
    job = cluster_job("llf-cm", **OPTIONS)
    state = engine.begin(job)
    (_, a), (_, b), (_, c) = contributions(job, state, PEERS)
    b_c, of = added_up([(2, c), (1, b)], 3)
    assert of == (1, 2)
    assert added_up([((1, 2), b_c), (0, a)], 3) == added_up([(0, a), (1, b), (2, c)], 3)
    assert added_up([], 3) == (None, ())


def test_a_contribution_counts_once_in_a_sum() -> None:
    job = cluster_job("llf-cm", **OPTIONS)
    (_, a), (_, b), _ = contributions(job, engine.begin(job), PEERS)
    for twice in ([(0, a), ((1, 0), b)], [((0, 1), a), (1, b)], [(3, a)]):
        with pytest.raises(ValueError, match="counts twice"):
            added_up(twice, 3)


def test_contributions_out_of_roster_order_are_a_programming_error() -> None:
    listed = cluster_job("fkm", **OPTIONS)
    state = engine.begin(listed)
    assert not isinstance(listed.protocols[state.stage], Additive)
    given = contributions(listed, state, PEERS)
    for wrong in (given[::-1], [given[0], given[0]], [(3, given[0][1])], [((0, 1), given[0][1])]):
        with pytest.raises(ValueError, match="roster order"):
            engine.advance(listed, state, wrong, {}, n_peers=3)
    job = cluster_job("llf-cm", **OPTIONS)
    state = engine.begin(job)
    given = contributions(job, state, PEERS)
    with pytest.raises(ValueError, match="cannot abstain"):
        engine.advance(job, state, given, {0: "no data"}, n_peers=3)


def test_an_empty_round_is_no_step() -> None:
    job = cluster_job("llf-cm", tol=1e9, **OPTIONS)
    state = engine.begin(job)
    after = empty(job, state, {0: "no data"})
    assert after.arrays == state.arrays
    assert (after.round, after.stage_round, after.empty_rounds, after.status) == (1, 1, 1, "running")
    assert after.log[0].abstained == {0: "no data"}
    stepped = engine.advance(job, after, contributions(job, after, PEERS), {}, n_peers=3)
    assert (stepped.stage, stepped.converged, stepped.empty_rounds) == (state.stage + 1, True, 0)


def test_an_empty_round_counts_for_the_limit_of_rounds() -> None:
    job = cluster_job("llf-cm", max_rounds=2, **OPTIONS)
    state = empty(job, engine.begin(job))
    assert state.status == "running"
    ended = empty(job, state)
    assert (ended.stage, ended.converged) == (state.stage + 1, False)


def test_who_was_not_drawn_is_not_in_the_record() -> None:
    job = cluster_job("llf-cm", **OPTIONS)
    state = engine.begin(job)
    after = engine.advance(job, state, contributions(job, state, PEERS[:1], 3), {1: NOT_DRAWN}, n_peers=3)
    assert after.log[0].abstained == {}


def test_an_abstention_always_has_a_reason() -> None:
    """Without one, an answer would have neither a contribution nor a reason."""
    assert Abstain("").reason == "no reason given"
    assert Abstain("no data").reason == "no data"


def test_who_was_left_out_for_its_silence_has_not_abstained() -> None:
    """All were silent in turn, and none of them withholds anything: the job continues, until ten rounds were empty."""
    job = cluster_job("llf-cm", **{**OPTIONS, "max_rounds": 100})
    state = engine.begin(job)
    for _ in range(MAX_EMPTY_ROUNDS - 1):
        state = empty(job, state, dict.fromkeys(range(3), "left out: alive"))
        assert state.status == "running"
    back = engine.advance(job, state, contributions(job, state, PEERS[:1], 3), {}, n_peers=3)
    assert back.empty_rounds == 0
    state = empty(job, state, {0: "left out: alive"})
    assert state.status == "failed"
    assert "no peer contributed for 10 rounds in a row" in state.reason


def test_a_silent_proposer_is_asked_again_when_nobody_else_is_left() -> None:
    job = cluster_job("llf-cm", n_clusters=2, init="k-means++", bounds=([0.0], [9.0]))
    state = engine.begin(job)
    order = engine.asked(job, state, 3)
    state = empty(job, state, {order[0]: "left out: suspect"})
    assert engine.asked(job, state, 3) == order[1:]
    state = empty(job, state, {order[1]: "too few rows"})
    state = empty(job, state, {order[2]: "too few rows"})
    assert state.status == "running"
    assert engine.asked(job, state, 3) == order[:1]
    state = empty(job, state, {order[0]: "too few rows"})
    assert (state.stage, state.status) == (3, "running"), "nobody proposes: the centers are drawn"


def test_the_job_fails_when_everybody_abstained_by_itself() -> None:
    job = cluster_job("llf-cm", **OPTIONS)
    state = empty(job, engine.begin(job), {0: "no data", 1: "no data"})
    assert state.status == "running", "peer 2 was merely silent"
    state = empty(job, state, {0: "no data", 2: "privacy gate: 1 rows"})
    assert state.status == "failed"
    assert state.reason == ("llf-cm: no peer can contribute (peer 0, peer 1: no data; peer 2: privacy gate: 1 rows)")


def test_not_drawn_is_no_abstention_of_its_own() -> None:
    job = cluster_job("llf-cm", **OPTIONS)
    state = empty(job, engine.begin(job), {0: "no data", 1: "no data", 2: NOT_DRAWN})
    assert state.status == "running"


def test_the_job_fails_after_ten_empty_rounds_in_a_row() -> None:
    job = cluster_job("llf-cm", max_rounds=50, **OPTIONS)
    state = engine.begin(job)
    for _ in range(9):
        state = empty(job, state, {0: "no data"})
    state = engine.advance(job, state, contributions(job, state, PEERS), {}, n_peers=3)
    for _ in range(9):
        state = empty(job, state, {0: "no data"})
    assert state.status == "running"
    state = empty(job, state, {0: "no data"})
    assert state.status == "failed"
    assert state.reason == "llf-cm: no peer contributed for 10 rounds in a row (peer 0: no data)"
    with pytest.raises(ValueError, match="failed"):
        empty(job, state)


def test_the_reason_names_a_few_of_many() -> None:
    job = cluster_job("llf-cm", **OPTIONS)
    state = empty(job, engine.begin(job), dict.fromkeys(range(20), "no data"), n_peers=20)
    assert state.reason.endswith("(peer 0, peer 1, peer 2 and 17 more: no data)")
    state = empty(job, engine.begin(job), {0: "of its own"} | dict.fromkeys(range(1, 20), "no data"), n_peers=20)
    assert state.reason.endswith("(peer 1, peer 2, peer 3 and 16 more: no data; peer 0: of its own)")
    state = empty(job, engine.begin(job), {peer: f"reason {peer}" for peer in range(20)}, n_peers=20)
    assert state.reason.endswith("peer 3: reason 3; and 16 more)")


def test_a_long_reason_is_cut() -> None:
    job = cluster_job("llf-cm", **OPTIONS)
    state = empty(job, engine.begin(job), {0: "x" * 5000})
    assert len(state.log[0].abstained[0]) == 200
    assert JobState.decode(state.encode()) == state


@pytest.mark.parametrize(
    ("participation", "n_peers", "expected"), [(1.0, 20, 20), (0.25, 20, 5), (0.5, 7, 4), (0.1, 3, 1), (0.3, 5, 2)]
)
def test_participation_draws_that_share_without_replacement(participation: float, n_peers: int, expected: int) -> None:
    job = cluster_job("llf-cm", participation=participation, **OPTIONS)
    state = engine.begin(job)
    seen = set()
    for round_ in range(60):
        drawn = engine.asked(job, replace(state, round=round_), n_peers)
        assert len(drawn) == len(set(drawn)) == expected == max(1, round(participation * n_peers))
        assert list(drawn) == sorted(drawn)
        seen.update(drawn)
    assert seen == set(range(n_peers)), "a fresh sample per round"


def test_the_draw_follows_from_seed_and_round_alone() -> None:
    job = cluster_job("llf-cm", participation=0.5, seed=3, **OPTIONS)
    state = engine.begin(job)
    again = cluster_job("llf-cm", participation=0.5, seed=3, **OPTIONS)
    other = cluster_job("llf-cm", participation=0.5, seed=4, **OPTIONS)
    assert engine.asked(job, state, 20) == engine.asked(again, state, 20)
    assert engine.asked(job, state, 20) != engine.asked(other, state, 20)


def test_a_peer_that_was_not_drawn_abstains() -> None:
    job = cluster_job("llf-cm", participation=0.5, **OPTIONS)
    state = engine.begin(job)
    drawn = engine.asked(job, state, 4)
    left = next(peer for peer in range(4) if peer not in drawn)
    engine.contribution(job, state, PEERS[2], drawn[0], 4)
    with pytest.raises(Abstain, match="not drawn"):
        engine.contribution(job, state, PEERS[2], left, 4)


def test_scaling_asks_everybody_whatever_the_participation() -> None:
    job = cluster_job("llf-cm", n_clusters=2, participation=0.25)
    assert engine.asked(job, engine.begin(job), 8) == tuple(range(8))


def test_the_proposer_is_the_first_of_the_seeds_permutation() -> None:
    job = cluster_job("llf-cm", n_clusters=2, init="k-means++", bounds=([0.0], [9.0]), seed=5)
    state = engine.begin(job)
    order = engine.asked(job, state, 9)
    assert order == random_streams.proposers(5, 9)
    assert sorted(order) == list(range(9))
    orders = {random_streams.proposers(seed, 9) for seed in range(20)}
    assert len(orders) > 10


def test_who_abstained_from_proposing_is_not_asked_again() -> None:
    job = cluster_job("llf-cm", n_clusters=2, init="k-means++", bounds=([0.0], [9.0]), seed=5)
    state = engine.begin(job)
    order = engine.asked(job, state, 12)
    for expected in range(1, 12):  # More than ten empty rounds: each came closer to whoever can propose.
        state = empty(job, state, {order[expected - 1]: "no data"}, n_peers=12)
        assert state.status == "running"
        assert engine.asked(job, state, 12) == order[expected:]


def test_ten_silent_rounds_fail_a_proposal() -> None:
    job = cluster_job("llf-cm", n_clusters=2, init="k-means++", bounds=([0.0], [9.0]))
    state = engine.begin(job)
    for _ in range(10):
        state = empty(job, state)
    assert state.status == "failed"


def test_of_several_proposals_the_first_of_the_permutation_counts() -> None:
    job = cluster_job("llf-cm", n_clusters=2, bounds=([0.0], [9.0]), init="random", seed=5)
    state = engine.begin(job)
    given = contributions(job, state, PEERS)
    after = engine.advance(job, state, given, {}, n_peers=3)
    first = random_streams.proposers(5, 3)[0]
    assert after.log[0].contributors == (first,)
    assert np.array_equal(after.arrays["centers"], given[first][1]["centers"])


def test_nothing_that_is_not_finite_leaves_a_peer() -> None:
    job = cluster_job("llf-cm", **OPTIONS)
    state = engine.begin(job)
    with pytest.raises(Abstain, match="row 0, column 0 is inf"):
        engine.contribution(job, state, Local([[np.inf]]), 0, 3)


def test_a_value_outside_the_grid_abstains() -> None:
    job = cluster_job("llf-cm", n_clusters=1, init=[[0.5]])
    state = engine.begin(job)
    state = engine.advance(job, state, contributions(job, state, [Local([[0.0], [0.5], [1.0]])], 2), {}, n_peers=2)
    late = Local([[1e15], [1e15]])  # It was absent when the ranges were found.
    with pytest.raises(Abstain, match=r"^failed: a value is too large for the grid of 2 peers$"):
        engine.contribution(job, state, late, 1, 2)


def test_what_the_mathematics_refuses_abstains_and_says_so() -> None:
    job = cluster_job("llf-cm", n_clusters=1, init=[[0.5]], scaling="minmax")
    state = engine.begin(job)
    state = engine.advance(job, state, contributions(job, state, [Local([[0.0], [0.0], [1e-200]])], 2), {}, n_peers=2)
    late = Local([[1e100]])  # Its square overflows in these working coordinates.
    with pytest.raises(Abstain, match="failed: "):
        engine.contribution(job, state, late, 1, 2)


def test_hostile_sums_fail_the_job_rather_than_spoil_the_state() -> None:
    options = {"fuzzifier": 1.02, "privacy_gate": False}
    job = cluster_job("llf-fcm", n_clusters=1, bounds=([0.0], [1e120]), init=[[0.5]], **options)
    state = engine.begin(job)
    part = engine.contribution(job, state, Local([[0.5], [1.0]]), 0, 1)
    smallest, largest = np.zeros((8, 1), dtype=np.int64), np.zeros((8, 1, 1), dtype=np.int64)
    smallest[7], largest[0] = 1, 2**60
    hostile = part.replace(weights=smallest, sums=largest)
    received = ContributionReader(job, state, n_peers=1).read(hostile.encode())
    after = engine.advance(job, state, [(0, received)], {}, n_peers=1)
    assert after.status == "failed"
    assert "finite" in after.reason
    assert JobState.decode(after.encode()) == after


def test_a_proposal_that_would_overflow_is_left_out() -> None:
    job = cluster_job("llf-cm", n_clusters=1, bounds=([0.0], [1.0]), init="random")
    state = engine.begin(job)
    part = engine.contribution(job, state, Local([[0.5]]), 0, 2)
    after = engine.advance(job, state, [(0, part.replace(centers=[[1e300]]))], {}, n_peers=2)
    assert after.log[0].abstained == {0: "failed: it proposes no centers"}
    assert engine.asked(job, after, 2) == (1,)


def test_a_contribution_is_a_pure_function() -> None:
    job = cluster_job("llf-fcm", n_clusters=2, bounds=([0.0], [9.0]), init="k-means++", seed=1)
    state = engine.begin(job)
    X = np.random.default_rng(0).uniform(0, 9, (50, 1))
    assert engine.contribution(job, state, Local(X), 1, 3) == engine.contribution(job, state, Local(X), 1, 3)
    assert engine.contribution(job, state, Local(X), 1, 3) != engine.contribution(job, state, Local(X), 2, 3)


def test_conclude_labels_the_rows_and_survives_unusable_ones() -> None:
    job = cluster_job("llf-cm", **OPTIONS)
    state = run_in_process(job, PEERS)
    assert state.status == "done"
    assert engine.conclude(job, state, PEERS[2])["labels"].tolist() == [0, 0, 1, 1]
    for unusable in (Local(np.empty((0, 1))), Local([[0.0, 1.0]]), Local([[np.nan]])):
        assert len(engine.conclude(job, state, unusable)) == 0
