"""The page in a real browser."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from tailrace.log import audit
from tailrace.pipeline.spec import PipelineSpec
from tailrace.serving.server import HttpServer
from tests.cli.process import RunProcess, database
from tests.web.chromium import WAIT_MS, Tab, barriers, enter, is_scrolled_sideways, launched, tab
from tests.web.shops import HOSTILE, TOKEN, make_shop, served

PAGES = ("/", "/log", "/log/9", "/log/11", "/log/99", "/audit", "/stuck/office", "/stuck/lake")
POISONED = """
pipeline: shop
log: log
read: {sqlite: {path: shop.db}}
write:
  - {name: copy, sqlite: {path: copy.db}}
  - {name: office, sqlite: {path: office.db}}
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with launched() as browser:
        yield browser


@pytest.fixture(scope="module")
def spec(tmp_path_factory: pytest.TempPathFactory) -> PipelineSpec:
    return make_shop(tmp_path_factory.mktemp("shop"))


@pytest.fixture(scope="module")
def server(spec: PipelineSpec) -> Iterator[HttpServer]:
    with served(spec) as server:
        yield server


@pytest.fixture
def inside(browser: Browser, server: HttpServer) -> Iterator[Tab]:
    with tab(browser) as opened:
        enter(opened, server.url, TOKEN)
        yield opened


class TestForEverybody:
    @pytest.mark.parametrize("width", [400, 1600])
    @pytest.mark.parametrize("scheme", ["light", "dark"])
    def test_nothing_keeps_people_out(self, browser: Browser, server: HttpServer, width: int, scheme: str) -> None:
        with tab(browser, viewport={"width": width, "height": 800}, color_scheme=scheme) as opened:
            opened.page.goto(server.url)
            assert barriers(opened.page) == []  # where the token is asked for
            enter(opened, server.url, TOKEN)
            for path in PAGES:
                opened.page.goto(server.url + path)
                assert barriers(opened.page) == [], path
                assert not is_scrolled_sideways(opened.page), path
            assert [text for text in opened.complaints if "404" not in text] == []  # one message is not there

    def test_dark_is_dark(self, browser: Browser, server: HttpServer) -> None:
        grounds = {}
        for scheme in ("light", "dark"):
            with tab(browser, color_scheme=scheme) as opened:
                opened.page.goto(server.url)
                said = opened.page.evaluate("getComputedStyle(document.body).backgroundColor")
                grounds[scheme] = sum(map(int, re.findall(r"\d+", said)[:3]))
        assert grounds["light"] > 600
        assert grounds["dark"] < 150

    def test_without_scripts(self, browser: Browser, server: HttpServer) -> None:
        with tab(browser, java_script_enabled=False) as opened:
            enter(opened, server.url, TOKEN)
            writers = opened.page.get_by_role("table", name="Writers")
            expect(writers.get_by_role("row", name=re.compile("office"))).to_contain_text("8")
            opened.page.get_by_role("link", name="Look at it").click()
            expect(opened.page.get_by_role("heading", level=1)).to_have_text("Message 4")
            opened.page.goto(f"{server.url}/stuck/office")
            expect(opened.page.get_by_role("button", name="Acknowledge")).to_be_visible()

    def test_by_keyboard_alone(self, inside: Tab, server: HttpServer) -> None:
        page = inside.page
        page.goto(f"{server.url}/stuck/office")
        page.keyboard.press("Tab")
        expect(page.get_by_role("link", name="To the content")).to_be_focused()
        expect(page.get_by_role("link", name="To the content")).to_be_in_viewport()
        page.keyboard.press("Enter")
        reached = []
        for _ in range(7):
            page.keyboard.press("Tab")
            reached.append(page.evaluate("document.activeElement.id || document.activeElement.textContent.trim()"))
        wanted = ["retry-reason", "retry-sure", "Retry", "acknowledge-reason", "acknowledge-sure", "Acknowledge"]
        assert reached == ["Look at it", *wanted]

    def test_whoever_reads_with_the_keyboard_is_not_thrown_out(self, inside: Tab) -> None:
        """What has the focus stays, and is the same element, while the ages around it change."""
        page = inside.page
        link = page.get_by_role("link", name="Retry or acknowledge")
        link.focus()
        page.evaluate("window.focusedBefore = document.activeElement")
        for _ in range(2):  # ages change with every look
            with page.expect_event("console", lambda message: message.text == "news"):
                page.evaluate(
                    "new EventSource('/events').onmessage = function () { this.close(); console.log('news'); }"
                )
        expect(link).to_be_focused()
        assert page.evaluate("document.activeElement.isSameNode(window.focusedBefore)")

    def test_hostile_names_are_text(self, inside: Tab, server: HttpServer) -> None:
        page = inside.page
        for path in ("/", "/log", "/log/11"):
            page.goto(server.url + path)
            expect(page.get_by_text(HOSTILE).first).to_be_visible()
            scripts = page.evaluate("[...document.scripts].map(each => each.getAttribute('src'))")
            assert set(scripts) <= {"/static/live.js"}
        page.goto(server.url)
        page.get_by_role("link", name=HOSTILE).click()
        expect(page.get_by_label("Namespace")).to_have_value(HOSTILE)
        expect(page.get_by_role("table", name="Messages").get_by_role("row")).to_have_count(3)
        assert inside.complaints == []


