"""Totals that one lying peer cannot move far."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pclust import LosslessCMeans, LosslessFuzzyCMeans
from p2pclust.errors import UsageError, WireError
from p2pclust.jobs.request import JobRequest
from p2pclust.peer.core.treatment import Treatment
from p2pclust.protocols.centers.llf_cm import LosslessCMeansProtocol
from p2pclust.protocols.centers.robust import limited, limited_peers, robust_sums
from p2pclust.protocols.engine import engine
from p2pclust.protocols.engine.arrays import Arrays
from p2pclust.protocols.engine.compose import cluster_job
from p2pclust.protocols.engine.fixed_point import quantise_all
from p2pclust.protocols.engine.job import JobState
from p2pclust.protocols.engine.local import Local
from p2pclust.protocols.engine.runner import replay, run_in_process
from p2pclust.protocols.engine.summaries import suspects_of_log
from p2pclust.protocols.engine.wire import decode_state

RNG = np.random.default_rng(4)
LOCALS = [Local(RNG.normal(size=(30, 2)) + 8 * RNG.integers(0, 2, (30, 1))) for _ in range(5)]
OTHER_ROWS = "its weights are those of another number of rows than in earlier rounds"
STILL = np.zeros(0)
BOUNDS = ([-9.0, -9.0], [16.0, 16.0])
KINDS: list[dict[str, Any]] = [
    {"max_weight": 2.0}, {"robust": "trim"}, {"robust": "median"}, {"max_weight": 1.5, "robust": "trim", "n_init": 3},
]  # fmt: skip


# -- by hand -------------------------------------------------------------------------------------------------------------


def test_no_peer_weighs_more_than_so_many_medians() -> None:
    weights = np.array([[3.0, 1.0], [2.0, 2.0], [0.0, 4.0], [40.0, 60.0], [0.0, 0.0]])
    assert limited(weights, 2.0).tolist() == [1.0, 1.0, 1.0, 0.08, 1.0]
    assert limited(weights, 100.0).tolist() == [1.0] * 5
    assert limited(np.zeros((3, 2)), 2.0).tolist() == [1.0] * 3


def test_a_trimmed_mean_cuts_weight_off_and_not_peers() -> None:
    # Weights 1, 6, 3 at 0, 10, 50: of 10, the lowest 1.5 and the highest 1.5 go, and 5.5 at 10 and 1.5 at 50 are left.
    weights = np.array([[1.0], [6.0], [3.0]])
    sums = weights[..., np.newaxis] * np.array([0.0, 10.0, 50.0]).reshape(3, 1, 1)
    assert robust_sums(weights, sums, "trim").item() == pytest.approx(10 * (5.5 * 10 + 1.5 * 50) / 7.0)
    assert robust_sums(weights, sums, "median").item() == 10 * 10.0
    assert robust_sums(weights, sums, "").item() == sums.sum()


def test_a_cluster_without_weight_and_a_peer_without_rows_of_it() -> None:
    weights = np.array([[0.0, 2.0], [0.0, 0.0], [0.0, 2.0]])
    sums = np.array([[[0.0], [4.0]], [[0.0], [0.0]], [[0.0], [8.0]]])
    assert robust_sums(weights, sums, "trim").tolist() == [[0.0], [pytest.approx(12.0)]]


@given(st.integers(0, 2**32), st.sampled_from(["trim", "median"]))
def test_one_peer_of_a_small_share_cannot_leave_the_range_of_the_others(seed: int, how: str) -> None:
    rng = np.random.default_rng(seed)
    weights = rng.uniform(1.0, 1.1, (10, 3))
    means = rng.uniform(0.0, 1.0, (10, 3, 2))
    means[4] = rng.choice([-1e6, 1e6], (3, 2))
    found = robust_sums(weights, means * weights[..., np.newaxis], how) / weights.sum(axis=0)[:, np.newaxis]
    others = np.delete(means, 4, axis=0)
    assert (found >= others.min(axis=0) - 1e-9).all()
    assert (found <= others.max(axis=0) + 1e-9).all()


# -- jobs ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", ["llf-cm", "llf-fcm"])
@pytest.mark.parametrize("more", KINDS)
def test_honest_peers_get_nearly_the_same_centers(protocol: str, more: dict[str, Any]) -> None:
    plain, robust = (
        run_in_process(cluster_job(protocol, n_clusters=2, seed=1, **kind), LOCALS) for kind in ({}, more)
    )  # fmt: skip
    assert robust.status == "done"
    order = [np.argsort(state.arrays["centers"][:, 0]) for state in (plain, robust)]
    apart = np.abs(plain.arrays["centers"][order[0]] - robust.arrays["centers"][order[1]]).max()
    assert apart < 0.5
    job = cluster_job(protocol, n_clusters=2, seed=1, **more)
    assert replay(job, LOCALS, robust.log).encode() == robust.encode()


def _round(lie: Any, **more: Any) -> tuple[Any, Any]:
    """The state before and after the first round of clustering, in which peer 3 sends a lie."""
    job = cluster_job(
        "llf-cm", n_clusters=2, init=[[0.0, 0.0], [8.0, 8.0]], scaling="minmax", bounds=BOUNDS, seed=1, **more
    )
    state = engine.begin(job)
    while not isinstance(job.protocols[state.stage], LosslessCMeansProtocol):
        given = [(peer, engine.contribution(job, state, local, peer, 5)) for peer, local in enumerate(LOCALS)]
        state = engine.advance(job, state, given, {}, n_peers=5)
    protocol = job.protocols[state.stage]
    assert isinstance(protocol, LosslessCMeansProtocol)
    given = [(peer, engine.contribution(job, state, local, peer, 5)) for peer, local in enumerate(LOCALS)]
    said = {
        "counts": np.full(2, 15.0),
        "sums": np.zeros((2, 2)),
        "rows": np.array(2.0),
        "suppressed": np.array(0.0),
    } | lie
    limbs = quantise_all(Arrays(said), protocol.units(state.arrays), n_peers=5, limbs=2)
    given[3] = (3, Arrays(limbs))
    return state, engine.advance(job, state, given, {}, n_peers=5)


def test_a_lie_within_the_bounds_moves_a_robust_center_little() -> None:
    honest = run_in_process(
        cluster_job(
            "llf-cm", n_clusters=2, init=[[0.0, 0.0], [8.0, 8.0]], scaling="minmax", bounds=BOUNDS, max_rounds=1
        ),
        LOCALS,
    ).arrays["centers"]
    _, plain = _round({})
    _, robust = _round({}, robust="trim", max_weight=2.0)
    assert np.abs(plain.arrays["centers"] - honest).max() > 2 * np.abs(robust.arrays["centers"] - honest).max()


def test_what_no_rows_can_lead_to_is_left_out_and_named() -> None:
    for lie, what in (
        ({"sums": np.full((2, 2), 15.1)}, "implausible: its sums lie outside what its weights and the bounds allow"),
        ({"sums": np.full((2, 2), -0.1)}, "implausible: its sums lie outside what its weights and the bounds allow"),
        ({"counts": np.array([-1.0, 5.0])}, "implausible: a cluster has a negative weight"),
        ({"rows": np.array(-9.0)}, "implausible: it counts rows, or suppressed clusters, as there cannot be"),
        ({"suppressed": np.array(3.0)}, "implausible: it counts rows, or suppressed clusters, as there cannot be"),
    ):
        _, after = _round(lie, max_weight=2.0)
        assert after.log[-1].contributors == (0, 1, 2, 4)
        assert after.log[-1].abstained == {3: what}
        _, plain = _round(lie)
        assert plain.log[-1].contributors == (0, 1, 2, 3, 4), "plain rounds add up whatever comes"


def test_robust_rounds_are_not_lossless_and_look_at_single_contributions() -> None:
    assert LosslessCMeansProtocol(2).lossless
    robust = LosslessCMeansProtocol(2, robust="trim")
    assert not robust.lossless
    assert robust.one_by_one
    job = cluster_job("llf-cm", n_clusters=2, init=[[0.0, 0.0], [8.0, 8.0]], robust="trim", bounds=BOUNDS)
    state = engine.begin(job)
    given = [((0, 1), engine.contribution(job, state, LOCALS[0], 0, 5))]
    with pytest.raises(ValueError, match="by itself, and not a sum"):
        engine.advance(job, state, given, {}, n_peers=5)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"max_weight": 0.5}, "expected at least 1, or 0 for no limit"),
        ({"max_weight": -1.0}, "max_weight"),
        ({"robust": "mean"}, "robust"),
        ({"robust": "trim", "accelerate": True}, "leave accelerate out"),
    ],
)
def test_what_is_refused(more: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        cluster_job("llf-cm", n_clusters=2, **more)


def test_what_needs_single_contributions_is_not_combined_with_what_hides_them() -> None:
    with pytest.raises(UsageError, match="leave max_weight and robust out, or set groups of secure"):
        cluster_job("llf-cm", n_clusters=2, robust="median", secure=True)
    job = cluster_job("llf-cm", n_clusters=2, robust="median")
    with pytest.raises(UsageError, match="max_weight or robust excludes collect = 'gossip'"):
        JobRequest(job, Treatment(missing="", collect="gossip"))


@pytest.mark.parametrize("kind", [LosslessCMeans, LosslessFuzzyCMeans])
@pytest.mark.parametrize("fleet", [None, "simulated"])
def test_estimators_take_both(kind: Any, fleet: str | None) -> None:
    arrays = [local.X for local in LOCALS]
    options = {"n_clusters": 2, "random_state": 3, "max_weight": 2.0, "robust": "trim", "secure": False}
    model, again = kind(**options, fleet=fleet).fit(arrays), kind(**options).fit(arrays)
    assert model.cluster_centers_.tobytes() == again.cluster_centers_.tobytes()


# -- suspects ------------------------------------------------------------------------------------------------------------


def _job(protocol: str, **more: Any) -> Any:
    return cluster_job(protocol, n_clusters=2, scaling="minmax", bounds=BOUNDS, seed=1, tol=0.0, max_rounds=6, **more)


def _lied(protocol: str, first: int, lie: Any, **more: Any) -> Any:
    """The last state of a job in which peer 3 changes its contribution in the rounds of clustering from one on."""
    job = _job(protocol, **more)

    def changed(local: Local, state: Any, honest: Any) -> Any:
        return (
            Arrays({**honest, **lie(honest)})
            if "sums" in honest and state.get("shifts", STILL).size >= first
            else honest
        )

    return job, run_in_process(job, [*LOCALS[:3], LOCALS[3].lying(changed), LOCALS[4]])


@pytest.mark.parametrize("n_init", [1, 2])
@pytest.mark.parametrize(
    ("protocol", "times", "found"),
    [
        ("llf-cm", 1.04, True),
        ("llf-cm", 0.96, True),
        ("llf-fcm", 2.1, True),
        ("llf-fcm", 0.4, True),
        ("llf-fcm", 1.0, False),
    ],
)
def test_a_number_of_rows_that_changes_is_named(protocol: str, times: float, found: int, n_init: int) -> None:
    name = "counts" if protocol == "llf-cm" else "weights"
    _, state = _lied(
        protocol, 2, lambda honest: {name: honest[name] * times, "sums": honest["sums"] * times},
        robust="median", n_init=n_init,
    )  # fmt: skip
    assert state.status == "done"
    assert len(suspects_of_log(state)) == found
    for suspect in suspects_of_log(state):
        assert (suspect["peer"], suspect["reason"]) == (3, OTHER_ROWS)
        assert state.log[suspect["round"]].abstained[3] == f"implausible: {suspect['reason']}"
        assert suspect["rounds"] == sum(3 in record.abstained for record in state.log)


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["llf-cm", "llf-fcm"])
@pytest.mark.parametrize("more", [{"n_init": 3}, {"suppress_singletons": True}, {"sample": True}])
@pytest.mark.parametrize("seed", range(4))
def test_no_honest_peer_is_a_suspect(protocol: str, more: dict[str, Any], seed: int) -> None:
    rng = np.random.default_rng(seed)
    weights = rng.uniform(0.5, 9.0, 40) if more.get("sample") else None
    own = {
        name: value for name, value in more.items() if name == "n_init" or (name[:3] == "sup" and protocol == "llf-cm")
    }
    locals_ = [Local(rng.normal(size=(40, 3)) * 10.0 ** rng.integers(-3, 4), weights=weights) for _ in range(5)]
    job = cluster_job(protocol, n_clusters=6, seed=seed, max_weight=1.0, robust="trim", **own)
    state = run_in_process(job, locals_)
    assert state.status == "done", state.reason
    assert suspects_of_log(state) == []


def test_a_heavy_peer_is_limited_and_no_suspect() -> None:
    heavy = Local(np.repeat(LOCALS[0].X, 20, axis=0))
    state = run_in_process(_job("llf-cm", max_weight=2.0), [heavy, *LOCALS[1:]])
    assert limited_peers(state.arrays) == {0: 6}
    assert suspects_of_log(state) == []
    model = LosslessCMeans(n_clusters=2, random_state=1, max_weight=2.0).fit(
        [heavy.X, *(local.X for local in LOCALS[1:])]
    )
    assert list(model.limited_) == [0]
    assert model.suspects_ == ()


def test_claims_of_another_peer_are_checked() -> None:
    job = _job("llf-cm", robust="trim")
    seen: list[JobState] = []
    run_in_process(job, LOCALS, seen.append)
    state = next(one for one in seen if one.stage == job.main and one.stage_round == 3)
    assert decode_state(job, state.encode()).encode() == state.encode()
    for wrong, why in (
        (state.arrays.replace(claims=np.array([[1.0, 3.0, 3.0, 0.0], [1.0, 3.0, 3.0, 0.0]])), "claims of no peers"),
        (state.arrays.replace(claims=np.array([[0.5, 3.0, 3.0, 0.0]])), "claims of no peers"),
        (state.arrays.replace(claims=np.array([[0.0, 3.0, 3.0, -1.0]])), "claims of no peers"),
        (state.arrays.without("claims"), "no claims of peers"),
    ):
        with pytest.raises(WireError, match=why):
            decode_state(job, dataclasses.replace(state, arrays=wrong).encode())
