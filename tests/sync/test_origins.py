"""Pages that may call a node from a browser: those of named origins, never all."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import ValidationError

from tailrace.sync.client import SyncNode
from tailrace.sync.form import SyncForm
from tailrace.sync.site import SyncSite


def form(path: Path, *origins: str, **more: Any) -> SyncForm:
    said = {
        "database": {"sqlite": {"path": str(path)}},
        "entities": [{"table": "todo", "table_id": 42, "version": "changed"}],
        "listen": "127.0.0.1:0",
        "origins": origins,
        **more,
    }
    return SyncForm.model_validate(said)


def preflight(url: str, origin: str) -> httpx.Response:
    headers = {
        "origin": origin,
        "access-control-request-method": "PUT",
        "access-control-request-headers": "door-node,door-longs,content-type",
    }
    return httpx.options(f"{url}/replication/receive?tableId=42", headers=headers)


def test_pages_of_named_origins_may_call(tmp_path: Path) -> None:
    path = tmp_path / "todo.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE todo(id INTEGER PRIMARY KEY, changed INTEGER)")
    said = form(path, "https://Todo.example", "http://127.0.0.1:8088/")
    SyncNode(str(path), said.declared).close()
    with SyncSite(said, lambda _: None) as site:
        assert site.url is not None
        for origin in ("https://todo.example", "http://127.0.0.1:8088"):
            answer = preflight(site.url, origin)
            assert answer.status_code == 200
            assert answer.headers["access-control-allow-origin"] == origin
        refused = preflight(site.url, "https://evil.example")
        assert refused.status_code == 400
        assert "access-control-allow-origin" not in refused.headers


@pytest.mark.parametrize(
    "origin", ["*", "https://*.example", "null", "https://todo.example/page", "http://todo.example", "todo.example"]
)
def test_what_is_no_origin_is_refused(tmp_path: Path, origin: str) -> None:
    with pytest.raises(ValidationError):
        form(tmp_path / "todo.db", origin)


def test_origins_need_somewhere_to_call(tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match="listen"):
        form(tmp_path / "todo.db", "https://todo.example", listen=None)
