"""FedAvg of one autoencoder: hand-computed rounds, what each peer trains on, and lies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from communities import D, Hand
from hypothesis import example, given, settings
from hypothesis import strategies as st

from p2pclust.clustering.autoencoders import (
    Architecture,
    ModelStack,
    decode_weights,
    encode_weights,
    encoded_size,
    federated_average,
)
from p2pclust.clustering.stacks import train
from p2pclust.errors import UsageError, WireError
from p2pclust.protocols.engine import engine, random_streams
from p2pclust.protocols.engine.arrays import Arrays, Contribution
from p2pclust.protocols.engine.base import Abstain
from p2pclust.protocols.engine.job import Job, Stage
from p2pclust.protocols.engine.local import Local
from p2pclust.protocols.engine.wire import ContributionReader, decode_state
from p2pclust.protocols.engine.workspace import Fetch, digest_of
from p2pclust.protocols.models.fedavg import FedAvgProtocol

pytest.importorskip("torch", reason="autoencoders need torch: pip install 'p2pclust[models]'")

SHAPE = Architecture(D, (3,), "linear")
SEED = 4


def fedavg(clusters: Sequence[Sequence[int]], **options: Any) -> Job:
    given = {"hidden": [3], "output": "linear", "rounds": 1, "epochs": 2, "batch": 4, "learning_rate": 0.01, **options}
    return Job((Stage("fedavg", {"n_features": D, "clusters": [list(own) for own in clusters], **given}),), SEED)


def rows(n: int, seed: int = 0) -> np.ndarray[Any, Any]:
    return np.random.default_rng([seed, n]).random((n, D))


def note(labels: Sequence[int]) -> Arrays:
    return Arrays(labels=np.array(labels, np.int64), origin=np.zeros(D), scale=np.ones(D))


def at_work(job: Job, *peers: tuple[np.ndarray[Any, Any], Sequence[int]]) -> Hand:
    """The job over peers with these rows and the labels in their notes."""
    h = Hand(job, [Local(X) for X, _ in peers])
    h.workspaces.notes = {number: note(labels) for number, (_, labels) in enumerate(peers)}
    return h


def trained(first: ModelStack, X: np.ndarray[Any, Any], peer: int, round_: int, epochs: int = 2) -> ModelStack:
    stream = random_streams.peer_round(SEED, peer, round_)
    return train(first, [X], rngs=[stream], epochs=epochs, batch=4, learning_rate=0.01)


def first_model(h: Hand) -> ModelStack:
    return ModelStack.random(SHAPE, [random_streams.aggregating(int(h.state.arrays["stream"]), 0)])


def weights(h: Hand, encoding: Any = "float32") -> np.ndarray[Any, Any]:
    return decode_weights(h.state.arrays["weights"].tobytes(), SHAPE.n_parameters, encoding)


class TestRounds:
    def test_of_one_peer_it_is_plain_training_with_adam_anew_in_every_round(self) -> None:
        h = at_work(fedavg([[0]], rounds=3), (rows(10), [0] * 10))
        model = first_model(h)
        for number in range(3):
            h.round()
            model = trained(model, rows(10), 0, number)
            assert weights(h).tobytes() == model.weights[0].tobytes()
        assert (h.state.status, h.state.converged, h.state.round) == ("done", True, 3)

    def test_of_several_it_is_their_mean_by_rows(self) -> None:
        h = at_work(fedavg([[0], [0]], rounds=2), (rows(10), [0] * 10), (rows(30), [0] * 30))
        model = first_model(h)
        for number in range(2):
            h.round()
            each = [
                trained(model, rows(n), peer, number).weights[0].astype(np.float64) for peer, n in enumerate((10, 30))
            ]
            mean = (each[0] * 10 + each[1] * 30) / 40
            np.testing.assert_allclose(weights(h), mean, rtol=1e-6)
            model = ModelStack(SHAPE, weights(h)[np.newaxis])

    @pytest.mark.parametrize("encoding", ["float16", "int8"])
    def test_what_a_short_encoding_loses_is_lost_everywhere(self, encoding: Any) -> None:
        h = at_work(fedavg([[0], [0]], encoding=encoding), (rows(10), [0] * 10), (rows(12), [0] * 12))
        h.round()
        first, sent = first_model(at_work(h.job, (rows(10), [0] * 10))), []
        for peer, n in enumerate((10, 12)):
            data = trained(first, rows(n), peer, 0).encode(encoding)[0]
            assert len(data) == encoded_size(SHAPE.n_parameters, encoding)
            sent.append(decode_weights(data, SHAPE.n_parameters, encoding))
        mean = federated_average(np.stack(sent), [10, 12])
        assert h.state.arrays["weights"].tobytes() == encode_weights(mean, encoding)

    def test_who_is_away_has_no_say(self) -> None:
        both = at_work(fedavg([[0], [0]]), (rows(10), [0] * 10), (rows(30), [0] * 30))
        both.round([1])
        np.testing.assert_array_equal(weights(both), trained(first_model(both), rows(30), 1, 0).weights[0])


class TestRows:
    def test_the_note_says_which(self) -> None:
        X, labels = rows(12), [0, 1, 2, 1] * 3
        h = at_work(fedavg([[1, 2]]), (X, labels))
        (told,) = h.answers().values()
        assert isinstance(told, Arrays)
        assert int(told["rows"]) == 9
        wanted = trained(first_model(h), X[np.isin(labels, [1, 2])], 0, 0)
        assert told["weights"].tobytes() == wanted.encode()[0], "several clusters are one set of rows"

    def test_in_working_coordinates(self) -> None:
        X = 10 * rows(8) + 5
        h = at_work(fedavg([[0]]), (X, [0] * 8))
        h.workspaces.notes[0] = note([0] * 8).replace(origin=np.full(D, 5.0), scale=np.full(D, 10.0))
        (told,) = h.answers().values()
        assert isinstance(told, Arrays)
        assert told["weights"].tobytes() == trained(first_model(h), (X - 5) / 10, 0, 0).encode()[0]

    @pytest.mark.parametrize(
        "labels", [None, [1] * 8, [0] * 7], ids=["no note", "none of its rows", "a note of other rows"]
    )
    def test_without_any_it_abstains(self, labels: list[int] | None) -> None:
        h = at_work(fedavg([[0]]), (rows(8), [0] * 8))
        h.workspaces.notes = {} if labels is None else {0: note(labels)}
        (told,) = h.answers().values()
        assert isinstance(told, Abstain)
        assert told.reason == "no rows in this community"

    def test_beyond_a_sigmoid_it_abstains_and_tells_no_value(self) -> None:
        X = rows(8)
        X[2, 3] = 1.234567
        h = at_work(fedavg([[0]], output="sigmoid"), (X, [0] * 8))
        (told,) = h.answers().values()
        assert isinstance(told, Abstain)
        assert told.reason.startswith("failed: rows beyond [0, 1]")
        assert "23" not in told.reason

    def test_rounding_of_the_working_coordinates_is_not_beyond(self) -> None:
        X = rows(8)
        X[2, 3] = 1.0 + 2e-16
        h = at_work(fedavg([[0]], output="sigmoid"), (X, [0] * 8))
        assert isinstance(h.answers()[0], Arrays)


class TestStart:
    BEFORE = encode_weights(np.linspace(-1, 1, SHAPE.n_parameters))

    def test_from_a_model_that_somebody_has(self) -> None:
        h = at_work(fedavg([[0]], start=digest_of(self.BEFORE).hex()), (rows(8), [0] * 8))
        h.workspaces.blobs[digest_of(self.BEFORE)] = self.BEFORE
        wanted = engine.wants(h.job, h.state, h.prepared()[0], 1)
        assert wanted.fetches == (Fetch(digest_of(self.BEFORE), len(self.BEFORE), (0,)),)
        h.round()
        first = ModelStack.decode(SHAPE, [self.BEFORE], "float32")
        assert weights(h).tobytes() == trained(first, rows(8), 0, 0).weights[0].tobytes()

    def test_only_the_first_round_needs_it(self) -> None:
        h = at_work(fedavg([[0]], start=digest_of(self.BEFORE).hex(), rounds=2), (rows(8), [0] * 8))
        h.workspaces.blobs[digest_of(self.BEFORE)] = self.BEFORE
        h.round()
        assert engine.wants(h.job, h.state, h.prepared()[0], 1).fetches == ()
        h.workspaces.blobs.clear()
        assert h.round().status == "done"

    @pytest.mark.parametrize(
        "data", [None, b"", b"short", b"\xff" * len(BEFORE)], ids=["gone", "empty", "short", "NaN"]
    )
    def test_who_cannot_have_it_abstains(self, data: bytes | None) -> None:
        h = at_work(fedavg([[0]], start=digest_of(self.BEFORE).hex()), (rows(8), [0] * 8))
        if data is not None:
            h.workspaces.blobs[digest_of(self.BEFORE)] = data
        (told,) = h.answers().values()
        assert isinstance(told, Abstain)
        assert told.reason.startswith("failed: ")

    def test_nobody_has_it(self) -> None:
        h = at_work(fedavg([[0]], start=digest_of(self.BEFORE).hex()), (rows(8), [0] * 8))
        assert h.end().status == "failed"
        assert "the model to start from could not be had" in h.state.reason


def lies(part: Contribution) -> dict[str, Contribution]:
    infinite = np.full(SHAPE.n_parameters, np.inf, np.float32).view(np.uint8)
    return {
        "no rows": part.replace(rows=np.int64(0)),
        "less than none": part.replace(rows=np.int64(-5)),
        "more than can be": part.replace(rows=np.int64(2**63 - 1)),
        "infinite": part.replace(weights=infinite),
        "NaN": part.replace(weights=np.full(4 * SHAPE.n_parameters, 255, np.uint8)),
    }


@pytest.mark.parametrize("lie", ["no rows", "less than none", "more than can be", "infinite", "NaN"])
def test_a_lie_is_left_out_by_name_and_nobody_else_is_stopped(lie: str) -> None:
    peers = [(rows(10 + peer), [0] * (10 + peer)) for peer in range(3)]
    h, honest = at_work(fedavg([[0]] * 3), *peers), at_work(fedavg([[0]] * 3), *peers)
    h.round(liar=lambda peer, part: lies(part)[lie] if peer == 1 else part)
    honest.round([0, 2])
    assert h.state.log[-1].abstained[1].startswith("failed: ")
    assert h.state.arrays == honest.state.arrays


def test_a_model_of_another_size_is_malformed() -> None:
    h = at_work(fedavg([[0]]), (rows(8), [0] * 8))
    (told,) = h.answers().values()
    assert isinstance(told, Arrays)
    for wrong in (told["weights"][:-1], np.empty(0, np.uint8), np.zeros((2, 2), np.uint8)):
        with pytest.raises(WireError, match="weights"):
            ContributionReader(h.job, h.state, n_peers=1).read(told.replace(weights=wrong).encode())


@example([(3.4028234663852886e38, 1), (3.4028234663852886e38, 2**53)])
@example([(1e-45, 1)])
@settings(max_examples=30)
@given(
    st.lists(st.tuples(st.floats(width=32, allow_nan=False, allow_infinity=False), st.integers(1, 2**53)), max_size=4)
)
def test_any_models_that_are_let_pass_have_a_mean_that_others_can_read(told: list[tuple[float, int]]) -> None:
    for encoding in ("float32", "float16", "int8"):
        job = fedavg([[0]] * 4, encoding=encoding)
        state, given_ = engine.begin(job), []
        for peer, (value, n) in enumerate(told):
            values = np.resize(np.array([value, -value, 0.5], np.float32), SHAPE.n_parameters)
            if encoding == "float16":
                values = np.clip(values, -65504, 65504)
            weights_ = np.frombuffer(encode_weights(values, encoding), np.uint8)  # type: ignore[arg-type]
            given_.append((peer, Arrays(weights=weights_, rows=np.int64(n))))
        after = engine.advance(job, state, given_, {}, n_peers=4)
        assert decode_state(job, after.encode()) == after


class TestStates:
    def state(self, weights_: np.ndarray[Any, Any], **changes: Any) -> bytes:
        h = at_work(fedavg([[0]]), (rows(8), [0] * 8))
        return replace(h.state, arrays=h.state.arrays.replace(weights=weights_), **changes).encode()

    def test_what_others_cannot_work_with_is_refused(self) -> None:
        job, size = fedavg([[0]]), 4 * SHAPE.n_parameters
        for data in (np.zeros(size - 1, np.uint8), np.zeros(3, np.uint8), np.full(size, 255, np.uint8)):
            with pytest.raises(WireError, match="fedavg: "):
                decode_state(job, self.state(data))
        with pytest.raises(WireError, match="ended without a model"):
            decode_state(job, self.state(np.empty(0, np.uint8), status="done"))
        decode_state(job, self.state(np.empty(0, np.uint8)))
        decode_state(job, self.state(np.zeros(size, np.uint8), status="done"))


@pytest.mark.parametrize(
    ("wrong", "line"),
    [
        ({"clusters": 3}, "clusters: expected a list of labels for each peer"),
        ({"clusters": [3]}, "clusters: expected a list"),
        ({"clusters": [[-1]]}, "clusters = -1"),
        ({"clusters": [["a"]]}, "clusters = 'a'"),
        ({"hidden": []}, "hidden: expected 1 to 32"),
        ({"hidden": [0]}, "hidden = 0"),
        ({"hidden": 5}, "hidden: expected"),
        ({"hidden": [2] * 33}, "hidden: expected 1 to 32"),
        ({"output": "tanh"}, "output"),
        ({"n_features": 0}, "n_features = 0"),
        ({"rounds": 0}, "rounds = 0"),
        ({"epochs": 0}, "epochs = 0"),
        ({"batch": 0}, "batch = 0"),
        ({"learning_rate": 0.0}, "learning_rate = 0"),
        ({"learning_rate": float("nan")}, "learning_rate"),
        ({"encoding": "float64"}, "encoding"),
        ({"start": "abc"}, "start: expected a digest"),
        ({"start": "z" * 64}, "start: expected a digest"),
        ({"start": 7}, "start: expected a digest"),
    ],
)
def test_parameters_out_of_range(wrong: dict[str, Any], line: str) -> None:
    with pytest.raises(UsageError, match="fedavg") as caught:
        FedAvgProtocol(**{"n_features": D, "clusters": [[0]], **wrong})
    assert line in str(caught.value)
    assert "\n" not in str(caught.value)
