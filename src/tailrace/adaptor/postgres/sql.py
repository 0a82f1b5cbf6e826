"""Every piece of SQL that is put together, and nothing else. Names and values from outside are escaped here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum, auto
from typing import Any, Final

from psycopg import sql

TYPES: Final = """
    SELECT t.oid::int8, format_type(t.oid, NULL), t.typname, t.typtype::text,
           t.typcategory = 'A' AND t.typelem <> 0, t.typelem::int8, t.typbasetype::int8, t.typtypmod,
           coalesce(e.typdelim, ',')::text
    FROM pg_type t LEFT JOIN pg_type e ON e.oid = t.typelem
"""
TABLES: Final = """
    SELECT c.oid::int8, n.nspname, c.relname, c.relkind::text, c.relreplident::text, c.relispartition,
           c.relpersistence::text
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE c.relkind IN ('r', 'p', 'f', 'm') AND n.nspname NOT LIKE 'pg\\_%'
      AND n.nspname <> 'information_schema' AND c.relname NOT LIKE 'tailrace\\_%'
    ORDER BY n.nspname, c.relname
"""
COLUMNS: Final = """
    SELECT a.attrelid::int8, a.attname, a.atttypid::int8, a.atttypmod, a.attndims, a.attgenerated::text,
           a.atthasdef OR a.atthasmissing
    FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
    WHERE a.attnum > 0 AND NOT a.attisdropped AND a.attrelid = ANY(%s::int8[]::oid[])
    ORDER BY a.attrelid, a.attnum
"""
KEYS: Final = """
    SELECT i.indrelid::int8, a.attname
    FROM pg_index i
    CROSS JOIN LATERAL unnest(i.indkey) WITH ORDINALITY AS k(attnum, place)
    JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
    WHERE i.indisprimary AND i.indrelid = ANY(%s::int8[]::oid[]) AND k.place <= i.indnkeyatts
    ORDER BY i.indrelid, k.place
"""
IDENTITY_KEYS: Final = KEYS.replace("i.indisprimary", "i.indisreplident")
SIZES: Final = """
    WITH RECURSIVE parts(root, oid) AS (
        SELECT oid, oid FROM pg_class WHERE oid = ANY(%s::int8[]::oid[])
        UNION ALL SELECT parts.root, i.inhrelid FROM parts JOIN pg_inherits i ON i.inhparent = parts.oid
    )
    SELECT parts.root::int8, sum(greatest(c.reltuples, 0))::int8, sum(pg_relation_size(c.oid))::int8
    FROM parts JOIN pg_class c ON c.oid = parts.oid GROUP BY parts.root
"""
IS_SYNCED: Final = """
    SELECT count(*) = 2, bool_and(has_column_privilege(attrelid, attname, 'SELECT')) FROM pg_attribute
    WHERE attrelid = to_regclass(%s) AND attname IN ('tracker', 'stamp') AND NOT attisdropped
"""
SEQUENCES: Final = """
    SELECT n.nspname || '.' || c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE c.relkind = 'S' AND n.nspname NOT LIKE 'pg\\_%' ORDER BY 1
"""
_SLOT_STATE: Final = """
    plugin, database, slot_type, active, coalesce(active_pid, 0), wal_status,
    (confirmed_flush_lsn - '0/0')::int8,
    (CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_lsn() END - restart_lsn)::int8
"""
SLOT: Final = "SELECT" + _SLOT_STATE + "FROM pg_replication_slots WHERE slot_name = %s"
ALL_SLOTS: Final = "SELECT slot_name," + _SLOT_STATE + "FROM pg_replication_slots ORDER BY slot_name"
WAL_END: Final = """
    SELECT (CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_insert_lsn() END
            - '0/0')::int8,
           (CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_flush_lsn() END
            - '0/0')::int8,
           current_setting('wal_block_size')::int8
