"""A node with a PostgreSQL store, read into a log."""

from __future__ import annotations

import uuid
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tailrace.adaptor.relay.options import RelayReaderOptions
from tests.adaptor.postgres.conftest import database, postgres
from tests.adaptor.relay.test_reader import Pipeline, stack
from tests.node.pgshops import PgShop
from tests.relay.nodes import TOKEN

__all__ = ["database", "postgres", "stack"]  # fixtures


class PgNode:
    """What a pipeline must know of it."""

    def __init__(self, shop: PgShop) -> None:
        self.shop = shop

    def options(self, **more: Any) -> RelayReaderOptions:
        address = f"127.0.0.1:{self.shop.server.port}"
        return RelayReaderOptions.model_validate({"address": address, "token": TOKEN, "consumer": "test", **more})


def test_copy_then_changes(stack: ExitStack, tmp_path: Path, database: str) -> None:
    shop = stack.enter_context(PgShop(tmp_path / "a", str(uuid.UUID(int=9)), database, piece_rows=40))
    shop.run("INSERT INTO t SELECT n, 'old' FROM generate_series(1, 300) n")
    node: Any = PgNode(shop)
    pipeline = stack.enter_context(Pipeline(tmp_path, node))
    pipeline.capture.turn()
    shop.run("UPDATE t SET word = 'while it was copied' WHERE id % 7 = 0", "DELETE FROM t WHERE id % 11 = 0")
    pipeline.catch_up()
    assert pipeline.rows() == shop.rows()
    shop.run("UPDATE t SET id = 1000 WHERE id = 5", "INSERT INTO t VALUES (2000, 'new')")
    pipeline.catch_up()
    assert pipeline.rows() == shop.rows()
    assert (1000, "old") in pipeline.rows()
