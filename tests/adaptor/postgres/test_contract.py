"""The promises that all adaptors make, kept by PostgreSQL."""

from contextlib import closing
from datetime import UTC, date, datetime, timedelta
from datetime import time as time_of_day
from decimal import Decimal
from typing import ClassVar

import pytest

from tests.adaptor.contract import REFUSED, ChangingReaderContract, KeyedWriterContract
from tests.adaptor.postgres.databases import PostgresDestination, PostgresSource


class TestReader(ChangingReaderContract):
    @pytest.fixture
    def source(self, database: str) -> PostgresSource:
        return PostgresSource(database)


@pytest.mark.long
class TestReaderWithCompositeKey(ChangingReaderContract):
    @pytest.fixture
    def source(self, database: str) -> PostgresSource:
        form = "CREATE TABLE {}(a text DEFAULT 'x', id int, name text, amount float8, PRIMARY KEY (a, id))"
        return PostgresSource(database, form)


class TestReaderOfPartitions(ChangingReaderContract):
    @pytest.fixture
    def source(self, database: str) -> PostgresSource:
        form = (
            "CREATE TABLE {0}(id bigint PRIMARY KEY, name text, amount float8) PARTITION BY HASH (id);"
            "DO $$BEGIN FOR part IN 0..2 LOOP EXECUTE format("
            "'CREATE TABLE %I PARTITION OF %I FOR VALUES WITH (MODULUS 3, REMAINDER %s)', {1} || part, {1}, part);"
            "END LOOP; END$$"
        )
        return PostgresSource(database, form)


@pytest.mark.long
class TestReaderOfWholeRows(ChangingReaderContract):
    @pytest.fixture
    def source(self, database: str) -> PostgresSource:
        form = "CREATE TABLE {0}(id bigint PRIMARY KEY, name text, amount float8);ALTER TABLE {0} REPLICA IDENTITY FULL"
        return PostgresSource(database, form)


class TestReaderByTriggers(ChangingReaderContract):
    @pytest.fixture
    def source(self, database: str) -> PostgresSource:
        return PostgresSource(database, changes="triggers")


class TestWriter(KeyedWriterContract):
    stored: ClassVar = {
        "bool": True,
        "int8": -8,
        "int64": -(2**63),
        "uint32": 2**32 - 1,
        "float32": 0.5,
        "float64": 1e300,
        "infinite": float("-inf"),
        "text": REFUSED,  # PostgreSQL has no NUL in text
        "empty": "",
        "large_text": "large",
        "binary": b"\x00\xff",
        "fixed": b"abc",
        "decimal": Decimal("12345678901234567890.10"),
        "moment": datetime(2024, 2, 29, 12, 30, 1, 5, tzinfo=UTC),
        "local": datetime(2024, 2, 29, 12, 30),
        "date": date(1969, 12, 31),
        "time": time_of_day(23, 59, 59, 1),
        "duration": timedelta(seconds=1.5),
        "list": [1, None, 3],
        "struct": {"a": 1, "b": "x"},
        "map": {"k": 1},
        "dictionary": "red",
        "null": None,
    }

    @pytest.fixture
    def destination(self, database: str) -> PostgresDestination:
        return PostgresDestination(database)


def test_a_copy_goes_in_many_pieces(database: str) -> None:
    """By the order of the keys, which is not that of their texts."""
    source = PostgresSource(database)
    namespace = source.create("t")
    source.insert("t", [{"id": number, "name": None, "amount": None} for number in range(5000)])
    with closing(source.options().open()) as reader:
        (table,) = (table for table in reader.tables() if table.namespace == namespace)
        pieces = reader.plan_copy(table)
        borders = [int(piece["upto"][0]) for piece in pieces[:-1]]
        assert len(pieces) > 10
        assert borders == sorted(borders)
        assert [piece["after"] for piece in pieces[1:]] == [piece["upto"] for piece in pieces[:-1]]
