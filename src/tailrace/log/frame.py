"""Frames: the unit on disk and on the wire, in the seed's layout, big-endian.

    offset u64 · message length u32 · timestamp u64 · mode u8 · key length u32 · key · data length u32 · data

The mode byte holds the mode (bits 0-1), the op (2-4), "data is a batch" (5) and "last frame of its commit group" (6).
Data is one JSON document when bit 5 is clear. Otherwise it is an envelope, tags and an Arrow body; see docs/format.md.
Everything here works on headers: no Arrow is decoded.
"""

from __future__ import annotations

from enum import IntEnum
from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

from isal import isal_zlib

from tailrace.errors import Place, TailraceError
from tailrace.limits import FRAME_BYTES_MAX, FRAME_ROWS_MAX, KEY_BYTES_MAX, TAGS_BYTES_MAX
from tailrace.message import SECONDS_MAX, Lsn, Micros, Mode, NodeId, Offset, Op

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

VERSION: Final = 1
MAGIC: Final = b"\xf5tr\n"
"""Opens every envelope. No UTF-8 text and no JSON document contains it."""

_HEADER: Final = Struct(">QIQBI")
_LENGTH: Final = Struct(">I")
_PREFIX: Final = Struct(">4sIBBHI")
"""magic · head CRC · version · codec · key length · envelope length: these keep their place in every version."""
_COUNTS: Final = Struct(">IIIQQQQ")
"""body CRC · count · span · origin · first lsn · last lsn · durable."""
_TAG: Final = Struct(">BH")

ENVELOPE_BYTES: Final = _PREFIX.size + _COUNTS.size
HEAD_BYTES_MIN: Final = _HEADER.size + _LENGTH.size
"""The shortest frame: no key, no data."""

_MODE_BITS: Final = 0b11
_OP_SHIFT: Final = 2
_OP_BITS: Final = 0b111
_OP_MIXED: Final = 7
_BATCH: Final = 1 << 5
_LAST: Final = 1 << 6
_UNUSED: Final = 1 << 7
_CRC_AT: Final = len(MAGIC)


class Codec(IntEnum):
    """How an Arrow body is compressed."""

    NONE = 0
    LZ4 = 1
    ZSTD = 2


class Tag(IntEnum):
    """What a frame is labelled with, readable without its body."""

    DESTINATION = 1
    BATCH_ID = 2


_CODECS: Final = {codec.value: codec for codec in Codec}
_MODES: Final = {mode.value: mode for mode in Mode}
_OPS: Final = {op.value: op for op in Op}


class ShortFrame(Exception):
    """The bytes end before the head does; `needed` from its start are enough to go on."""

    def __init__(self, needed: int) -> None:
        super().__init__(needed)
        self.needed = needed


class Head(NamedTuple):
    """All that a frame says before its body. A tuple, because millions are made."""

    offset: Offset
    span: int
    """How many offsets the frame covers: the next frame starts at `offset + span`."""
    messages: int
    """How many messages it holds; fewer than `span` after compaction, none in a hole."""
    timestamp: Micros
    mode: Mode
    op: Op | None
    """The op of all its messages, None when they differ."""
    namespace: str
    is_batch: bool
    closes_group: bool
    codec: Codec
    origin: NodeId
    first_lsn: Lsn
    last_lsn: Lsn
    destinations: tuple[str, ...]
    batch_ids: tuple[str, ...]
    durable: Offset
    """Everything before this offset was on disk when the frame was written: its evidence against damage (I5)."""
    body_crc: int
    head_bytes: int
    body_bytes: int

    @property
    def end(self) -> Offset:
        """The offset after this frame."""
        return Offset(self.offset + self.span)

    @property
    def frame_bytes(self) -> int:
        return self.head_bytes + self.body_bytes

    @property
    def is_hole(self) -> bool:
        return self.messages == 0


def crc32(data: ReadableBuffer, start: int = 0) -> int:
    """The CRC-32 of zlib, several times faster."""
    return isal_zlib.crc32(data, start)


