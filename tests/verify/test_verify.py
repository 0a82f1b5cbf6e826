"""Source against destinations: what differs is found, nothing else is, and repair mends it."""

from __future__ import annotations

import re
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from tailrace.adaptor.endpoint import Endpoint
from tailrace.adaptor.lake import lake
from tailrace.adaptor.sqlite import sqlite
from tailrace.errors import TailraceError
from tailrace.log.commitlog import CommitLog
from tailrace.message import Message, Micros, Op
from tailrace.pipeline import Pipeline
from tailrace.pipeline.run import Running, Until, Watcher, run
from tailrace.pipeline.shutdown import Shutdown
from tailrace.pipeline.spec import PipelineSpec
from tailrace.transform import omit, opfilter, python, remap, rename, skip, sql
from tailrace.verify.differences import Differences, Kind
from tailrace.verify.repair import Repaired, check_repairable, repair
from tailrace.verify.report import Report
from tailrace.verify.verify import Scope, verify

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Verify = Callable[..., Report]
Repair = Callable[..., Repaired]

SHOP = """
CREATE TABLE orders(id INTEGER PRIMARY KEY, customer TEXT, total REAL, paid BOOLEAN, note, photo BLOB);
CREATE TABLE items("order" INTEGER, sku TEXT, amount INTEGER, PRIMARY KEY("order", sku)) WITHOUT ROWID;
"""
DESTINATIONS: dict[str, Endpoint] = {
    "sqlite": sqlite("copy.db"),
    "parquet": lake("lake"),
    "delta": lake("deltas", format="delta"),
}


