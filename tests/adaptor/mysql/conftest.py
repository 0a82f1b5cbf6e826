"""One server for all tests of a process, and databases of its own for each test."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest

from tests.servers import mariadb as servers
from tests.servers.mariadb import MariaDbServer

_NUMBERS = count()


@pytest.fixture(scope="session")
def mariadb() -> Iterator[MariaDbServer]:
    if why := servers.missing():
        pytest.skip(why)
    server = MariaDbServer()
    server.start()
    yield server
    server.remove()


@pytest.fixture
def own_server(mariadb: MariaDbServer) -> Iterator[MariaDbServer]:
    """A server that a test may kill; that of all others says whether there is one at all."""
    server = MariaDbServer()
    server.start()
    yield server
    server.remove()


@pytest.fixture
def database(mariadb: MariaDbServer) -> Iterator[str]:
    """The address of an empty database."""
    name = f"test_{next(_NUMBERS)}"
    mariadb.run(f"CREATE DATABASE {name}")
    yield mariadb.url(name)
    mariadb.run(f"DROP DATABASE {name}")
    mariadb.run("DROP DATABASE IF EXISTS tailrace", "DROP DATABASE IF EXISTS main")
