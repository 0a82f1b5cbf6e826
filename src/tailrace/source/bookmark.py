"""The bookmark: how far a source was read, kept in the log, in the same commit group as what was read.

So there is one truth, and a crash cannot part the two. Bookmarks are messages of the reserved namespaces below; only
what has changed is written. The consumer `_capture` keeps the last ones from being removed (I6).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from tailrace.log.batch import Batch, batches_of
from tailrace.log.consumers import Consumers
from tailrace.log.reader import LogReader
from tailrace.log.session import ConsumerSession
from tailrace.message import Message, Micros, Mode, Offset, Op
from tailrace.namespace import RESERVED
from tailrace.source.phase import Progress, decode_progress

CONSUMER: Final = "_capture"
POSITION: Final = f"{RESERVED}position"
TABLES: Final = f"{RESERVED}tables"
PLANS: Final = f"{RESERVED}plans"


def load_progress(reader: LogReader) -> Progress:
    """The last bookmark in the log; nothing when there is none."""
    last = reader.view.last_offsets()
    position = _read(reader, last.get(POSITION))
    tables = _read(reader, last.get(TABLES)) or {}
    plans = _read(reader, last.get(PLANS)) or {}
    return Progress(position, {name: decode_progress(told) for name, told in tables.items()}, plans)


def bookmark(old: Progress, new: Progress, at: Micros) -> Iterator[Batch]:
    """What must be appended for `new` to be found instead of `old`."""
    changed = [
        (POSITION, new.position, old.position),
        (TABLES, _encode_tables(new), _encode_tables(old)),
        (PLANS, new.plans, old.plans),
    ]
    messages = [
        Message(Op.COMMAND, at, namespace, {"json": json.dumps(now)})
        for namespace, now, before in changed
        if now != before
    ]
    return batches_of(messages, Mode.SYNC)


class BookmarkHold:
    """Keeps the last bookmark from being removed."""

    def __init__(self, directory: str) -> None:
        self._consumers = Consumers(directory)
        self._consumers.register(CONSUMER, start=None, exist_ok=True)
        self._session = ConsumerSession(self._consumers, CONSUMER)

    def renew(self) -> None:
        """Let go of what came before the last bookmark."""
        last = self._consumers.view.last_offsets()
        first = min((last[name] for name in (POSITION, TABLES, PLANS) if name in last), default=0)
        if first > 0:
            self._session.commit(first - 1)

    def close(self) -> None:
        self._session.close()


def _encode_tables(progress: Progress) -> dict[str, Any]:
    return {name: table.encode() for name, table in progress.tables.items()}


def _read(reader: LogReader, offset: int | None) -> Any:
    if offset is None:
        return None
    for entry in reader.entries(Offset(offset), Offset(offset + 1)):
        return json.loads((entry.message.data or {})["json"])
    return None
