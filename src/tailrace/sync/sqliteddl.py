"""What sync makes in a SQLite database.

The triggers do not rely on `ON CONFLICT` of their own: that of the statement which fires them would count instead.

DoorReceiving has a line while rows of another node are written: the table and key of the row and its stamp, by which
the triggers know that it is written as it came. If only the table is told, whoever writes sees to everything itself.
"""
# ruff: noqa: S608  names cannot be bound; all of them go through `quoted`

from __future__ import annotations

from typing import Final

from tailrace.sync import keysql
from tailrace.sync.entity import Deletes, Rule
from tailrace.sync.exchange import AHEAD_MS
from tailrace.sync.names import CHANGED_KEY, NOT_DELETED, NOT_TAKEN, equal, quoted
from tailrace.sync.shape import Shape

NOW: Final = "(CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) + (SELECT clockShift FROM DoorSelf))"
"""Milliseconds since 1970, by the clock as it is corrected."""
_SELF: Final = "(SELECT nodeId FROM DoorSelf)"
_RECEIVED_KEY: Final = ("rcKey", "rcKey2", "rcKey3", "rcKey4")

TABLES: Final = (
    """CREATE TABLE IF NOT EXISTS DoorSelf(
        nodeId INTEGER NOT NULL, secret TEXT NOT NULL, keyNode INTEGER NOT NULL,
        clockShift INTEGER NOT NULL DEFAULT 0, format INTEGER NOT NULL, ownUntil INTEGER NOT NULL DEFAULT 0)""",
    """CREATE TABLE IF NOT EXISTS DoorNode(
        nodeId INTEGER PRIMARY KEY, auth TEXT, rel INTEGER NOT NULL DEFAULT 0, keyNode INTEGER UNIQUE,
        lastSeen INTEGER NOT NULL DEFAULT 0, calledAs TEXT,
        ownCount INTEGER NOT NULL DEFAULT 0, theirCount INTEGER NOT NULL DEFAULT 0)""",
    """CREATE TABLE IF NOT EXISTS ChangeLog(
        chId INTEGER PRIMARY KEY AUTOINCREMENT, chTableId INTEGER NOT NULL,
        chEntityPk NOT NULL, chEntityPk2, chEntityPk3, chEntityPk4, chType INTEGER NOT NULL)""",
    """CREATE TABLE IF NOT EXISTS DoorQuarantine(
        qId INTEGER PRIMARY KEY AUTOINCREMENT, qKind TEXT NOT NULL, qTableId INTEGER NOT NULL, qKey TEXT NOT NULL,
        qNode INTEGER NOT NULL, qVersion TEXT NOT NULL, qReason TEXT NOT NULL, qRow TEXT, qAt INTEGER NOT NULL,
        qSender INTEGER NOT NULL DEFAULT 0, qBytes INTEGER NOT NULL DEFAULT 0,
        UNIQUE (qKind, qTableId, qKey, qNode, qVersion))""",
    """CREATE TABLE IF NOT EXISTS DoorEntity(
        tableId INTEGER PRIMARY KEY, tableName TEXT NOT NULL, tracker TEXT NOT NULL, stamp TEXT NOT NULL,
        receiveView TEXT NOT NULL, definition TEXT NOT NULL, ignored TEXT NOT NULL DEFAULT '[]')""",
    """CREATE TABLE IF NOT EXISTS DoorReceiving(
        rcTableId INTEGER, rcKey, rcKey2, rcKey3, rcKey4, rcTime INTEGER, rcNode INTEGER)""",
    *keysql.SQLITE_TABLES,
)
INDEXES: Final = ("CREATE INDEX IF NOT EXISTS door_quarantine_sender ON DoorQuarantine(qSender, qBytes)",)


