"""Frames: the layout byte by byte, every length and every bit checked before it is believed."""

from __future__ import annotations

import struct
import tracemalloc
import zlib
from pathlib import Path
from typing import Final

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tailrace.errors import TailraceError
from tailrace.limits import FRAME_BYTES_MAX, FRAME_ROWS_MAX, KEY_BYTES_MAX, KIB, MIB, TAGS_BYTES_MAX, U32_MAX, U64_MAX
from tailrace.log.frame import (
    ENVELOPE_BYTES,
    HEAD_BYTES_MIN,
    MAGIC,
    Codec,
    Head,
    ShortFrame,
    crc32,
    encode_plain,
    find_batch_frame,
    hole,
    parse_head,
    place_head,
)
from tailrace.log.segment import FrameFile
from tailrace.message import SECONDS_MAX, Lsn, Micros, Mode, NodeId, Offset, Op
from tests.log.refusals import refused

PLAIN: Final = bytes.fromhex(
    "0000000000000007"  # offset
    "0000001a"  # message length: 8 + key + data
    "0000000059682f00"  # timestamp, seconds
    "05"  # mode sync, op update
    "0000000b"  # key length
    "73686f702e6f7264657273"  # shop.orders
    "00000007"  # data length
    "7b2261223a317d"  # {"a":1}
)
BODY: Final = b"ARROW!"
BATCH: Final = bytes.fromhex(
    "0000000000000005"  # offset
    "00000056"  # message length: 8 + key + data
    "0005af3107a40000"  # timestamp, microseconds
    "7c"  # mode copy, ops differ, a batch, the last frame of its group
    "00000003"  # key length
    "612e62"  # a.b
    "0000004b"  # data length
    "f574720a"  # the envelope's mark
    "a50d5a7b"  # CRC-32 of the head without these four bytes
    "01"  # version
    "01"  # codec lz4
    "0003"  # key length once more
    "00000045"  # envelope length, tags included
    "944432d8"  # CRC-32 of the body
    "00000003"  # messages
    "00000004"  # offsets covered
    "0000000000000009"  # origin
    "0000000000000064"  # lowest lsn
    "0000000000000066"  # highest lsn
    "0000000000000004"  # durable up to here
    "01000178"  # destination x
    "0200026231"  # batch id b1
    "4152524f5721"  # the body
)
BATCH_HEAD: Final = Head(
    offset=Offset(5),
    span=4,
    messages=3,
    timestamp=Micros(1_600_000_000_000_000),
    mode=Mode.COPY,
    op=None,
    namespace="a.b",
    is_batch=True,
    closes_group=True,
    codec=Codec.LZ4,
    origin=NodeId(9),
    first_lsn=Lsn(100),
    last_lsn=Lsn(102),
    destinations=("x",),
    batch_ids=("b1",),
    durable=Offset(4),
    body_crc=zlib.crc32(BODY),
    head_bytes=len(BATCH) - len(BODY),
    body_bytes=len(BODY),
)
FLAGS_AT: Final = 20
ENVELOPE_AT: Final = HEAD_BYTES_MIN + 3
CRC_AT: Final = ENVELOPE_AT + 4
VERSION_AT: Final = ENVELOPE_AT + 8
CODEC_AT: Final = ENVELOPE_AT + 9
TAGS_AT: Final = ENVELOPE_AT + ENVELOPE_BYTES


def parse(frame: bytes) -> Head:
    return parse_head(memoryview(frame), 0, file="00000000000000000005.log", position=0)


def changed(frame: bytes, at: int, replacement: bytes, *, resign: bool = True) -> bytes:
    """A frame with other bytes at a place and, if it is a batch, a head checksum that is right again."""
    raw = bytearray(frame)
    raw[at : at + len(replacement)] = replacement
    if resign:
        head = raw[: len(raw) - len(BODY)]
        raw[CRC_AT : CRC_AT + 4] = zlib.crc32(head[CRC_AT + 4 :], zlib.crc32(head[:CRC_AT])).to_bytes(4, "big")
    return bytes(raw)


