"""How messages are printed: in blocks as Transporter does, or as JSON lines."""

from __future__ import annotations

import base64
import json
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from tailrace.log.selection import SelectedFrame
from tailrace.message import Entry, Micros, moment


def as_block(entry: Entry, raw: str | None = None) -> str:
    """One message as `transporter xlog show` prints it; what Transporter does not have follows when it is there.

    `raw` is the stored text of a plain frame, printed as it is.
    """
    message = entry.message
    lines = {
        "offset": str(entry.offset),
        "timestamp": show_time(message.timestamp),
        "mode": entry.mode.name,
        "op": message.op.name,
        "key": printable(message.namespace),
        "value": printable(compact_json(message.data) if raw is None else raw),
    }
    if message.before is not None:
        lines["before"] = printable(compact_json(message.before))
    if message.origin:
        lines["origin"] = str(message.origin)
    if message.lsn:
        lines["lsn"] = str(message.lsn)
    if message.tx is not None:
        lines["tx"] = printable(message.tx)
    if message.destinations:
        lines["for"] = ", ".join(map(printable, message.destinations))
    return "".join(f"{name:<10}: {value}\n" for name, value in lines.items())


def as_json(entry: Entry) -> dict[str, Any]:
    message = entry.message
    return {
        "offset": entry.offset,
        "timestamp": moment(message.timestamp).isoformat(),
        "mode": entry.mode.name.lower(),
        "op": message.op.name.lower(),
        "namespace": message.namespace,
        "data": message.data,
        "before": message.before,
        "origin": message.origin,
        "lsn": message.lsn,
        "tx": message.tx,
        "destinations": list(message.destinations),
    }


def stored_text(frame: SelectedFrame) -> str | None:
    """The document of a plain frame exactly as it was written."""
    return None if frame.head.is_batch else str(frame.body, "utf-8", "replace")


def compact_json(value: Any) -> str:
    return json.dumps(value, default=_plain, ensure_ascii=False, separators=(",", ":"))


def show_time(at: Micros) -> str:
    """A moment as Go prints it: `2006-01-02 15:04:05.5 +0000 UTC`."""
    shown = moment(at)
    fraction = f".{shown.microsecond:06d}".rstrip("0") if shown.microsecond else ""
    return f"{shown:%Y-%m-%d %H:%M:%S}{fraction} +0000 UTC"


def printable(text: str) -> str:
    """Text from outside without what a terminal would obey."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def _plain(value: Any) -> Any:
    """Values that JSON has no form for, as text that loses nothing."""
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Decimal | UUID | timedelta):
        return str(value)
    raise TypeError(f"no JSON form for {type(value).__name__}")
