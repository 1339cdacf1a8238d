"""How a fleet treats a job: what is filled in where nothing was asked for."""

from __future__ import annotations

from p2pclust.peer.core.treatment import Treatment
from p2pclust.protocols.secure.parameters import LEAST_COHORT, SecureSums


def test_groups_have_the_least_cohort_and_other_secured_jobs_the_usual_one() -> None:
    assert SecureSums.usual(20).cohort != LEAST_COHORT
    assert Treatment(secure=True).secured_for(20).cohort == SecureSums.usual(20).cohort
    assert Treatment(secure=True, groups=5).secured_for(20).cohort == LEAST_COHORT
    assert Treatment(secure=True, groups=5, cohort=4).secured_for(20).cohort == 4
