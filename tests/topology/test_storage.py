"""Storage: found by its address, and asked for by name when it is not installed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tailrace.errors import TailraceError
from tailrace.topology.storage import Kept, NoStorage, open_storage


def test_a_path_is_a_storage(tmp_path: Path) -> None:
    storage = open_storage(str(tmp_path / "registry.db"))
    assert storage.load() == NoStorage().load() == Kept()
    storage.close()


def test_what_is_missing_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "tailrace.topology.databasesql", raising=False)
    monkeypatch.setitem(sys.modules, "sqlalchemy", None)
    with pytest.raises(TailraceError, match=r"tailrace\[registry\]"):
        open_storage("registry.db")
