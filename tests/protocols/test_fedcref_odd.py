"""FedCRef where a peer's rows are odd, and where a peer lies: all others continue."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from communities import D, Hand, a_job, hand, planted
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from p2pclust.errors import P2PClustError, WireError
from p2pclust.metrics import accuracy
from p2pclust.protocols.engine import engine
from p2pclust.protocols.engine.arrays import Arrays, Contribution
from p2pclust.protocols.engine.base import Abstain
from p2pclust.protocols.engine.local import Local
from p2pclust.protocols.engine.wire import decode_state
from p2pclust.protocols.engine.workspace import DIGEST_BYTES, Workspace
from p2pclust.protocols.models import affinity
from p2pclust.protocols.models.fedcref_agreed import ARRAYS, MOST_CLUSTERS, PHASES

pytest.importorskip("torch", reason="autoencoders need torch: pip install 'p2pclust[models]'")

KINDS = [[0, 1, 2], [1, 2, 3], [0, 2, 3], [0, 1, 3]]
MODES = pytest.mark.parametrize("mode", ["refined", "paper"])


def with_peer(odd: Local, mode: str = "refined", **options: Any) -> Hand:
    """Peer 1 is the odd one."""
    locals_ = [peer.local() for peer in planted(KINDS)]
    return Hand(a_job(mode, **options), [locals_[0], odd, *locals_[2:]])


def others_found(h: Hand) -> None:
    for peer in (0, 2, 3):
        if h.protocol.mode == "refined":
            assert accuracy(planted(KINDS)[peer].truth, h.labels(peer)) > 0.9


class TestOddRows:
    @MODES
    def test_a_single_cluster(self, mode: str) -> None:
        X = planted([[1]])[0].X
        h = with_peer(Local(X, labels=np.zeros(len(X), np.int64), n_clusters=1), mode)
        assert h.end().status == "done"
        assert len(np.unique(h.labels(1))) == 1
        others_found(h)

    @pytest.mark.slow
    @MODES
    @pytest.mark.parametrize("initial", ["given", "kmeans", "mixture"])
    def test_constant_features(self, mode: str, initial: str) -> None:
        X = np.full((40, D), 0.5)
        h = with_peer(Local(X, labels=np.arange(40) % 2, n_clusters=2), mode, initial=initial)
        assert h.end().status == "done"
        assert h.labels(1).shape == (40,)
        others_found(h)

    @MODES
    def test_all_rows_everywhere_are_the_same(self, mode: str) -> None:
        X = np.full((24, D), 0.25)
        h = Hand(a_job(mode), [Local(X, labels=np.arange(24) % 2, n_clusters=2) for _ in range(3)])
        assert h.end().status == "done"

    def test_a_column_that_is_constant_at_everybody_without_declared_bounds(self) -> None:
        peers = planted(KINDS)
        for peer in peers:
            peer.X[:, 3] = 0.7
        h = Hand(a_job(bounds=False), [peer.local() for peer in peers])
        assert h.end().status == "done"
        assert accuracy(peers[0].truth, h.labels(0)) > 0.9

    @pytest.mark.parametrize(
        ("X", "reason"),
        [
            pytest.param(np.full((30, D), np.nan), "row 0, column 0 is nan", id="NaN"),
            pytest.param(np.empty((0, D)), "no data", id="no rows"),
            pytest.param(np.full((30, D + 1), 0.5), f"has {D + 1} columns where the fleet has {D}", id="more columns"),
            pytest.param(np.full((30, D - 1), 0.5), f"has {D - 1} columns where the fleet has {D}", id="fewer columns"),
            pytest.param(np.full((30, D), 1.5), "outside the declared bounds", id="outside the declared bounds"),
        ],
    )
    def test_rows_that_cannot_take_part_abstain_by_name_in_every_round(self, X: NDArray[Any], reason: str) -> None:
        h = with_peer(Local(X, labels=np.arange(len(X)) % 2))
        assert h.end().status == "done"
        assert all(reason in record.abstained[1] for record in h.state.log)
        assert 1 not in h.workspaces.notes
        others_found(h)

    def test_rows_beyond_a_sigmoid_are_refused_without_a_value_of_theirs(self) -> None:
        h = with_peer(planted(KINDS)[1].local(), output="sigmoid").until("models")
        h.locals[1].X[5, 2] = 1.23456
        h.locals[1]._points = None
        told = h.answers([1])[1]
        assert isinstance(told, Abstain)
        assert told.reason.startswith("failed: rows beyond [0, 1]")
        assert "23" not in told.reason
        assert h.end().status == "done"
        others_found(h)

    def test_no_labels_where_they_are_to_be_given(self) -> None:
        h = with_peer(Local(planted(KINDS)[1].X))
        assert h.end().status == "done"
        assert any("this peer was given no labels" in record.abstained.get(1, "") for record in h.state.log)
        others_found(h)

    def test_fewer_rows_than_a_model_needs(self) -> None:
        few = planted(KINDS)[1]
        h = with_peer(Local(few.X[:9], labels=few.labels[:9]))
        assert h.end().status == "done"
        first = next(record for record in h.state.log if record.stage == 2)
        assert first.abstained[1].startswith("privacy gate: ")
        assert accuracy(few.truth[:9], h.labels(1)) > 0.9, "the groups serve it nonetheless"

    def test_nobody_has_enough(self) -> None:
        h = Hand(a_job(), [Local(planted(KINDS)[0].X[:5], labels=np.zeros(5, np.int64))] * 2)
        h.end()
        assert h.state.status == "failed"
        assert "no cluster has the " in h.state.reason
        assert "rows that a model needs (min_rows)" in h.state.reason

    @MODES
    def test_a_peer_alone(self, mode: str) -> None:
        h = hand([[0, 1, 2]], mode)
        assert h.end().status == "done"
        assert accuracy(planted([[0, 1, 2]])[0].truth, h.labels(0)) == 1.0

    def test_training_that_diverges_is_said_by_name(self) -> None:
        h = hand(KINDS, learning_rate=1e30)
        with np.errstate(all="ignore"):
            h.end()
        assert h.state.status == "failed"
        assert "lower the learning rate" in h.state.reason


# -- lies in contributions --------------------------------------------------------------------------------------------

Lie = Callable[[Contribution], Contribution]


def digests(n: int, value: int = 9) -> NDArray[np.uint8]:
    return np.full((n, DIGEST_BYTES), value, np.uint8)


LEFT_OUT: dict[str, tuple[str, str, Lie]] = {
    "no cluster": ("models", "refined", lambda p: Arrays(rows=np.empty(0, np.int64), models=digests(0))),
    "a cluster of no rows": ("models", "refined", lambda p: p.replace(rows=p["rows"] * 0)),
    "of less": ("models", "refined", lambda p: p.replace(rows=-p["rows"])),
    "of more than can be": ("models", "refined", lambda p: p.replace(rows=np.full(3, 2**62))),
    "models without rows": ("models", "refined", lambda p: p.replace(models=digests(7))),
    "too many": ("models", "refined", lambda p: Arrays(rows=np.full(257, 9), models=digests(257))),
    "verdicts of too few": ("verdicts", "refined", lambda p: p.replace(affinity=p["affinity"][:2])),
    "on an own model": ("verdicts", "refined", lambda p: p.replace(affinity=p["affinity"] * 0)),
    "bits on an own model": ("verdicts", "paper", lambda p: p.replace(passes=p["passes"] | 255)),
    "a group that is none": ("train", "refined", lambda p: Arrays(groups=np.array([99]), models=digests(1))),
    "a negative group": ("train", "refined", lambda p: Arrays(groups=np.array([-1]), models=digests(1))),
    "a group twice": ("train", "refined", lambda p: Arrays(groups=np.array([0, 0]), models=digests(2))),
    "groups without models": ("train", "refined", lambda p: p.replace(models=digests(0))),
    "the group of others": ("train", "refined", lambda p: Arrays(groups=np.arange(4), models=digests(4))),
    "more changed than there are": ("refine", "refined", lambda p: p.replace(changed=p["rows"] + 1)),
    "fewer than none": ("refine", "refined", lambda p: p.replace(changed=np.int64(-1))),
    "members below none": ("refine", "refined", lambda p: p.replace(members=-p["members"] - 1)),
    "more members than rows": ("refine", "refined", lambda p: p.replace(members=p["members"] + 10**6)),
    "rows beyond counting": ("refine", "refined", lambda p: p.replace(rows=np.int64(2**62), changed=np.int64(2**62))),
    "more alone than rows": ("refine", "refined", lambda p: p.replace(alone=p["rows"] + 1)),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("what", LEFT_OUT)
def test_a_lie_is_left_out_by_name_and_the_others_go_on(what: str) -> None:
    phase, mode, lie = LEFT_OUT[what]
    h = hand(KINDS, mode, dirt=0.15).until(phase)
    before = h.state
    answers = h.answers()
    told = answers[1]
    assert isinstance(told, Arrays)
    h.close({**answers, 1: lie(told)})
    lied = h.state
    assert lied.log[-1].abstained[1].startswith("failed: ")
    h.state = before
    h.close({peer: part for peer, part in answers.items() if peer != 1})
    assert lied.arrays == h.state.arrays, "as if it had not answered"
    h.state = lied
    assert h.end().status == "done"


def test_a_fleet_of_too_many_clusters_leaves_out_who_comes_last() -> None:
    h = hand([[0]] * 2).until("models")
    many = MOST_CLUSTERS // 256
    part = Arrays(rows=np.full(256, 20), models=digests(256))
    given = [(peer, part) for peer in range(many + 2)]
    left_out = h.protocol.problems_with_parts(h.state.arrays, given)
    assert sorted(left_out) == [many, many + 1]
    assert f"a fleet may have {MOST_CLUSTERS}" in left_out[many]


class TestHostilePeer:
    @MODES
    @pytest.mark.parametrize("data", [None, b"", b"short", b"\xff"], ids=["none", "empty", "short", "NaN"])
    def test_its_models_are_nobody_s_and_the_fleet_goes_on(self, mode: str, data: bytes | None) -> None:
        h = hand(KINDS, mode).until("models")
        h.round(liar=lambda peer, part: part.replace(models=digests(3, 7)) if peer == 1 else part)
        digest = bytes([7] * DIGEST_BYTES)
        if data is not None:
            h.workspaces.blobs[digest] = data * (1 if len(data) != 1 else 4 * 76)
        told = h.answers()
        for peer in (0, 2, 3):
            part = told[peer]
            assert isinstance(part, Arrays)
            if mode == "refined":
                assert (part["affinity"][:, 3:6] == affinity.NOTHING).all()
            else:
                assert not np.unpackbits(part["passes"], axis=1)[:, 3:6].any()
        h.close(told)
        h.round()
        assert set(h.agreed.association.isolated) >= {3, 4, 5}
        assert h.end().status == "done"
        others_found(h)

    def test_who_copies_the_digest_of_another_does_not_take_its_place(self) -> None:
        h = hand(KINDS).until("models")
        answers = h.answers()
        first, last = answers[0], answers[3]
        assert isinstance(first, Arrays)
        assert isinstance(last, Arrays)
        h.close({**answers, 3: last.replace(models=first["models"])})
        wanted = engine.wants(h.job, h.state, Workspace(1, h.workspaces.notes[1]), 4)
        owners = {fetch.digest: fetch.owners for fetch in wanted.fetches}
        assert owners[h.agreed.model(0)] == (0, 3)

    @pytest.mark.slow
    def test_a_model_of_a_group_that_cannot_be_had_serves_nobody(self) -> None:
        h = hand(KINDS, dirt=0.1).until("train")
        answers = h.answers()
        lies = {}
        for peer, part in answers.items():
            assert isinstance(part, Arrays)
            models = part["models"].copy()
            models[part["groups"] == 2] = 5
            lies[peer] = part.replace(models=models)
        h.close(lies)
        assert h.agreed.group_model(2) == b"\x05" * DIGEST_BYTES
        h.round()
        assert all((note["labels"] != 2).all() for note in h.workspaces.notes.values())
        assert h.end().status == "done"


# -- lies in states ---------------------------------------------------------------------------------------------------


WHOLE = (-1, 0, 1, 2, 3, 9, 2**31, 2**53, 2**62, 2**63 - 1, -(2**63))
FLOATS = (0.0, 1.0, -1.0, 1e300, -5e-324)


@st.composite
def odd(draw: st.DrawFn, array: NDArray[Any]) -> NDArray[Any]:
    """The array with another length, or some of its numbers changed."""
    if array.ndim and draw(st.booleans()):
        shape = list(array.shape)
        shape[draw(st.integers(0, array.ndim - 1))] = draw(st.integers(0, 7))
        array = np.resize(array if array.size else np.zeros(1, array.dtype), shape)
    changed = array.copy()
    values = WHOLE if array.dtype.kind == "i" else FLOATS if array.dtype.kind == "f" else (0, 1, 255)
    for _ in range(draw(st.integers(0, 2)) if array.size else 0):
        place = draw(st.integers(0, array.size - 1))
        changed.reshape(-1)[place] = np.array(draw(st.sampled_from(values))).astype(array.dtype)
    return changed


LOCALS = [peer.local() for peer in planted(KINDS, rows=6)]
CHEAP: dict[str, Any] = {"epochs": 1, "rounds": 1, "local_epochs": 1, "min_rows": 2}


@pytest.mark.slow
@MODES
def test_a_state_is_refused_or_can_be_worked_with(mode: str) -> None:
    """No other exception than this library's, whatever an aggregator opens; and what follows from it others can read."""
    start = Hand(a_job(mode, **CHEAP), LOCALS).until("models")
    seen = []
    while start.state.status == "running":
        seen.append((start.state, dict(start.workspaces.notes)))
        start.round()
    seen.append((start.state, dict(start.workspaces.notes)))
    outcomes: Counter[str] = Counter()

    @settings(max_examples=150)
    @given(st.data())
    def check(data: st.DataObject) -> None:
        state, notes = data.draw(st.sampled_from(seen))
        names = data.draw(st.lists(st.sampled_from(ARRAYS), min_size=1, max_size=3, unique=True))
        arrays = state.arrays.replace(**{name: data.draw(odd(state.arrays[name])) for name in names})
        h = Hand(start.job, start.locals)
        try:
            h.state = decode_state(h.job, replace(state, arrays=arrays).encode())
        except WireError:
            outcomes["refused"] += 1
            return
        outcomes[h.phase] += 1
        if h.state.status == "done":
            assert engine.results(h.job, h.state) is not None
            for peer in range(4):
                engine.conclude(h.job, h.state, h.locals[peer], Workspace(peer, notes[peer]))
            return
        answers = {}
        for peer in (0, 3):
            workspace = Workspace(peer, notes.get(peer, Arrays()))
            wanted = engine.wants(h.job, h.state, workspace, 4)
            assert all(run.job.protocols for run in wanted.runs)
            answers[peer] = h.answer(peer, workspace)
        with suppress(P2PClustError):  # it is said, and left to another aggregator
            h.close(answers)

    check()
    assert set(outcomes) == {"refused", *PHASES}, outcomes


@pytest.mark.slow
@pytest.mark.parametrize("phase", PHASES)
@MODES
def test_any_contributions_that_are_let_pass_make_a_state_that_others_can_read(phase: str, mode: str) -> None:
    """Or the job would stand still: nobody could work with what its own aggregator made."""
    start = Hand(a_job(mode, **CHEAP), LOCALS).until(phase)
    answers = start.answers()

    @settings(max_examples=25)
    @given(st.data())
    def check(data: st.DataObject) -> None:
        told = dict(answers)
        for peer in data.draw(st.lists(st.integers(0, 3), min_size=1, max_size=2, unique=True)):
            part = told[peer]
            assert isinstance(part, Arrays)
            told[peer] = Arrays({name: data.draw(odd(array)) for name, array in part.items()})
        h = Hand(start.job, start.locals)
        h.state = start.state
        h.close(told)  # it asserts that the state can be read

    check()


def test_no_phase_beyond_the_last() -> None:
    h = Hand(a_job(), LOCALS).until("models")
    for phase in (-1, len(PHASES), 2**40):
        data = replace(h.state, arrays=h.state.arrays.replace(cref_phase=np.int64(phase))).encode()
        with pytest.raises(WireError, match="there is no phase"):
            decode_state(h.job, data)
