"""The promises that all adaptors make, kept by MariaDB."""

from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import ClassVar

import pytest

from tests.adaptor.contract import REFUSED, ChangingReaderContract, KeyedWriterContract
from tests.adaptor.mysql.databases import MysqlDestination, MysqlSource


class TestReader(ChangingReaderContract):
    @pytest.fixture
    def source(self, database: str) -> MysqlSource:
        return MysqlSource(database)


class TestReaderWithCompositeKey(ChangingReaderContract):
    @pytest.fixture
    def source(self, database: str) -> MysqlSource:
        form = "CREATE TABLE {}(a varchar(9) DEFAULT '10', id int, name text, amount double, PRIMARY KEY (a, id))"
        return MysqlSource(database, form)


class TestWriter(KeyedWriterContract):
    stored: ClassVar = {
        "bool": 1,
        "int8": -8,
        "int64": -(2**63),
        "uint32": 2**32 - 1,
        "float32": 0.5,
        "float64": 1e300,
        "infinite": REFUSED,  # MySQL has no infinities
        "text": "grüße \0 日本 'quoted'",
        "empty": "",
        "large_text": "large",
        "binary": b"\x00\xff",
        "fixed": b"abc",
        "decimal": Decimal("12345678901234567890.10"),
        "moment": datetime(2024, 2, 29, 12, 30, 1, 5),
        "local": datetime(2024, 2, 29, 12, 30),
        "date": date(1969, 12, 31),
        "time": timedelta(hours=23, minutes=59, seconds=59, microseconds=1),
        "duration": timedelta(seconds=1.5),
        "list": "[1, null, 3]",
        "struct": '{"a": 1, "b": "x"}',
        "map": '{"k": 1}',
        "dictionary": "red",
        "null": None,
    }

    @pytest.fixture
    def destination(self, database: str) -> MysqlDestination:
        return MysqlDestination(database)
