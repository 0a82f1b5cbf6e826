"""`tailrace verify` and `tailrace rebuild`, as a shell sees them; one Spark session serves all of them."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from tailrace.pipeline.load import load
from tailrace.pipeline.run import Until, run
from tailrace.spark import beside
from tests.cli.conftest import Tailrace

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PIPELINE = """
pipeline: shop
read:
  sqlite: {path: shop.db}
write:
  - name: copy
    sqlite: {path: copy.db}
  - name: screen
    console: {}
"""


def execute(path: str, script: str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executescript(script)


@pytest.fixture
def session(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> SparkSession:
    """A command starts no session of its own, nor ends this one."""

    class Borrowed:
        def __init__(self, _: object) -> None:
            pass

        def __call__(self) -> SparkSession:
            return spark

        def stop(self) -> None:
            pass

    monkeypatch.setattr(beside, "LateSession", Borrowed)
    return spark


@pytest.fixture
def pipeline(session: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A pipeline whose copy lacks order 3 and has other values for 4."""
    monkeypatch.chdir(tmp_path)
    Path("shop.yml").write_text(PIPELINE)
    execute("shop.db", "CREATE TABLE orders(id INTEGER PRIMARY KEY, name TEXT)")
    execute("shop.db", "INSERT INTO orders VALUES (1, 'one'), (2, 'two'), (3, 'three'), (4, 'four')")
    assert run(load("shop.yml"), Until.ONCE, session=lambda: session).errors == []
    execute("copy.db", "DELETE FROM orders WHERE id = 3; UPDATE orders SET name = 'x' WHERE id = 4")
    return "shop.yml"


def test_differences_and_their_repair(tailrace: Tailrace, pipeline: str) -> None:
    found = tailrace("verify", pipeline)
    assert found.status == 1
    assert found.out.splitlines() == [
        "copy: main.orders differs: 1 missing, 1 different (4 rows in the source, 3 here)",
        "  missing    [3]",
        "  different  [4]",
        "screen: cannot be compared, a destination of the adaptor console cannot be read back",
    ]
    assert "error verify.differs: 2 keys differ between the source and copy" in found.err
    assert "next: tailrace verify shop.yml --repair" in found.err

    repaired = tailrace("verify", pipeline, "copy", "--repair", "--json")
    assert repaired.status == 0
    assert repaired.json["equal"]
    assert [(each["namespace"], each["destination_rows"]) for each in repaired.json["writers"][0]["namespaces"]] == [
        ("main.orders", 4)
    ]


def test_json_is_one_object(tailrace: Tailrace, pipeline: str) -> None:
    found = tailrace("verify", pipeline, "copy", "--json", "--namespace", "orders")
    assert found.status == 1
    assert found.json["writers"][0]["namespaces"][0] == {
        "namespace": "main.orders",
        "equal": False,
        "source_rows": 4,
        "destination_rows": 3,
        "differing": {"missing": 1, "different": 1},
        "moving": 0,
        "keys": [{"kind": "missing", "key": "[3]"}, {"kind": "different", "key": "[4]"}],
    }
    assert json.loads(found.err.splitlines()[-1])["error"]["code"] == "verify.differs"


def test_what_never_ran_is_refused(tailrace: Tailrace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("shop.yml").write_text(PIPELINE)
    assert "log.not_found" in tailrace("verify", "shop.yml").err
    assert "did you mean copy?" in tailrace("verify", "shop.yml", "copyy").err


def test_rebuild(tailrace: Tailrace, pipeline: str) -> None:
    log = load(pipeline).log
    end = int(tailrace("log", "current", "--log", log).out)
    told = tailrace("rebuild", pipeline, "main.orders", "--at", end, "--to", "then")
    assert told.out == f"4 rows of main.orders at offset {end} in {Path('then').absolute()}\n"
    assert {row["name"] for row in pq.read_table("then").to_pylist()} == {"one", "two", "three", "four"}
    again = tailrace("rebuild", "--log", log, "main.orders", "--at", end, "--format", "jsonl", "--json")
    assert again.json["rows"] == 4
    assert Path(again.json["directory"]).name == f"rebuild-main.orders-{end}"


def test_rebuild_needs_a_log_and_a_namespace(tailrace: Tailrace, pipeline: str) -> None:
    for arguments in (["main.orders"], [pipeline, "main.orders", "--log", "x"], ["a", "b", "c"]):
        assert tailrace("rebuild", *arguments, "--at", "1").status == 2