def tables_of(shape: Shape) -> list[str]:
    """The tracker and the stamps of an entity."""
    trackers = ", ".join(
        f"{name} {kind} NOT NULL" for name, kind in zip(shape.tracker_key, shape.key_types, strict=True)
    )
    stamps = ", ".join(f"{name} {kind} NOT NULL" for name, kind in zip(shape.stamp_key, shape.key_types, strict=True))
    keys, stamp_keys = ", ".join(shape.tracker_key), ", ".join(shape.stamp_key)
    pending = quoted(f"door_{shape.table_id}_pending")
    return [
        f"""CREATE TABLE IF NOT EXISTS {shape.tracker}({trackers}, trkrDestinationNode INTEGER NOT NULL,
            trkrVersionId {shape.version_type}, trkrVersionNode INTEGER NOT NULL DEFAULT 0,
            trkrProcessed BOOLEAN NOT NULL DEFAULT 0, PRIMARY KEY ({keys}, trkrDestinationNode)) WITHOUT ROWID""",
        f"""CREATE INDEX IF NOT EXISTS {pending} ON {shape.tracker}(trkrDestinationNode, {keys})
            WHERE trkrProcessed = 0""",
        f"""CREATE TABLE IF NOT EXISTS {shape.stamp}({stamps}, stTime INTEGER NOT NULL, stNode INTEGER NOT NULL,
            stDeleted INTEGER NOT NULL DEFAULT 0, PRIMARY KEY ({stamp_keys})) WITHOUT ROWID""",
        keysql.sqlite_numbering(shape),
    ]


def backfill(shape: Shape) -> list[str]:
    """Rows that were there before have no known author, so that equal versions of them are the same everywhere."""
    keys = ", ".join(f"e.{name}" for name in shape.table_key)
    same = equal([f"s.{name}" for name in shape.stamp_key], [f"e.{name}" for name in shape.table_key])
    time = NOW if shape.is_hash else f"e.{shape.version}"
    statements = [
        f"""INSERT INTO {shape.stamp}({", ".join(shape.stamp_key)}, stTime, stNode)
            SELECT {keys}, {time}, 0 FROM {shape.table} AS e
            WHERE NOT EXISTS (SELECT 1 FROM {shape.stamp} AS s WHERE {same})""",
    ]
    if not shape.is_hash:
        no_time = f"typeof({shape.version}) <> 'integer' OR {shape.version} NOT BETWEEN 0 AND {NOW} + {AHEAD_MS}"
        statements.insert(0, f"UPDATE {shape.table} SET {shape.version} = {NOW} WHERE {no_time}")
    return statements


def catch_up(shape: Shape) -> list[str]:
    """The same for rows that came past the triggers, of which other nodes have to hear, too."""
    keys = ", ".join(f"e.{name}" for name in shape.table_key)
    same = equal([f"s.{name}" for name in shape.stamp_key], [f"e.{name}" for name in shape.table_key])
    tell = f"""INSERT INTO ChangeLog(chTableId, {", ".join(CHANGED_KEY[: len(shape.key)])}, chType)
        SELECT {shape.table_id}, {keys}, 1 FROM {shape.table} AS e
        WHERE NOT EXISTS (SELECT 1 FROM {shape.stamp} AS s WHERE {same})"""
    return [tell, *backfill(shape)]


def triggers_of(shape: Shape) -> dict[str, str]:
    """By name: the triggers on the table and on its receive view, and the view itself."""
    view = shape.entity.view_name
    found = {view: f"CREATE VIEW {shape.view} AS {_select(shape)}"}
    keyed = keysql.sqlite_triggers(shape) if shape.entity.generate_key else {}
    for name, text in {**_noticing(shape), **_pushing_out(shape), **_receiving(shape), **keyed}.items():
        full = f"door_{shape.table_id}_{name}"
        found[full] = f"CREATE TRIGGER {quoted(full)} {text}"
    return found


