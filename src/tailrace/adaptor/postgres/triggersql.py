"""The changelog that triggers feed, in SQL. Names and values from outside are escaped here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from psycopg import sql

from tailrace.adaptor.postgres.server import SETTINGS
from tailrace.adaptor.postgres.sql import Asked, chosen

_FORMS: Final = " ".join(f"SET {name} = '{value}'" for name, value in SETTINGS.items() if name != "client_encoding")
INSTALL: Final = (
    "CREATE SCHEMA IF NOT EXISTS tailrace",
    "CREATE TABLE IF NOT EXISTS tailrace.tailrace_source (id text PRIMARY KEY, pipeline text NOT NULL)",
    """
    CREATE TABLE IF NOT EXISTS tailrace.tailrace_changelog (
        seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        xid xid8 NOT NULL DEFAULT pg_current_xact_id(),
        at timestamptz NOT NULL DEFAULT clock_timestamp(),
        relid oid NOT NULL, op text NOT NULL, new json, old json
    )
    """,
    """
    CREATE OR REPLACE FUNCTION tailrace.tailrace_note() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp {} AS $$BEGIN
        INSERT INTO tailrace.tailrace_changelog(relid, op, new, old) VALUES (
            TG_ARGV[0]::oid, TG_OP,
            CASE WHEN TG_OP IN ('INSERT', 'UPDATE') THEN to_json(NEW) END,
            CASE WHEN TG_OP IN ('DELETE', 'UPDATE') THEN to_json(OLD) END);
        RETURN NULL;
    END$$
    """.replace("{}", _FORMS),
)
"""A row is noted as JSON in the forms of `server.SETTINGS`, so that a change of its table never makes a write fail."""
UNINSTALL: Final = (
    "DROP FUNCTION IF EXISTS tailrace.tailrace_note() CASCADE",
    "DROP TABLE IF EXISTS tailrace.tailrace_changelog",
    "DROP TABLE IF EXISTS tailrace.tailrace_source",
)
DROP_EMPTY_SCHEMA: Final = """
    DO $$BEGIN
        IF NOT EXISTS (SELECT 1 FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
                       WHERE n.nspname = 'tailrace') THEN DROP SCHEMA IF EXISTS tailrace; END IF;
    END$$
"""
IS_INSTALLED: Final = "SELECT to_regclass('tailrace.tailrace_changelog') IS NOT NULL"
HELD: Final = "SELECT pg_total_relation_size(to_regclass('tailrace.tailrace_changelog'))"
SOURCE: Final = "SELECT id, pipeline FROM tailrace.tailrace_source"
NEW_SOURCE: Final = "INSERT INTO tailrace.tailrace_source VALUES (%s, %s)"
NOTED: Final = """
    SELECT t.tgrelid::int8
    FROM pg_trigger t JOIN pg_proc p ON p.oid = t.tgfoid JOIN pg_namespace n ON n.oid = p.pronamespace
    WHERE n.nspname = 'tailrace' AND p.proname = 'tailrace_note' AND t.tgparentid = 0 AND t.tgname = 'tailrace_rows'
"""
NOW: Final = "SELECT pg_current_snapshot()::text"
SPAN: Final = """
    SELECT min(seq), max(seq) FROM tailrace.tailrace_changelog
    WHERE xid >= pg_snapshot_xmin(%(begin)s::pg_snapshot) AND pg_visible_in_snapshot(xid, %(end)s::pg_snapshot)
      AND NOT pg_visible_in_snapshot(xid, %(begin)s::pg_snapshot)
"""
FORGET: Final = "DELETE FROM tailrace.tailrace_changelog WHERE pg_visible_in_snapshot(xid, %s::pg_snapshot)"


def note(schema: str, table: str, oid: int) -> list[sql.Composed]:
    """Make a table note its changes; parts of a partitioned one note theirs as its own."""
    named = sql.Identifier(schema, table)
    call = sql.SQL("EXECUTE FUNCTION tailrace.tailrace_note({})").format(sql.Literal(str(oid)))
    rows = sql.SQL("CREATE TRIGGER tailrace_rows AFTER INSERT OR UPDATE OR DELETE ON {} FOR EACH ROW ").format(named)
    emptied = sql.SQL("CREATE TRIGGER tailrace_emptied AFTER TRUNCATE ON {} FOR EACH STATEMENT ").format(named)
    return [rows + call, emptied + call]


def relations(piece: Mapping[str, Any]) -> sql.Composed:
    """The tables that have changed in a piece."""
    return sql.SQL("SELECT DISTINCT relid::int8 FROM tailrace.tailrace_changelog WHERE ") + _of(piece)


def changes(oid: int, schema: str, table: str, columns: Mapping[str, Asked], piece: Mapping[str, Any]) -> sql.Composed:
    """The changes of one table: what happened, then the row, then the row before, in the types that it has now."""
    row = sql.Identifier(schema, table)
    return sql.SQL(
        "SELECT c.seq, c.op, c.at, c.xid::text, {new}, {old} FROM tailrace.tailrace_changelog c"
        " LEFT JOIN LATERAL json_populate_record(NULL::{row}, coalesce(c.new, c.old)) n ON true"
        " LEFT JOIN LATERAL json_populate_record(NULL::{row}, c.old) o ON true"
        " WHERE relid = {oid} AND {of} ORDER BY seq"
    ).format(
        new=_columns("n", columns, "n"), old=_columns("o", columns, "o"), row=row, oid=sql.Literal(oid), of=_of(piece)
    )


def _columns(alias: str, columns: Mapping[str, Asked], prefix: str) -> sql.Composable:
    return sql.SQL(", ").join(
        chosen(sql.Identifier(alias, column), f"{prefix}{at}", asked)
        for at, (column, asked) in enumerate(columns.items())
    )


def _of(piece: Mapping[str, Any]) -> sql.Composable:
    begin, end = sql.Literal(piece["begin"]), sql.Literal(piece["end"])
    return sql.SQL(
        "seq > {after} AND seq <= {upto} AND xid >= pg_snapshot_xmin({begin}::pg_snapshot)"
        " AND pg_visible_in_snapshot(xid, {end}::pg_snapshot) AND NOT pg_visible_in_snapshot(xid, {begin}::pg_snapshot)"
    ).format(after=sql.Literal(piece["after"]), upto=sql.Literal(piece["upto"]), begin=begin, end=end)