def execute(path: str, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        for statement in statements:
            connection.executescript(statement)


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A shop of 300 orders and 600 items."""
    monkeypatch.chdir(tmp_path)
    execute("shop.db", SHOP)
    with closing(sqlite3.connect("shop.db")) as connection, connection:
        notes: list[Any] = [None, "a note", 7, 2.5, b"\x00\xff"]
        orders = [(n, f"customer {n % 7}", n / 4, n % 2, notes[n % 5], b"\x01" * (n % 3)) for n in range(1, 301)]
        items = [(n, f"sku-{part}", n * part) for n in range(1, 301) for part in (1, 2)]
        connection.executemany("INSERT INTO orders VALUES (?, ?, ?, ?, ?, ?)", orders)
        connection.executemany("INSERT INTO items VALUES (?, ?, ?)", items)
    return "shop.db"


def delivered(pipeline: Pipeline, spark: SparkSession) -> PipelineSpec:
    spec = pipeline.spec()
    summary = run(spec, Until.ONCE, session=lambda: spark)
    assert summary.errors == []
    return spec


@pytest.fixture
def verified(spark: SparkSession) -> Verify:
    def find(spec: PipelineSpec, *writers: str, namespace: str | None = None) -> Report:
        pattern = re.compile(namespace) if namespace else None
        return verify(Scope(spec, writers, pattern), lambda: spark, lambda _: None)

    return find


@pytest.fixture
def repaired(spark: SparkSession) -> Repair:
    def mend(spec: PipelineSpec, report: Report, *writers: str) -> Repaired:
        scope = Scope(spec, writers)
        check_repairable(scope)
        return repair(scope, report, lambda: spark, lambda _: None)

    return mend


class Began(Watcher):
    """Tells when a run has begun."""

    def __init__(self) -> None:
        self.event = threading.Event()

    def began(self, running: Running) -> None:
        self.event.set()


def of(report: Report, namespace: str) -> Differences:
    """The differences of a namespace, of the only writer."""
    (writer,) = report.writers
    return next(each.differences for each in writer.namespaces if each.namespace == namespace)


def keys(found: Differences) -> dict[Kind, list[str]]:
    return {kind: [key.text for key in found.keys if key.kind is kind] for kind in found.counts}


@pytest.fixture(params=DESTINATIONS)
def copied(request: pytest.FixtureRequest, shop: str, spark: SparkSession) -> Iterator[tuple[str, PipelineSpec]]:
    """A shop that was delivered, once for each kind of destination."""
    pipeline = Pipeline("shop").read(sqlite(shop)).write(DESTINATIONS[request.param], name="copy")
    yield request.param, delivered(pipeline, spark)


@pytest.fixture
def spec_of_lakes(shop: str, spark: SparkSession) -> PipelineSpec:
    pipeline = Pipeline("shop").read(sqlite(shop))
    return delivered(pipeline.write(lake("lake")).write(lake("deltas", format="delta"), name="deltas"), spark)


def lake_file(namespace: str) -> Path:
    return sorted(Path("lake", namespace, "current").resolve().glob("*.parquet"))[0]


def damage(kind: str) -> None:
    """Behind the pipeline's back: order 5 and item (9, sku-2) are lost, order 8 is other, order 900 is new."""
    if kind == "sqlite":
        execute("copy.db", "DELETE FROM orders WHERE id = 5; UPDATE orders SET customer = 'x' WHERE id = 8")
        execute(
            "copy.db", """INSERT INTO orders(id) VALUES (900); DELETE FROM items WHERE "order" = 9 AND sku = 'sku-2'"""
        )
    elif kind == "delta":
        orders = DeltaTable("deltas/main.orders")
        orders.delete("id = 5")
        orders.update({"customer": "'x'"}, predicate="id = 8")
        write_deltalake(
            "deltas/main.orders", pa.table({"id": pa.array([900], pa.int64())}), mode="append", schema_mode="merge"
        )
        DeltaTable("deltas/main.items").delete("\"order\" = 9 AND sku = 'sku-2'")
    else:
        for namespace, change in {"main.orders": damaged_orders, "main.items": damaged_items}.items():
            for path in Path("lake", namespace, "current").resolve().glob("*.parquet"):
                rewrite(path, change(pq.read_table(path)))


def rewrite(path: Path, table: pa.Table) -> None:
    """With the checksum that Hadoop keeps beside a file gone, too."""
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
    pq.write_table(table, path)


def damaged_orders(table: pa.Table) -> pa.Table:
    rows = [row for row in table.to_pylist() if row["id"] != 5]
    if any(row["id"] == 8 for row in rows):
        rows.append({"id": 900})
    changed = [{**row, "customer": "x"} if row["id"] == 8 else row for row in rows]
    return pa.Table.from_pylist(changed, schema=table.schema)


def damaged_items(table: pa.Table) -> pa.Table:
    rows = [row for row in table.to_pylist() if (row["order"], row["sku"]) != (9, "sku-2")]
    return pa.Table.from_pylist(rows, schema=table.schema)


def test_what_was_delivered_is_equal(copied: tuple[str, PipelineSpec], verified: Verify) -> None:
    _, spec = copied
    report = verified(spec)
    assert report.error("") is None
    assert report.writers[0].notes == []
    orders, items = of(report, "main.orders"), of(report, "main.items")
    assert (orders.expected_rows, orders.stored_rows, orders.total) == (300, 300, 0)
    assert (items.expected_rows, items.stored_rows, items.total) == (600, 600, 0)


def test_every_kind_of_difference_is_found_with_its_keys(copied: tuple[str, PipelineSpec], verified: Verify) -> None:
    kind, spec = copied
    damage(kind)
    report = verified(spec)
    assert keys(of(report, "main.orders")) == {
        Kind.MISSING: ["[5]"],
        Kind.DIFFERENT: ["[8]"],
        Kind.EXTRA: ["[900]"],
    }
    assert keys(of(report, "main.items")) == {Kind.MISSING: ['[9,"sku-2"]']}
    error = report.error("mend it")
    assert error is not None
    assert (error.code, error.what) == ("verify.differs", "4 keys differ between the source and copy")


def test_a_repeated_row_of_a_lake_is_found(shop: str, spark: SparkSession, verified: Verify) -> None:
    spec = delivered(Pipeline("shop").read(sqlite(shop)).write(lake("lake"), name="copy"), spark)
    path = lake_file("main.items")
    table = pq.read_table(path)
    rewrite(path, pa.concat_tables([table, table.slice(0, 1)]))
    row = table.slice(0, 1).to_pylist()[0]
    assert keys(of(verified(spec), "main.items")) == {Kind.REPEATED: [f'[{row["order"]},"{row["sku"]}"]']}


def test_repair_mends_everything(copied: tuple[str, PipelineSpec], verified: Verify, repaired: Repair) -> None:
    kind, spec = copied
    damage(kind)
    assert repaired(spec, verified(spec)) == Repaired(sent=3, deleted=1)
    assert verified(spec).differing == 0


def test_repair_makes_one_row_of_two(
    shop: str, spark: SparkSession, verified: Verify, repaired: Repair, spec_of_lakes: PipelineSpec
) -> None:
    row = DeltaTable("deltas/main.items").to_pyarrow_table().slice(0, 1)
    write_deltalake("deltas/main.items", row, mode="append")
    path = lake_file("main.items")
    table = pq.read_table(path)
    rewrite(path, pa.concat_tables([table, table.slice(0, 1)]))
    found = verified(spec_of_lakes)
    assert [writer.differing for writer in found.writers] == [1, 1]
    repaired(spec_of_lakes, found)
    assert verified(spec_of_lakes).differing == 0


def through_functions(source: str) -> Pipeline:
    functions = (omit("photo"), rename({"id": "number"}), skip("total", ">", 10))
    return Pipeline("shop").read(sqlite(source), namespace="orders").through(*functions).write(sqlite("copy.db"))


def test_functions_say_what_is_expected(shop: str, spark: SparkSession, verified: Verify, repaired: Repair) -> None:
    """Orders 1 to 40 are skipped. What repair sends goes through the functions, so a renamed key finds its row."""
    spec = delivered(through_functions(shop), spark)
    found = of(verified(spec), "main.orders")
    assert (found.expected_rows, found.stored_rows, found.total) == (260, 260, 0)
    execute("copy.db", "DELETE FROM orders WHERE number = 50; UPDATE orders SET paid = 9 WHERE number = 60")
    execute("copy.db", "INSERT INTO orders(number, customer) VALUES (7, 'skipped'), (901, 'nobody')")
    report = verified(spec)
    assert keys(of(report, "main.orders")) == {
        Kind.MISSING: ["[50]"],
        Kind.DIFFERENT: ["[60]"],
        Kind.EXTRA: ["[7]", "[901]"],
    }
    assert repaired(spec, report) == Repaired(sent=2, deleted=2)
    assert verified(spec).differing == 0


def test_namespaces_with_other_names(shop: str, spark: SparkSession, verified: Verify, repaired: Repair) -> None:
    """Those that become one are not compared, for rows of the one are no rows of the other."""
    execute(shop, "CREATE TABLE a(id INTEGER PRIMARY KEY); CREATE TABLE b(id INTEGER PRIMARY KEY)")
    renaming = remap({"main.items": "main.parts", "main.a": "main.c", "main.b": "main.c"})
    reading = Pipeline("shop").read(sqlite(shop), namespace="items|a$|b$").through(renaming)
    spec = delivered(reading.write(sqlite("copy.db"), name="copy"), spark)
    execute("copy.db", 'DELETE FROM parts WHERE "order" < 3; INSERT INTO parts("order", sku) VALUES (0, 0)')
    report = verified(spec)
    assert [each.namespace for each in report.writers[0].namespaces] == ["main.items"]
    assert report.writers[0].notes == [
        "main.a is not compared: main.c holds others, too",
        "main.b is not compared: main.c holds others, too",
    ]
    assert of(report, "main.items").counts == {Kind.MISSING: 4, Kind.EXTRA: 1}
    assert repaired(spec, report) == Repaired(sent=4, deleted=1)
    assert verified(spec).differing == 0


def with_tax(message: dict[str, Any]) -> dict[str, Any]:
    return {**message, "data": {**message["data"], "tax": message["data"]["total"] * 0.19}}


def test_functions_of_any_kind(shop: str, spark: SparkSession, verified: Verify) -> None:
    """On single messages, whose fields are known only afterwards, and on DataFrames."""
    query = "SELECT id, customer, sum * 2 AS twice FROM messages WHERE id <= 100"
    reading = Pipeline("shop").read(sqlite(shop), namespace="orders")
    spec = delivered(
        reading.through(python(with_tax))
        .write(sqlite("python.db"), name="python")
        .through(rename({"total": "sum"}), sql(query))
        .write(sqlite("sql.db"), name="sql"),
        spark,
    )
    execute("python.db", "UPDATE orders SET tax = tax + 0.01 WHERE id = 3")
    execute("sql.db", "UPDATE orders SET twice = 0 WHERE id = 4; DELETE FROM orders WHERE id = 5")
    by_python, by_sql = verified(spec).writers
    assert keys(by_python.namespaces[0].differences) == {Kind.DIFFERENT: ["[3]"]}
    assert keys(by_sql.namespaces[0].differences) == {Kind.DIFFERENT: ["[4]"], Kind.MISSING: ["[5]"]}
    assert by_sql.namespaces[0].differences.expected_rows == 100


def test_what_cannot_be_compared_is_no_failure(shop: str, spark: SparkSession, verified: Verify) -> None:
    reading = Pipeline("shop").read(sqlite(shop), namespace="items")
    spec = delivered(
        reading.write(lake("history", keep="history"), name="history")
        .through(opfilter("insert"))
        .write(sqlite("copy.db"), name="inserts"),
        spark,
    )
    report = verified(spec)
    assert report.error("") is None
    history, inserts = report.writers
    assert history.incomparable == "it keeps the history, not the current state"
    assert inserts.incomparable is not None
    assert "opfilter" in inserts.incomparable


def test_only_the_writers_and_namespaces_that_were_asked_for(spec_of_lakes: PipelineSpec, verified: Verify) -> None:
    report = verified(spec_of_lakes, "deltas", namespace="items$")
    assert [(writer.name, [each.namespace for each in writer.namespaces]) for writer in report.writers] == [
        ("deltas", ["main.items"])
    ]
    with pytest.raises(TailraceError, match="did you mean deltas"):
        verified(spec_of_lakes, "delta")


def test_what_is_behind_is_told_and_not_repaired(
    shop: str, spark: SparkSession, verified: Verify, repaired: Repair
) -> None:
    pipeline = Pipeline("shop").read(sqlite(shop), namespace="items").write(sqlite("copy.db"), name="copy")
    spec = delivered(pipeline, spark)
    execute(shop, """UPDATE items SET amount = -1 WHERE "order" = 3 AND sku = 'sku-1'""")
    with CommitLog.open(spec.log) as log:
        log.append_messages([Message(Op.DELETE, Micros(1), "main.items", {"order": 1, "sku": "sku-1"})])
        with pytest.raises(TailraceError, match="needs it alone"):
            check_repairable(Scope(spec))
    report = verified(spec)
    assert report.writers[0].notes == [
        "writer copy is 1 messages behind the log; run the pipeline first",
        "the source has changes that the log lacks; run the pipeline first",
    ]
    assert keys(of(report, "main.items")) == {Kind.DIFFERENT: ['[3,"sku-1"]']}
    with pytest.raises(TailraceError, match="1 messages behind"):
        repaired(spec, report)


def test_beside_a_running_pipeline(shop: str, spark: SparkSession, verified: Verify) -> None:
    """What is on its way is no difference; what was changed behind its back is."""
    pipeline = Pipeline("shop").read(sqlite(shop), namespace="items").write(sqlite("copy.db"), name="copy")
    spec = delivered(pipeline, spark)
    shutdown = Shutdown()
    began = Began()
    running = threading.Thread(
        target=run, args=(spec,), kwargs={"session": lambda: spark, "shutdown": shutdown, "watcher": began}
    )
    running.start()
    try:
        assert began.event.wait(60)
        execute("copy.db", "UPDATE items SET amount = 0 WHERE \"order\" = 2 AND sku = 'sku-2'")
        execute(shop, """UPDATE items SET amount = amount + 1 WHERE "order" > 100""")
        report = verified(spec)
    finally:
        shutdown.asked.set()
        running.join()
    assert keys(of(report, "main.items")) == {Kind.DIFFERENT: ['[2,"sku-2"]']}


def test_a_destination_that_converts_values(shop: str, spark: SparkSession, verified: Verify) -> None:
    """A table that was there before, whose columns make text of numbers and numbers of text."""
    execute("shop.db", "CREATE TABLE odd(id INTEGER PRIMARY KEY, number INTEGER, text TEXT, real REAL)")
    execute("shop.db", "INSERT INTO odd VALUES (1, 5, '007', 0.1), (2, NULL, '12', 3.0), (3, -7, 'seven', 1e300)")
    execute("copy.db", "CREATE TABLE odd(id INTEGER PRIMARY KEY, number TEXT, text NUMERIC, real TEXT)")
    pipeline = Pipeline("shop").read(sqlite(shop), namespace="odd").write(sqlite("copy.db", create=False))
    spec = delivered(pipeline, spark)
    assert verified(spec).differing == 0
    execute("copy.db", "UPDATE odd SET number = '-8' WHERE id = 3; UPDATE odd SET text = 8 WHERE id = 1")
    assert keys(of(verified(spec), "main.odd")) == {Kind.DIFFERENT: ["[1]", "[3]"]}
