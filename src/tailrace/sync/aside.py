"""Rows that are too large for a node, or for something on the way to it. They are put aside with the reason, hold up
nobody, and are offered again when they are changed."""

from __future__ import annotations

import logging
from typing import Final

from tailrace.sync import quarantine, trackers
from tailrace.sync.database import Link
from tailrace.sync.exchange import Acks, RowBatch
from tailrace.sync.room import Room
from tailrace.sync.shape import Shape

_log: Final = logging.getLogger(__name__)


def put_aside(link: Link, shape: Shape, node: int, rows: RowBatch, why: str, room: Room) -> bool:
    """Whether there was room in quarantine; otherwise they stay pending."""
    told = Acks.of_rows(rows, shape.key)
    if not all(quarantine.keep_unsent(link, shape, node, each.tracker, why, room) for each in told):
        return False
    trackers.mark(link, shape, node, told)
    _log.warning("rows of table %s are not sent to node %d and kept in quarantine: %s", shape.entity.table, node, why)
    return True