def test_a_poisoned_message_is_found_read_retried_and_acknowledged(browser: Browser, tmp_path: Path) -> None:
    orders = [(number, f"thing {number}", -1 if number == 250 else number) for number in range(400)]
    (tmp_path / "shop.yml").write_text(POISONED)
    with database(tmp_path / "shop.db") as shop:
        shop.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, what TEXT, price INTEGER)")
        shop.execute('CREATE TABLE "<script>" (id INTEGER PRIMARY KEY)')
        shop.execute('INSERT INTO "<script>" VALUES (1)')
        shop.executemany("INSERT INTO orders VALUES (?, ?, ?)", orders)
    with database(tmp_path / "office.db") as office:
        office.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, what TEXT, price INTEGER CHECK (price >= 0))")
    environment = {"TAILRACE_UI_TOKEN": TOKEN}
    with (
        RunProcess(tmp_path, "run", "shop.yml", "--ui-listen", "127.0.0.1:0", environment=environment) as run,
        tab(browser) as opened,
    ):
        said = re.search(r"http://[0-9.:]+", run.wait_for("the status page is at"))
        assert said is not None
        url = said[0]
        enter(opened, url, TOKEN)
        page = opened.page
        expect(page.get_by_text(re.compile("writer office could not write"))).to_be_visible(timeout=WAIT_MS)
        onlooker = page.context.new_page()
        onlooker.goto(url)
        onlooker.evaluate("window.neverLoadedAgain = true")
        expect(_lag(onlooker)).not_to_have_text("0")

        page.get_by_role("link", name="Retry or acknowledge").click()
        if page.get_by_role("button", name="Acknowledge").count() == 0:  # nobody knows yet which one of them it is
            _fill(page, "Retry", "which one is it?")
            expect(page.get_by_text(re.compile(r"writer office could not write message \d+,"))).to_be_visible(
                timeout=WAIT_MS
            )
        page.get_by_role("link", name="Look at it").click()
        expect(page.get_by_role("row", name=re.compile("price"))).to_contain_text("-1")
        offset = int(page.url.rpartition("/")[2])
        page.goto(url)
        page.get_by_role("link", name="Retry or acknowledge").click()
        page.get_by_role("button", name="Acknowledge").click()  # neither sure, nor why
        assert "/stuck/office" in page.url
        _fill(page, "Acknowledge", "a test order")

        expect(_lag(onlooker)).to_have_text("0", timeout=WAIT_MS)
        expect(onlooker.get_by_text("What needs you")).to_have_count(0)
        assert onlooker.evaluate("window.neverLoadedAgain") is True
        expect(onlooker.get_by_text("main.<script>").first).to_be_visible()
        page.goto(f"{url}/audit")
        expect(page.get_by_role("row", name=re.compile("ack .*a test order"))).to_contain_text(str(offset))
        assert [text for text in opened.complaints if "favicon" not in text] == []
    with database(tmp_path / "office.db") as office:
        ids = {row[0] for row in office.execute("SELECT id FROM orders")}
    assert ids == set(range(400)) - {250}
    trail = list(audit.read(str(tmp_path / "log")))
    assert [line["offset"] for line in trail if line["action"] == "ack"] == [offset]


def _fill(page: Page, action: str, reason: str) -> None:
    form = page.locator("form.action").filter(has=page.get_by_role("button", name=action))
    form.get_by_label("Why").fill(reason)
    form.get_by_role("checkbox").check()
    form.get_by_role("button", name=action).click()
    page.get_by_role("heading", level=1).filter(has_text="pipeline").wait_for()


def _lag(page: Page) -> Locator:
    row = page.get_by_role("table", name="Writers").get_by_role("row", name=re.compile("office"))
    return row.get_by_role("cell").nth(3)
