"""The promises that all adaptors make, kept by Tarantool."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tailrace.message import Op
from tailrace.source.contract import Reader
from tests.adaptor.contract import ChangingReaderContract, ChangingSource, replay, some_rows
from tests.adaptor.tarantool.spaces import TarantoolSource
from tests.servers.tarantool import TarantoolServer


class TestReader(ChangingReaderContract):
    @pytest.fixture
    def source(self, tarantool: TarantoolServer, tmp_path: Path) -> TarantoolSource:
        return TarantoolSource(str(tarantool.directory), tarantool.address(), str(tmp_path))

    def test_a_row_that_moves_says_where_it_was(
        self, source: ChangingSource, open_reader: Callable[[], Reader]
    ) -> None:
        """A key never changes in Tarantool: a row that gets another is deleted and inserted, in one transaction."""
        source.create("t")
        source.insert("t", some_rows(1, 3))
        start = self.install(open_reader)
        source.update("t", 2, id=20)
        read = self.changes(open_reader, start, open_reader().position())
        state = {row["id"]: row for row in some_rows(1, 3)}
        assert replay(state, read) == {row["id"]: row for row in source.rows("t")}
        assert [message.op for message in read] == [Op.DELETE, Op.INSERT]
        assert len({message.tx for message in read}) == 1


@pytest.mark.long
class TestVinylReader(TestReader):
    @pytest.fixture
    def source(self, tarantool: TarantoolServer, tmp_path: Path) -> TarantoolSource:
        return TarantoolSource(str(tarantool.directory), tarantool.address(), str(tmp_path), engine="vinyl")


@pytest.mark.long
class TestRegisteredReader(TestReader):
    @pytest.fixture
    def source(self, tarantool: TarantoolServer, tmp_path: Path) -> TarantoolSource:
        return TarantoolSource(str(tarantool.directory), tarantool.address(), str(tmp_path), replica="registered")
