"""Installing sync in a database, changing what is installed, and taking it away again."""
# ruff: noqa: S608  names cannot be bound; all of them go through `quoted`

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from tailrace.errors import TailraceError
from tailrace.sync import candidate, changes, counts, growth, names, partitions, postgresddl, sqliteddl, unnoticed
from tailrace.sync.database import Link
from tailrace.sync.entity import Entity, check_entities
from tailrace.sync.names import Dialect, mark, quoted
from tailrace.sync.shape import Shape, shape_of
from tailrace.sync.strangers import has_strangers
from tailrace.sync.trackers import take_turn
from tailrace.sync.unnoticed import Unnoticed
from tailrace.sync.wholeness import is_bare, missing, named

FORMAT: Final = 4
"""Of the tables of sync's own."""
_UPGRADES: Final = {
    1: ("ALTER TABLE DoorNode ADD COLUMN calledAs TEXT",),
    2: (
        "ALTER TABLE DoorQuarantine ADD COLUMN qSender bigint NOT NULL DEFAULT 0",
        "ALTER TABLE DoorQuarantine ADD COLUMN qBytes bigint NOT NULL DEFAULT 0",
        """UPDATE DoorQuarantine SET qSender = qNode,
            qBytes = length(qKey) + length(qVersion) + length(qReason) + coalesce(length(qRow), 0)""",
    ),
    3: (
        "ALTER TABLE DoorNode ADD COLUMN ownCount bigint NOT NULL DEFAULT 0",
        "ALTER TABLE DoorNode ADD COLUMN theirCount bigint NOT NULL DEFAULT 0",
        "ALTER TABLE DoorSelf ADD COLUMN ownUntil bigint NOT NULL DEFAULT 0",
    ),
}
"""By format: what makes the next one of it."""
NODE_ID_MAX: Final = (1 << 63) - 1
KEY_NODE_MAX: Final = (1 << 20) - 1
_INSTALLING: Final = 0x446F6F72
_CALLERS: Final = """SELECT tgname::text, tgrelid::regclass::text FROM pg_trigger
    WHERE tgfoid = to_regprocedure($1) AND tgparentid = 0"""
"""The triggers that call a function, and where they are: tables may have been renamed."""
_LOCK_MS: Final = 10_000
_LOCKED: Final = "55P03"
"""PostgreSQL's state of a lock that was not to be had in time."""


def install(link: Link, entities: Sequence[Entity], dialect: Dialect) -> list[Unnoticed]:
    """Make what is missing, and make anew what has changed. What nodes know of each other stays. Says of each table
    what has gone past its triggers."""
    check_entities(entities)
    if dialect is Dialect.POSTGRES:
        link.run("SELECT pg_advisory_xact_lock($1)", (_INSTALLING,))
    if not has_table(link, dialect, names.ENTITIES):
        _check_free(link, dialect, names.OWN_TABLES)
    schema = _schema(link, dialect)
    ddl = sqliteddl if dialect is Dialect.SQLITE else postgresddl
    for text in ddl.TABLES:
        link.run(text.replace("{schema}", quoted(schema)))
    _be_somebody(link, dialect)
    for text in ddl.INDEXES:
        link.run(text.replace("{schema}", quoted(schema)))
    return [_install_one(link, entity, dialect) for entity in entities]


def uninstall(link: Link, entities: Sequence[Entity], dialect: Dialect) -> list[str]:
    """Remove everything of some entities, and with the last of them everything. Says which tables were synced."""
    return uninstall_tables(link, {entity.table_id for entity in entities}, dialect)


def uninstall_tables(link: Link, table_ids: Collection[int], dialect: Dialect) -> list[str]:
    """The same for tables that nobody declares any more."""
    found = installed(link, dialect)
    gone = [entry for table_id, entry in found.items() if table_id in table_ids]
    for table_id, (_, tracker, stamp, view, _) in found.items():
        if table_id in table_ids:
            _drop_triggers(link, table_id, view, dialect)
            for name in (tracker, stamp):
                link.run(f"DROP TABLE IF EXISTS {quoted(name)}")
            link.run(f"DELETE FROM {_own(dialect, names.ENTITIES)} WHERE tableId = {table_id:d}")
            link.run(f"DELETE FROM {_own(dialect, names.CHANGES)} WHERE chTableId = {table_id:d}")
    if found and len(gone) == len(found):
        for name in names.OWN_TABLES:
            link.run(f"DROP TABLE IF EXISTS {_own(dialect, name)}")
        _drop_numbering(link, dialect)
    return [table for table, *_ in gone]


