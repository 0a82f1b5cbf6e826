"""Triggers of others on a table that is synced: an application's own, which may do anything to a row that comes."""

from __future__ import annotations

from tailrace.sync import postgresddl
from tailrace.sync.database import Link
from tailrace.sync.names import Dialect
from tailrace.sync.shape import Shape


def has_strangers(link: Link, shape: Shape) -> bool:
    """Whether somebody else's triggers would do something that has to be noticed. Those of a pipeline only look."""
    if shape.dialect is Dialect.POSTGRES:
        query = r"""SELECT 1 FROM pg_trigger
            WHERE NOT tgisinternal AND ltrim(tgname, $4) NOT LIKE $3 AND tgname NOT LIKE 'tailrace\_%'
            AND tgrelid IN (to_regclass($1), to_regclass($2)) LIMIT 1"""
        own = rf"door\_{shape.table_id}\_%", postgresddl.FIRST + postgresddl.LAST
        return bool(link.rows(query, (shape.table, shape.view, *own)))
    query = """SELECT 1 FROM sqlite_master WHERE type = 'trigger' AND name NOT GLOB ?3 AND name NOT GLOB 'tailrace_*'
        AND tbl_name COLLATE NOCASE IN (?1, ?2) LIMIT 1"""
    return bool(link.rows(query, (shape.entity.table, shape.entity.view_name, f"door_{shape.table_id}_*")))