def place_head(
    head: Head, *, offset: int, closes_group: bool, batch_ids: tuple[str, ...] = (), durable: int = 0
) -> tuple[Head, bytes]:
    """A batch frame at its place in the log, and its encoded head; the frame is that and then the body."""
    key = head.namespace.encode()
    tags = _encode_tags(head.destinations, batch_ids)
    head_bytes = HEAD_BYTES_MIN + len(key) + ENVELOPE_BYTES + len(tags)
    if head_bytes + head.body_bytes > FRAME_BYTES_MAX or len(tags) > TAGS_BYTES_MAX or head.messages > FRAME_ROWS_MAX:
        raise TailraceError(
            "log.frame_too_long",
            f"a frame of {head.messages} messages of {head.namespace!r} would have"
            f" {head_bytes + head.body_bytes} bytes, {len(tags)} of them tags; {FRAME_BYTES_MAX} bytes,"
            f" {TAGS_BYTES_MAX} of tags and {FRAME_ROWS_MAX} messages are allowed",
            hint="append smaller messages, or fewer at a time",
        )
    placed = head._replace(
        offset=Offset(offset),
        closes_group=closes_group,
        batch_ids=batch_ids,
        durable=Offset(durable),
        head_bytes=head_bytes,
    )
    return placed, _encode_head(placed, key, tags)


def _encode_head(head: Head, key: bytes, tags: bytes) -> bytes:
    envelope_bytes = ENVELOPE_BYTES + len(tags)
    data_bytes = envelope_bytes + head.body_bytes
    op = _OP_MIXED if head.op is None else head.op
    flags = head.mode | op << _OP_SHIFT | _BATCH | (_LAST if head.closes_group else 0)
    encoded = bytearray(
        b"".join(
            (
                _HEADER.pack(head.offset, 8 + len(key) + data_bytes, head.timestamp, flags, len(key)),
                key,
                _LENGTH.pack(data_bytes),
                _PREFIX.pack(MAGIC, 0, VERSION, head.codec, len(key), envelope_bytes),
                _COUNTS.pack(
                    head.body_crc,
                    head.messages,
                    head.span,
                    head.origin,
                    head.first_lsn,
                    head.last_lsn,
                    head.durable,
                ),
                tags,
            )
        )
    )
    crc_at = HEAD_BYTES_MIN + len(key) + _CRC_AT
    _LENGTH.pack_into(encoded, crc_at, _head_crc(memoryview(encoded), crc_at))
    return bytes(encoded)


def _encode_tags(destinations: tuple[str, ...], batch_ids: tuple[str, ...]) -> bytes:
    return b"".join(
        _TAG.pack(kind, len(value)) + value
        for kind, values in ((Tag.DESTINATION, destinations), (Tag.BATCH_ID, batch_ids))
        for value in (text.encode() for text in values)
    )


def hole(*, offset: int, span: int, timestamp: int, closes_group: bool, batch_ids: tuple[str, ...]) -> Head:
    """A frame that stands for `span` messages that compaction removed, so that frames go on tiling the offsets."""
    return Head(
        offset=Offset(offset),
        span=span,
        messages=0,
        timestamp=Micros(timestamp),
        mode=Mode.SYNC,
        op=Op.NOOP,
        namespace="",
        is_batch=True,
        closes_group=closes_group,
        codec=Codec.NONE,
        origin=NodeId(0),
        first_lsn=Lsn(0),
        last_lsn=Lsn(0),
        destinations=(),
        batch_ids=batch_ids,
        durable=Offset(0),
        body_crc=0,
        head_bytes=0,
        body_bytes=0,
    )


def encode_plain(*, offset: int, timestamp_s: int, mode: Mode, op: Op, key: bytes, data: bytes) -> bytes:
    """A frame of one message exactly as Transporter writes it."""
    flags = mode | op << _OP_SHIFT
    header = _HEADER.pack(offset, 8 + len(key) + len(data), timestamp_s, flags, len(key))
    return b"".join((header, key, _LENGTH.pack(len(data)), data))