"""
"""Where the server's log ends, how much of it is on disk, and the size of its pages."""
FLUSH_WAL: Final = (
    "SET LOCAL synchronous_commit = local",
    "SELECT pg_logical_emit_message(true, 'tailrace', '')",
)
"""A transaction that changes nothing; when it has committed everything before it is on disk."""
ADVANCE: Final = "SELECT pg_replication_slot_advance(%s, '0/0'::pg_lsn + %s::numeric)"
DROP_SLOT: Final = "SELECT pg_drop_replication_slot(%s)"
PUBLISHED: Final = "SELECT 1 FROM pg_publication WHERE pubname = %s"
PUBLISHED_TABLES: Final = """
    SELECT p.prrelid::int8, n.nspname || '.' || c.relname
    FROM pg_publication_rel p JOIN pg_publication b ON b.oid = p.prpubid
    JOIN pg_class c ON c.oid = p.prrelid JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE b.pubname = %s
"""
PUBLISHED_PLACES: Final = """
    SELECT n.nspname, c.relname FROM pg_publication_rel p JOIN pg_publication b ON b.oid = p.prpubid
    JOIN pg_class c ON c.oid = p.prrelid JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE b.pubname = ANY(%s) ORDER BY 1, 2
"""
ANY_CHANGE: Final = """
    SELECT 1 FROM pg_logical_slot_peek_binary_changes(%s, '0/0'::pg_lsn + %s::numeric, 1,
        'proto_version', '1', 'publication_names', %s) LIMIT 1
"""


class Asked(Enum):
    """How a value is asked for."""

    AS_IT_IS = auto()
    CAST = auto()
    """As the text that a cast gives, which is that of the stream of changes for some types."""
    WRITTEN = auto()
    """As the text of the stream of changes."""


def name(*parts: str) -> sql.Composable:
    """A name, qualified when there are several parts."""
    return sql.Identifier(*parts)


def kept_by_sync(entities: sql.Composable) -> sql.Composed:
    """The tables that sync keeps for each of its entities."""
    return sql.SQL("SELECT tracker, stamp FROM {}").format(entities)


def names(columns: Sequence[str]) -> sql.Composable:
    return sql.SQL(", ").join(map(sql.Identifier, columns))


def publish(publication: str, operations: str, server_version: int) -> sql.Composed:
    """A publication of no table yet; changes of partitions are told as those of the table they are part of."""
    generated = ", publish_generated_columns = stored" if server_version >= 180_000 else ""
    head = sql.SQL("CREATE PUBLICATION {} WITH (publish = {}, publish_via_partition_root = true")
    return head.format(sql.Identifier(publication), sql.Literal(operations)) + sql.SQL(generated + ")")


def add_to_publication(publication: str, tables: Sequence[tuple[str, str]]) -> sql.Composed:
    listed = sql.SQL(", ").join(sql.Identifier(schema, table) for schema, table in tables)
    return sql.SQL("ALTER PUBLICATION {} ADD TABLE {}").format(sql.Identifier(publication), listed)


def drop_publication(publication: str) -> sql.Composed:
    return sql.SQL("DROP PUBLICATION IF EXISTS {}").format(sql.Identifier(publication))


def create_slot(slot: str, *, is_temporary: bool = False) -> sql.Composed:
    """A command of the replication protocol, whose names are quoted as in SQL."""
    kind = sql.SQL("TEMPORARY " if is_temporary else "")
    head = sql.SQL("CREATE_REPLICATION_SLOT {} {}LOGICAL pgoutput EXPORT_SNAPSHOT")
    return head.format(sql.Identifier(slot), kind)


def lock_timeout(milliseconds: int) -> sql.Composed:
    return sql.SQL("SET lock_timeout = {}").format(sql.Literal(milliseconds))


def peek(slot: str, publications: str, upto: int, changes_max: int) -> sql.Composed:
    """What a slot tells up to here, whole transactions only; it stays as it is."""
    return sql.SQL(
        "SELECT data FROM pg_logical_slot_peek_binary_changes({}, '0/0'::pg_lsn + {}, {}, "
        "'proto_version', '1', 'publication_names', {})"
    ).format(sql.Literal(slot), sql.Literal(upto), sql.Literal(changes_max), sql.Literal(publications))