def test_plain_frame_is_the_seeds_layout_to_the_byte() -> None:
    encoded = encode_plain(
        offset=7, timestamp_s=1_500_000_000, mode=Mode.SYNC, op=Op.UPDATE, key=b"shop.orders", data=b'{"a":1}'
    )
    assert encoded == PLAIN


def test_plain_frame_is_read() -> None:
    head = parse(PLAIN)
    assert (head.offset, head.span, head.messages, head.end) == (7, 1, 1, 8)
    assert head.timestamp == 1_500_000_000_000_000
    assert (head.mode, head.op, head.namespace) == (Mode.SYNC, Op.UPDATE, "shop.orders")
    assert (head.is_batch, head.closes_group, head.is_hole) == (False, True, False)
    assert PLAIN[head.head_bytes : head.frame_bytes] == b'{"a":1}'
    assert head.frame_bytes == len(PLAIN)


def test_batch_frame_is_the_documented_layout_to_the_byte() -> None:
    unplaced = BATCH_HEAD._replace(offset=Offset(0), closes_group=False, batch_ids=(), head_bytes=0)
    placed, encoded = place_head(unplaced, offset=5, closes_group=True, batch_ids=("b1",), durable=4)
    assert encoded + BODY == BATCH
    assert placed == BATCH_HEAD


def test_batch_frame_is_read() -> None:
    assert parse(BATCH) == BATCH_HEAD


def test_checksum_is_the_one_of_zlib() -> None:
    assert crc32(b"123456789") == 0xCBF43926 == zlib.crc32(b"123456789")


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
U64 = st.integers(0, U64_MAX)


@st.composite
def heads(draw: st.DrawFn) -> Head:
    messages = draw(st.integers(1, FRAME_ROWS_MAX))
    return BATCH_HEAD._replace(
        span=draw(st.integers(messages, U32_MAX)),
        messages=messages,
        timestamp=Micros(draw(U64)),
        mode=draw(st.sampled_from(Mode)),
        op=draw(st.none() | st.sampled_from(Op)),
        namespace=draw(TEXT),
        codec=draw(st.sampled_from(Codec)),
        origin=NodeId(draw(U64)),
        first_lsn=Lsn(draw(U64)),
        last_lsn=Lsn(draw(U64)),
        destinations=tuple(draw(st.lists(TEXT, max_size=4))),
        body_crc=draw(st.integers(0, U32_MAX)),
        body_bytes=draw(st.integers(0, FRAME_BYTES_MAX - 16 * KIB)),
    )


@given(heads(), U64, st.booleans(), st.lists(TEXT, max_size=4))
def test_every_head_comes_back_as_it_was(head: Head, offset: int, closes: bool, batch_ids: list[str]) -> None:
    placed, encoded = place_head(head, offset=offset, closes_group=closes, batch_ids=tuple(batch_ids), durable=4)
    assert parse(encoded) == placed
    assert placed._replace(offset=head.offset, closes_group=True, batch_ids=("b1",), head_bytes=0) == head._replace(
        head_bytes=0
    )
    assert (placed.offset, placed.closes_group, placed.batch_ids) == (offset, closes, tuple(batch_ids))
    assert len(encoded) == placed.head_bytes


@given(U64, st.integers(0, SECONDS_MAX), st.sampled_from(Mode), st.sampled_from(Op), TEXT, st.binary(max_size=100))
def test_every_plain_frame_comes_back_as_it_was(
    offset: int, second: int, mode: Mode, op: Op, key: str, data: bytes
) -> None:
    encoded = encode_plain(offset=offset, timestamp_s=second, mode=mode, op=op, key=key.encode(), data=data)
    if data.startswith(MAGIC):
        with refused("log.corrupt"):
            parse(encoded)
        return
    head = parse(encoded)
    assert (head.offset, head.timestamp, head.mode, head.op) == (offset, second * 1_000_000, mode, op)
    assert (head.namespace, encoded[head.head_bytes : head.frame_bytes]) == (key, data)


