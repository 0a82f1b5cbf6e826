"""Places for nodes: SQLite files, and databases of one PostgreSQL server for all tests of a process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

from tests.servers.postgres import PostgresServer
from tests.sync.places import Place, PostgresPlace, sqlite_place

_NUMBERS = count()

Places = Callable[[str], Place]
"""Given a dialect, an empty database."""


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    server = PostgresServer()
    server.start()
    yield server
    server.remove()


@pytest.fixture
def postgres_address(postgres: PostgresServer) -> Iterator[str]:
    """The address of an empty PostgreSQL database."""
    name = f"sync_{next(_NUMBERS)}"
    yield postgres.create(name)
    postgres.drop(name)


@pytest.fixture(params=["sqlite", "postgres"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of an empty database, for a test that is run with each dialect."""
    if request.param == "postgres":
        found: str = request.getfixturevalue("postgres_address")
        return found
    return f"sqlite:///{tmp_path / 'node.db'}"


@pytest.fixture
def places(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Places]:
    """As many databases as a test wants."""
    made: list[Place] = []
    databases: list[str] = []

    def make(dialect: str) -> Place:
        if dialect == "sqlite":
            place: Place = sqlite_place(tmp_path, f"node{len(made)}")
        else:
            databases.append(f"sync_{next(_NUMBERS)}")
            place = PostgresPlace(request.getfixturevalue("postgres").create(databases[-1]))
        made.append(place)
        return place

    yield make
    for place in made:
        place.close()
    for name in databases:
        request.getfixturevalue("postgres").drop(name)


@pytest.fixture(params=["sqlite", "postgres"])
def dialect(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def place(places: Places, dialect: str) -> Place:
    """A database, in each dialect once."""
    return places(dialect)


@pytest.fixture
def other(places: Places, dialect: str) -> Place:
    """Another one, of the same kind."""
    return places(dialect)
