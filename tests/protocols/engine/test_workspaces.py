"""The workspaces of all peers in one process."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from communities import Hand, a_job, hand, planted

from p2pclust.protocols.engine import engine
from p2pclust.protocols.engine.arrays import Arrays
from p2pclust.protocols.engine.compose import cluster_job
from p2pclust.protocols.engine.job import JobState
from p2pclust.protocols.engine.runner import Workspaces, run_in_process
from p2pclust.protocols.engine.workspace import Run, Workspace, digest_of

pytest.importorskip("torch", reason="autoencoders need torch: pip install 'p2pclust[models]'")

KINDS = [[0, 1], [0, 1, 2], [1, 2], [2, 0]]


def unexpected(run: Run, workspaces: Workspaces) -> JobState:
    raise AssertionError(f"{run.name} was not wanted")


def test_who_needs_no_desk_has_none() -> None:
    job = cluster_job("llf-cm", n_clusters=2, init=[[0.0], [1.0]])
    assert Workspaces(1).prepare(job, engine.begin(job), [0, 1], 2, unexpected) == {}


@pytest.mark.slow
def test_threads_change_no_bit() -> None:
    job, locals_ = a_job(), [peer.local() for peer in planted(KINDS, dirt=0.1)]
    all_workspaces = [Workspaces(1), Workspaces(3)]
    states = [run_in_process(job, locals_, None, workspaces) for workspaces in all_workspaces]
    assert states[0].encode() == states[1].encode()
    assert states[0].status == "done"
    assert all_workspaces[0].notes == all_workspaces[1].notes
    assert all_workspaces[0].blobs == all_workspaces[1].blobs


def test_a_job_that_several_want_is_run_once_and_all_have_its_result() -> None:
    h = hand(KINDS, "paper").until("train")
    ran: list[str] = []

    def run(one: Run, workspaces: Workspaces) -> JobState:
        ran.append(one.name)
        # Notes are those of its own roster, under its own indices; blobs are everybody's.
        assert [workspaces.notes[index]["peer"] for index in range(len(one.roster))] == list(one.roster)
        assert workspaces.blobs is h.workspaces.blobs
        return h.state

    prepared = h.workspaces.prepare(h.job, h.state, range(4), 4, run)
    assert sorted(ran) == sorted(one.name for _, one in h.protocol.runs(h.state.arrays, h.agreed))
    assert len(ran) == len(set(ran)) >= 1
    for peer, workspace in prepared.items():
        mine = [one.name for _, one in h.protocol.runs(h.state.arrays, h.agreed) if peer in one.roster]
        assert list(workspace.results) == mine


def test_what_nobody_asks_for_any_more_goes() -> None:
    h = hand(KINDS).until("verdicts")
    old = set(h.workspaces.blobs)
    assert old == {h.agreed.model(m) for m in range(h.agreed.clusters.total)}
    h.end()
    kept = {h.agreed.group_model(group) for group in h.agreed.alive.tolist()}
    assert kept <= set(h.workspaces.blobs)
    unwanted = b"of nobody"
    h = hand(KINDS).until("verdicts")
    h.workspaces.blobs[digest_of(unwanted)] = unwanted
    h.prepared()
    assert digest_of(unwanted) not in h.workspaces.blobs


def test_what_peers_leave_is_taken_when_all_have_contributed() -> None:
    workspaces = Workspaces(1)
    one, other = Workspace(0), Workspace(1)
    one.publish(b"model")
    other.keep(Arrays(x=np.int64(7)))
    workspaces.take({0: one, 1: other})
    assert workspaces.blobs == {digest_of(b"model"): b"model"}
    assert workspaces.notes == {1: Arrays(x=np.int64(7))}


def test_contributions_are_computed_at_once_where_there_is_somebody_to_do_it() -> None:
    meeting = threading.Barrier(3, timeout=10)

    def both(number: int) -> int:
        meeting.wait()
        return number * number

    assert list(Workspaces(3).map(both, [1, 2, 3])) == [1, 4, 9]
    assert list(Workspaces(1).map(lambda number: number + 1, [1, 2])) == [2, 3]
    assert Hand(a_job(), []).workspaces.threads == 1
