"""Outboxes in SQLite and in PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.adaptor.postgres.conftest import database, postgres
from tests.queues.outboxes import PostgresPlace, SqlitePlace, TestPlace

__all__ = ["database", "postgres"]  # fixtures


@pytest.fixture
def sqlite_place(tmp_path: Path) -> Iterator[SqlitePlace]:
    with SqlitePlace(tmp_path / "shop.db") as place:
        yield place


@pytest.fixture
def postgres_place(database: str) -> Iterator[PostgresPlace]:
    with PostgresPlace(database) as place:
        yield place


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest) -> TestPlace:
    """Where an application has its data and its outbox."""
    found: TestPlace = request.getfixturevalue(f"{request.param}_place")
    return found