def test_hole_has_offsets_but_no_messages() -> None:
    gap = hole(offset=10, span=90, timestamp=3, closes_group=True, batch_ids=("b7", "b8"))
    placed, encoded = place_head(gap, offset=10, closes_group=True, batch_ids=("b7", "b8"))
    assert parse(encoded) == placed
    assert (placed.is_hole, placed.end, placed.frame_bytes, placed.batch_ids) == (
        True,
        100,
        len(encoded),
        ("b7", "b8"),
    )


@pytest.mark.parametrize("frame", [PLAIN, BATCH], ids=["plain", "batch"])
def test_head_that_is_not_wholly_there_asks_for_more(frame: bytes) -> None:
    head_bytes = parse(frame).head_bytes
    for size in range(head_bytes):
        with pytest.raises(ShortFrame) as short:
            parse(frame[:size])
        assert size < short.value.needed <= len(frame)


UNKNOWN: Final = [
    pytest.param(changed(BATCH, VERSION_AT, b"\x02"), "log.version_unknown", "2", id="version"),
    pytest.param(changed(BATCH, VERSION_AT, b"\x00"), "log.version_unknown", "0", id="version 0"),
    pytest.param(changed(BATCH, CODEC_AT, b"\x03"), "log.codec_unknown", "3", id="codec"),
    pytest.param(changed(BATCH, FLAGS_AT, b"\x63"), "log.mode_unknown", "3", id="mode of a batch"),
    pytest.param(changed(BATCH, FLAGS_AT, b"\x74"), "log.op_unknown", "5", id="op of a batch"),
    pytest.param(changed(BATCH, FLAGS_AT, b"\xfc"), "log.corrupt", "0xfc", id="unused bit of a batch"),
    pytest.param(changed(PLAIN, FLAGS_AT, b"\x07", resign=False), "log.mode_unknown", "3", id="mode of a document"),
    pytest.param(changed(PLAIN, FLAGS_AT, b"\x15", resign=False), "log.op_unknown", "5", id="op of a document"),
    pytest.param(changed(PLAIN, FLAGS_AT, b"\x1d", resign=False), "log.op_unknown", "7", id="mixed ops, one document"),
    pytest.param(
        changed(PLAIN, FLAGS_AT, b"\x45", resign=False), "log.mode_unknown", "0x45", id="group bit of a document"
    ),
    pytest.param(
        changed(PLAIN, FLAGS_AT, b"\x85", resign=False), "log.mode_unknown", "0x85", id="unused bit of a document"
    ),
]


@pytest.mark.parametrize(("frame", "code", "shown"), UNKNOWN)
def test_what_is_unknown_is_refused_and_named(frame: bytes, code: str, shown: str) -> None:
    with refused(code, saying=shown) as refusal:
        parse(frame)
    assert refusal.value.place is not None
    assert refusal.value.place.file == "00000000000000000005.log"
    assert refusal.value.place.byte == 0


def test_unknown_version_says_both_versions() -> None:
    with refused("log.version_unknown", saying="version 9, this Tailrace knows version 1"):
        parse(changed(BATCH, VERSION_AT, b"\x09"))