def installed(link: Link, dialect: Dialect) -> dict[int, tuple[str, str, str, str, str]]:
    """By table id: table, tracker, stamps, receive view and what they were made from; empty when nothing is."""
    if not has_table(link, dialect, names.ENTITIES):
        return {}
    query = "SELECT tableId, tableName, tracker, stamp, receiveView, definition FROM DoorEntity ORDER BY tableId"
    return {table_id: (table, *others) for table_id, table, *others in link.rows(query)}


def check_installed(link: Link, entities: Sequence[Entity], dialect: Dialect) -> list[Shape]:
    """The shapes of entities. Raises `sync.not_installed` when what is there is missing or not what is declared."""
    check_entities(entities)
    found = installed(link, dialect)
    if found and link.value(f"SELECT format FROM {_own(dialect, names.SELF)}") != FORMAT:
        what = "sync was installed by another version of this program"
        raise TailraceError("sync.not_installed", what, hint="tailrace sync install")
    shapes = [shape_of(link, entity, dialect) for entity in entities]
    for shape in shapes:
        entry = found.get(shape.table_id)
        if entry is None or entry[-1] != _definition(shape):
            how = "is not installed" if entry is None else "is installed otherwise than it is declared now"
            what = f"sync of table {shape.entity.table} {how}"
            raise TailraceError("sync.not_installed", what, hint="tailrace sync install")
        if away := missing(link, shape):
            what = f"changes of table {shape.entity.table} are not noticed: missing or disabled are {named(away)}"
            raise TailraceError("sync.not_installed", what, hint="tailrace sync install")
    return shapes


def has_table(link: Link, dialect: Dialect, name: str) -> bool:
    """Whether a table of sync's own is there."""
    if dialect is Dialect.POSTGRES:
        return link.value("SELECT to_regclass($1) IS NOT NULL", (quoted(name.lower()),)) is True
    return link.value("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?1", (name,)) is not None


def _be_somebody(link: Link, dialect: Dialect) -> None:
    known = link.rows(f"SELECT format FROM {_own(dialect, names.SELF)}")
    if not known:
        marks = ", ".join(mark(dialect, number) for number in range(1, 5))
        values = (secrets.randbelow(NODE_ID_MAX) + 1, secrets.token_urlsafe(32), secrets.randbelow(KEY_NODE_MAX + 1))
        into = f"{_own(dialect, names.SELF)}(nodeId, secret, keyNode, format)"
        link.run(f"INSERT INTO {into} VALUES ({marks})", (*values, FORMAT))
        return
    (found,) = known[0]
    if found > FORMAT:
        what = f"the database is synced by a newer program (format {found}, this one knows {FORMAT})"
        raise TailraceError("sync.not_installed", what, hint="upgrade tailrace")
    for older in range(found, FORMAT):
        for text in _UPGRADES[older]:
            link.run(text)
    if found != FORMAT:
        link.run(f"UPDATE {_own(dialect, names.SELF)} SET format = {FORMAT}")


def _install_one(link: Link, entity: Entity, dialect: Dialect) -> Unnoticed:
    candidate.check_is_table(link, entity, dialect)
    shape = shape_of(link, entity, dialect)
    ddl = postgresddl if dialect is Dialect.POSTGRES else sqliteddl
    known = installed(link, dialect)
    before = known.get(entity.table_id)
    _check_same_number(entity, known)
    definition = _definition(shape)
    away: Sequence[str] = ()
    columns: Collection[str] = ()
    was_remade = False
    if before is not None:
        if before[-1] == definition:
            away = missing(link, shape)
            if not away:
                candidate.check_rows(link, shape)
                return _looked_at(link, shape)
        _check_same_tables(shape, before)
        _wait_for_writers(link, shape, "ACCESS EXCLUSIVE")
        was_remade = is_bare(link, shape) and unnoticed.is_empty(link, shape)
        columns = unnoticed.known_columns(link, shape, before[3])
        _drop_triggers(link, shape.table_id, before[3], dialect)
    else:
        _check_free(link, dialect, (*_folded(shape), entity.view_name))
        _wait_for_writers(link, shape, "SHARE ROW EXCLUSIVE")
    candidate.check_key(link, shape)
    candidate.check_rows(link, shape)
    _run(link, ddl.tables_of(shape))
    _run(link, ddl.backfill(shape) if before is None else ddl.catch_up(shape))
    found = _caught_up(link, shape, away, was_remade=was_remade)
    was_made_older = growth.ask_again(link, shape)
    if was_made_older or before is None:
        counts.welcome_own(link, dialect)
    unnoticed.stamp_written(link, shape, columns, was_made_older=was_made_older)
    _run(link, ddl.triggers_of(shape).values())
    if dialect is Dialect.SQLITE:
        _let_captures_be_first(link, entity.table)
    else:
        partitions.watch(link, shape)
    _enter(link, shape, definition)
    if before is not None and before[-1].split()[2:] != definition.split()[2:]:
        take_turn(link, shape, alone=True)
        for (node,) in link.rows(f"SELECT nodeId FROM {shape.own_table(names.NODES)}"):
            changes.welcome(link, shape, node)
    return found


