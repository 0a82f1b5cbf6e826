"""Pipelines of a small adaptor, in a directory of their own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest

from tests.pipeline.shelf import offer

Write = Callable[[str], str]


@pytest.fixture(autouse=True)
def shelves(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    offer(monkeypatch)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def write() -> Write:
    """Write `shop.yml` and tell its name."""

    def put(text: str) -> str:
        Path("shop.yml").write_text(dedent(text))
        return "shop.yml"

    return put
