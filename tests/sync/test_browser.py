"""A page in a real browser as one more node: it has what the others have, and works while they are away."""

from __future__ import annotations

import secrets
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, Request, expect, sync_playwright

from tailrace.sync.client import SyncNode
from tailrace.sync.ids import decode
from tailrace.sync.server import ServerOptions
from tailrace.sync.serving import SyncServer
from tailrace.sync.store import SyncStore

EXAMPLES = Path(__file__).parents[2] / "examples" / "sync"
CHROMIUM = Path("/usr/bin/chromium")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
WAIT_S = 60.0
ENROL = secrets.token_urlsafe(24)
ROWS = "SELECT id, title, done FROM todo ORDER BY id"

pytestmark = [
    pytest.mark.xdist_group("chromium"),
    pytest.mark.skipif(not CHROMIUM.exists(), reason="there is no Chromium: install the package chromium"),
]


@pytest.fixture(scope="module")
def example() -> Iterator[Any]:
    """The modules of the example."""
    before = sys.path[:]
    sys.path[:0] = [str(EXAMPLES), str(EXAMPLES / "browser")]
    try:
        import serve  # type: ignore[import-not-found]
        import two_laptops  # type: ignore[import-not-found]

        yield (serve, two_laptops)
    finally:
        sys.path[:] = before


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=FLAGS)
        yield browser
        browser.close()


class World:
    """A central database with its server, the page's own server, and as many pages as are opened."""

    def __init__(self, browser: Browser, example: Any, directory: Path, stack: ExitStack) -> None:
        serve, two_laptops = example
        self._browser, self._stack, self.todo = browser, stack, two_laptops.TODO
        self.path = directory / "central.db"
        self.store: SyncStore = two_laptops.central_store(str(self.path))
        stack.callback(self.store.close)
        self.pages: ThreadingHTTPServer = serve.page_server()
        stack.callback(self.pages.server_close)
        stack.callback(self.pages.shutdown)
        self.origin = f"http://127.0.0.1:{self.pages.server_port}"
        self.server = self._served("127.0.0.1:0")

    @property
    def url(self) -> str:
        return self.server.url

    def _served(self, listen: str) -> SyncServer:
        server = SyncServer(self.store, listen, ServerOptions(enrol=ENROL, origins=(self.origin,)))
        server.start()
        self._stack.callback(server.stop)
        return server

    def stop(self) -> None:
        self.server.stop()

    def start_again(self) -> None:
        self.server = self._served(self.url.removeprefix("http://"))

    def open(self) -> Page:
        """A page of a browser that was never here."""
        context = self._browser.new_context()
        self._stack.callback(context.close)
        page = context.new_page()
        page.set_default_timeout(WAIT_S * 1000)
        page.goto(self.origin)
        return page

    def connected(self) -> Page:
        page = self.open()
        connect(page, self.url, ENROL)
        expect(page.locator("#state")).to_have_text("connected", timeout=WAIT_S * 1000)
        return page

    def run(self, statement: str, *values: object) -> None:
        self.store.database.write(lambda link: link.run(statement, values))

    def rows(self) -> list[tuple[Any, ...]]:
        return self.store.database.read(lambda link: link.rows(ROWS))


@pytest.fixture
def world(browser: Browser, example: Any, tmp_path: Path) -> Iterator[World]:
    with ExitStack() as stack:
        yield World(browser, example, tmp_path, stack)


def connect(page: Page, url: str, enrol: str) -> None:
    page.fill("#url", url)
    page.fill("#enrol", enrol)
    page.click("#connect button")


def add(page: Page, title: str) -> None:
    page.fill("#title", title)
    page.click("#add button")


def shown(page: Page, *titles: str) -> None:
    """Wait until the page shows these, in any order."""
    wait_for(lambda: sorted(page.locator("#items li span").all_text_contents()) == sorted(titles))


