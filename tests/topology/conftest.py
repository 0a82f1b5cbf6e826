"""Registries in SQLite and in PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from tests.adaptor.postgres.conftest import postgres
from tests.servers.postgres import PostgresServer

__all__ = ["postgres"]  # a fixture

_NUMBERS = count()


@pytest.fixture
def postgres_address(postgres: PostgresServer) -> Iterator[str]:
    name = f"registry_{next(_NUMBERS)}"
    yield postgres.create(name)
    postgres.drop(name)


@pytest.fixture(params=["sqlite", "postgres"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a registry of either kind is kept."""
    if request.param == "sqlite":
        return str(tmp_path / "registry.db")
    found: str = request.getfixturevalue("postgres_address")
    return found
