"""Partitions of a table in PostgreSQL. They have its triggers for rows, but not that for TRUNCATE: each gets its own,
as far as the role may give it one. One that is made later gets it when sync is installed again."""

from __future__ import annotations

from typing import Final

from tailrace.sync.database import Link
from tailrace.sync.names import quoted
from tailrace.sync.shape import Shape

_UNWATCHED: Final = """SELECT c.oid::regclass::text FROM pg_partition_tree(to_regclass($1)) AS t
    JOIN pg_class AS c ON c.oid = t.relid
    WHERE t.relid <> to_regclass($1) AND c.relkind IN ('r', 'p') AND has_table_privilege(c.oid, 'TRIGGER')
    AND NOT EXISTS (SELECT 1 FROM pg_trigger AS g WHERE g.tgrelid = c.oid AND g.tgname = $2)"""


def watch(link: Link, shape: Shape) -> None:
    """Let TRUNCATE of a partition be noticed."""
    name = f"door_{shape.table_id}_emptied"
    function = shape.own_table(name)
    for (partition,) in link.rows(_UNWATCHED, (shape.table, name)):
        link.run(
            f"""CREATE TRIGGER {quoted(name)} BEFORE TRUNCATE ON {partition}
                FOR EACH STATEMENT EXECUTE FUNCTION {function}('partition')"""
        )
