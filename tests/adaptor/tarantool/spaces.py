"""Spaces of a Tarantool as its users have them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tailrace.adaptor.tarantool.options import TarantoolReaderOptions
from tests.adaptor.contract import ChangingSource, Row
from tests.servers.tarantool import TarantoolServer


def lua(value: Any) -> str:
    """A value as Lua."""
    if value is None:
        return "box.NULL"
    if isinstance(value, list | tuple):
        return "{" + ", ".join(map(lua, value)) + "}"
    return json.dumps(value)


@dataclass(frozen=True)
class Remote:
    """What is needed to speak to a server from another process."""

    control: str

    def run(self, text: str) -> Any:
        speaking = TarantoolServer.__new__(TarantoolServer)
        speaking.__dict__["directory"] = __import__("pathlib").Path(self.control)
        return speaking.run(text)


@dataclass(frozen=True)
class TarantoolSource(ChangingSource):
    """A server whose spaces all have one format and one kind of key."""

    directory: str
    address: str
    log: str
    fields: tuple[str, ...] = ("id", "name", "amount")
    engine: str = "memtx"
    parts: str = "'id'"
    replica: str = "anonymous"

    def run(self, text: str) -> Any:
        return Remote(self.directory).run(text)

    def options(self) -> TarantoolReaderOptions:
        said = {"address": self.address, "piece_rows": 40, "replica": self.replica}
        return TarantoolReaderOptions.model_validate({**said, "log": self.log, "pipeline": "test"})

    def create(self, table: str) -> str:
        types = {"id": "unsigned", "name": "string", "amount": "number", "extra": "string"}
        described = ", ".join(
            f"{{'{name}', '{types[name]}', is_nullable = {'false' if name == 'id' else 'true'}}}"
            for name in self.fields
        )
        self.run(
            f"local s = box.schema.space.create({lua(table)}, {{engine = '{self.engine}', format = {{{described}}}}}) "
            f"s:create_index('pk', {{parts = {{{self.parts}}}}})"
        )
        return f"box.{table}"

    def insert(self, table: str, rows: Sequence[Row]) -> None:
        for first in range(0, len(rows), 100):
            made = [[row["id"], row["name"], row["amount"]] for row in rows[first : first + 100]]
            self.run(
                f"box.begin() for _, r in ipairs({lua(made)}) do box.space[{lua(table)}]:insert(r) end box.commit()"
            )

    def rows(self, table: str) -> list[Row]:
        found = self.run(f"return box.space[{lua(table)}]:select()")
        whole = [[*row, None, None][:3] for row in found or []]
        return [{"id": id_, "name": name, "amount": amount} for id_, name, amount in whole]

    def update(self, table: str, id_: int, **values: Any) -> None:
        space = f"box.space[{lua(table)}]"
        if "id" in values:
            new = values.pop("id")
            moved = f"{space}:get({id_}):update({{{{'=', 1, {new}}}}})"
            self.run(f"local t = {moved} box.begin() {space}:delete({id_}) {space}:insert(t) box.commit()")
            id_ = new
        if values:
            done = ", ".join(f"{{'=', {lua(name)}, {lua(value)}}}" for name, value in values.items())
            self.run(f"{space}:update({id_}, {{{done}}})")

    def delete(self, table: str, id_: int) -> None:
        self.run(f"box.space[{lua(table)}]:delete({id_})")

    def add_column(self, table: str, column: str) -> None:
        self.run(
            f"local s = box.space[{lua(table)}] local f = s:format() "
            f"table.insert(f, {{name = {lua(column)}, type = 'string', is_nullable = true}}) s:format(f)"
        )

    def leftovers(self) -> set[str]:
        found = self.run("local r = {} for _, t in box.space._cluster:pairs() do table.insert(r, t[2]) end return r")
        return set(found)
