"""What a peer of FedCRef remembers of models that it tried: no model is tried twice on the same rows, and no bit changes."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from communities import Hand, hand
from numpy.typing import NDArray

from p2pclust.protocols.models import fedcref_peer
from p2pclust.protocols.models.fedcref_peer import KnownErrors

pytest.importorskip("torch", reason="autoencoders need torch: pip install 'p2pclust[models]'")

KINDS = [[0, 1, 2], [1, 2, 3], [0, 2, 3]]
MODES = ("refined", "paper")


class Asked:
    """Errors that can be told apart, and what was computed of them."""

    def __init__(self, n_rows: int = 4) -> None:
        self.n_rows = n_rows
        self.computed: list[list[bytes]] = []

    def __call__(self, models: list[bytes]) -> NDArray[np.float64]:
        self.computed.append(models)
        return np.array([[10.0 * row + model[0] for model in models] for row in range(self.n_rows)])


def test_what_is_known_is_not_computed_again() -> None:
    known, asked = KnownErrors(), Asked(2)
    assert known.of("job", [b"\1", b"\2", b"\1"], asked).tolist() == [[1, 2, 1], [11, 12, 11]]
    assert known.of("job", [b"\2", b"\3"], asked).tolist() == [[2, 3], [12, 13]]
    assert known.of("job", [b"\3", b"\1"], asked).tolist() == [[3, 1], [13, 11]]
    assert asked.computed == [[b"\1", b"\2"], [b"\3"]]


def test_of_another_job_nothing_is_known() -> None:
    known, asked = KnownErrors(), Asked()
    for job in ("one", "other", "one"):
        known.of(job, [b"\1"], asked)
    assert len(asked.computed) == 3
    known.forget()
    known.of("one", [b"\1"], asked)
    assert len(asked.computed) == 4


def test_only_so_much_is_kept_and_what_was_asked_for_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fedcref_peer, "MOST_BYTES", 3 * 4 * 4)  # three models' errors of four rows
    assert KnownErrors.holds(4, 3)
    assert not KnownErrors.holds(4, 4)
    known, asked = KnownErrors(), Asked()
    known.of("job", [b"\1", b"\2", b"\3"], asked)
    known.of("job", [b"\1"], asked)
    found = known.of("job", [b"\4", b"\5"], asked)  # in the place of 2 and 3
    assert found[0].tolist() == [4, 5]
    known.of("job", [b"\1", b"\4", b"\5"], asked)
    known.of("job", [b"\2"], asked)
    assert asked.computed == [[b"\1", b"\2", b"\3"], [b"\4", b"\5"], [b"\2"]]
    many = [bytes([number]) for number in range(9)]
    assert known.of("job", many, asked)[0].tolist() == list(range(9)), "more than can be kept"


def test_models_that_are_not_there_are_asked_for_again() -> None:
    known, there = KnownErrors(), Asked()
    assert np.isinf(known.of("job", [b"\1"], lambda models: np.full((4, 1), np.inf))).all()
    assert known.of("job", [b"\1"], there)[:, 0].tolist() == [1, 11, 21, 31]
    assert known.of("job", [], there).shape == (4, 0)


def begun(mode: str, **options: Any) -> Hand:
    return hand(KINDS, mode, dirt=0.15, **options)


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_peer_that_remembers_nothing_comes_to_the_same_bits(mode: str, precision: str) -> None:
    remembering, forgetful = (begun(mode, precision=precision) for _ in range(2))
    remembering.end()
    while forgetful.state.status == "running":
        for local in forgetful.locals:
            local.once(KnownErrors, KnownErrors).forget()
        forgetful.round()
    assert remembering.state.encode() == forgetful.state.encode()
    assert remembering.workspaces.notes == forgetful.workspaces.notes
    assert all(np.array_equal(remembering.labels(peer), forgetful.labels(peer)) for peer in range(len(KINDS)))


@pytest.mark.parametrize("mode", MODES)
def test_no_model_is_tried_twice_on_the_rows_of_a_peer(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: Counter[tuple[bytes, bytes]] = Counter()
    compute = fedcref_peer.reconstruction_errors

    def counted(stack: Any, X: NDArray[np.float64], **how: Any) -> NDArray[np.float32]:
        tried.update((weights.tobytes(), row.tobytes()) for weights in stack.weights for row in X)
        return compute(stack, X, **how)

    monkeypatch.setattr(fedcref_peer, "reconstruction_errors", counted)
    h = begun(mode).until("refine")
    h.round()
    assert len(tried) > 0
    assert set(tried.values()) == {1}


def test_where_not_all_errors_can_be_kept_the_verdicts_try_as_few_rows_as_they_need(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kept = begun("refined").until("graph")
    monkeypatch.setattr(fedcref_peer, "MOST_BYTES", 0)
    seen: list[int] = []
    compute = fedcref_peer.reconstruction_errors

    def watched(stack: Any, X: NDArray[np.float64], **how: Any) -> NDArray[np.float32]:
        seen.append(len(X))
        return compute(stack, X, **how)

    monkeypatch.setattr(fedcref_peer, "reconstruction_errors", watched)
    monkeypatch.setattr(fedcref_peer.affinity, "spread_rows", lambda n: np.arange(min(n, 10)))
    few = begun("refined").until("graph")
    assert set(seen) == {30}, "ten rows of each of three clusters"
    assert few.agreed.table.shape == kept.agreed.table.shape


@pytest.mark.slow
def test_when_the_job_is_over_a_peer_remembers_nothing() -> None:
    h = begun("refined")
    h.end()
    known = h.locals[0].once(KnownErrors, KnownErrors)
    assert known._columns
    h.labels(0)
    assert not known._columns


def test_precision_is_part_of_the_job_and_changes_errors_a_little() -> None:
    exact, rounded = (begun("refined", precision=precision) for precision in ("float32", "bfloat16"))
    assert rounded.job.stages[-1].parameters["precision"] == "bfloat16"
    tables = []
    for h in (exact, rounded):
        h.until("graph")
        tables.append(h.agreed.table.astype(int))
    assert exact.agreed.models.tobytes() == rounded.agreed.models.tobytes(), "training is float32 in both"
    assert 0 < np.abs(tables[0] - tables[1]).max() < 40
    for h in (exact, rounded):
        h.until("train")
    assert exact.agreed.association.groups == rounded.agreed.association.groups
