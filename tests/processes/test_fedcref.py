"""FedCRef on real processes, one of which is killed while it aggregates a community's training."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import numpy as np
import pytest
from runs import by_verb, carry_out

sys.path.insert(0, str(Path(__file__).parent.parent / "protocols"))

from communities import a_job, planted, specs

from p2pclust.jobs.request import JobRequest
from p2pclust.lab.testbed.faults import Fault
from p2pclust.lab.testbed.spec import FleetSpec
from p2pclust.metrics import accuracy
from p2pclust.protocols.engine import engine
from p2pclust.protocols.models.fedcref_agreed import Agreed

pytest.importorskip("torch", reason="autoencoders need torch: pip install 'p2pclust[models]'")

pytestmark = [pytest.mark.processes, pytest.mark.slow]

KINDS = [[0, 1, 2], [1, 2, 3], [0, 2, 3], [0, 1, 3], [0, 1, 2]]
PEERS = planted(KINDS, dirt=0.15)


def a_spec(home: Path, *faults: Fault) -> FleetSpec:
    return FleetSpec(specs(PEERS), (JobRequest(a_job()),), faults=faults, timing="fast", directory=home)


def test_the_death_of_a_community_s_aggregator_changes_no_association(home: Path) -> None:
    result = carry_out("processes", a_spec(home, Fault("kill", (), round=1, phase="combining", within=True)))
    undisturbed = carry_out("in-process", a_spec(home))
    assert (result.failure, result.unfired_faults) == ("", ())
    (struck,) = by_verb(result, "fault")
    victim = struck["peer"]
    assert [event["code"] for event in by_verb(result, "exited") if event["peer"] == victim] == [-signal.SIGKILL]
    (job,), (expected,) = result.jobs, undisturbed.jobs
    assert job.state is not None
    assert expected.state is not None
    assert job.state.status == "done"
    survivors = {f"p{number}" for number in range(5)} - {victim}
    assert set(job.digests) == survivors
    assert len(set(job.digests.values())) == 1
    found, wanted = Agreed.of(job.state.arrays), Agreed.of(expected.state.arrays)
    assert found.association.digest == wanted.association.digest
    heirs = [event["peer"] for event in by_verb(result, "elected") if event.get("within") and event["term"] > 1]
    assert heirs, "another one was elected within the community"
    labels = {
        name: engine.conclude(a_job(), job.state, PEERS[int(name[1])].local(), job.workspace(name))["labels"]
        for name in sorted(survivors)
    }
    truth = np.concatenate([PEERS[int(name[1])].truth for name in labels])
    assert accuracy(truth, np.concatenate(list(labels.values()))) > 0.95
