"""One server for all tests of a process, and a database of its own for each."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest

from tests.servers.postgres import PostgresServer

_NUMBERS = count()


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    server = PostgresServer()
    server.start()
    yield server
    server.remove()


@pytest.fixture
def database(postgres: PostgresServer) -> Iterator[str]:
    """The address of an empty database."""
    name = f"test_{next(_NUMBERS)}"
    yield postgres.create(name)
    postgres.drop(name)
