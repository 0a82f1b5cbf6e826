"""What requests and answers carry: packed and unpacked, and JSON made into values. Every length is checked before it is
believed, by whoever reads: a server its requests, a client its answers."""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Iterable
from typing import Any, Final

import orjson

from tailrace.errors import TailraceError
from tailrace.limits import MIB, SYNC_BODY_BYTES_MAX, SYNC_DEPTH_MAX, SYNC_ROWS_MAX, SYNC_VALUES_MAX
from tailrace.sync.halfcharacters import read_half_characters
from tailrace.sync.wire import malformed

JSON: Final = "application/json"
MORE: Final = "door-more"
"""The header that says `true` when rows were left only because they would have been too large together."""
_GZIP_WINDOW: Final = 31
"""What zlib calls gzip."""
_INNER: Final = re.compile(rb'"\s*:\s*[\[{]')
"""An array or object as a value of an object; in a text it may be there, too."""
_PACK_BYTES_MIN: Final = 1024
_PACK_LEVEL: Final = 1


def unpack(content: bytes, bytes_max: int = SYNC_BODY_BYTES_MAX) -> bytes:
    """What gzip has packed, if that is not too much."""
    unpacker = zlib.decompressobj(_GZIP_WINDOW)
    parts, left, rest = [], bytes_max, content
    try:
        while not unpacker.eof:
            part = unpacker.decompress(rest, min(left + 1, MIB))
            left -= len(part)
            if left < 0:
                raise more_than(bytes_max)
            rest = unpacker.unconsumed_tail
            if not part and not rest and not unpacker.eof:
                raise malformed("the body ends before its compression does")
            parts.append(part)
    except zlib.error:
        raise malformed("the body is not what gzip makes") from None
    if unpacker.unused_data:
        raise malformed("something stands behind the compressed body")
    return b"".join(parts)


def pack(content: bytes) -> bytes | None:
    """The content as gzip has it; None when that is not worth it."""
    return None if len(content) < _PACK_BYTES_MIN else gzip.compress(content, _PACK_LEVEL, mtime=0)


def read_json(content: bytes) -> list[Any]:
    """An array, if it is not too long nor too deep."""
    told = _decoded(content)
    if type(told) is not list:
        raise malformed("the body is no array")
    if len(told) > SYNC_ROWS_MAX:
        what = f"the body has {len(told)} rows, and {SYNC_ROWS_MAX} are read at a time"
        raise _too_large(what)
    if not set(map(type, told)) <= {dict} or _INNER.search(content):  # otherwise no row has anything inside
        _check_depth(told)
    return told


def read_value(content: bytes) -> Any:
    """Any JSON, if it has not too many values and is not too deep."""
    told = _decoded(content)
    _check_depth([told])
    return told


def read_values(texts: Iterable[str | None]) -> list[Any]:
    """The JSON of each text. The limits are for all of them together."""
    contents = [None if text is None else text.encode() for text in texts]
    _check_count(b",".join(content for content in contents if content is not None))
    try:
        told = [None if content is None else orjson.loads(content) for content in contents]
    except orjson.JSONDecodeError:
        raise malformed("a text that is said to be JSON is none") from None
    _check_depth(told)
    return told


def more_than(bytes_max: int) -> TailraceError:
    return _too_large(f"the body has more than {bytes_max // MIB} MB")


def check_sendable(size: int) -> None:
    """What is larger than others read is not sent."""
    if size > SYNC_BODY_BYTES_MAX:
        raise _too_large(f"it takes {size:,} bytes or more as it is sent, and {SYNC_BODY_BYTES_MAX:,} are read")


def _decoded(content: bytes) -> Any:
    _check_count(content)
    try:
        return orjson.loads(content)
    except orjson.JSONDecodeError as error:
        told = read_half_characters(content)
        if told is None:
            raise malformed(f"the body is no JSON: {error.msg} (line {error.lineno}, column {error.colno})") from None
        return told


def _check_count(content: bytes) -> None:
    """Commas and brackets say how many values there are, at most. Only if these are many it matters where they are."""
    if _count(content) > SYNC_VALUES_MAX and _count_outside_texts(content) > SYNC_VALUES_MAX:
        raise _too_large(f"the body has more than {SYNC_VALUES_MAX} values")


def _count(content: bytes) -> int:
    return content.count(b",") + content.count(b"[") + content.count(b"{")


def _count_outside_texts(content: bytes) -> int:
    """The same without what stands in texts. Piece by piece, in one go, whatever the content is: it may be hostile."""
    plain = content.replace(rb"\\", b"").replace(rb"\"", b"")  # every quote that is left begins or ends a text
    count, is_text = 0, False
    for begin in range(0, len(plain), MIB):
        parts = plain[begin : begin + MIB].split(b'"')
        count += _count(b"".join(parts[is_text::2]))
        is_text ^= len(parts) % 2 == 0
    return count


def _check_depth(told: list[Any]) -> None:
    level: list[Any] = [told]
    for _ in range(SYNC_DEPTH_MAX):
        inner = []
        for each in level:
            values = each.values() if type(each) is dict else each
            inner += [value for value in values if type(value) is dict or type(value) is list]
        if not inner:
            return
        level = inner
    what = f"the body has arrays and objects that are more than {SYNC_DEPTH_MAX} deep"
    raise malformed(what)


def _too_large(what: str) -> TailraceError:
    return TailraceError("sync.too_large", what, hint="send fewer rows at a time")
