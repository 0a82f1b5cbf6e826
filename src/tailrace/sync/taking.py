"""Taking rows of others, in transactions: those that came, in parts if need be, and again those that waited."""

from __future__ import annotations

from dataclasses import replace

from tailrace.errors import TailraceError
from tailrace.sync import counts, growth, receiving
from tailrace.sync.database import Database, Link
from tailrace.sync.declared import Current, Outdated
from tailrace.sync.entity import Authors
from tailrace.sync.exchange import Receipt, RowBatch
from tailrace.sync.horizon import Horizon
from tailrace.sync.incoming import Reception
from tailrace.sync.retaking import Retaking
from tailrace.sync.room import Room, RoomLimit


class Taking:
    """Takes rows. Any number of threads may use it."""

    def __init__(
        self, database: Database, current: Current, oneself: int, limit: RoomLimit, ahead_max_s: float
    ) -> None:
        self._database = database
        self._current = current
        self._oneself = oneself
        self._limit = limit
        self._ahead_max_s = ahead_max_s

    def receive(self, table_id: int, sender: int, batch: RowBatch, whose: Authors) -> Receipt:
        """Take rows of a node, which may send those of these authors."""
        unknown = batch.unknown - self._current.ignored.get(table_id, frozenset())

        def take(link: Link) -> Receipt:
            reception = self._reception(link, table_id, sender, authors=whose)
            self._current.declared.check_known(table_id, batch.unknown)
            if unknown:
                growth.note(link, reception.shape, unknown)
            receipt = receiving.receive(reception, batch)
            self._current.declared.check_current(link, table_id)
            return replace(receipt, count=counts.count_on(link, self._database.dialect, sender, batch.count))

        try:
            receipt = self._database.write(take)
        except Outdated:  # whoever sends the rows again is understood with the columns that there are now
            self._current.look()
            raise
        except TailraceError as error:
            if error.__cause__ is None or not self._database.is_refusal(error.__cause__):
                raise
            return self._receive_in_parts(table_id, sender, batch, error.__cause__, whose)
        if unknown:
            self._current.ignored[table_id] = batch.unknown | self._current.ignored.get(table_id, frozenset())
        return receipt

    def _receive_in_parts(
        self, table_id: int, sender: int, batch: RowBatch, error: BaseException, whose: Authors
    ) -> Receipt:
        """Foreign keys may be looked at only when a transaction ends. Rows that fail there are found by halving."""
        if len(batch) == 1:
            return self._database.write(
                lambda link: receiving.set_aside(self._reception(link, table_id, sender), batch, error)
            )
        half = len(batch) // 2
        receipt = Receipt()
        for rows in batch.parted(half):
            part = self.receive(table_id, sender, rows, whose)
            receipt.extend(part)
            receipt = replace(receipt, count=part.count)
        return receipt

    def _reception(
        self, link: Link, table_id: int, sender: int, *, has_room: bool = False, authors: Authors = Authors.ANY
    ) -> Reception:
        database, shape = self._database, self._current.shape(table_id)
        return Reception(
            link,
            shape,
            sender,
            self._oneself,
            database.refusals,
            database.is_about_others,
            database.is_collision,
            table_id in self._current.declared.watched,
            Room(None if has_room else self._limit),
            Horizon.of(link, shape, self._ahead_max_s),
            authors,
            self._current.declared.references,
        )

    def take_waiting(self) -> tuple[int, int]:
        """Try rows again that wait for others; how many waited before, and how many do now."""

        def reception(link: Link, table_id: int, sender: int) -> Reception:
            return self._reception(link, table_id, sender, has_room=True)

        return Retaking(self._database, self._current.declared, reception, self._current.look).attempt()
