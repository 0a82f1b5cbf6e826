"""Payloads: bytes that nobody here looks into."""

from __future__ import annotations

from tailrace.errors import TailraceError
from tailrace.queues.entries import PAYLOAD_BYTES_MAX


def check_payload(payload: bytes | bytearray | memoryview) -> bytes:
    """Refuse what cannot be carried."""
    if not isinstance(payload, bytes | bytearray | memoryview):
        what = f"a payload is bytes, and this is {type(payload).__name__}"
        raise TailraceError("queue.payload", what, hint="encode it first")
    raw = bytes(payload)
    if len(raw) > PAYLOAD_BYTES_MAX:
        what = f"a payload has {len(raw)} bytes, {PAYLOAD_BYTES_MAX} are allowed"
        raise TailraceError("queue.payload", what, hint="send it in parts, or send where it is")
    return raw
