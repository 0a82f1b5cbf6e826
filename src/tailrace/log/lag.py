"""How far behind a consumer is, in messages, bytes and seconds."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tailrace.errors import TailraceError
from tailrace.log.contents import Contents
from tailrace.log.segment import Located
from tailrace.log.view import LogView
from tailrace.message import Offset


@dataclass(frozen=True, slots=True)
class Lag:
    """What lies between a position and the end of the log."""

    messages: int
    bytes: int
    seconds: float
    """The age of the oldest message that is not acknowledged; 0 when there is none."""


def lag_behind(view: LogView, position: int, now_s: float) -> Lag:
    """The lag of whoever has acknowledged everything up to `position`."""
    try:
        return _lag(view, position, now_s)
    except TailraceError as error:
        if error.code != "log.below_oldest":
            raise
        return _lag(view, position, now_s)  # retention went past it between two looks


def lag_from(oldest: Located, first: Offset, contents: Iterable[tuple[Offset, Contents]], now_s: float) -> Lag:
    """The lag of whoever needs `first` next, which is in the frame that was found, or the first one behind it."""
    behind_bytes = messages = 0
    for base, found in contents:
        if found.end <= first:
            continue
        behind_bytes += found.segment_bytes - (oldest.position if base <= first else 0)
        messages += found.end - max(base, first)
    return Lag(messages, behind_bytes, max(0.0, now_s - oldest.head.timestamp / 1e6))


def _lag(view: LogView, position: int, now_s: float) -> Lag:
    head = view.head()
    first = Offset(max(position + 1, view.bases()[0]))
    if first >= head.next_offset:
        return Lag(0, 0, 0.0)
    return lag_from(view.find(first), first, view.all_contents(), now_s)