def wait_for(is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + WAIT_S
    while not is_so():
        assert time.monotonic() < end, "it does not come to that"
        time.sleep(0.05)


def titles(world: World) -> list[str]:
    return [title for _, title, _ in world.rows()]


def test_what_the_page_does_is_at_the_server(world: World) -> None:
    page = world.connected()
    add(page, "buy milk")
    add(page, "mend the fence")
    wait_for(lambda: titles(world) == ["buy milk", "mend the fence"])
    first, second = (row[0] for row in world.rows())
    assert decode(first).node == decode(second).node != world.store.key_node
    page.locator("li", has_text="buy milk").locator("input").check()
    wait_for(lambda: world.rows()[0][2] == 1)
    page.get_by_role("button", name="Remove mend the fence").click()
    wait_for(lambda: titles(world) == ["buy milk"])
    shown(page, "buy milk")
    assert world.store.quarantined() == []


def test_what_others_do_is_on_the_page_at_once(world: World, tmp_path: Path) -> None:
    """No reload, and no request of the page that asks for it: the server tells."""
    page, other = world.connected(), world.connected()
    world.run("INSERT INTO todo(id, title) VALUES (0, 'pay the rent')")
    shown(page, "pay the rent")
    add(other, "call grandma")
    shown(page, "pay the rent", "call grandma")
    world.run("DELETE FROM todo WHERE title = 'pay the rent'")
    shown(page, "call grandma")
    laptop = tmp_path / "laptop.db"
    with closing(sqlite3.connect(laptop)) as connection:
        connection.execute("CREATE TABLE todo(id INTEGER PRIMARY KEY, title TEXT, done INTEGER, changed INTEGER)")
    with SyncNode(str(laptop), [world.todo]) as node:
        node.sync_with(world.url, enrol=ENROL)
        with closing(sqlite3.connect(laptop)) as connection, connection:
            connection.execute("UPDATE todo SET title = 'call grandpa'")
        node.sync_with(world.url)
    shown(page, "call grandpa")
    shown(other, "call grandpa")


def test_both_sides_are_away_and_catch_up(world: World) -> None:
    page = world.connected()
    add(page, "both know it")
    wait_for(lambda: titles(world) == ["both know it"])
    world.stop()
    expect(page.locator("#state")).to_contain_text("offline", timeout=WAIT_S * 1000)
    add(page, "written without a server")
    page.locator("li", has_text="both know it").locator("input").check()
    world.run("INSERT INTO todo(id, title) VALUES (0, 'written without the page')")
    shown(page, "both know it", "written without a server")
    world.start_again()
    shown(page, "both know it", "written without a server", "written without the page")
    wait_for(lambda: sorted(titles(world)) == ["both know it", "written without a server", "written without the page"])
    wait_for(lambda: {title: done for _, title, done in world.rows()}["both know it"] == 1)


def test_the_page_opens_without_a_network_and_has_lost_nothing(world: World) -> None:
    page = world.connected()
    page.evaluate("navigator.serviceWorker.ready.then(() => true)")
    world.stop()
    add(page, "not sent yet")
    shown(page, "not sent yet")
    page.context.set_offline(True)
    page.reload()
    shown(page, "not sent yet")
    add(page, "nor this")
    page.context.set_offline(False)
    world.start_again()
    wait_for(lambda: titles(world) == ["not sent yet", "nor this"])


def test_numbers_of_64_bits_are_exact(world: World) -> None:
    keys = [9007199254740993, (1 << 63) - 1]
    for key in keys:
        world.run("INSERT INTO todo(id, title) VALUES (?1, 'large')", key)
    page = world.connected()
    shown(page, "large", "large")
    for box in page.locator("li input").all():
        box.check()
    wait_for(lambda: world.rows() == [(key, "large", 1) for key in keys])


def test_the_later_of_two_changes_stays_everywhere(world: World) -> None:
    page, other = world.connected(), world.connected()
    add(page, "before")
    shown(other, "before")
    for each in (page, other):
        each.check("#away")
        expect(each.locator("#state")).to_contain_text("offline")
    other.locator("li input").check()
    page.get_by_role("button", name="Remove before").click()
    for each in (other, page):
        each.uncheck("#away")
    for each in (page, other):
        shown(each)
    wait_for(lambda: world.rows() == [])


def test_many_rows(world: World) -> None:
    """More than one page of the protocol, both ways."""
    numbers = "WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < 620)"
    world.run(f"{numbers} INSERT INTO todo(id, title) SELECT i, 'task ' || i FROM n")
    page = world.connected()
    wait_for(lambda: page.locator("#items li").count() == 620)
    world.stop()
    page.evaluate("for (const box of document.querySelectorAll('#items input')) box.click()")
    wait_for(lambda: page.locator("#items li.done").count() == 620)
    world.start_again()
    wait_for(lambda: all(done == 1 for _, _, done in world.rows()))


def test_long_rows_make_short_pages(world: World) -> None:
    """A page that is not full is not the last one."""
    for number in range(40):
        world.run("INSERT INTO todo(id, title) VALUES (?1, ?2)", number + 1, str(number) * 500_000)
    page, left = world.open(), list[int]()

    def look(request: Request) -> None:
        if request.url.endswith("/subscribe"):
            left.extend(each.pending.get(world.store.nodes()[0], 0) for each in world.store.status().entities)

    page.on("request", look)
    connect(page, world.url, ENROL)
    wait_for(lambda: page.locator("#items li").count() == 40)
    expect(page.locator("#state")).to_have_text("connected", timeout=WAIT_S * 1000)
    assert left[0] == 0, "the first round has fetched them all, before the page listens for news"


def test_who_does_not_know_the_word_is_not_let_in(world: World) -> None:
    world.run("INSERT INTO todo(id, title) VALUES (1, 'ours')")
    page = world.open()
    connect(page, world.url, "a word that is not the one")
    expect(page.locator("#state")).to_contain_text("is not known here", timeout=WAIT_S * 1000)
    shown(page)
    connect(page, world.url, ENROL)
    shown(page, "ours")


def test_a_page_of_another_origin_is_not_let_in(world: World, example: Any) -> None:
    """The browser keeps from it what the server does not want it to have."""
    pages = example[0].page_server()
    try:
        page = world.open()
        page.goto(f"http://127.0.0.1:{pages.server_port}")
        connect(page, world.url, ENROL)
        expect(page.locator("#state")).to_contain_text("Failed to fetch", timeout=WAIT_S * 1000)
        assert world.store.nodes() == []
    finally:
        pages.shutdown()
        pages.server_close()


def test_what_looks_like_a_program_is_only_text(world: World) -> None:
    hostile = "<img src=x onerror=\"document.title='taken'\">"
    world.run("INSERT INTO todo(id, title) VALUES (1, ?1)", hostile)
    page = world.connected()
    shown(page, hostile)
    assert page.title() == "To do"
    assert page.locator("#items img").count() == 0
