from __future__ import annotations

import copy
import itertools
import pickle
import tracemalloc
from collections import Counter
from dataclasses import replace

import msgpack
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pclust.errors import WireError
from p2pclust.protocols.engine import engine
from p2pclust.protocols.engine.arrays import Arrays
from p2pclust.protocols.engine.compose import cluster_job
from p2pclust.protocols.engine.job import JobState, RoundRecord
from p2pclust.protocols.engine.local import Local
from p2pclust.protocols.engine.wire import ContributionReader, decode_state

ARRAYS = Arrays(
    centers=[[0.5, -0.0], [1e300, 5e-324]],
    counts=np.array([1, -(2**63)], dtype=np.int64),
    flag=np.True_,
    raw=np.arange(3, dtype=np.uint8),
    empty=np.zeros((0, 3)),
)
LOG = (RoundRecord(0, (0, 2), {1: "no data"}), RoundRecord(0, (), {0: "a", 1: "b"}), RoundRecord(1, (63, 4000)))
STATE = JobState(3, 1, 1, "running", "", False, 0, LOG, ARRAYS)

floats = st.floats(allow_nan=False, allow_infinity=False)
some_arrays = st.dictionaries(
    st.from_regex(r"[a-z][a-z0-9_]{0,8}", fullmatch=True),
    st.one_of(
        st.lists(floats, max_size=4).map(lambda v: np.array(v, dtype=np.float64)),
        st.integers(-(2**63), 2**63 - 1).map(np.int64),
        st.booleans().map(np.bool_),
        st.binary(max_size=9).map(lambda b: np.frombuffer(b, dtype=np.uint8)),
    ),
    max_size=4,
).map(Arrays)


def test_arrays_cannot_be_changed() -> None:
    given_ = np.zeros(3)
    arrays = Arrays(x=given_)
    given_[0] = 1.0
    assert arrays["x"][0] == 0.0
    with pytest.raises(ValueError, match="read-only"):
        arrays["x"][0] = 2.0
    with pytest.raises(ValueError, match="WRITEABLE"):
        arrays["x"].setflags(write=True)
    with pytest.raises(ValueError, match="read-only"):
        Arrays.decode(arrays.encode())["x"][0] = 2.0


def test_equality_is_by_bits() -> None:
    assert Arrays(x=0.0) != Arrays(x=-0.0)
    assert Arrays(x=[1.0]) != Arrays(x=1.0)
    assert Arrays(x=1) != Arrays(x=1.0)
    assert Arrays(x=1, y=2) != Arrays(y=2, x=1)
    assert Arrays(x=[1.0, 2.0]) == Arrays({"x": np.array([1.0, 2.0])})
    assert Arrays(x=1) != "x"


def test_replace_and_without() -> None:
    arrays = Arrays(a=1, b=2).replace(b=3.0, c=4)
    assert list(arrays) == ["a", "b", "c"]
    assert float(arrays["b"]) == 3.0
    assert list(arrays.without("a", "never")) == ["b", "c"]


@pytest.mark.parametrize(
    ("name", "value"), [("Upper", 1.0), ("", 1.0), ("x" * 60, 1.0), ("x", "text"), ("x", 1j), ("x", np.zeros((1,) * 5))]
)
def test_what_the_wire_does_not_carry_is_refused(name: str, value: object) -> None:
    with pytest.raises(ValueError, match="array"):
        Arrays({name: value})


@pytest.mark.slow
@given(some_arrays)
def test_arrays_come_back_with_the_same_bits(arrays: Arrays) -> None:
    assert Arrays.decode(arrays.encode()) == arrays


def test_a_state_comes_back_with_the_same_bits() -> None:
    back = JobState.decode(STATE.encode())
    assert back == STATE
    assert back.encode() == STATE.encode()
    assert back.log[2].contributors == (63, 4000)


def test_equal_states_give_equal_bytes_whatever_the_order_of_abstentions() -> None:
    one = RoundRecord(0, (), {2: "a", 1: "b"})
    two = RoundRecord(0, (), {1: "b", 2: "a"})
    assert one == two
    states = [JobState(1, 0, 1, "running", "", False, 1, (record,), ARRAYS) for record in (one, two)]
    assert states[0].encode() == states[1].encode()


@given(st.binary(max_size=200))
def test_arbitrary_bytes_only_raise_wire_errors(data: bytes) -> None:
    job = cluster_job("llf-cm", n_clusters=2)
    for decode in (
        JobState.decode,
        Arrays.decode,
        lambda d: ContributionReader(job, engine.begin(job), n_peers=3).read(d),
    ):
        with pytest.raises(WireError):
            decode(data)


plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | floats | st.text(max_size=5) | st.binary(max_size=9),
    lambda inner: st.lists(inner, max_size=10) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=20,
)


@pytest.mark.slow
@given(plain)
def test_arbitrary_msgpack_only_raises_wire_errors(value: object) -> None:
    data = msgpack.packb(value)
    with pytest.raises(WireError):
        JobState.decode(data)
    if value != []:
        with pytest.raises(WireError):
            Arrays.decode(data)


def test_a_state_with_one_changed_byte_is_refused_or_is_another_state() -> None:
    good, outcomes = STATE.encode(), Counter[str]()

    @given(st.integers(0, len(good) - 1), st.integers(1, 255))
    def check(position: int, flip: int) -> None:
        changed = good[:position] + bytes([good[position] ^ flip]) + good[position + 1 :]
        try:
            state = JobState.decode(changed)
        except WireError:
            outcomes["refused"] += 1
            return
        outcomes["another state"] += 1
        assert state.encode() == changed
        assert state != STATE

    check()
    assert min(outcomes["refused"], outcomes["another state"]) > 0, outcomes


@given(st.integers(0, 2**16))
def test_a_truncated_state_is_refused(cut: int) -> None:
    good = STATE.encode()
    with pytest.raises(WireError):
        JobState.decode(good[: cut % len(good)])


def _longer(data: bytes, short: bytes, long: bytes) -> bytes:
    assert data.count(short) >= 1
    return data.replace(short, long, 1)


@pytest.mark.parametrize(
    ("short", "long"),
    [
        (b"\x9a\x01\x03", b"\x9a\x01\xcc\x03"),  # the round as two bytes
        (b"\x9a", b"\xdc\x00\x0a"),  # the list with a long header
        (b"\xa7running", b"\xd9\x07running"),  # text with a long header
        (b"\xa7centers", b"\xd9\x07centers"),
        (b"\xa2f8\x92\x02", b"\xa2f8\x92\xd0\x02"),  # a length as a signed byte
        (b"\xc4\x03\x00\x01\x02", b"\xc5\x00\x03\x00\x01\x02"),  # bytes with a long header
    ],
)
def test_another_way_to_write_the_same_state_is_refused(short: bytes, long: bytes) -> None:
    changed = _longer(STATE.encode(), short, long)
    with pytest.raises(WireError, match="canonical"):
        JobState.decode(changed)


def test_another_way_to_write_the_same_log_is_refused() -> None:
    log = b"".join(record.packed for record in LOG)
    for short, long in ((b"\x93\x00", b"\x93\xcc\x00"), (b"\xc4\x01\x05", b"\xc4\x02\x05\x00")):
        with pytest.raises(WireError, match="canonical"):
            JobState.decode(_state_with(log=_longer(log, short, long)))


def test_a_log_that_was_read_before_is_still_checked_against_round_and_stage() -> None:
    assert JobState.decode(STATE.encode()) == STATE
    with pytest.raises(WireError, match="its round and stage"):
        JobState.decode(replace(STATE, stage=0).encode())  # the last record is of stage 1
    with pytest.raises(WireError, match="its round and stage"):
        JobState.decode(replace(STATE, round=2).encode())


def _state_with(**fields: object) -> bytes:
    names = [
        "version",
        "round",
        "stage",
        "stage_round",
        "status",
        "reason",
        "converged",
        "empty_rounds",
        "log",
        "arrays",
    ]
    values = dict(zip(names, msgpack.unpackb(STATE.encode()), strict=True)) | fields
    return bytes(msgpack.packb(list(values.values()), use_bin_type=True))


@pytest.mark.parametrize(
    "fields",
    [
        {"version": 2},
        {"version": True},
        {"version": 1.0},
        {"round": -1},
        {"round": 4},
        {"round": True},
        {"stage": 0},
        {"stage": 64},
        {"status": "paused"},
        {"status": ["running"]},
        {"converged": 1},
        {"reason": "x" * 1001},
        {"log": b"\xc1"},
        {"log": b""},
        {"log": msgpack.packb([0, b"\x00", []]) * 3},
        {"log": msgpack.packb([0, b"", [1]]) * 3},
        {"log": msgpack.packb([0, b"", [2, "b", 1, "a"]]) * 3},
        {"log": msgpack.packb([0, b"", [9999, "b"]]) * 3},
        {"arrays": {}},
        {"arrays": [["x", "f8", [1], np.array([np.nan]).tobytes()]]},
        {"arrays": [["x", "f8", [1], np.array([np.inf]).tobytes()]]},
        {"arrays": [["x", "f8", [2], b"\0" * 8]]},
        {"arrays": [["x", "f8", [-1], b""]]},
        {"arrays": [["x", "f8", [0, 2**40], b""]]},
        {"arrays": [["x", "f8", [2**63, 2**63], b""]]},
        {"arrays": [["x", "b1", [1], b"\x02"]]},
        {"arrays": [["x", "O", [1], b"\0" * 8]]},
        {"arrays": [["X", "u1", [1], b"\0"]]},
        {"arrays": [["x", "u1", [1], b"\0"], ["x", "u1", [1], b"\0"]]},
        {"arrays": [["x", "u1", [1, 1, 1, 1, 1], b"\0"]]},
    ],
)
def test_a_malformed_field_is_refused(fields: dict[str, object]) -> None:
    assert JobState.decode(_state_with()) == STATE
    with pytest.raises(WireError):
        JobState.decode(_state_with(**fields))


