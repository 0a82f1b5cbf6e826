"""Every piece of SQL that writes, and nothing else. Names and values from outside are escaped here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from psycopg import sql

from tailrace.adaptor.postgres.sql import names

OURS: Final = "tailrace"
"""The schema for what is ours in a destination."""
PREPARE: Final = (
    "CREATE SCHEMA IF NOT EXISTS tailrace",
    "CREATE TABLE IF NOT EXISTS tailrace.tailrace_applied ("
    "consumer text, namespace text, target text NOT NULL, upto bigint NOT NULL, PRIMARY KEY (consumer, namespace))",
)
IS_PREPARED: Final = "SELECT to_regclass('tailrace.tailrace_applied') IS NOT NULL"
NAMESAKE: Final = """
    SELECT namespace FROM tailrace.tailrace_applied
    WHERE target = %s AND namespace <> %s AND (consumer = %s OR starts_with(consumer, %s)) LIMIT 1
"""
LOCK_RECORD: Final = "SELECT pg_advisory_xact_lock(hashtext('tailrace_applied'))"
APPLIED: Final = "SELECT max(upto) FROM tailrace.tailrace_applied WHERE consumer = ANY(%s) AND namespace = %s"
FORGET_PARTS: Final = "DELETE FROM tailrace.tailrace_applied WHERE starts_with(consumer, %s) AND namespace = %s"
APPLY: Final = """
    INSERT INTO tailrace.tailrace_applied AS known (consumer, namespace, target, upto) VALUES (%s, %s, %s, %s)
    ON CONFLICT (consumer, namespace)
    DO UPDATE SET upto = greatest(known.upto, EXCLUDED.upto), target = EXCLUDED.target
"""
COLUMNS: Final = """
    SELECT a.attname, format_type(a.atttypid, NULL), tn.nspname, t.typname,
           a.attgenerated <> '' OR a.attidentity = 'x', format_type(a.atttypid, a.atttypmod)
    FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid JOIN pg_namespace n ON n.oid = c.relnamespace
    JOIN pg_type t ON t.oid = a.atttypid JOIN pg_namespace tn ON tn.oid = t.typnamespace
    WHERE n.nspname = %s AND c.relname = %s AND a.attnum > 0 AND NOT a.attisdropped
      AND c.relkind IN ('r', 'p', 'v', 'f')
    ORDER BY a.attnum
"""
UNIQUES: Final = """
    SELECT array_agg(a.attname::text) FROM pg_index i
    JOIN pg_class c ON c.oid = i.indrelid JOIN pg_namespace n ON n.oid = c.relnamespace
    CROSS JOIN LATERAL unnest(i.indkey) WITH ORDINALITY AS k(attnum, place)
    JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
    WHERE n.nspname = %s AND c.relname = %s AND i.indisunique AND i.indpred IS NULL
      AND i.indexprs IS NULL AND k.place <= i.indnkeyatts
    GROUP BY i.indexrelid
"""
IS_REFERRED: Final = """
    SELECT EXISTS (
        SELECT FROM pg_constraint f JOIN pg_class c ON c.oid = f.confrelid JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE f.contype = 'f' AND n.nspname = %s AND c.relname = %s
    )
"""
"""Whether rows of other tables refer to this one's."""
IS_TYPE: Final = "SELECT to_regtype(%s) IS NOT NULL"
DELETES_THROUGH: Final = """
    SELECT EXISTS (SELECT 1 FROM pg_trigger WHERE tgrelid = to_regclass(%s) AND tgtype & 64 <> 0 AND tgtype & 8 <> 0)
"""
STAGE: Final = "tailrace_stage"


def create_schema(schema: str) -> sql.Composed:
    return sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(sql.Identifier(schema))


def create_table(schema: str, table: str, columns: Mapping[str, str], key: Sequence[str]) -> sql.Composed:
    """The types are ours, or were found in the catalog of the destination."""
    parts: list[sql.Composable] = [_column(name, kind) for name, kind in columns.items()]
    if key:
        parts.append(sql.SQL("PRIMARY KEY ({})").format(names(key)))
    return sql.SQL("CREATE TABLE {} ({})").format(sql.Identifier(schema, table), sql.SQL(", ").join(parts))


def add_column(schema: str, table: str, column: str, kind: str) -> sql.Composed:
    return sql.SQL("ALTER TABLE {} ADD COLUMN {}").format(sql.Identifier(schema, table), _column(column, kind))


def add_unique(schema: str, table: str, key: Sequence[str]) -> sql.Composed:
    return sql.SQL("ALTER TABLE {} ADD UNIQUE ({})").format(sql.Identifier(schema, table), names(key))


