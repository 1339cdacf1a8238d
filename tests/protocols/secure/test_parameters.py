"""The parameters of secure sums: their defaults, how many may pool what they see, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pclust.errors import UsageError
from p2pclust.jobs.job_keys import secure_fields
from p2pclust.peer.core.treatment import Treatment
from p2pclust.protocols.secure.parameters import ALL, SecureSums


@pytest.mark.parametrize(
    ("n_peers", "cohort", "keepers", "colluders", "burnt"),
    [
        (3, 3, 3, 1, "record"),
        (4, 3, 3, 1, "record"),
        (5, 3, 3, 1, "record"),
        (6, 4, 4, 2, "record"),
        (7, 4, 4, 2, "record"),
        (8, 5, 4, 2, "record"),
        (9, 5, 4, 2, "record"),
        (10, 5, 4, 2, "groups"),
        (11, 5, 4, 2, "groups"),
        (1000, 5, 4, 2, "groups"),
    ],
)
def test_defaults_by_the_number_of_peers(n_peers: int, cohort: int, keepers: int, colluders: int, burnt: str) -> None:
    assert SecureSums.usual(n_peers) == SecureSums(keepers, cohort, burnt, "alone", 0, colluders)


@pytest.mark.parametrize(
    ("asked", "keepers", "cohort", "colluders"),
    [
        ({"keepers": 2}, 2, 5, 1), ({"keepers": 3}, 3, 5, 1), ({"keepers": ALL}, ALL, 5, 2), ({"cohort": 3}, 3, 3, 1),
        ({"cohort": 4}, 4, 4, 2), ({"colluders": 3}, 5, 5, 3), ({"groups": 3}, 3, 3, 1),
    ],
)  # fmt: skip
def test_what_is_asked_for_decides_what_is_not(
    asked: dict[str, int], keepers: int, cohort: int, colluders: int
) -> None:
    usual = SecureSums.usual(12, **asked)  # type: ignore[arg-type]
    assert (usual.keepers, usual.cohort, usual.colluders) == (keepers, cohort, colluders)
    usual.check(12)


@given(st.integers(4, 60), st.integers(2, 50), st.integers(3, 50))
def test_one_keeper_and_two_peers_of_a_cohort_are_always_honest(n_peers: int, keepers: int, cohort: int) -> None:
    t = SecureSums.usual(n_peers, keepers=min(keepers, n_peers), cohort=min(cohort, n_peers)).colluders
    assert t >= 1
    assert min(keepers, n_peers) - t >= 1
    assert min(cohort, n_peers) - t >= 2


@given(st.integers(3, 60))
def test_the_defaults_of_a_fleet_can_be_carried_out_in_it(n_peers: int) -> None:
    treatment = Treatment(patience_s=1.0, compute_limit_s=60.0, collect="star", secure=True).secured_for(n_peers)
    treatment.check()
    treatment.secure_sums.check(n_peers)
    assert treatment.secured_for(n_peers) == treatment


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"keepers": 1}, "keepers = 1: expected 2 to 6"),
        ({"keepers": 7}, "keepers = 7: expected 2 to 6"),
        ({"cohort": 2}, "cohort = 2: expected 3"),
        ({"cohort": 7}, "cohort = 7: expected 3"),
        ({"burnt": "never"}, "burnt = 'never': expected one of groups, record"),
        ({"leave": ""}, "leave = '': expected one of alone, groups"),
        ({"colluders": 0}, "colluders = 0: expected 1 to 1"),
        ({"colluders": 2}, "colluders = 2: expected 1 to 1"),
        ({"keepers": 2, "cohort": 5, "colluders": 2}, "colluders = 2: expected 1 to 1, less than keepers"),
    ],
)
def test_what_a_fleet_cannot_carry_out_is_refused(change: dict[str, object], reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        replace(SecureSums(3, 3, colluders=1), **change).check(6)  # type: ignore[arg-type]


def test_every_peer_may_keep_pads_and_two_peers_are_too_few() -> None:
    SecureSums(ALL, 3, colluders=1).check(4)
    with pytest.raises(UsageError, match="2 peers are too few to hide among"):
        SecureSums(2, 3, colluders=1).check(2)


def test_what_a_person_gives_is_read() -> None:
    assert secure_fields(True) == {"secure": True}
    assert secure_fields({}) == {"secure": True}
    assert secure_fields({"leave": "groups", "keepers": 2}) == {"secure": True, "leave": "groups", "keepers": 2}


@pytest.mark.parametrize(
    "given_",
    [
        {"keeper": 3}, {"keepers": 1}, {"keepers": True}, {"keepers": "some"}, {"cohort": 2}, {"cohort": 3.0},
        {"burnt": "leave"}, "yes", 1, None,
    ],
)  # fmt: skip
def test_what_is_impossible_in_every_fleet_is_refused(given_: object) -> None:
    with pytest.raises(UsageError, match=r"^secure: "):
        secure_fields(given_)  # type: ignore[arg-type]