def test_the_same_value_in_other_bytes_is_refused() -> None:
    packed = msgpack.unpackb(STATE.encode())
    long_form = b"\x9a" + b"".join(
        b"\xcd\x00\x03" if position == 1 else msgpack.packb(value) for position, value in enumerate(packed)
    )
    with pytest.raises(WireError, match="canonical"):
        JobState.decode(long_form)


@pytest.mark.parametrize(
    "bomb",
    [
        b"\xdd\x7f\xff\xff\xff",
        b"\xdd\x00\x0f\xff\xff" * 2000 + b"\x00" * 2**20,
        b"\xdf\x7f\xff\xff\xff",
        b"\xc6\xff\xff\xff\xff",
        b"\xdb\xff\xff\xff\xff",
        b"\x91" * 10**5,
        b"\xc9\xff\xff\xff\xff\x01",
    ],
)
def test_a_declared_size_allocates_nothing(bomb: bytes) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(WireError):
            JobState.decode(bomb)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2**20 + 2 * len(bomb)


@pytest.mark.slow
def test_a_log_bomb_allocates_little() -> None:
    bomb = _state_with(log=b"\xdd\x00\x00\x1f\xff" * 500)
    tracemalloc.start()
    try:
        with pytest.raises(WireError):
            JobState.decode(bomb)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2**26


JOB = cluster_job("llf-cm", n_clusters=2, bounds=([0.0], [9.0]), init=[[0.0], [9.0]])
OPENED = engine.begin(JOB)
GOOD = engine.contribution(JOB, OPENED, Local([[0.0], [1.0], [9.0]]), 1, 3)
REORDERED = Arrays({name: GOOD[name] for name in reversed(list(GOOD))})


def _received(arrays: Arrays, *, summed: int = 1) -> Arrays:
    return ContributionReader(JOB, OPENED, n_peers=3).read(arrays.encode(), summed=summed)


def test_a_contribution_comes_back_with_the_same_bits() -> None:
    assert _received(GOOD) == GOOD
    assert GOOD["sums"].dtype == np.int64
    assert GOOD["sums"].shape == (2, 2, 1)


@pytest.mark.parametrize(
    "changed",
    [
        Arrays(),
        GOOD.without("rows"),
        GOOD.replace(extra=1),
        REORDERED,
        GOOD.replace(counts=np.zeros((2, 2))),
        GOOD.replace(counts=np.zeros((3, 2), dtype=np.int64)),
        GOOD.replace(counts=np.zeros((2, 3), dtype=np.int64)),
        GOOD.replace(rows=np.array([2**62, 0])),
        GOOD.replace(rows=np.array([0, 2**49])),
    ],
)
def test_a_contribution_that_the_stage_does_not_expect_is_refused(changed: Arrays) -> None:
    with pytest.raises(WireError, match="contribution"):
        _received(changed)


CLUSTERING = engine.advance(JOB, OPENED, [(1, GOOD)], {}, n_peers=3)
SEEDING = engine.begin(cluster_job("llf-cm", n_clusters=2, bounds=([0.0], [9.0])))


def test_a_state_of_the_job_is_accepted() -> None:
    for state in (OPENED, CLUSTERING):
        assert decode_state(JOB, state.encode()) == state
    ranges = cluster_job("llf-cm", n_clusters=2)
    assert decode_state(ranges, engine.begin(ranges).encode()) == engine.begin(ranges)


