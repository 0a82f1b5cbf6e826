"""The main job, shown on a shop made here: copy, follow the changes, deliver twice, verify."""

from __future__ import annotations

import os
import tempfile
from typing import Final

from tailrace.cli.run import display
from tailrace.cli.running import Talk
from tailrace.demo.shop import Business, make_shop
from tailrace.errors import TailraceError
from tailrace.pipeline.load import load
from tailrace.pipeline.run import Summary, Until, run
from tailrace.pipeline.shutdown import Shutdown
from tailrace.pipeline.spec import PipelineSpec
from tailrace.spark.beside import RUN_DIRECTORY
from tailrace.spark.late import LateSession
from tailrace.spark.session import SparkConfig
from tailrace.verify.report import Report
from tailrace.verify.verify import Scope, verify

PIPELINE: Final = """\
# A shop's database goes to a lake without addresses, and to a second database that has only what is under way.
pipeline: shop
log: log
read:
  sqlite: {path: shop.db}
write:
  - name: lake
    lake: {path: lake}
    through:
      - omit: [email]
  - name: office
    sqlite: {path: office.db}
    namespace: orders|order_lines
    through:
      - rename: {total: amount}
"""


def demonstrate(seconds: float, customers: int, orders: int, directory: str | None) -> None:
    """The whole demonstration; leaves nothing behind unless a directory is given."""
    if directory is None:
        with tempfile.TemporaryDirectory(prefix="tailrace-demo-") as scratch:
            _demonstrate(seconds, customers, orders, scratch)
        return
    if os.path.isdir(directory) and os.listdir(directory):
        raise TailraceError("input.invalid", f"{directory} is not empty", hint="name a new directory with --keep")
    os.makedirs(directory, exist_ok=True)
    _demonstrate(seconds, customers, orders, directory)
    print(f"\nEverything is in {directory}. Go on with: tailrace status {os.path.join(directory, 'pipeline.yml')}")


def _demonstrate(seconds: float, customers: int, orders: int, directory: str) -> None:
    file = os.path.join(directory, "pipeline.yml")
    with open(file, "w", encoding="utf-8") as stream:
        stream.write(PIPELINE)
    spec = load(file)
    shop = os.path.join(directory, "shop.db")
    _step(f"1. A shop with {customers} customers and {orders} orders, in {shop}")
    make_shop(shop, customers, orders)
    _step(f"2. tailrace run pipeline.yml, while the shop is open for {seconds:g} seconds more")
    session = LateSession(SparkConfig(os.path.join(spec.log, RUN_DIRECTORY), slots=5))
    business = Business(shop, seconds)
    try:
        summary = _run(spec, business, session)
        if summary is None:
            return
        _step("3. tailrace verify pipeline.yml: source and destinations, compared key by key")
        report = verify(Scope(spec), session, lambda line: print(f"   {line}", flush=True))
    finally:
        session.stop()
    _print(summary, report, business.transactions)
    if (error := report.error(f"tailrace verify {file}")) is not None:
        raise error


def _run(spec: PipelineSpec, business: Business, session: LateSession) -> Summary | None:
    """The pipeline, until the shop has closed and everything is delivered; None when somebody stopped it."""
    shutdown = Shutdown()
    session()  # what comes in before Spark is there would only be copied
    with Talk(display()) as talk:
        business.start()
        try:
            summary = run(
                spec,
                Until.CAUGHT_UP,
                watcher=talk,
                shutdown=shutdown,
                session=session,
                not_before=business.is_over,
            )
        finally:
            business.close()
    if summary.errors:
        raise summary.errors[0]
    return None if shutdown.asked.is_set() else summary


def _print(summary: Summary, report: Report, transactions: int) -> None:
    _step("4. What happened")
    captured = sum(summary.captured.values())
    print(f"   {transactions} transactions while running; {captured} messages captured, kept once in the log")
    for writer in report.writers:
        written = sum(summary.delivered[writer.name].values())
        rows = sum(each.differences.stored_rows for each in writer.namespaces)
        verdict = "equal to the source" if not writer.differing else f"{writer.differing} keys differ"
        print(f"   {writer.name}: {written} messages written, {rows} rows, {verdict}")


def _step(text: str) -> None:
    print(f"\n{text}", flush=True)
