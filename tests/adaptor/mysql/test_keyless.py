"""Tables in which nothing tells one row from another: each row comes once, whenever it was written."""

from __future__ import annotations

import re
import threading
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tailrace.adaptor.mysql.options import MysqlReaderOptions
from tailrace.log.commitlog import CommitLog
from tailrace.message import Op
from tailrace.source import capture as capturing
from tailrace.source.capture import Capture
from tests.adaptor.capturing import messages_in, run_here
from tests.adaptor.mysql.databases import ask, run

ALL = "SELECT seq FROM seq_1_to_300"


class Busy:
    """A source that is written to before and after everything that is read from it."""

    def __init__(self, database: str) -> None:
        self._database = database
        self._numbers = count(1000)

    def write(self) -> None:
        run(self._database, f"INSERT INTO keyless(n) VALUES ({next(self._numbers)})")

    def run(self, work: Any, items: list[Any]) -> Any:
        def do(item: Any) -> Any:
            self.write()
            told = work(item)
            self.write()
            return told

        return run_here(do, items)


def capture(database: str, log: Path, busy: Busy | None = None, turns: int | None = None) -> None:
    """So many turns of a run, or all that there is to do."""
    options = MysqlReaderOptions(url=database, piece_rows=40)  # type: ignore[arg-type]
    run_tasks = run_here if busy is None else busy.run
    with CommitLog.open(log) as opened:
        stop, said = threading.Event(), list[str]()
        reading = Capture(
            options, re.compile("."), opened, run_tasks, stop=stop, report=said.append, parallel=1, once=True
        )
        reading.open()
        try:
            done = 0
            while done != turns and reading.turn():
                done += 1
        finally:
            reading.close()


def rows(log: Path) -> list[int]:
    """The rows of the table, as whoever follows the log has them."""
    found: list[int] = []
    for message in messages_in(log):
        if message.namespace.endswith(".keyless"):
            if message.op is Op.COMMAND:
                found.clear()
            elif message.op is Op.INSERT and message.data:
                found.append(message.data["n"])
    return sorted(found)


@pytest.mark.parametrize("turns", [1, 3, 6], ids=["before its copy", "still before", "after its copy"])
def test_every_row_comes_once(database: str, tmp_path: Path, turns: int) -> None:
    """Also when the run ends and another one goes on."""
    run(database, "CREATE TABLE a(n int PRIMARY KEY)", f"INSERT INTO a {ALL}", "ANALYZE TABLE a")
    run(database, "CREATE TABLE keyless(n int)", f"INSERT INTO keyless {ALL}")
    busy, log = Busy(database), tmp_path / "log"
    capture(database, log, busy, turns)
    busy.write()
    capture(database, log)
    assert rows(log) == [n for (n,) in ask(database, "SELECT n FROM keyless ORDER BY n")]


def test_a_copy_that_is_made_again(database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A column with values in old rows needs a new copy, which takes the place of the first."""
    monkeypatch.setattr(capturing, "DISCOVER_EVERY_S", 0.0)
    run(database, "CREATE TABLE keyless(n int)", f"INSERT INTO keyless {ALL}")
    busy, log = Busy(database), tmp_path / "log"
    capture(database, log, busy, turns=3)
    run(database, "ALTER TABLE keyless ADD COLUMN word varchar(9) NOT NULL DEFAULT 'x'")
    capture(database, log, busy, turns=3)
    capture(database, log)
    assert rows(log) == [n for (n,) in ask(database, "SELECT n FROM keyless ORDER BY n")]