@pytest.mark.parametrize(
    "state",
    [
        replace(CLUSTERING, stage=5),
        replace(CLUSTERING, stage=2),
        replace(CLUSTERING, arrays=Arrays()),
        replace(CLUSTERING, arrays=CLUSTERING.arrays.without("shifts")),
        replace(CLUSTERING, arrays=CLUSTERING.arrays.replace(extra=1)),
        replace(CLUSTERING, arrays=CLUSTERING.arrays.replace(centers=[[1.0]])),
        replace(CLUSTERING, arrays=CLUSTERING.arrays.replace(centers=[[1.0, 2.0], [3.0, 4.0]])),
        replace(CLUSTERING, arrays=CLUSTERING.arrays.replace(centers=[[1], [2]])),
        replace(CLUSTERING, arrays=CLUSTERING.arrays.replace(scale=[0.0])),
        replace(CLUSTERING, arrays=CLUSTERING.arrays.replace(unit=[3.0])),
        replace(CLUSTERING, arrays=CLUSTERING.arrays.replace(lo=[10.0])),
        replace(SEEDING, arrays=SEEDING.arrays.replace(**dict.fromkeys(("lo", "hi", "origin"), np.empty(0)))),
        replace(SEEDING, arrays=SEEDING.arrays.without("unit")),
    ],
)
def test_a_state_that_the_job_cannot_have_is_refused(state: JobState) -> None:
    with pytest.raises(WireError, match="job state"):
        decode_state(JOB, state.encode())


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_no_state(data: bytes) -> None:
    with pytest.raises(WireError):
        decode_state(JOB, data)


def test_a_sum_of_several_contributions_may_be_larger() -> None:
    large = GOOD.replace(rows=np.array([0, 2**48 + 2]))
    with pytest.raises(WireError, match="grid"):
        _received(large)
    assert _received(large, summed=2) == large


ROUNDS = cluster_job("llf-fcm", n_clusters=2, bounds=([0.0], [9.0]), init=[[0.0], [9.0]], tol=0.0, privacy_gate=False)


def _rounds(number: int) -> list[JobState]:
    """The states of a job in which three peers contribute to each round."""
    locals_, states = [Local([[0.0], [1.0], [5.0 + peer]]) for peer in range(3)], [engine.begin(ROUNDS)]
    for _ in range(number):
        given = [(peer, engine.contribution(ROUNDS, states[-1], local, peer, 3)) for peer, local in enumerate(locals_)]
        states.append(engine.advance(ROUNDS, states[-1], given, {}, n_peers=3))
    return states


def test_a_state_is_read_after_the_one_before_as_it_is_by_itself() -> None:
    states = _rounds(5)
    for before, state in itertools.pairwise(states):
        assert decode_state(ROUNDS, state.encode(), before) == state
    straight = states[3].following(states[4].encode(), fixed=frozenset(("unit",)))
    assert straight == states[4]
    assert straight.arrays["unit"] is states[3].arrays["unit"]
    assert straight.arrays["centers"] is not states[3].arrays["centers"]
    other = replace(states[4], log=(*states[3].log, RoundRecord(states[3].stage, (0, 2), {1: "no data"})))
    for after in (other, replace(states[4], arrays=states[4].arrays.replace(unit=[2.0])), states[5]):
        assert states[3].following(after.encode(), fixed=frozenset(("unit",))) is None
        assert decode_state(ROUNDS, after.encode(), states[3]) == after


def test_no_changed_byte_is_accepted_only_because_the_state_before_is_known() -> None:
    before, state = _rounds(4)[-2:]
    good, outcomes = state.encode(), Counter[str]()
    for position, value in enumerate(good):
        for flip in (0x01, 0x80, 0xFF):
            changed = good[:position] + bytes([value ^ flip]) + good[position + 1 :]
            found = []
            for known in (None, before):
                try:
                    found.append(decode_state(ROUNDS, changed, known))
                except WireError:
                    found.append(None)
            assert found[0] == found[1], position
            outcomes["refused" if found[0] is None else "another state"] += 1
    assert min(outcomes["refused"], outcomes["another state"]) > 0, outcomes


@pytest.mark.parametrize("change", [b"", b"\0", b"\xc0"])
def test_bytes_behind_a_state_are_refused(change: bytes) -> None:
    before, state = _rounds(4)[-2:]
    data = state.encode() + change if change else state.encode()[:-1]
    with pytest.raises(WireError):
        decode_state(ROUNDS, data, before)


def test_no_method_of_a_dict_changes_arrays() -> None:
    arrays = Arrays(x=[1.0], y=2)
    for change in (
        lambda: arrays.__setitem__("x", np.zeros(1)), lambda: arrays.__delitem__("x"), lambda: arrays.pop("x"),
        lambda: arrays.update(x=np.zeros(1)), arrays.clear, arrays.popitem, lambda: arrays.setdefault("z", np.zeros(1)),
    ):  # fmt: skip
        with pytest.raises(TypeError, match="cannot be changed"):
            change()
    assert list(arrays) == ["x", "y"]
    assert copy.deepcopy(arrays) == arrays
    assert pickle.loads(pickle.dumps(arrays)) == arrays