WRONG: Final = [
    pytest.param(changed(PLAIN, 8, b"\x00\x00\x00\x1b", resign=False), "27 is not 8 + 11 + 7", id="message length"),
    pytest.param(changed(PLAIN, 21, b"\x00\x00\x00\x0a", resign=False), "lengths disagree", id="key length"),
    pytest.param(changed(PLAIN, 21, b"\x00\x00\x00\x13", resign=False), "claims a namespace of 19", id="key too long"),
    pytest.param(changed(PLAIN, 36, b"\x00\x00\x00\x08", resign=False), "26 is not 8 + 11 + 8", id="data length"),
    pytest.param(changed(PLAIN, 25, b"\xff", resign=False), "UTF-8", id="namespace is no text"),
    pytest.param(changed(BATCH, ENVELOPE_AT, b"\xf6"), "mark", id="no mark"),
    pytest.param(changed(BATCH, CRC_AT, b"\0\0\0\0", resign=False), "checksum", id="head checksum"),
    pytest.param(changed(BATCH, ENVELOPE_AT + 10, b"\0\4"), "checksum", id="key length once more"),
    pytest.param(changed(BATCH, ENVELOPE_AT + 12, b"\0\0\0\x4c"), "envelope of 76", id="envelope longer than data"),
    pytest.param(changed(BATCH, ENVELOPE_AT + 12, b"\0\0\0\x3b"), "envelope of 59", id="envelope too short"),
    pytest.param(changed(BATCH, ENVELOPE_AT + 20, b"\0\0\0\5"), "5 messages cannot cover 4", id="more than the span"),
    pytest.param(changed(BATCH, ENVELOPE_AT + 20, b"\0\0\0\0\0\0\0\0"), "cannot cover 0", id="no span"),
    pytest.param(changed(BATCH, TAGS_AT, b"\x03"), "unknown kind 3", id="unknown tag"),
    pytest.param(changed(BATCH, TAGS_AT + 1, b"\x00\x09"), "length 9", id="tag past the end"),
    pytest.param(changed(BATCH, TAGS_AT + 1, b"\x00\x04"), "end in the middle", id="tag cut short"),
    pytest.param(changed(BATCH, TAGS_AT + 3, b"\xff"), "UTF-8", id="tag is no text"),
    pytest.param(
        struct.pack(">QIQBI", 0, 8 + 10, 0, 0x60, 0) + struct.pack(">I", 10) + bytes(10),
        "no room for its envelope",
        id="batch without an envelope",
    ),
    pytest.param(
        encode_plain(offset=0, timestamp_s=0, mode=Mode.COPY, op=Op.INSERT, key=b"", data=MAGIC + b"x"),
        "batch",
        id="batch that says it is a document",
    ),
]


@pytest.mark.parametrize(("frame", "why"), WRONG)
def test_what_does_not_agree_is_refused(frame: bytes, why: str) -> None:
    with refused("log.corrupt", saying=why):
        parse(frame)


