"""The codec of messages: what is encoded comes back, and hostile bytes raise `WireError` and nothing else."""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import Any, get_args, get_origin, get_type_hints

import msgpack
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from p2pclust.errors import WireError
from p2pclust.peer.core import job_messages, messages
from p2pclust.peer.core.codec import KINDS, decode, encode
from p2pclust.peer.core.job_messages import Heartbeat
from p2pclust.peer.core.messages import Message, Update
from p2pclust.transport.wire import MAX_FRAME_BYTES, MAX_FRAMES, MAX_HEADER_BYTES, WIRE_VERSION

printables = st.characters(exclude_categories=("C", "Z"), include_characters=" ")
names = st.text(printables, min_size=1, max_size=64)
texts = st.text(printables, max_size=80)
counts = st.integers(-1, 2**40)
digests = st.one_of(st.just(b""), st.binary(min_size=32, max_size=32))
updates = st.builds(Update, names, names, counts, texts, texts, texts)
_SIMPLE: dict[Any, st.SearchStrategy[Any]] = {
    int: counts, messages.OptionalInt: counts, bool: st.booleans(), str: texts, bytes: st.binary(max_size=64),
    messages.Name: names, messages.Digest: digests, Update: updates, messages.Frame: st.binary(max_size=100),
    messages.SignedBytes: st.binary(max_size=300),
    messages.Signature: st.one_of(st.just(b""), st.binary(min_size=64, max_size=64)),
}  # fmt: skip


def _values(hint: Any) -> st.SearchStrategy[Any]:
    if get_origin(hint) is tuple:
        most = MAX_FRAMES if get_args(hint)[0] is messages.Frame else 5
        return st.lists(_SIMPLE[get_args(hint)[0]], max_size=most).map(tuple)
    return _SIMPLE[hint]


def _messages(cls: type[Message]) -> st.SearchStrategy[Message]:
    hints = get_type_hints(cls, include_extras=True)
    return st.builds(cls, **{field.name: _values(hints[field.name]) for field in dataclasses.fields(cls)})


anything = st.one_of(*(_messages(cls) for cls in KINDS.values()))


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_every_kind_survives_the_round_trip(kind: str) -> None:
    @settings(max_examples=25, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
    @given(_messages(KINDS[kind]))
    def survives(message: Message) -> None:
        parts = encode(message)
        assert decode(parts) == message
        assert encode(decode(parts)) == parts

    survives()


@pytest.mark.slow
@settings(max_examples=500, deadline=None, derandomize=True, database=None)
@given(st.lists(st.binary(max_size=300), max_size=10))
def test_arbitrary_bytes_raise_only_the_wire_error(parts: list[bytes]) -> None:
    with pytest.raises(WireError):
        decode(parts)


def refused_or_well_formed(parts: list[bytes], sent: Message) -> str:
    """Decode what came of a message; return what became of it."""
    try:
        changed = decode(parts)
    except WireError:
        return "refused"
    assert decode(encode(changed)) == changed  # what passes the check is a message like any other
    return "as it was" if changed == sent else "another message"


@pytest.mark.slow
def test_a_mutated_message_is_refused_or_well_formed() -> None:
    outcomes: Counter[str] = Counter()

    @settings(max_examples=600, deadline=None, derandomize=True, database=None)
    @given(anything, st.data())
    def check(message: Message, data: st.DataObject) -> None:
        parts = [bytearray(part) for part in encode(message)]
        for _ in range(data.draw(st.integers(1, 4))):
            part = data.draw(st.sampled_from(parts))
            where = data.draw(st.integers(0, len(part)))
            match data.draw(st.sampled_from(["set", "cut", "insert", "repeat"])):
                case "set" if where < len(part):
                    part[where] = data.draw(st.integers(0, 255))
                case "cut":
                    del part[where:]
                case "insert":
                    part[where:where] = data.draw(st.binary(max_size=8))
                case "repeat":
                    part += part[where:]
        outcomes[refused_or_well_formed([bytes(part) for part in parts], message)] += 1

    check()
    assert min(outcomes["refused"], outcomes["another message"]) > 0, outcomes


plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=5)
    | st.binary(max_size=40),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)


@pytest.mark.slow
def test_a_wrong_value_in_one_field_is_refused_or_well_formed() -> None:
    outcomes: Counter[str] = Counter()

    @settings(max_examples=600, deadline=None, derandomize=True, database=None)
    @given(anything, st.data())
    def check(message: Message, data: st.DataObject) -> None:
        header, *frames = encode(message)
        version, kind, fields = msgpack.unpackb(header)
        if fields:
            fields[data.draw(st.sampled_from(sorted(fields)))] = data.draw(plain)
        outcomes[refused_or_well_formed([bytes(msgpack.packb([version, kind, fields])), *frames], message)] += 1

    check()
    assert min(outcomes["refused"], outcomes["another message"]) > 0, outcomes


