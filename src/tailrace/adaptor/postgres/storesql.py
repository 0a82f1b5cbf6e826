"""The SQL of a node's store: its versions, its replication origin, and the views that newcomers get."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from psycopg import sql

from tailrace.adaptor.postgres.writesql import PREPARE

PREPARE_STORE: Final = (
    *PREPARE,
    "CREATE TABLE IF NOT EXISTS tailrace.tailrace_version ("
    'namespace text COLLATE "C", key text COLLATE "C", at bigint NOT NULL, origin text COLLATE "C" NOT NULL, '
    "lsn bigint NOT NULL, PRIMARY KEY (namespace, key))",
    "CREATE TABLE IF NOT EXISTS tailrace.tailrace_conflict ("
    "id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, namespace text NOT NULL, key text NOT NULL, left_key text, "
    "origin text NOT NULL, lsn bigint NOT NULL, at bigint NOT NULL, policy text NOT NULL, ours text, theirs text, "
    "keep text, rival text NOT NULL, UNIQUE (origin, lsn, rival))",
    "CREATE TABLE IF NOT EXISTS tailrace.tailrace_node (name text PRIMARY KEY, value text NOT NULL)",
)
FIND_VERSIONS: Final = """
    SELECT key, at, origin, lsn FROM tailrace.tailrace_version WHERE namespace = %s AND key = ANY(%s)
"""
NOTE_ALWAYS: Final = """
    INSERT INTO tailrace.tailrace_version AS known (namespace, key, at, origin, lsn)
    SELECT * FROM unnest(%s::text[], %s::text[], %s::bigint[], %s::text[], %s::bigint[])
    ON CONFLICT (namespace, key) DO UPDATE SET at = EXCLUDED.at, origin = EXCLUDED.origin, lsn = EXCLUDED.lsn
"""
"""No key may come twice."""
NOTE_NEWER: Final = (
    NOTE_ALWAYS + "WHERE (EXCLUDED.at, EXCLUDED.origin, EXCLUDED.lsn) > (known.at, known.origin, known.lsn)"
)
HAS_VERSIONS: Final = "SELECT to_regclass('tailrace.tailrace_version') IS NOT NULL"
ALL_VERSIONS: Final = """
    SELECT namespace, key, at, origin, lsn FROM tailrace.tailrace_version ORDER BY namespace, key
"""
APPLIED_LAST: Final = "SELECT max(upto) FROM tailrace.tailrace_applied WHERE consumer = %s"

REMEMBER: Final = """
    INSERT INTO tailrace.tailrace_node VALUES (%s, %s) ON CONFLICT (name) DO UPDATE SET value = EXCLUDED.value
"""
RECALL: Final = "SELECT value FROM tailrace.tailrace_node WHERE name = %s"

NOTE_CONFLICT: Final = """
    INSERT INTO tailrace.tailrace_conflict
        (namespace, key, left_key, origin, lsn, at, policy, ours, theirs, keep, rival)
    VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s) ON CONFLICT (origin, lsn, rival) DO NOTHING
"""
FORGET_CONFLICTS: Final = """
    DELETE FROM tailrace.tailrace_conflict
    WHERE keep IS NOT NULL AND id <= (SELECT max(id) FROM tailrace.tailrace_conflict) - %s
"""
DECISION: Final = "SELECT keep FROM tailrace.tailrace_conflict WHERE origin = %s AND lsn = %s AND rival = %s"
HAS_CONFLICTS: Final = "SELECT to_regclass('tailrace.tailrace_conflict') IS NOT NULL"
ALL_CONFLICTS: Final = "SELECT * FROM tailrace.tailrace_conflict ORDER BY id"
ONE_CONFLICT: Final = "SELECT * FROM tailrace.tailrace_conflict WHERE id = %s"
SETTLE: Final = "UPDATE tailrace.tailrace_conflict SET keep = %s WHERE id = %s"

ORIGIN: Final = "SELECT pg_replication_origin_oid(%s)"
CREATE_ORIGIN: Final = "SELECT pg_replication_origin_create(%s)"
TAKE_ORIGIN: Final = "SELECT pg_replication_origin_session_setup(%s)"

FORBID_TRUNCATE: Final = """
    CREATE OR REPLACE FUNCTION tailrace.tailrace_no_truncate() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        RAISE EXCEPTION 'TRUNCATE of % cannot be replicated to other nodes', TG_RELID::regclass
        USING ERRCODE = 'feature_not_supported', HINT = 'DELETE FROM it instead';
    END $$
