"""Taking rows again that wait for others: table by table, and together those that wait for each other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tailrace.errors import TailraceError
from tailrace.sync import circles, receiving, waiting
from tailrace.sync.database import Database, Link
from tailrace.sync.declared import Declared, Outdated
from tailrace.sync.incoming import Reception
from tailrace.sync.waiting import Waiting

_TOGETHER_MAX: Final = 100_000
"""So many rows that wait are looked at together."""


class Retaking:
    """An attempt to take what waits in a database."""

    def __init__(
        self,
        database: Database,
        declared: Declared,
        reception: Callable[[Link, int, int], Reception],
        look: Callable[[], None],
    ) -> None:
        """`look` is called when a table was installed anew meanwhile."""
        self._database = database
        self._declared = declared
        self._reception = reception
        self._look = look

    def attempt(self) -> tuple[int, int]:
        """Try all; how many rows waited before, and how many do now."""
        before = self._found()
        for each in before:
            self._take_again(each)
        circle = circles.tables(self._declared.referring)
        if before and any(each.table_id in circle for each in self._found()):
            self._write(lambda link: self._take_together(link, circle))
        after = self._found() if before else []
        return sum(len(each.ids) for each in before), sum(len(each.ids) for each in after)

    def _found(self) -> list[Waiting]:
        return self._database.read(lambda link: waiting.found(link, self._declared.order))

    def _take_again(self, rows: Waiting) -> None:
        def again(link: Link) -> None:
            waiting.remove(link, rows)
            for batch in rows.batches(self._declared.shapes[rows.table_id]):
                receiving.receive(self._reception(link, rows.table_id, rows.sender), batch)
            self._declared.check_current(link, rows.table_id)

        is_refused = self._write(again)
        if is_refused and len(rows.ids) > 1:  # foreign keys that are looked at when a transaction ends
            for half in rows.halves():
                self._take_again(half)

    def _take_together(self, link: Link, circle: set[int]) -> None:
        rows = [
            each
            for each in waiting.found(link, self._declared.order, _TOGETHER_MAX)
            if each.table_id in circle and not each.is_deleted
        ]
        shapes = {table_id: self._declared.shapes[table_id] for table_id in circle}
        circles.take(
            link,
            rows,
            shapes,
            self._declared.references,
            lambda table_id, sender: self._reception(link, table_id, sender),
        )
        for table_id in circle:
            self._declared.check_current(link, table_id)

    def _write(self, work: Callable[[Link], None]) -> bool:
        """Do it, or nothing; whether the database did not want some row."""
        try:
            self._database.write(work)
        except Outdated:
            self._look()
        except TailraceError as error:
            is_refused = self._database.is_refusal(error.__cause__)
            if error.code == "sync.unreachable" and not is_refused:
                raise
            return is_refused
        return False
