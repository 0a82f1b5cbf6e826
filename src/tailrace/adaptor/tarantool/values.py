"""Values: what Tarantool has beyond msgpack (decimals, uuids), and values of any kind as JSON."""

from __future__ import annotations

import base64
import uuid
from decimal import Decimal, InvalidOperation
from typing import Any, Final

import msgpack
import orjson
from msgpack import ExtType

DECIMAL: Final = 1
UUID: Final = 2
_DIGITS_MAX: Final = 38
_SCALE_MAX: Final = 38
_MINUS: Final = (0x0B, 0x0D)


def decimal_of(data: bytes) -> Decimal:
    """A decimal from its digits, two in each byte, with the number of them behind the point in front."""
    unpacker = msgpack.Unpacker()
    unpacker.feed(data)
    scale = unpacker.unpack()
    nibbles = data[unpacker.tell() :].hex()
    if not isinstance(scale, int) or abs(scale) > 1000 or not nibbles[:-1].isdigit():
        raise ValueError("a decimal has no digits")
    sign = "-" if int(nibbles[-1], 16) in _MINUS else ""
    return Decimal(f"{sign}{nibbles[:-1]}e{-scale}")


def decimal_data(value: Decimal) -> bytes:
    """The inverse of `decimal_of`."""
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int) or len(digits) > _DIGITS_MAX:
        raise ValueError("a decimal has more than 38 digits")
    text = "".join(map(str, digits)) + ("d" if sign else "c")
    scale: bytes = msgpack.packb(-exponent)
    return scale + bytes.fromhex(text if len(text) % 2 == 0 else "0" + text)


def decimal_text(data: bytes) -> str:
    return f"{decimal_of(data):f}"


def uuid_text(data: bytes) -> str:
    return str(uuid.UUID(bytes=data))


def number_of(value: Any) -> Any:
    """A number, decimals too."""
    if isinstance(value, ExtType) and value.code == DECIMAL:
        return decimal_of(value.data)
    return value


def json_text(value: Any) -> str | None:
    """Any value as JSON; nothing stays nothing. Bytes are base64, what JSON has no word for is text."""
    if value is None:
        return None
    try:
        return orjson.dumps(_plain(value), option=orjson.OPT_NON_STR_KEYS).decode()
    except (TypeError, InvalidOperation) as error:
        raise ValueError(f"a value has no form in JSON: {error}") from error


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {_name(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, ExtType):
        return _extension(value)
    return value


def _name(key: Any) -> str:
    if isinstance(key, str):
        return key
    return str(orjson.dumps(_plain(key)).decode()).strip('"')


def _extension(value: ExtType) -> str:
    if value.code == DECIMAL:
        return decimal_text(value.data)
    if value.code == UUID:
        return uuid_text(value.data)
    return base64.b64encode(value.data).decode()
