"""Whether what sync has made beside a table is still there: a table that is rebuilt loses its triggers, and in
PostgreSQL they can be disabled. What happens to the table then is noticed by nobody."""
# ruff: noqa: S608  names cannot be bound; only their number is in the text

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tailrace.sync import postgresddl, sqliteddl
from tailrace.sync.database import Link
from tailrace.sync.names import Dialect
from tailrace.sync.shape import Shape

_FIRING: Final = """SELECT tgname::text FROM pg_trigger
    WHERE tgenabled IN ('O', 'A') AND tgrelid IN (to_regclass($1), to_regclass($2))"""
_PLACED: Final = "SELECT 1 FROM pg_trigger WHERE tgrelid = to_regclass($1) AND tgname LIKE $2 LIMIT 1"
_NAMED_MAX: Final = 3


def missing(link: Link, shape: Shape) -> list[str]:
    """The triggers and views that are not there, or do not fire."""
    if shape.dialect is Dialect.POSTGRES:
        found = {name for (name,) in link.rows(_FIRING, (shape.table, shape.view))}
        return [name for name in _postgres_triggers(shape) if name not in found]
    made = list(sqliteddl.triggers_of(shape))
    marks = ", ".join("?" * len(made))
    query = f"SELECT name FROM sqlite_master WHERE type IN ('view', 'trigger') AND name IN ({marks})"
    found = {name for (name,) in link.rows(query, made)}
    return [name for name in made if name not in found]


def named(away: Sequence[str]) -> str:
    """Some of them, for people."""
    more = [f"{len(away) - _NAMED_MAX} more"] if len(away) > _NAMED_MAX else []
    return ", ".join([*away[:_NAMED_MAX], *more])


def is_bare(link: Link, shape: Shape) -> bool:
    """Whether the table has no trigger of sync's at all: then it is another table than the one that was synced."""
    if shape.dialect is Dialect.POSTGRES:
        return not link.rows(_PLACED, (shape.table, rf"%door\_{shape.table_id}\_%"))
    query = "SELECT 1 FROM sqlite_master WHERE type = 'trigger' AND name GLOB ?1 AND tbl_name = ?2 COLLATE NOCASE"
    return not link.rows(query, (f"door_{shape.table_id}_*", shape.entity.table))


def _postgres_triggers(shape: Shape) -> list[str]:
    own = f"door_{shape.table_id}_"
    return [name for name in postgresddl.triggers_of(shape) if own in name and not name.endswith("()")]
