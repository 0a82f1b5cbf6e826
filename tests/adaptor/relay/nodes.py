"""Nodes with a SQLite store in this process, read by pipelines."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from pydantic import SecretStr

from tailrace.adaptor.relay.options import RelayReaderOptions
from tailrace.log.consumers import Consumers
from tests.adaptor.contract import ChangingSource, Row
from tests.adaptor.sqlite.databases import SqliteSource
from tests.node.shops import Shop
from tests.relay.nodes import TOKEN

CLUSTER = str(uuid.UUID(int=9))


class ServedNode:
    """`with ServedNode(directory) as node`; `restart` as often as one likes, at the same port.

    What its threads would do happens when it is asked something, so nothing else uses the database meanwhile.
    """

    def __init__(self, directory: Path, cluster: str | None = CLUSTER, **more: Any) -> None:
        self.directory = directory
        self.path = directory / "shop.db"
        self._cluster = cluster
        self._more = more
        self._port = 0

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        self.shop = Shop(self.directory, self._cluster, port=self._port, piece_rows=40, **self._more)
        self._port = self.shop.server.port

    def stop(self) -> None:
        self.shop.__exit__()

    def restart(self) -> None:
        self.stop()
        self.start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._port}"

    @property
    def log(self) -> str:
        return self.shop.log.directory

    def options(self, **more: Any) -> RelayReaderOptions:
        return RelayReaderOptions.model_validate({"address": self.address, "token": TOKEN, "consumer": "test", **more})


@dataclass(frozen=True)
class NodeSource(ChangingSource):
    """A node whose database is written by its users."""

    database: SqliteSource
    address: str
    log: str
    copies: str

    def options(self) -> RelayReaderOptions:
        return RelayReaderOptions(address=self.address, token=SecretStr(TOKEN), consumer="test")

    def create(self, table: str) -> str:
        return self.database.create(table)

    def insert(self, table: str, rows: Sequence[Row]) -> None:
        self.database.insert(table, rows)

    def rows(self, table: str) -> list[Row]:
        return self.database.rows(table)

    def update(self, table: str, id_: int, **values: Any) -> None:
        self.database.update(table, id_, **values)

    def delete(self, table: str, id_: int) -> None:
        self.database.delete(table, id_)

    def add_column(self, table: str, column: str) -> None:
        self.database.add_column(table, column)

    def leftovers(self) -> set[str]:
        """What the node keeps for pipelines."""
        held = {name for name in Consumers(self.log).names() if name.startswith("pipeline-")}
        return held | {str(path) for path in Path(self.copies).iterdir()}


def source_of(node: ServedNode) -> NodeSource:
    copies = node.directory / "copies"
    return NodeSource(SqliteSource(str(node.path)), node.address, node.log, str(copies))