def _header(version: Any = WIRE_VERSION, kind: Any = "heartbeat", **fields: Any) -> list[bytes]:
    return [bytes(msgpack.packb([version, kind, fields]))]


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        pytest.param([], "0 frames", id="nothing"),
        pytest.param([b""] * (MAX_FRAMES + 2), "10 frames", id="too-many-frames"),
        pytest.param([bytes(MAX_HEADER_BYTES + 1)], "header of", id="long-header"),
        pytest.param([*_header(job="j", term=1, round=0), bytes(MAX_FRAME_BYTES + 1)], "frame of", id="long-frame"),
        pytest.param(_header(job="j", term=1), "field round is missing", id="one-field-less"),
        pytest.param(_header(job="j", term=1, rounds=0), "field round is missing", id="another-field"),
        pytest.param(_header(WIRE_VERSION + 1, job="j", term=1, round=0), "wire version", id="version"),
        pytest.param(_header(True, job="j", term=1, round=0), "wire version", id="version-is-true"),
        pytest.param(_header(kind="frobnicate"), "unknown kind", id="kind"),
        pytest.param(_header(kind=b"heartbeat"), "header is not", id="kind-is-bytes"),
        pytest.param(_header(job="", term=1, round=0), "expected a name", id="empty-name"),
        pytest.param(_header(job="j" * 65, term=1, round=0), "expected a name", id="long-name"),
        pytest.param(_header(job=b"j", term=1, round=0), "expected a name", id="name-is-bytes"),
        pytest.param(_header(job="j", term=True, round=0), "expected an integer", id="true-is-no-integer"),
        pytest.param(_header(job="j", term=1.0, round=0), "expected an integer", id="float-is-no-integer"),
        pytest.param(_header(job="j", term=-2, round=0), "expected an integer", id="below"),
        pytest.param(_header(job="j", term=2**63, round=0), "expected an integer", id="above"),
        pytest.param([*_header(job="j", term=1, round=0), b""], "1 frames, expected none", id="frame-not-expected"),
        pytest.param(_header(kind="gossip", updates="text"), "expected a list", id="text-is-no-list"),
        pytest.param(_header(kind="gossip", updates=[["p", "alive", 1]]), "member update", id="short-update"),
        pytest.param(
            _header(kind="gossip", updates=[["p", "alive", 1, "", "", "", ""]]), "member update", id="long-update"
        ),
        pytest.param(_header(kind="blob-request", digest=b"", index=2), "size_bytes is missing", id="no-default"),
        pytest.param(_header(kind="blob-missing", digest=bytes(31)), "expected a digest", id="digest-length"),
        pytest.param(_header(kind="ack", seq=1, reached=1, updates=[]), "true or false", id="one-is-not-true"),
        pytest.param([b"\x91" * 40_000], "not msgpack", id="deep-nest"),
        pytest.param([b"\xdd\x7f\xff\xff\xff"], "not msgpack", id="claims-two-billion-items"),
        pytest.param([b"\xc7\x00\xff"], "not msgpack|header is not", id="empty-timestamp"),
        pytest.param([bytes(msgpack.packb([WIRE_VERSION, "gossip", {}])) + b"\x00"], "not msgpack", id="trailing-byte"),
    ],
)
def test_what_is_odd_is_refused_with_its_reason(parts: list[bytes], reason: str) -> None:
    with pytest.raises(WireError, match=reason):
        decode(parts)


def test_a_field_that_is_not_known_here_is_ignored() -> None:
    assert decode(_header(job="j", term=1, round=0, more=[1, {"deep": b"x"}])) == Heartbeat("j", 1, 0)


def test_numbers_of_0_and_lists_without_entries_are_not_sent() -> None:
    parts = _header(kind="member-sync", answer=True, updates=[])
    assert encode(messages.MemberSync(True, (), 0)) == parts
    assert decode(parts) == messages.MemberSync(True, (), 0)
    parts = _header(kind="fact-delta", owner="p", after=0, keys=[], versions=[])
    assert encode(messages.FactDelta("p", 0, (), (), (), (), 0)) == parts
    assert decode(parts) == messages.FactDelta("p", 0, (), (), (), (), 0)


def test_a_bomb_of_small_maps_is_refused() -> None:
    # One megabyte of 0x80 would build a million dictionaries: the limit on the header stops it before it is parsed.
    with pytest.raises(WireError, match="the limit is"):
        decode([b"\xdd\x00\x0f\xff\xff" + b"\x80" * (2**20 - 1)])


def test_an_example_on_the_wire() -> None:
    parts = encode(Heartbeat("j", 2, 5))
    assert parts == [b"\x93\x01\xa9heartbeat\x83\xa3job\xa1j\xa4term\x02\xa5round\x05"]


def test_text_of_a_peer_has_no_control_characters() -> None:
    """A terminal obeys them; in a name or an address they are an error, in a reason signs stand for them."""
    received = decode(encode(job_messages.Pads("j", 1, 2, b"", "\x1b[2Jno", b"", b"", 0, ())))
    assert isinstance(received, job_messages.Pads)
    assert received.refusal == "\N{REPLACEMENT CHARACTER}[2Jno"
    for update in (Update("a\x07", "alive", 1, "", "", ""), Update("a", "alive", 1, "\x9b", "", "")):
        with pytest.raises(WireError, match="expected"):
            decode(encode(messages.Gossip((update,))))