def parse_head(buffer: memoryview, at: int, *, file: str, position: int) -> Head:
    """The head that starts at `at` in the buffer; `file` and `position` say in errors where that is.

    Lengths are checked against their limits before anything is allocated for them (I10).
    Raises ShortFrame when the buffer ends inside the head.
    """
    available = len(buffer) - at
    if available < _HEADER.size:
        raise ShortFrame(_HEADER.size)
    offset, message_bytes, _, flags, key_bytes = _HEADER.unpack_from(buffer, at)
    place = Place(file, position, offset)
    if message_bytes > FRAME_BYTES_MAX:
        raise TailraceError(
            "log.frame_too_long",
            f"a frame claims {message_bytes} bytes, {FRAME_BYTES_MAX} are allowed",
            place=place,
            hint="tailrace log verify",
        )
    if key_bytes > KEY_BYTES_MAX or key_bytes + 8 > message_bytes:
        raise _corrupt(f"a frame of {message_bytes} bytes claims a namespace of {key_bytes}", place)
    if available < HEAD_BYTES_MIN + key_bytes:
        raise ShortFrame(HEAD_BYTES_MIN + key_bytes)
    (data_bytes,) = _LENGTH.unpack_from(buffer, at + _HEADER.size + key_bytes)
    if message_bytes != 8 + key_bytes + data_bytes:
        raise _corrupt(f"lengths disagree: {message_bytes} is not 8 + {key_bytes} + {data_bytes}", place)
    if flags & _BATCH:
        return _parse_batch(buffer, at, key_bytes, data_bytes, place)
    return _parse_plain(buffer, at, key_bytes, data_bytes, place)


def _parse_plain(buffer: memoryview, at: int, key_bytes: int, data_bytes: int, place: Place) -> Head:
    offset, _, timestamp, flags, _ = _HEADER.unpack_from(buffer, at)
    data_at = at + HEAD_BYTES_MIN + key_bytes
    mark_bytes = min(len(MAGIC), data_bytes)
    if len(buffer) < data_at + mark_bytes:
        raise ShortFrame(HEAD_BYTES_MIN + key_bytes + mark_bytes)
    if bytes(buffer[data_at : data_at + mark_bytes]) == MAGIC:
        raise _corrupt("a frame holds a batch but its mode byte denies it", place)
    if flags & (_LAST | _UNUSED):
        what = f"the mode byte {flags:#04x} has bits that no version uses"
        raise TailraceError("log.mode_unknown", what, place=place, hint="tailrace log verify")
    return Head(
        offset=offset,
        span=1,
        messages=1,
        timestamp=Micros(min(timestamp, SECONDS_MAX) * 1_000_000),
        mode=_mode(flags, place),
        op=_op(flags, place),
        namespace=_namespace(buffer, at, key_bytes, place),
        is_batch=False,
        closes_group=True,
        codec=Codec.NONE,
        origin=NodeId(0),
        first_lsn=Lsn(0),
        last_lsn=Lsn(0),
        destinations=(),
        batch_ids=(),
        durable=Offset(0),
        body_crc=0,
        head_bytes=HEAD_BYTES_MIN + key_bytes,
        body_bytes=data_bytes,
    )


def _parse_batch(buffer: memoryview, at: int, key_bytes: int, data_bytes: int, place: Place) -> Head:
    envelope_at = at + HEAD_BYTES_MIN + key_bytes
    if data_bytes < ENVELOPE_BYTES:
        raise _corrupt(f"a batch of {data_bytes} bytes has no room for its envelope", place)
    if len(buffer) < envelope_at + ENVELOPE_BYTES:
        raise ShortFrame(HEAD_BYTES_MIN + key_bytes + ENVELOPE_BYTES)
    magic, head_crc, version, codec, key_again, envelope_bytes = _PREFIX.unpack_from(buffer, envelope_at)
    if magic != MAGIC:
        raise _corrupt("a batch does not start with the envelope's mark", place)
    if not ENVELOPE_BYTES <= envelope_bytes <= min(data_bytes, ENVELOPE_BYTES + TAGS_BYTES_MAX):
        raise _corrupt(f"an envelope of {envelope_bytes} bytes does not fit its batch of {data_bytes}", place)
    if len(buffer) < envelope_at + envelope_bytes:
        raise ShortFrame(HEAD_BYTES_MIN + key_bytes + envelope_bytes)
    head = buffer[at : envelope_at + envelope_bytes]
    if key_again != key_bytes or head_crc != _head_crc(head, HEAD_BYTES_MIN + key_bytes + _CRC_AT):
        raise _corrupt("the checksum of a frame's head differs", place)
    if version != VERSION:
        raise TailraceError(
            "log.version_unknown",
            f"a frame has format version {version}, this Tailrace knows version {VERSION}",
            place=place,
            hint="pip install --upgrade tailrace",
        )
    if codec not in _CODECS:
        raise TailraceError(
            "log.codec_unknown", f"codec {codec} is unknown", place=place, hint="pip install --upgrade tailrace"
        )
    offset, _, timestamp, flags, _ = _HEADER.unpack_from(buffer, at)
    if flags & _UNUSED:
        raise _corrupt(f"the mode byte {flags:#04x} has bits that no version uses", place)
    counts_at = envelope_at + _PREFIX.size
    body_crc, count, span, origin, first_lsn, last_lsn, durable = _COUNTS.unpack_from(buffer, counts_at)
    if count > min(span, FRAME_ROWS_MAX) or span == 0:
        raise _corrupt(f"{count} messages cannot cover {span} offsets", place)
    destinations, batch_ids = _parse_tags(buffer[envelope_at + ENVELOPE_BYTES : envelope_at + envelope_bytes], place)
    return Head(
        offset=offset,
        span=span,
        messages=count,
        timestamp=Micros(timestamp),
        mode=_mode(flags, place),
        op=None if flags >> _OP_SHIFT & _OP_BITS == _OP_MIXED else _op(flags, place),
        namespace=_namespace(buffer, at, key_bytes, place),
        is_batch=True,
        closes_group=bool(flags & _LAST),
        codec=_CODECS[codec],
        origin=origin,
        first_lsn=first_lsn,
        last_lsn=last_lsn,
        destinations=destinations,
        batch_ids=batch_ids,
        durable=durable,
        body_crc=body_crc,
        head_bytes=HEAD_BYTES_MIN + key_bytes + envelope_bytes,
        body_bytes=data_bytes - envelope_bytes,
    )