def _looked_at(link: Link, shape: Shape) -> Unnoticed:
    """All is there. In PostgreSQL triggers may have been disabled for a while, and a partition can go without them."""
    if shape.dialect is Dialect.SQLITE:
        return Unnoticed(shape.entity.table)
    _run(link, postgresddl.catch_up(shape))
    partitions.watch(link, shape)
    if not any(unnoticed.count(link, shape)):
        return Unnoticed(shape.entity.table)
    _wait_for_writers(link, shape, "SHARE ROW EXCLUSIVE")
    return _caught_up(link, shape)


def _caught_up(link: Link, shape: Shape, away: Sequence[str] = (), *, was_remade: bool = False) -> Unnoticed:
    gone, changed = unnoticed.count(link, shape)
    if gone and was_remade:
        return Unnoticed(shape.entity.table, away, forgotten=unnoticed.forget(link, shape))
    if not away and has_strangers(link, shape):
        changed = 0  # other triggers may have set the version of a row that `growth` has made older
    if gone:
        unnoticed.bury(link, shape)
    if changed:
        unnoticed.stamp(link, shape)
    return Unnoticed(shape.entity.table, away, gone, changed)


def _run(link: Link, texts: Iterable[str]) -> None:
    for text in texts:
        link.run(text)


def _wait_for_writers(link: Link, shape: Shape, mode: str) -> None:
    """What a transaction has written and not committed can neither be stamped now nor noticed later. New ones wait
    meanwhile, therefore not for long. SQLite has only one writer."""
    if shape.dialect is Dialect.SQLITE:
        return
    link.run(f"SET LOCAL lock_timeout = {_LOCK_MS:d}")
    try:
        link.run(f"LOCK TABLE {shape.table} IN {mode} MODE")
    except Exception as error:
        if getattr(error, "sqlstate", None) != _LOCKED:
            raise
        what = f"table {shape.entity.table}: transactions that use it did not end within {_LOCK_MS / 1000:g} s"
        raise TailraceError(
            "sync.busy", what, hint="let them end (pg_stat_activity shows them), then install"
        ) from error


def _enter(link: Link, shape: Shape, definition: str) -> None:
    table = shape.own_table(names.ENTITIES)
    entry = (shape.table_id, shape.entity.table, *_folded(shape), shape.entity.view_name, definition)
    marks = ", ".join(shape.mark(number) for number in range(1, len(entry) + 1))
    columns = ("tableName", "tracker", "stamp", "receiveView", "definition")
    link.run(
        f"""INSERT INTO {table}(tableId, {", ".join(columns)}) VALUES ({marks})
        ON CONFLICT (tableId) DO UPDATE SET {", ".join(f"{name} = excluded.{name}" for name in columns)}""",
        entry,
    )


def _folded(shape: Shape) -> tuple[str, str]:
    found = (shape.entity.tracker_name, shape.entity.stamp_name)
    return found if shape.dialect is Dialect.SQLITE else (found[0].lower(), found[1].lower())


def _definition(shape: Shape) -> str:
    """Digests of the tables, which stay, of the rest, which can be made anew at any time, and of who gets what."""
    ddl = postgresddl if shape.dialect is Dialect.POSTGRES else sqliteddl
    entity = shape.entity
    audience = repr((entity.audience, entity.run_on_change, entity.run_on_new_node, entity.by_hand))
    tables = repr((shape.key, entity.version, ddl.tables_of(shape)))
    parts = (tables, "\n".join(ddl.triggers_of(shape).values()), audience)
    return " ".join(hashlib.sha256(part.encode()).hexdigest()[:32] for part in parts)


