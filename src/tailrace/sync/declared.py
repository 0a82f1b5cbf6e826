"""What is declared, as the database has it: the shapes of all entities, and whether these are still what is installed.

Another process may install anew while a node runs, because a table has got a column. Who goes on with the old shape
would take and send rows without that column under versions that stand for all of them, and nobody would ask again.
"""
# ruff: noqa: S608  names cannot be bound; all of them are sync's own

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from tailrace.errors import TailraceError
from tailrace.sync import changes, install, names, references
from tailrace.sync.database import Database, Link
from tailrace.sync.entity import Entity
from tailrace.sync.names import Dialect
from tailrace.sync.order import ordered, referring
from tailrace.sync.references import Reference
from tailrace.sync.shape import Shape


class Outdated(TailraceError):
    """A table was installed anew meanwhile."""

    def __init__(self, table: str) -> None:
        super().__init__("sync.busy", f"table {table} was installed anew just now", hint="try again in a moment")


@dataclass(frozen=True, slots=True)
class Declared:
    """Entities in a database."""

    shapes: Mapping[int, Shape]
    definitions: Mapping[int, str]
    order: Sequence[int]
    """Their tables, those of the lowest batch first."""
    watched: Collection[int]
    """Tables whose changes may concern others."""
    referring: Mapping[int, frozenset[int]]
    """By table to which foreign keys refer: itself and those that do, directly or not."""
    references: Sequence[Reference]
    """The foreign keys between them."""

    @classmethod
    def of(cls, link: Link, entities: Sequence[Entity], dialect: Dialect) -> Declared:
        """Raises `sync.not_installed` when they are not installed, or otherwise than they are declared."""
        found = install.check_installed(link, entities, dialect)
        shapes = {shape.table_id: shape for shape in found}
        definitions = {table_id: _definition(link, shape) for table_id, shape in shapes.items()}
        order = [shape.table_id for shape in ordered(found)]
        return cls(shapes, definitions, order, changes.watched(found), referring(found), references.find(link, found))

    def check_known(self, table_id: int, ignored: Collection[str]) -> None:
        """Raises `Outdated` when columns of a table were left out of rows because the table did not have them then."""
        shape = self.shapes[table_id]
        if {name.lower() for name in ignored} & {name.lower() for name in shape.column_names}:
            raise Outdated(shape.entity.table)

    def check_current(self, link: Link, table_id: int) -> None:
        """Raises `Outdated`. After rows of a table were written, nobody installs before the end of the transaction."""
        shape = self.shapes[table_id]
        if _definition(link, shape) != self.definitions[table_id]:
            raise Outdated(shape.entity.table)


class Current:
    """What is declared, as of the last look at the database."""

    def __init__(self, database: Database, entities: Sequence[Entity]) -> None:
        """Raises as `Declared.of` does."""
        self._database = database
        self._entities = tuple(entities)
        self.look()

    def look(self) -> None:
        dialect = self._database.dialect
        self.declared = self._database.read(lambda link: Declared.of(link, self._entities, dialect))
        self.ignored: dict[int, frozenset[str]] = {}
        """By table: columns of which it was noted that others have them, and this database has not."""

    def shape(self, table_id: int) -> Shape:
        found = self.declared.shapes.get(table_id)
        if found is None:
            known = ", ".join(map(str, self.declared.shapes)) or "none"
            what = f"there is no entity with tableId {table_id}; those that there are: {known}"
            raise TailraceError("sync.unknown_table", what, hint="declare the same entities at both nodes")
        return found


def _definition(link: Link, shape: Shape) -> str:
    query = f"SELECT definition FROM {shape.own_table(names.ENTITIES)} WHERE tableId = {shape.table_id:d}"
    return str(link.value(query))