def _select(shape: Shape) -> str:
    if shape.entity.receive.select is not None:
        return shape.entity.receive.select.of(shape.dialect)
    columns = ", ".join(f"e.{quoted(name)} AS {quoted(name)}" for name in shape.column_names)
    same = equal([f"t.{name}" for name in shape.tracker_key], [f"e.{name}" for name in shape.table_key])
    return f"""SELECT {columns}, t.*, 0 AS fromNodeId, NULL AS doorTime, NULL AS doorNode, NULL AS doorDeleted,
        NULL AS doorVersion FROM {shape.table} AS e LEFT JOIN {shape.tracker} AS t ON {same}"""


def quiet(shape: Shape) -> tuple[str, str]:
    """Statements between which the triggers on the table leave everything to whoever writes."""
    return f"INSERT INTO DoorReceiving(rcTableId) VALUES ({shape.table_id})", "DELETE FROM DoorReceiving"


def bury_missing(shape: Shape, keys: str) -> list[str]:
    """Statements that notice rows which are gone without a trigger having fired; `keys` is a query for them."""
    at_row = equal(shape.table_key, [f"{shape.stamp}.{name}" for name in shape.stamp_key])
    which = f"""stDeleted = 0 AND ({", ".join(shape.stamp_key)}) IN ({keys})
        AND NOT EXISTS (SELECT 1 FROM {shape.table} WHERE {at_row})"""
    if shape.entity.deletes is Deletes.REPLICATE:
        return [f"UPDATE {shape.stamp} SET {_buried()} WHERE {which}"]
    of_stamp = f"SELECT {', '.join(shape.stamp_key)} FROM {shape.stamp} WHERE {which}"
    return [
        f"DELETE FROM main.{shape.tracker} WHERE ({', '.join(shape.tracker_key)}) IN ({of_stamp})",
        f"DELETE FROM {shape.stamp} WHERE {which}",
    ]


def _buried() -> str:
    return f"stTime = max({NOW}, stTime + 1), stNode = {_SELF}, stDeleted = 1"


def _noticing(shape: Shape) -> dict[str, str]:
    """What happens to the table gets a stamp and a line in the ChangeLog."""
    new, old = shape.row_key("NEW"), shape.row_key("OLD")
    at_new, at_old = equal(shape.stamp_key, new), equal(shape.stamp_key, old)
    version = f"NEW.{shape.version}"
    stamped = f"(SELECT stTime FROM {shape.stamp} WHERE {at_new})"
    corrected = f"""
        UPDATE {shape.table} SET {shape.version} = {stamped}
            WHERE {equal(shape.table_key, new)} AND {shape.version} IS NOT {stamped};"""
    came = _came(shape, new)
    theirs_now = f"EXISTS (SELECT 1 FROM DoorReceiving WHERE rcTableId = {shape.table_id} AND {came})"
    here_now = f"""NOT EXISTS (SELECT 1 FROM DoorReceiving WHERE rcTableId = {shape.table_id}
        AND (rcTime IS NULL OR {came}))"""
    is_own_touch = "" if shape.is_hash else f" AND (OLD.{shape.version} IS {version} OR {version} IS NOT {stamped})"
    later = f"max({NOW}, stTime + 1)"
    first = NOW
    if not shape.is_hash:
        is_given = f"typeof({version}) = 'integer' AND {version} <= {NOW} + {AHEAD_MS} AND {version}"
        later = f"CASE WHEN {is_given} > stTime THEN {version} ELSE {later} END"
        first = f"CASE WHEN {is_given} > 0 THEN {version} ELSE {NOW} END"
    keys = ", ".join(shape.stamp_key)
    own = f"""
        UPDATE {shape.stamp} SET stTime = {later}, stNode = {_SELF}, stDeleted = 0 WHERE {at_new};
        INSERT INTO {shape.stamp}({keys}, stTime, stNode)
            SELECT {", ".join(new)}, {first}, {_SELF} WHERE NOT EXISTS (SELECT 1 FROM {shape.stamp} WHERE {at_new});"""
    if not shape.is_hash:
        own += corrected
    theirs = f"""
        UPDATE {shape.stamp} SET stTime = (SELECT rcTime FROM DoorReceiving),
            stNode = (SELECT rcNode FROM DoorReceiving), stDeleted = 0 WHERE {at_new};
        INSERT INTO {shape.stamp}({keys}, stTime, stNode)
            SELECT {", ".join(new)}, rcTime, rcNode FROM DoorReceiving
            WHERE NOT EXISTS (SELECT 1 FROM {shape.stamp} WHERE {at_new});"""
    if _has_no_word(shape):
        theirs += corrected
    changed = _change(shape, new, 1)
    moved, is_keyed = f"NOT ({_same(old, new)})", ""
    if shape.entity.generate_key:  # one with the key 0 is not there yet
        moved += f" AND EXISTS (SELECT 1 FROM {shape.stamp} WHERE {at_old})"
        is_keyed = f" AND {new[0]} <> 0"
    bury = f"UPDATE {shape.stamp} SET {_buried()} WHERE {at_old}; {_change(shape, old, 2)}"
    if shape.entity.deletes is Deletes.KEEP:
        at_tracker = equal(shape.tracker_key, old)
        bury = f"DELETE FROM {shape.stamp} WHERE {at_old}; DELETE FROM {shape.tracker} WHERE {at_tracker};"
    is_alive = f"NOT EXISTS (SELECT 1 FROM {shape.stamp} WHERE {at_old} AND stDeleted = 1)"
    on = f"ON {shape.table} WHEN"
    return {
        "ins": f"AFTER INSERT {on} {here_now}{is_keyed} BEGIN {own} {changed} END",
        "upd": f"AFTER UPDATE {on} {here_now}{is_own_touch} BEGIN {own} {changed} END",
        "ins_rcv": f"AFTER INSERT {on} {theirs_now} BEGIN {theirs} {changed} END",
        "upd_rcv": f"AFTER UPDATE {on} {theirs_now} BEGIN {theirs} {changed} END",
        "key": f"AFTER UPDATE {on} {moved} BEGIN {bury} END",
        "del": f"AFTER DELETE {on} {is_alive} BEGIN {bury} END",
    }


