"""Changes from a replication slot.

While its first copy lasts the driver keeps the slot's snapshot open, and no change is read: rows of the snapshot are
older than every change, so they must come first.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

import psycopg

from tailrace.adaptor.postgres import changes
from tailrace.adaptor.postgres.arrowlink import ArrowLink
from tailrace.adaptor.postgres.catalog import TableInfo
from tailrace.adaptor.postgres.changes import ChangeReader
from tailrace.adaptor.postgres.slot import PLUGIN, Published, Slot, SlotState, Snapshot, end_of_log, lsn_text
from tailrace.adaptor.postgres.types import Choices
from tailrace.errors import TailraceError
from tailrace.log.batch import Batch
from tailrace.source.contract import Piece, Position


class SlotFeed:
    """What one slot tells."""

    def __init__(self, slot: Slot, choices: Choices) -> None:
        self._slot = slot
        self._choices = choices
        self._link = ArrowLink(slot.server)
        self._published = Published()
        self._snapshot: Snapshot | None = None
        self._reached: Position | None = None

    @property
    def snapshot(self) -> str | None:
        return self._snapshot.name if self._snapshot else None

    def check(self, connection: psycopg.Connection[Any], position: Position) -> None:
        self._check(self._slot.state(connection), position)

    def install(self, connection: psycopg.Connection[Any], tables: Sequence[TableInfo]) -> None:
        self._published = self._slot.publish(connection, tables)
        state = self._slot.state(connection)
        if state is None:
            self._snapshot = self._slot.create()
        else:
            self._check_usable(state)

    def made_anew(self) -> Collection[str]:
        return self._published.added

    def uninstall(self, connection: psycopg.Connection[Any]) -> None:
        self.copied()
        self._slot.drop(connection)

    def position(self, connection: psycopg.Connection[Any]) -> Position:
        if self._snapshot is not None:
            return self._position(self._snapshot.lsn)
        return self._position(end_of_log(connection))

    def copied(self) -> None:
        """The snapshot is not needed any more; holding it would keep the server from cleaning up."""
        if self._snapshot is not None:
            self._snapshot.close()
            self._snapshot = None

    def plan(self, connection: psycopg.Connection[Any], start: Position, end: Position) -> list[Piece]:
        if end["lsn"] <= start["lsn"]:
            return []
        self._check(self._slot.state(connection), start)
        if not self._slot.has_changes(connection, end["lsn"]):
            return []
        begin = {"slot": self._slot.name, "lsn": start["lsn"], "seq": start.get("seq", 0)}
        begin["unwanted"] = sorted(self._published.unwanted)
        return [{**begin, "upto": end["lsn"], "changes_max": changes.CHANGES_MAX}]

    def read(self, piece: Piece) -> Iterator[Batch]:
        reading = ChangeReader(self._slot, self._choices, self._link)
        yield from reading.read(piece)
        self._reached = reading.reached

    def reached(self) -> Position | None:
        return self._reached

    def held_bytes(self, connection: psycopg.Connection[Any]) -> int | None:
        state = self._slot.state(connection)
        return None if state is None else state.held_bytes

    def forget(self, connection: psycopg.Connection[Any], upto: Position) -> None:
        if self._snapshot is None:
            self._check(self._slot.state(connection), upto, may_be_ahead=True)
            self._slot.advance(connection, upto["lsn"])

    def close(self) -> None:
        self.copied()
        self._link.close()

    def _position(self, lsn: int) -> Position:
        return {"slot": self._slot.name, "lsn": lsn}

    def _check(self, state: SlotState | None, place: Position, *, may_be_ahead: bool = False) -> None:
        """Refuse a position that the slot cannot go on from."""
        if place.get("slot") != self._slot.name:
            raise self._lost(f"they were read through slot {place.get('slot')}, and now `slot` is {self._slot.name}")
        if state is None:
            raise self._lost(f"slot {self._slot.name} is gone")
        self._check_usable(state)
        if state.confirmed > place["lsn"] and not may_be_ahead:
            ours, theirs = lsn_text(place["lsn"]), lsn_text(state.confirmed)
            raise self._lost(f"slot {self._slot.name} begins at {theirs}, behind {ours}; does something else use it?")

    def _check_usable(self, state: SlotState) -> None:
        if state.is_lost:
            raise self._lost(f"slot {self._slot.name} was invalidated: the server removed what it was to keep")
        if state.plugin != PLUGIN:
            what = f"slot {self._slot.name} of {self._slot.server.place} speaks {state.plugin}, not {PLUGIN}"
            raise TailraceError("source.unsupported", what, hint="give another name with `slot`")

    def _lost(self, why: str) -> TailraceError:
        what = f"changes of {self._slot.server.place} cannot be read on from where they were: {why}"
        hint = "tailrace slot drop PIPELINE.yml, then copy the source again, into a new log"
        return TailraceError("source.position_lost", what, hint=hint)