@pytest.mark.parametrize("closes", [True, False], ids=["last of its group", "inside its group"])
def test_no_bit_of_a_batch_head_can_flip_unseen(closes: bool) -> None:
    head = BATCH_HEAD._replace(op=Op.INSERT)
    placed, encoded = place_head(head, offset=5, closes_group=closes, batch_ids=())
    for bit in range(placed.head_bytes * 8):
        raw = bytearray(encoded + BODY)
        raw[bit // 8] ^= 1 << bit % 8
        with pytest.raises((TailraceError, ShortFrame)):
            parse(bytes(raw))


@given(st.binary(max_size=200))
@example(PLAIN[:-1])
@example(BATCH[:-1])
def test_any_bytes_are_parsed_or_refused(raw: bytes) -> None:
    try:
        head = parse(raw)
    except (TailraceError, ShortFrame):
        return
    assert head.frame_bytes <= FRAME_BYTES_MAX + HEAD_BYTES_MIN


@given(st.integers(0, len(BATCH) - 1), st.binary(min_size=1, max_size=8))
def test_any_change_to_a_signed_head_is_parsed_or_refused(at: int, replacement: bytes) -> None:
    raw = changed(BATCH, at, replacement[: len(BATCH) - at])
    try:
        head = parse(raw)
    except (TailraceError, ShortFrame):
        return
    assert head.messages <= head.span


FORGED: Final = [
    pytest.param(8, b"\xff\xff\xff\xff", "log.frame_too_long", id="message length"),
    pytest.param(8, struct.pack(">I", FRAME_BYTES_MAX + 1), "log.frame_too_long", id="one byte above the limit"),
    pytest.param(21, b"\xff\xff\xff\xff", "log.corrupt", id="key length"),
    pytest.param(21, struct.pack(">I", KEY_BYTES_MAX + 1), "log.corrupt", id="key above its limit"),
    pytest.param(28, b"\xff\xff\xff\xff", "log.corrupt", id="data length"),
    pytest.param(ENVELOPE_AT + 12, b"\xff\xff\xff\xff", "log.corrupt", id="envelope length"),
    pytest.param(ENVELOPE_AT + 20, b"\xff\xff\xff\xff\xff\xff\xff\xff", "log.corrupt", id="message count"),
]


@pytest.mark.parametrize(("at", "forged", "code"), FORGED)
def test_forged_length_allocates_nothing(tmp_path: Path, at: int, forged: bytes, code: str) -> None:
    path = tmp_path / "00000000000000000005.log"
    path.write_bytes(changed(BATCH, at, forged))
    with FrameFile(str(path)) as file:
        tracemalloc.start()
        try:
            with refused(code):
                list(file.frames())
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert peak < MIB


def test_length_within_its_limit_but_past_the_file_allocates_nothing(tmp_path: Path) -> None:
    """64 MiB are allowed, so the check against the limit does not help: the file itself must be asked."""
    data_bytes = FRAME_BYTES_MAX - 8
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(struct.pack(">QIQBII", 0, 8 + data_bytes, 0, 0, 0, data_bytes) + b'{"a":')
    with FrameFile(str(path)) as file:
        tracemalloc.start()
        try:
            with refused("log.corrupt", saying="ends in the middle of a frame"):
                list(file.frames())
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert peak < MIB


TOO_LONG: Final = [
    pytest.param(BATCH_HEAD._replace(body_bytes=FRAME_BYTES_MAX), (), id="bytes"),
    pytest.param(BATCH_HEAD._replace(messages=FRAME_ROWS_MAX + 1, span=FRAME_ROWS_MAX + 1), (), id="messages"),
    pytest.param(BATCH_HEAD, ("b" * 255,) * (TAGS_BYTES_MAX // 255), id="tags"),
]


@pytest.mark.parametrize(("head", "batch_ids"), TOO_LONG)
def test_frame_above_a_limit_is_not_written(head: Head, batch_ids: tuple[str, ...]) -> None:
    with refused("log.frame_too_long"):
        place_head(head, offset=0, closes_group=True, batch_ids=batch_ids)


def test_longest_frame_that_is_written_is_read() -> None:
    _, encoded = place_head(BATCH_HEAD, offset=5, closes_group=True)
    room = FRAME_BYTES_MAX - len(encoded)
    placed, encoded = place_head(BATCH_HEAD._replace(body_bytes=room), offset=5, closes_group=True)
    assert parse(encoded) == placed
    assert placed.frame_bytes == FRAME_BYTES_MAX
    with refused("log.frame_too_long"):
        place_head(BATCH_HEAD._replace(body_bytes=room + 1), offset=5, closes_group=True)


@given(st.binary(max_size=60), st.binary(max_size=60))
@example(MAGIC * 5, MAGIC)
def test_intact_batch_is_found_among_garbage(before: bytes, after: bytes) -> None:
    raw = before + BATCH + after
    found = find_batch_frame(raw, 0)
    assert found == len(before)
    assert find_batch_frame(raw, found + 1) is None


def test_damaged_batch_is_not_found() -> None:
    assert find_batch_frame(changed(BATCH, 0, b"\x01", resign=False), 0) is None
    assert find_batch_frame(BATCH[: CRC_AT + 4], 0) is None
    assert find_batch_frame(PLAIN, 0) is None
