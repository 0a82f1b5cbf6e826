"""Older servers: what the newest one does, those that are at hand do too."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.adaptor.contract import ChangingReaderContract, KeyedWriterContract
from tests.adaptor.postgres import test_contract
from tests.adaptor.postgres.databases import PostgresDestination, PostgresSource
from tests.servers.postgres import PostgresServer, installations

OLDER = [version for version in installations() if version != "18"]
"""Newest first; only the oldest is tried each time."""


@pytest.fixture(
    scope="module", params=[*(pytest.param(version, marks=pytest.mark.long) for version in OLDER[:-1]), OLDER[-1]]
)
def postgres(request: pytest.FixtureRequest) -> Iterator[PostgresServer]:
    server = PostgresServer(request.param)
    server.start()
    yield server
    server.remove()


class TestReader(ChangingReaderContract):
    @pytest.fixture
    def source(self, database: str) -> PostgresSource:
        return PostgresSource(database)


@pytest.mark.long
class TestReaderByTriggers(ChangingReaderContract):
    @pytest.fixture
    def source(self, database: str) -> PostgresSource:
        return PostgresSource(database, changes="triggers")


@pytest.mark.long
class TestWriter(KeyedWriterContract):
    stored = test_contract.TestWriter.stored

    @pytest.fixture
    def destination(self, database: str) -> PostgresDestination:
        return PostgresDestination(database)