def widen_column(schema: str, table: str, column: str, kind: str) -> sql.Composed:
    head = sql.SQL("ALTER TABLE {} ALTER COLUMN {} TYPE ")
    return head.format(sql.Identifier(schema, table), sql.Identifier(column)) + raw(kind)


def create_stage(columns: Mapping[str, tuple[str, str] | None]) -> sql.Composed:
    """A table for one batch; a column without a type of its own is text."""
    parts = [
        sql.SQL("{} {}").format(sql.Identifier(name), sql.Identifier(*kind) if kind else sql.SQL("text"))
        for name, kind in columns.items()
    ]
    return sql.SQL("CREATE TEMP TABLE {} ({}) ON COMMIT DROP").format(sql.Identifier(STAGE), sql.SQL(", ").join(parts))


def drop_stage() -> sql.Composed:
    return sql.SQL("DROP TABLE pg_temp.{}").format(sql.Identifier(STAGE))


def copy_into(target: sql.Composable, columns: Sequence[str]) -> sql.Composed:
    return sql.SQL("COPY {} ({}) FROM STDIN (FORMAT binary)").format(target, names(columns))


def stage_name() -> sql.Composable:
    return sql.Identifier("pg_temp", STAGE)


def insert_staged(
    into: sql.Composable, columns: Mapping[str, tuple[str, str] | None], key: Sequence[str]
) -> sql.Composed:
    """The rows of the stage, over those with the same key; a column with a type is cast to it from text."""
    chosen = sql.SQL(", ").join(_cast(sql.Identifier(name), kind) for name, kind in columns.items())
    head = sql.SQL("INSERT INTO {} ({}) OVERRIDING SYSTEM VALUE SELECT {} FROM {}")
    return head.format(into, names(list(columns)), chosen, stage_name()) + _over(columns, key)


def insert_values(into: sql.Composable, columns: Mapping[str, tuple[str, str]], key: Sequence[str]) -> sql.Composed:
    """One row, whose values are texts, for a cursor that takes numbered parameters."""
    values = sql.SQL(", ").join(_cast(_text(number), kind) for number, kind in enumerate(columns.values(), 1))
    head = sql.SQL("INSERT INTO {} ({}) OVERRIDING SYSTEM VALUE VALUES ({})")
    return head.format(into, names(list(columns)), values) + _over(columns, key)


def delete_staged(target: sql.Composable, key: Mapping[str, tuple[str, str] | None]) -> sql.Composed:
    """The rows whose keys are in the stage."""
    same = sql.SQL(" AND ").join(
        sql.SQL("d.{} = ").format(sql.Identifier(name)) + _cast(sql.SQL("s.{}").format(sql.Identifier(name)), kind)
        for name, kind in key.items()
    )
    return sql.SQL("DELETE FROM {} AS d USING {} AS s WHERE {}").format(target, stage_name(), same)


def delete_values(target: sql.Composable, key: Mapping[str, tuple[str, str]]) -> sql.Composed:
    """The row with one key, whose parts are texts, for a cursor that takes numbered parameters."""
    same = sql.SQL(" AND ").join(
        sql.SQL("{} = ").format(sql.Identifier(name)) + _cast(_text(number), kind)
        for number, (name, kind) in enumerate(key.items(), 1)
    )
    return sql.SQL("DELETE FROM {} WHERE {}").format(target, same)


def truncate(target: sql.Composable) -> sql.Composed:
    return sql.SQL("TRUNCATE {}").format(target)


def delete_all(target: sql.Composable) -> sql.Composed:
    return sql.SQL("DELETE FROM {}").format(target)


def raw(kind: str) -> sql.Composable:
    """A type as SQL writes it: one of ours, or what `format_type` gave."""
    return sql.SQL(kind)


def _column(name: str, kind: str) -> sql.Composable:
    return sql.SQL("{} ").format(sql.Identifier(name)) + raw(kind)


def _text(number: int) -> sql.Composable:
    return raw(f"${number}::text")


def _cast(value: sql.Composable, kind: tuple[str, str] | None) -> sql.Composable:
    return value if kind is None else value + sql.SQL("::{}").format(sql.Identifier(*kind))


def _over(columns: Mapping[str, object], key: Sequence[str]) -> sql.Composable:
    if not key:
        return sql.SQL("")
    others = [name for name in columns if name not in key]
    head = sql.SQL(" ON CONFLICT ({}) DO ").format(names(key))
    if not others:
        return head + sql.SQL("NOTHING")
    changes = sql.SQL(", ").join(sql.SQL("{0} = EXCLUDED.{0}").format(sql.Identifier(name)) for name in others)
    return head + sql.SQL("UPDATE SET {}").format(changes)