"""
TRIGGERS: Final = "SELECT tgrelid::int8 FROM pg_trigger WHERE tgname = %s"
NO_TRUNCATE: Final = "tailrace_no_truncate"
READ_ONLY: Final = "tailrace_read_only"
GATE: Final = (
    "CREATE TABLE IF NOT EXISTS tailrace.tailrace_gate (closed boolean NOT NULL)",
    "INSERT INTO tailrace.tailrace_gate SELECT true WHERE NOT EXISTS (SELECT FROM tailrace.tailrace_gate)",
    """
    CREATE OR REPLACE FUNCTION tailrace.tailrace_read_only() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog AS $$
    BEGIN
        IF (SELECT closed FROM tailrace.tailrace_gate)
            AND current_setting('tailrace.is_node', true) IS DISTINCT FROM 'on'
        THEN
            RAISE EXCEPTION 'this node is read-only now; tailrace node status says why'
            USING ERRCODE = 'read_only_sql_transaction';
        END IF;
        RETURN NULL;
    END $$
    """,
)
HAS_GATE: Final = "SELECT to_regclass('tailrace.tailrace_gate') IS NOT NULL"
SET_GATE: Final = "UPDATE tailrace.tailrace_gate SET closed = %s WHERE closed <> %s"
IS_NODE: Final = "SET tailrace.is_node = 'on'"
"""What a session says that passes the gate."""

SHAPE: Final = """
    SELECT md5(string_agg(format('%s %s %s %s %s', c.oid, c.relnamespace, c.relname, c.relnatts, c.relreplident), ','
                          ORDER BY c.oid)),
           (SELECT count(*) FROM pg_index WHERE indisprimary)
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE c.relkind IN ('r', 'p') AND c.relpersistence = 'p'
      AND n.nspname NOT LIKE 'pg\\_%' AND n.nspname NOT IN ('information_schema', 'tailrace')
"""
BEGIN_VIEW: Final = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
EXPORT_SNAPSHOT: Final = "SELECT pg_export_snapshot()"


def settings(server_version: int) -> list[str]:
    """Statements with which a transaction that does nothing is left alone."""
    names = ["idle_in_transaction_session_timeout", *(["transaction_timeout"] if server_version >= 170_000 else [])]
    return [f"SET {name} = 0" for name in names]


def keep_tables(tables: Sequence[tuple[str, str]]) -> sql.Composed:
    """Nobody can empty or rewrite these tables, which a snapshot would not survive."""
    listed = sql.SQL(", ").join(sql.Identifier(schema, table) for schema, table in tables)
    return sql.SQL("LOCK TABLE {} IN ACCESS SHARE MODE").format(listed)


def keep_rows(tables: Sequence[tuple[str, str]]) -> sql.Composed:
    """Nobody changes rows of these tables; whoever does now is waited for."""
    listed = sql.SQL(", ").join(sql.Identifier(schema, table) for schema, table in tables)
    return sql.SQL("LOCK TABLE {} IN SHARE ROW EXCLUSIVE MODE").format(listed)


def forbid_truncate(schema: str, table: str) -> sql.Composed:
    """A table whose rows can only be deleted."""
    head = sql.SQL("CREATE TRIGGER tailrace_no_truncate BEFORE TRUNCATE ON {} EXECUTE FUNCTION {}")
    return head.format(sql.Identifier(schema, table), sql.SQL("tailrace.tailrace_no_truncate()"))


def close_table(schema: str, table: str) -> sql.Composed:
    """A table that the gate is asked about before each statement."""
    head = sql.SQL("CREATE TRIGGER {} BEFORE INSERT OR UPDATE OR DELETE ON {} EXECUTE FUNCTION {}")
    place = sql.Identifier(schema, table)
    return head.format(sql.Identifier(READ_ONLY), place, sql.SQL("tailrace.tailrace_read_only()"))


def only_ours(target: sql.Composable) -> sql.Composed:
    """Nobody else writes a table until the end of the transaction."""
    return sql.SQL("LOCK TABLE {} IN SHARE ROW EXCLUSIVE MODE").format(target)


def any_row(schema: str, table: str) -> sql.Composed:
    return sql.SQL("SELECT 1 FROM {} LIMIT 1").format(sql.Identifier(schema, table))