def _pushing_out(shape: Shape) -> dict[str, str]:
    """REPLACE removes rows with which a new one collides, and fires no trigger for them. Those for which that may
    happen get a line in the ChangeLog, and whether they are gone is seen when it is processed."""
    if not shape.uniques:
        return {}
    collides = " OR ".join(
        f"({equal([f'e.{quoted(name)}' for name in unique], [f'NEW.{quoted(name)}' for name in unique])})"
        for unique in shape.uniques
    )
    keys = [f"e.{name}" for name in shape.table_key]
    columns = ", ".join(CHANGED_KEY[: len(keys)])
    line = f"""INSERT INTO ChangeLog(chTableId, {columns}, chType) SELECT {shape.table_id}, {", ".join(keys)}, 2
        FROM {shape.table} AS e WHERE ({collides}) AND NOT ({_same(keys, shape.row_key("NEW"))});"""
    return {
        "out_ins": f"BEFORE INSERT ON {shape.table} BEGIN {line} END",
        "out_upd": f"""BEFORE UPDATE ON {shape.table} BEGIN
            {line.removesuffix(";")} AND NOT ({_same(keys, shape.row_key("OLD"))}); END""",
    }


def _receiving(shape: Shape) -> dict[str, str]:
    """Rows that are inserted into the receive view: those of other nodes, and those of whoever else writes to it."""
    new, old = shape.row_key("NEW"), shape.row_key("OLD")
    at_stamp = equal(shape.stamp_key, new)
    newer = f"""NOT EXISTS (SELECT 1 FROM {shape.stamp} WHERE {at_stamp}
            AND (stTime > NEW.doorTime OR (stTime = NEW.doorTime AND stNode >= NEW.doorNode)))"""
    taken = newer if shape.entity.conflict is Rule.NEWER else "1"
    if not shape.is_hash:
        version = f"NEW.{shape.version}"
        taken = f"""CASE WHEN NEW.doorTime IS NOT NULL OR {version} IS NULL THEN {taken}
            ELSE NOT EXISTS (SELECT 1 FROM {shape.stamp} WHERE {at_stamp} AND stTime >= {version}) END"""
    gone = newer
    if shape.entity.receive.condition is not None:
        condition = shape.entity.receive.condition.of(shape.dialect)
        taken, gone = f"({taken}) AND ({condition})", f"({newer}) AND {shape.lets_go(condition)}"
    told = zip(_RECEIVED_KEY, new, strict=False)
    note = f"""UPDATE DoorReceiving SET rcTableId = {shape.table_id}, rcTime = NEW.doorTime, rcNode = NEW.doorNode,
        {", ".join(f"{name} = {value}" for name, value in told)};"""
    body = shape.entity.receive.body
    takes = shape.upsert() if body is None else body.of(shape.dialect).strip().removesuffix(";") + ";"
    if body is None and shape.entity.conflict is Rule.NEWER:
        takes += f" SELECT RAISE(ABORT, '{NOT_TAKEN}') WHERE NEW.doorTime IS NOT NULL AND {newer};"
    at_row, at_old_row = equal(shape.table_key, new), equal(shape.table_key, old)
    on = f"ON {shape.view} WHEN coalesce(NEW.doorDeleted, 0)"
    return {
        "receive": f"INSTEAD OF INSERT {on} = 0 AND ({taken}) BEGIN {note} {takes} END",
        "receive_gone": f"""INSTEAD OF INSERT {on} = 1 AND NEW.doorTime IS NOT NULL AND ({gone}) BEGIN
            UPDATE DoorReceiving SET rcTableId = NULL;
            UPDATE {shape.stamp} SET stTime = NEW.doorTime, stNode = NEW.doorNode, stDeleted = 1 WHERE {at_stamp};
            INSERT INTO {shape.stamp}({", ".join(shape.stamp_key)}, stTime, stNode, stDeleted)
                SELECT {", ".join(new)}, NEW.doorTime, NEW.doorNode, 1
                WHERE NOT EXISTS (SELECT 1 FROM {shape.stamp} WHERE {at_stamp});
            {_change(shape, new, 2)}
            DELETE FROM {shape.table} WHERE {at_row};
            SELECT RAISE(ABORT, '{NOT_DELETED}') WHERE EXISTS (SELECT 1 FROM {shape.table} WHERE {at_row})
                AND EXISTS (SELECT 1 FROM {shape.stamp} WHERE {at_stamp} AND stDeleted = 1); END""",
        "receive_gone_here": f"""INSTEAD OF INSERT {on} = 1 AND NEW.doorTime IS NULL BEGIN
            DELETE FROM {shape.table} WHERE {at_row}; END""",
        "receive_del": f"INSTEAD OF DELETE ON {shape.view} BEGIN DELETE FROM {shape.table} WHERE {at_old_row}; END",
    }


def _came(shape: Shape, new: list[str]) -> str:
    """Whether the row is written as it came. One that a receive view's body makes of it is a change made here."""
    same = _same(list(_RECEIVED_KEY[: len(new)]), new)
    is_same_version = "" if shape.is_hash or _has_no_word(shape) else f" AND rcTime IS NEW.{shape.version}"
    return f"(rcTime IS NOT NULL AND {same}{is_same_version})"


def _has_no_word(shape: Shape) -> bool:
    """Whether nobody but sync says which version a row that comes has."""
    return not shape.is_hash and shape.entity.receive.body is None


def _change(shape: Shape, values: list[str], kind: int) -> str:
    columns = ", ".join(CHANGED_KEY[: len(values)])
    return f"""INSERT INTO ChangeLog(chTableId, {columns}, chType)
        VALUES ({shape.table_id}, {", ".join(values)}, {kind});"""


def _same(left: list[str], right: list[str]) -> str:
    return " AND ".join(f"{one} IS {other}" for one, other in zip(left, right, strict=True))