def find_batch_frame(raw: bytes, start: int) -> int | None:
    """Where the next intact batch head starts in bytes that cannot be walked, or None. Used to judge damage."""
    buffer = memoryview(raw)
    mark = raw.find(MAGIC, start)
    while mark >= 0:
        if mark + _PREFIX.size <= len(raw):
            key_bytes: int = _PREFIX.unpack_from(raw, mark)[4]
            at = mark - HEAD_BYTES_MIN - key_bytes
            if at >= start and _is_head(buffer, at):
                return at
        mark = raw.find(MAGIC, mark + 1)
    return None


def _is_head(buffer: memoryview, at: int) -> bool:
    try:
        return parse_head(buffer, at, file="", position=at).is_batch
    except (TailraceError, ShortFrame):
        return False


def _head_crc(head: memoryview, crc_at: int) -> int:
    return crc32(head[crc_at + 4 :], crc32(head[:crc_at]))


def _parse_tags(tags: memoryview, place: Place) -> tuple[tuple[str, ...], tuple[str, ...]]:
    found: dict[int, list[str]] = {Tag.DESTINATION: [], Tag.BATCH_ID: []}
    at = 0
    while at < len(tags):
        if at + _TAG.size > len(tags):
            raise _corrupt("a frame's tags end in the middle", place)
        kind, size = _TAG.unpack_from(tags, at)
        at += _TAG.size
        if at + size > len(tags) or kind not in found:
            raise _corrupt(f"a frame has a tag of unknown kind {kind} or length {size}", place)
        found[kind].append(_text(tags[at : at + size], place))
        at += size
    return tuple(found[Tag.DESTINATION]), tuple(found[Tag.BATCH_ID])


def _namespace(buffer: memoryview, at: int, key_bytes: int, place: Place) -> str:
    return _text(buffer[at + _HEADER.size : at + _HEADER.size + key_bytes], place)


def _text(raw: memoryview, place: Place) -> str:
    try:
        return str(raw, "utf-8")
    except UnicodeDecodeError as error:
        raise _corrupt("a name is not UTF-8", place) from error


def _mode(flags: int, place: Place) -> Mode:
    value = flags & _MODE_BITS
    if value not in _MODES:
        raise TailraceError("log.mode_unknown", f"mode {value} is unknown", place=place, hint="tailrace log verify")
    return _MODES[value]


def _op(flags: int, place: Place) -> Op:
    value = flags >> _OP_SHIFT & _OP_BITS
    if value not in _OPS:
        raise TailraceError("log.op_unknown", f"op {value} is unknown", place=place, hint="tailrace log verify")
    return _OPS[value]


def _corrupt(what: str, place: Place) -> TailraceError:
    return TailraceError("log.corrupt", what, place=place, hint="tailrace log verify")
