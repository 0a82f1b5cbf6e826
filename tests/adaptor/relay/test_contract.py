"""The promises that all adaptors make, kept by nodes."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tailrace.source.contract import Position, Reader
from tests.adaptor.contract import ChangingReaderContract, Row, Source, replay, some_rows, table_of
from tests.adaptor.relay.nodes import NodeSource, ServedNode, source_of


class TestReader(ChangingReaderContract):
    @pytest.fixture
    def source(self, tmp_path: Path) -> Iterator[NodeSource]:
        with ServedNode(tmp_path / "node", table="") as node:
            yield source_of(node)

    def test_rows_that_come_after_planning_have_a_piece(
        self, source: Source, open_reader: Callable[[], Reader]
    ) -> None:
        """They are not in the view, and come as changes: the position is that of the view until all is copied."""
        namespace = source.create("t")
        source.insert("t", some_rows(1000, 50))
        start = self.install(open_reader)
        pieces = open_reader().plan_copy(table_of(open_reader(), namespace))
        source.insert("t", some_rows(1, 5))
        state = replay({}, self.copy(open_reader, namespace, pieces))
        assert len(state) == 50
        assert self.changes(open_reader, start, open_reader().position()) == []
        open_reader().copied()
        replay(state, self.changes(open_reader, start, open_reader().position()))
        assert state == {row["id"]: row for row in source.rows("t")}

    def follow(self, open_reader: Callable[[], Reader], state: dict[int, Row], position: Position) -> Position:
        open_reader().copied()
        return super().follow(open_reader, state, position)
