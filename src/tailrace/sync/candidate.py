"""A candidate: a table that is to be synced, and whether it can be. What cannot is told before anything is made."""
# ruff: noqa: S608  names cannot be bound; all of them go through `quoted`

from __future__ import annotations

from typing import Final

from tailrace.errors import TailraceError
from tailrace.sync.database import Link
from tailrace.sync.entity import Entity
from tailrace.sync.names import Dialect, quoted
from tailrace.sync.shape import Shape

_IS_VIEW: Final = {
    Dialect.SQLITE: "SELECT 1 FROM sqlite_master WHERE type = 'view' AND name = ?1 COLLATE NOCASE",
    Dialect.POSTGRES: "SELECT 1 FROM pg_class WHERE oid = to_regclass($1) AND relkind IN ('v', 'm')",
}


def check_is_table(link: Link, entity: Entity, dialect: Dialect) -> None:
    """Views have no rows of their own, so nobody would notice when one changes."""
    name = quoted(entity.table) if dialect is Dialect.POSTGRES else entity.table
    if link.rows(_IS_VIEW[dialect], (name,)):
        raise _invalid(entity, "it is a view, and only tables are synced", "name the tables that it shows")


def check_key(link: Link, shape: Shape) -> None:
    """A key that does not identify a row is found now, and not by the first row that comes."""
    entity = shape.entity
    if generated := [name for name in shape.key if shape.column(name).is_generated]:
        what = f"{', '.join(generated)} of its key is generated, and rows of others are written with their keys"
        raise _invalid(entity, what, "name the columns that it is made of with `key`, with a unique index on them")
    keys = ", ".join(shape.table_key)
    override = " OVERRIDING SYSTEM VALUE" if shape.dialect is Dialect.POSTGRES else ""
    rows = f"{override} SELECT {keys} FROM {shape.table} WHERE 1 = 0"
    try:
        with link.savepoint():
            link.run(f"EXPLAIN INSERT INTO {shape.table}({keys}) {rows} ON CONFLICT ({keys}) DO NOTHING")
    except Exception as error:
        what = f"there is no unique index on {keys}"
        raise _invalid(entity, what, "make one, or name other columns with `key`") from error


def check_rows(link: Link, shape: Shape) -> None:
    """A row without a key is nobody's: NULL is not even the same as itself."""
    open_to_null = [name for name in shape.key if not shape.column(name).is_required]
    is_null = " OR ".join(f"{quoted(name)} IS NULL" for name in open_to_null)
    if open_to_null and link.rows(f"SELECT 1 FROM {shape.table} WHERE {is_null} LIMIT 1"):
        hint = f"give them values or delete them (WHERE {is_null}), then install; and let the columns be NOT NULL"
        raise _invalid(shape.entity, f"there are rows with NULL in its key ({', '.join(open_to_null)})", hint)


def _invalid(entity: Entity, what: str, hint: str) -> TailraceError:
    return TailraceError("config.invalid", f"table {entity.table}: {what}", hint=hint)