def select_rows(
    place: sql.Composable, columns: Mapping[str, Asked], key: Sequence[str], piece: Mapping[str, Any]
) -> sql.Composed:
    """The rows of one piece; `columns` says how each is asked for."""
    wanted = sql.SQL(", ").join(chosen(sql.Identifier(column), column, asked) for column, asked in columns.items())
    query = sql.SQL("SELECT {} FROM {}").format(wanted, place)
    bounds = _key_bounds(key, piece) if "pages" not in piece else _page_bounds(piece["pages"])
    return query + sql.SQL(" WHERE {}").format(sql.SQL(" AND ").join(bounds)) if bounds else query


def chosen(value: sql.Composable, name_: str, asked: Asked) -> sql.Composed:
    """A value under a name, as it is asked for."""
    forms = {Asked.AS_IT_IS: value, Asked.CAST: sql.SQL("{}::text").format(value), Asked.WRITTEN: _written(value)}
    return sql.SQL("{} AS {}").format(forms[asked], sql.Identifier(name_))


def rows_of(schema: str, table: str, *, has_parts: bool) -> sql.Composed:
    """Where the rows of a table are: in its parts, or in itself and not in tables that inherit from it."""
    return sql.SQL("{}" if has_parts else "ONLY {}").format(sql.Identifier(schema, table))


def sample_keys(place: sql.Composable, key: Sequence[str], percent: float) -> sql.Composed:
    """Some keys in their own order, not that of the text as which they come and which can be read back."""
    texts = sql.SQL(", ").join(sql.SQL("t.{}::text").format(sql.Identifier(column)) for column in key)
    order = sql.SQL(", ").join(sql.Identifier("t", column) for column in key)
    return sql.SQL("SELECT {} FROM {} AS t TABLESAMPLE SYSTEM ({}) ORDER BY {}").format(
        texts, place, sql.Literal(percent), order
    )


def rows_by_key(
    schema: str, table: str, columns: Sequence[str], key: Sequence[str], key_types: Sequence[str]
) -> sql.Composed:
    """Some columns of the rows with these keys, all as text. The keys come as one array of texts per column; the
    cursor takes numbered parameters."""
    wanted = sql.SQL(", ").join(_written(sql.Identifier("t", column)) for column in (*key, *columns))
    arrays = sql.SQL(", ").join(sql.SQL(f"${number}::text[]") for number in range(1, len(key) + 1))
    labels = sql.SQL(", ").join(sql.Identifier(f"k{at}") for at in range(len(key)))
    joined = sql.SQL(" AND ").join(
        sql.SQL("t.{} = k.{}::").format(sql.Identifier(column), sql.Identifier(f"k{at}")) + sql.SQL(kind)
        for at, (column, kind) in enumerate(zip(key, key_types, strict=True))
    )
    return sql.SQL("SELECT {} FROM unnest({}) AS k({}) JOIN {} t ON {}").format(
        wanted, arrays, labels, sql.Identifier(schema, table), joined
    )


def set_snapshot(snapshot: str) -> sql.Composed:
    return sql.SQL("SET TRANSACTION SNAPSHOT {}").format(sql.Literal(snapshot))


def _written(value: sql.Composable) -> sql.Composable:
    """A value as the stream of changes writes it; a cast to text writes some types differently."""
    return sql.SQL("CASE WHEN {0} IS DISTINCT FROM NULL THEN format('%s', {0}) END").format(value)


def _key_bounds(key: Sequence[str], piece: Mapping[str, Any]) -> list[sql.Composable]:
    """The values are texts; a row comparison gives each the type of its column."""
    found: list[sql.Composable] = []
    for sign, border in ((">", piece.get("after")), ("<=", piece.get("upto"))):
        if border is not None:
            values = sql.SQL(", ").join(map(sql.Literal, border))
            found.append(sql.SQL("({}) {} ({})").format(names(key), sql.SQL(sign), values))
    return found


def _page_bounds(pages: Sequence[int | None]) -> list[sql.Composable]:
    first, end = pages
    found: list[sql.Composable] = [sql.SQL("ctid >= {}::tid").format(sql.Literal(f"({first},0)"))]
    if end is not None:
        found.append(sql.SQL("ctid < {}::tid").format(sql.Literal(f"({end},0)")))
    return found


def listed(publications: Sequence[str]) -> str:
    """Publications as the plugin wants to be told: separated by commas, each quoted."""
    return ",".join('"' + each.replace('"', '""') + '"' for each in publications)
