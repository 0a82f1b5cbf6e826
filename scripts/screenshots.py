"""Makes the pictures of the status page in docs/figures: the demo's shop, with a message that one writer cannot write.

.venv/bin/python scripts/screenshots.py
"""

from __future__ import annotations

import re
import sqlite3
import sys
import tempfile
from contextlib import closing
from pathlib import Path

from playwright.sync_api import Browser, Page, expect, sync_playwright

from tailrace.demo.shop import Business, make_shop

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
from tests.cli.process import RunProcess  # noqa: E402  below what makes it possible
from tests.web.chromium import enter, launch, tab  # noqa: E402

FIGURES = ROOT / "docs" / "figures"
TOKEN = "a-token-for-pictures"  # noqa: S105  of a page that is gone when the picture is made
SHOP = """
pipeline: shop
log: log
read: {sqlite: {path: shop.db}}
write:
  - name: lake
    lake: {path: lake}
    through: [{omit: [email]}]
  - {name: office, sqlite: {path: office.db}, namespace: main\\.orders}
  - {name: archive, files: {path: archive, format: jsonl}}
"""


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="shop-") as place:
        directory = Path(place)
        prepare(directory)
        environment = {"TAILRACE_UI_TOKEN": TOKEN}
        arguments = ("run", "shop.yml", "--ui-listen", "127.0.0.1:0")
        with RunProcess(directory, *arguments, environment=environment) as run, sync_playwright() as playwright:
            said = re.search(r"http://[0-9.:]+", run.wait_for("the status page is at"))
            if said is None:
                raise SystemExit("the page does not say where it is")
            with closing(launch(playwright)) as chromium:
                take(chromium, said[0], directory)


def prepare(directory: Path) -> None:
    """A shop, one of whose orders the office does not want."""
    (directory / "shop.yml").write_text(SHOP)
    make_shop(str(directory / "shop.db"), customers=300, orders=300)
    with closing(sqlite3.connect(directory / "office.db")) as office, office:
        office.execute(
            "CREATE TABLE orders (id INTEGER PRIMARY KEY, customer INTEGER, status TEXT, total REAL CHECK (total >= 0))"
        )
    with closing(sqlite3.connect(directory / "shop.db")) as shop, shop:
        shop.execute("UPDATE orders SET total = -1 WHERE id = 234")


def take(chromium: Browser, url: str, directory: Path) -> None:
    for scheme in ("light", "dark"):
        with tab(chromium, color_scheme=scheme, viewport={"width": 1280, "height": 800}) as opened:
            enter(opened, url, TOKEN)
            page = opened.page
            if scheme == "light":
                find_the_message(page)
                business = Business(str(directory / "shop.db"), seconds=25)
                business.start()
                expect(page.locator("svg.spark polyline").nth(3)).to_be_attached(timeout=60_000)
                business.join()
                lake = page.get_by_role("table", name="Writers").get_by_role("row", name=re.compile("^lake"))
                expect(lake.get_by_role("cell").nth(3)).to_have_text("0", timeout=60_000)
            page.goto(url)
            page.screenshot(path=FIGURES / f"page-{scheme}.png")
            if scheme == "light":
                drawn = page.locator(".wide svg.flow").evaluate("each => each.outerHTML")
                (FIGURES / "flow.svg").write_text(standalone(drawn))
                page.get_by_role("link", name="Retry or acknowledge").first.click()
                page.screenshot(path=FIGURES / "page-stuck.png")
    with tab(chromium, viewport={"width": 400, "height": 800}) as opened:
        enter(opened, url, TOKEN)
        opened.page.screenshot(path=FIGURES / "page-narrow.png")


def find_the_message(page: Page) -> None:
    """A retry finds out which message it is."""
    trouble = page.get_by_text(re.compile("writer office could not write"))
    expect(trouble).to_be_visible(timeout=120_000)
    if page.get_by_text(re.compile(r"could not write message \d+")).count() == 0:
        page.get_by_role("link", name="Retry or acknowledge").first.click()
        form = page.locator("form.action").first
        form.get_by_label("Why").fill("which one is it?")
        form.get_by_role("checkbox").check()
        form.get_by_role("button", name="Retry").click()
        expect(page.get_by_text(re.compile(r"could not write message \d+"))).to_be_visible(timeout=120_000)


def standalone(drawn: str) -> str:
    """The drawing with the styles of the page that concern it, in the colours of the day."""
    sheet = (ROOT / "src" / "tailrace" / "web" / "static" / "style.css").read_text()
    rules = "\n".join(line.replace("svg ", "") for line in sheet.splitlines() if line.startswith("svg "))
    colours = dict(re.findall(r"--([a-z-]+): (#[0-9a-f]+);", sheet.partition("@media")[0]))
    for name, colour in colours.items():
        rules = rules.replace(f"var(--{name})", colour)
    ground = f'<rect width="100%" height="100%" fill="{colours["raised"]}"/>'
    head, rest = drawn.split(">", 1)
    head = head.replace("<svg", '<svg xmlns="http://www.w3.org/2000/svg"', 1)
    return f"{head}><style>{rules}</style>{ground}{rest}\n"


if __name__ == "__main__":
    main()
