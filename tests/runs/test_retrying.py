"""Writers that have stopped go on in the same run when an operator says so."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tailrace.adaptor.sqlite import sqlite
from tailrace.deliver.retrying import Retrying
from tailrace.log import audit
from tailrace.pipeline import Pipeline
from tailrace.pipeline.run import Summary, Until, run
from tailrace.pipeline.shutdown import Shutdown
from tailrace.pipeline.spec import PipelineSpec
from tailrace.pipeline.status import WriterState, WriterStatus, status
from tests.cli.process import database
from tests.relay.nodes import wait_for

REFUSE = "CREATE TRIGGER refuse BEFORE INSERT ON orders WHEN NEW.price < 0 BEGIN SELECT RAISE(ABORT, 'no'); END"


@pytest.fixture
def spec(tmp_path: Path) -> PipelineSpec:
    table = "CREATE TABLE orders (id INTEGER PRIMARY KEY, price INTEGER)"
    with database(tmp_path / "shop.db") as shop:
        shop.execute(table)
        shop.executemany(
            "INSERT INTO orders VALUES (?, ?)", [(number, -1 if number == 7 else 1) for number in range(20)]
        )
    with database(tmp_path / "office.db") as office:
        office.execute(table)
        office.execute(REFUSE)
    pipeline = Pipeline("test", log=str(tmp_path / "log")).read(sqlite(str(tmp_path / "shop.db")))
    return pipeline.write(sqlite(str(tmp_path / "office.db")), name="office").spec()


def orders(spec: PipelineSpec) -> int:
    with database(Path(spec.log).parent / "office.db") as office:
        return int(office.execute("SELECT count(*) FROM orders").fetchone()[0])


def mend(spec: PipelineSpec) -> None:
    with database(Path(spec.log).parent / "office.db") as office:
        office.execute("DROP TRIGGER refuse")


def writer(spec: PipelineSpec) -> WriterStatus:
    return status(spec).writers[0]


def watched(spec: PipelineSpec, spark: SparkSession, operator: Callable[[], None]) -> Summary:
    """A run beside which somebody sits, who ends it when all is done."""
    shutdown = Shutdown()
    wrong: list[BaseException] = []

    def sit() -> None:
        try:
            operator()
        except BaseException as error:  # noqa: BLE001  told below
            wrong.append(error)
        shutdown.asked.set()

    person = threading.Thread(target=sit)
    person.start()
    summary = run(spec, shutdown=shutdown, session=lambda: spark, is_attended=True)
    person.join()
    assert wrong == []
    return summary


def test_it_goes_on_in_the_same_run(spec: PipelineSpec, spark: SparkSession) -> None:
    def operator() -> None:
        wait_for(lambda: Path(spec.log).exists() and writer(spec).state is WriterState.STOPPED, 120)
        Retrying(spec.log, "office").ask("perhaps it was only a moment")
        wait_for(lambda: (trouble := writer(spec).trouble) is not None and trouble.is_single, 120)
        wait_for(lambda: writer(spec).state is WriterState.STOPPED, 120)
        mend(spec)
        Retrying(spec.log, "office").ask("the trigger is gone")
        wait_for(lambda: orders(spec) == 20, 120)

    summary = watched(spec, spark, operator)
    assert summary.errors == []
    assert (writer(spec).failure, writer(spec).trouble) == (None, None)
    reasons = [line["reason"] for line in audit.read(spec.log) if line["action"] == "retry"]
    assert reasons == ["perhaps it was only a moment", "the trigger is gone"]


def test_what_is_asked_while_nobody_runs_it_is_done_by_the_next_run(spec: PipelineSpec, spark: SparkSession) -> None:
    failed = run(spec, Until.ONCE, session=lambda: spark)
    assert failed.errors
    mend(spec)
    Retrying(spec.log, "office").ask("mended")
    assert run(spec, Until.ONCE, session=lambda: spark).errors == []
    assert orders(spec) == 20
    assert not Retrying(spec.log, "office").take(), "it is done, and not done again at some later failure"