def _check_free(link: Link, dialect: Dialect, wanted: Sequence[str]) -> None:
    """Tables of somebody else are not taken for sync's own, though they may be called so."""
    for name in wanted:
        if dialect is Dialect.POSTGRES:
            own = name.lower() if name in names.OWN_TABLES else name
            is_there = link.value("SELECT to_regclass($1) IS NOT NULL", (quoted(own),))
        else:
            is_there = link.value("SELECT 1 FROM sqlite_master WHERE name = ?1 COLLATE NOCASE", (name,))
        if is_there:
            what = f"there is a table or view {name} already, which sync has not made and would need the name of"
            raise TailraceError("config.invalid", what, hint="rename it, or name others with `tracker` and `view`")


def _check_same_number(entity: Entity, known: Mapping[int, tuple[str, ...]]) -> None:
    """Other nodes know the table by its number, and its triggers and trackers are made for that."""
    for table_id, (table, *_) in known.items():
        if table == entity.table and table_id != entity.table_id:
            what = f"table {table} is installed with the table_id {table_id}, and is declared with {entity.table_id}"
            hint = f"leave it at {table_id}, or tailrace sync uninstall --table {table}, then install"
            raise TailraceError("config.invalid", what, hint=hint)


def _check_same_tables(shape: Shape, before: tuple[str, str, str, str, str]) -> None:
    entity = shape.entity
    if before[0] != entity.table:
        what = f"table_id {entity.table_id} belongs to table {before[0]}"
        raise TailraceError("config.invalid", what, hint=f"give {entity.table} another, or uninstall {before[0]} first")
    if before[-1].split()[0] != _definition(shape).split()[0]:
        what = f"table {entity.table}: its key, its version or the name of its tracker has changed"
        raise TailraceError("config.invalid", what, hint="tailrace sync uninstall, then install: all rows are compared")


def _drop_triggers(link: Link, table_id: int, view: str, dialect: Dialect) -> None:
    link.run(f"DROP VIEW IF EXISTS {quoted(view)}")
    if dialect is Dialect.SQLITE:
        found = link.rows(
            "SELECT name FROM sqlite_master WHERE type = 'trigger' AND name GLOB ?1", (f"door_{table_id}_*",)
        )
        for (name,) in found:
            link.run(f"DROP TRIGGER {quoted(name)}")
        return
    for name in ("keyed", "noticed", "versioned", "received", "removed", "emptied"):
        for trigger, on in link.rows(_CALLERS, (f"door_{table_id}_{name}()",)):
            link.run(f"DROP TRIGGER {quoted(trigger)} ON {on}")
        link.run(f"DROP FUNCTION IF EXISTS door_{table_id}_{name}()")


def _let_captures_be_first(link: Link, table: str) -> None:
    """SQLite runs the youngest trigger first. Sync's own write to the row once more, and whoever notes changes of the
    table must have noted by then how the row came."""
    query = """SELECT name, sql FROM sqlite_master WHERE type = 'trigger' AND tbl_name = ?1 COLLATE NOCASE
        AND name GLOB 'tailrace_*' ORDER BY rowid"""
    for name, text in link.rows(query, (table,)):
        link.run(f"DROP TRIGGER {quoted(name)}")
        link.run(text)


def _drop_numbering(link: Link, dialect: Dialect) -> None:
    """Only with the last entity: as long as the node has its number, no key may come again."""
    if dialect is Dialect.SQLITE:
        link.run(f"DROP VIEW IF EXISTS {names.LAST_KEYS}")
        return
    link.run("DROP FUNCTION IF EXISTS door_next_key(integer)")
    query = r"""SELECT sequencename::text FROM pg_sequences
        WHERE schemaname = current_schema() AND sequencename ~ '^door_[0-9]+_keys$'"""
    for (name,) in link.rows(query):
        link.run(f"DROP SEQUENCE {quoted(name)}")


def _schema(link: Link, dialect: Dialect) -> str:
    return str(link.value("SELECT current_schema()::text")) if dialect is Dialect.POSTGRES else ""


def _own(dialect: Dialect, name: str) -> str:
    return quoted(name.lower() if dialect is Dialect.POSTGRES else name)
