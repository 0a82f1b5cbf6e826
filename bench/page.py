"""What the status page costs: a node with 200 namespaces, 50 consumers and 1,000 replicas below it.

The page is served by a process of its own, from a real log and a real registry, and looked at with Chromium.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
from figures import Figures
from playwright.sync_api import Browser, Page, sync_playwright
from processes import cpu_s

from tailrace.log.commitlog import CommitLog
from tailrace.log.consumers import Consumers
from tailrace.message import Message, Offset, Op, now
from tailrace.observe.logs import LogLook
from tailrace.observe.model import Overview
from tailrace.observe.nodes import overview_of_node
from tailrace.observe.trees import TreeLook, TreeTelling
from tailrace.topology.answers import Offer
from tailrace.topology.member import Report, State
from tailrace.topology.registry import Registry
from tailrace.topology.site import Site
from tailrace.topology.storage import NoStorage
from tailrace.web.status_page import status_page

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from tests.web.chromium import enter, launch, tab

TOKEN = "a-token-of-this-bench"
NAMESPACES, CONSUMERS, REPLICAS, MESSAGES = 200, 50, 1_000, 200_000
PAINTS, EVENTS = 5, 10
PAINTED = "() => performance.getEntriesByName('first-contentful-paint').length > 0"
"""A function: the page's policy lets nobody evaluate texts."""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.serve)
        return
    figures = Figures("page")
    with tempfile.TemporaryDirectory(prefix="tailrace-page-") as place, CommitLog.open(Path(place, "log")) as log:
        fill(log, MESSAGES // 10 if options.quick else MESSAGES)
        with (
            served(place) as (url, pid),
            sync_playwright() as playwright,
            contextlib.closing(launch(playwright)) as chromium,
        ):
            sizes(figures, url)
            paints(figures, chromium, url, 2 if options.quick else PAINTS)
            with tab(chromium) as opened:
                enter(opened, url, TOKEN)
                events(figures, opened.page, log, 3 if options.quick else EVENTS)
                cost(figures, pid, 10.0 if options.quick else 30.0)
            cost(figures, pid, 10.0 if options.quick else 30.0, "with no page open")
    figures.print()


def fill(log: CommitLog, messages: int) -> None:
    for number in range(NAMESPACES):
        rows = [
            Message(Op.INSERT, now(), f"shop.table_{number:03}", {"id": row, "word": "word" * 5})
            for row in range(messages // NAMESPACES)
        ]
        log.append_messages(rows)
    consumers = Consumers(log.directory)
    for number in range(CONSUMERS):
        consumers.register(f"consumer-{number:02}", start=Offset(messages * number // CONSUMERS))


def serve(directory: str) -> None:
    """Until stdin ends."""
    registry, log = registry_of(REPLICAS), LogLook(os.path.join(directory, "log"))
    told: dict[str, Any] = {
        "is_running": True,
        "age_s": 0.0,
        "node": "1",
        "cluster": "bench",
        "sources": {},
        "peers": [],
    }
    told |= {"slow": {}, "store_error": None, "read_only": None, "queues": None, "sync": None}
    told |= {"is_anonymous": False, "vclock": {}, "leader": None, "term": 0}

    telling, tree = TreeTelling(registry.topology, directory), TreeLook(directory)

    def look() -> Overview:
        telling.tell()
        return overview_of_node("bench", log, told, tree.read())

    with status_page(look, listen="127.0.0.1:0", token=TOKEN, log=os.path.join(directory, "log")) as server:
        print(server.url, flush=True)
        sys.stdin.read()


def registry_of(replicas: int) -> Registry:
    """One that has placed them all."""
    made = Registry(NoStorage())
    made.reset_nodes([Site("shop", "root:4700")], State.ACTIVE)
    for number in range(replicas):
        site, report = Site("shop", f"replica-{number:04}:4700"), Report(generation=1, first_offset=0, received=number)
        offer = made.register_replicant(site, report)
        if not isinstance(offer, Offer):
            raise SystemExit(f"replica {number} was not placed: {offer}")
        made.update_registry(site, offer.reserved)
        made.keepalive(site, report)
    return made


@contextlib.contextmanager
def served(directory: str) -> Iterator[tuple[str, int]]:
    command = [sys.executable, __file__, "--serve", directory]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        try:
            yield process.stdout.readline().strip(), process.pid
        finally:
            process.stdin.close()


def sizes(figures: Figures, url: str) -> None:
    answer = httpx.get(url, headers={"authorization": f"Bearer {TOKEN}"}, trust_env=False, timeout=60)
    figures.add("page_kilobytes", len(answer.content) / 1000, "kB")
    metrics = httpx.get(f"{url}/metrics", headers={"authorization": f"Bearer {TOKEN}"}, trust_env=False, timeout=60)
    figures.add("metrics_kilobytes", len(metrics.content) / 1000, "kB")


def paints(figures: Figures, chromium: Browser, url: str, rounds: int) -> None:
    """From the request until something is to be seen, and until all of it is."""
    firsts, wholes = [], []
    with tab(chromium) as opened:
        enter(opened, url, TOKEN)
        for _ in range(rounds):
            opened.page.goto(url, wait_until="load")
            opened.page.wait_for_function(PAINTED, polling=20)
            firsts.append(opened.page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime"))
            wholes.append(opened.page.evaluate("performance.getEntriesByType('navigation')[0].loadEventEnd"))
    figures.add("first_paint_ms", statistics.median(firsts), "ms", at_most=1000)
    figures.add("loaded_ms", statistics.median(wholes), "ms", at_most=2000)


def events(figures: Figures, page: Page, log: CommitLog, rounds: int) -> None:
    """From a durable append until the page shows it, without a reload."""
    found = []
    for _ in range(rounds):
        wanted = f"{log.next_offset + 1:,}"
        log.append_messages([Message(Op.INSERT, now(), "shop.table_000", {"id": 1})])
        began_s = time.perf_counter()
        page.wait_for_function(
            "wanted => document.querySelector('#s-log dd')?.textContent === wanted", arg=wanted, polling=20
        )
        found.append(time.perf_counter() - began_s)
    figures.add("event_to_page_s", statistics.median(found), "s")  # as often as the share of a core allows
    figures.add("event_to_page_worst_s", max(found), "s")


def cost(figures: Figures, pid: int, seconds: float, when: str = "with one page open") -> None:
    before_s, began_s = cpu_s(pid), time.monotonic()
    time.sleep(seconds)
    used = 100 * (cpu_s(pid) - before_s) / (time.monotonic() - began_s)
    key = "core_percent_" + re.sub(r"\W+", "_", when)
    figures.add(key, used, "% of a core", at_most=2)


if __name__ == "__main__":
    main()
