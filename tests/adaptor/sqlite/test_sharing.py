"""A file that several threads of one process use, as those of a node do."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

_TWO_THREADS = dedent("""
    import sqlite3, sys, threading
    from tailrace.adaptor.sqlite.options import SqliteReaderOptions, SqliteWriterOptions

    path, rows = sys.argv[1], int(sys.argv[2])
    reading = SqliteReaderOptions(path=path)
    SqliteWriterOptions(path=path).open_storage(reading)
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE t(id INTEGER PRIMARY KEY)")
    reader = reading.open()
    reader.install(reader.tables())
    start = reader.position()

    def write():
        for number in range(rows):
            connection = sqlite3.connect(path, timeout=30, isolation_level=None)
            connection.execute("INSERT INTO t VALUES (?)", (number,))
            connection.close()

    writing = threading.Thread(target=write)
    writing.start()
    found = 0
    while found < rows:
        end = reader.position()
        found += sum(len(batch) for piece in reader.plan_changes(start, end) for batch in reader.read_changes(piece))
        start = end
    writing.join()
    print(found)
""")


@pytest.mark.crash
def test_threads_do_not_cut_each_others_locks(tmp_path: Path) -> None:
    """With two copies of SQLite in the process this ended in a bus error."""
    arguments = [sys.executable, "-X", "faulthandler", "-c", _TWO_THREADS, str(tmp_path / "a.db"), "1500"]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout.strip()) == (0, "1500"), done.stderr[-3000:]
