"""A real Chromium, driven by playwright."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, ConsoleMessage, Page, Playwright, sync_playwright

EXECUTABLE: Final = shutil.which("chromium")
WAIT_MS: Final = 150_000
_ARGUMENTS: Final = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@contextmanager
def launched() -> Iterator[Browser]:
    """The browser; skips where there is none."""
    if EXECUTABLE is None:
        pytest.skip("there is no chromium: make tools")
    with sync_playwright() as playwright:
        browser = launch(playwright)
        yield browser
        browser.close()


def launch(playwright: Playwright) -> Browser:
    return playwright.chromium.launch(executable_path=EXECUTABLE, args=list(_ARGUMENTS))


@dataclass
class Tab:
    """A page that notes what the browser has to complain about."""

    page: Page
    complaints: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.page.set_default_timeout(WAIT_MS)
        self.page.on("console", self._note)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))

    def _note(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(message.text)


@contextmanager
def tab(browser: Browser, **options: Any) -> Iterator[Tab]:
    context = browser.new_context(**options)
    try:
        yield Tab(context.new_page())
    finally:
        context.close()


def enter(tab: Tab, url: str, token: str) -> None:
    """Give the token, as an operator does. The refusal before it is in the console, rightly."""
    tab.page.goto(url)
    tab.page.get_by_label("Token").fill(token)
    tab.page.get_by_role("button", name="Enter").click()
    tab.page.get_by_role("heading", level=1).first.wait_for()
    tab.page.get_by_role("navigation").get_by_role("link", name="Log").wait_for()
    tab.complaints = [text for text in tab.complaints if "401" not in text]


def barriers(page: Page) -> list[str]:
    """What keeps people out, as far as axe can tell: what is serious or worse."""
    found = Axe().run(page).response["violations"]
    return [
        f"{each['id']}: {each['nodes'][0]['html'][:200]}" for each in found if each["impact"] in ("serious", "critical")
    ]


def is_scrolled_sideways(page: Page) -> bool:
    return bool(page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth"))
