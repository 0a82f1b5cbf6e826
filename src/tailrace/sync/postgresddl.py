"""What sync makes in a PostgreSQL database.

Rows of other nodes are written with the settings `tailrace.row` (table and key), `tailrace.time` and `tailrace.node`,
which end with the transaction: triggers know by them that a row is written as it came. While `tailrace.quiet` is the
number of a table, whoever writes sees to everything itself.

PostgreSQL fires triggers in the order of their names. What gives rows their version comes last before they are written,
so that no trigger of an application has the last word about it; what notices them comes first after that, so that what
others do to the row then is a change of its own.

Locks are taken in one order: a row, its stamp, its trackers. An application waits for sync at most as it would for
another application.
"""
# ruff: noqa: S608  names cannot be bound; all of them go through `quoted`

from __future__ import annotations

from typing import Final

from tailrace.sync import keysql, names
from tailrace.sync.entity import Deletes, Rule
from tailrace.sync.exchange import AHEAD_MS
from tailrace.sync.names import equal, quoted
from tailrace.sync.shape import Shape

FIRST: Final = "!"
LAST: Final = "~"
"""What names of triggers begin with that are to be the first, and the last."""
_OVERTAKEN: Final = """
        IF NOT FOUND THEN
            RAISE EXCEPTION 'a newer version came meanwhile' USING ERRCODE = 'serialization_failure';
        END IF;"""
_SAME_IN_ALL_SESSIONS: Final = (
    *("smallint", "integer", "bigint", "numeric", "boolean", "uuid"),
    *("text", "character varying", "character"),
)
"""Types whose values are written the same way whatever a session has set."""
SCRATCH: Final = "ON COMMIT DELETE ROWS"
"""Of temporary tables that stay as long as a connection: nobody else removes what is dead in them."""
TABLES: Final = (
    """CREATE TABLE IF NOT EXISTS {schema}.doorself(
        nodeid bigint NOT NULL, secret text NOT NULL, keynode integer NOT NULL,
        clockshift bigint NOT NULL DEFAULT 0, format integer NOT NULL, ownuntil bigint NOT NULL DEFAULT 0)""",
    """CREATE TABLE IF NOT EXISTS {schema}.doornode(
        nodeid bigint PRIMARY KEY, auth text, rel integer NOT NULL DEFAULT 0, keynode integer UNIQUE,
        lastseen bigint NOT NULL DEFAULT 0, calledas text,
        owncount bigint NOT NULL DEFAULT 0, theircount bigint NOT NULL DEFAULT 0)""",
    """CREATE TABLE IF NOT EXISTS {schema}.changelog(
        chid bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, chtableid integer NOT NULL,
        chentitypk text NOT NULL, chentitypk2 text, chentitypk3 text, chentitypk4 text, chtype integer NOT NULL)""",
    """CREATE TABLE IF NOT EXISTS {schema}.doorquarantine(
        qid bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, qkind text NOT NULL, qtableid integer NOT NULL,
        qkey text NOT NULL, qnode bigint NOT NULL, qversion text NOT NULL, qreason text NOT NULL, qrow text,
        qat bigint NOT NULL, qsender bigint NOT NULL DEFAULT 0, qbytes bigint NOT NULL DEFAULT 0,
        UNIQUE (qkind, qtableid, qkey, qnode, qversion))""",
    """CREATE TABLE IF NOT EXISTS {schema}.doorentity(
        tableid integer PRIMARY KEY, tablename text NOT NULL, tracker text NOT NULL, stamp text NOT NULL,
        receiveview text NOT NULL, definition text NOT NULL, ignored text NOT NULL DEFAULT '[]')""",
    keysql.POSTGRES_FUNCTION,
)
INDEXES: Final = ("CREATE INDEX IF NOT EXISTS door_quarantine_sender ON {schema}.doorquarantine(qsender, qbytes)",)


def now(shape: Shape) -> str:
    """Milliseconds since 1970, by the clock as it is corrected."""
    shift = f"(SELECT clockshift FROM {shape.own_table(names.SELF)})"
    return f"(floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint + {shift})"


def _self(shape: Shape) -> str:
    return f"(SELECT nodeid FROM {shape.own_table(names.SELF)})"


def tables_of(shape: Shape) -> list[str]:
    """The tracker and the stamps of an entity."""
    trackers = ", ".join(
        f"{name} {kind} NOT NULL" for name, kind in zip(shape.tracker_key, shape.key_types, strict=True)
    )
    stamps = ", ".join(f"{name} {kind} NOT NULL" for name, kind in zip(shape.stamp_key, shape.key_types, strict=True))
    keys, stamp_keys = ", ".join(shape.tracker_key), ", ".join(shape.stamp_key)
    pending = quoted(f"door_{shape.table_id}_pending")
    return [
        f"""CREATE TABLE IF NOT EXISTS {shape.tracker}({trackers}, trkrdestinationnode bigint NOT NULL,
            trkrversionid {shape.version_type}, trkrversionnode bigint NOT NULL DEFAULT 0,
            trkrprocessed boolean NOT NULL DEFAULT false, PRIMARY KEY ({keys}, trkrdestinationnode))""",
        f"""CREATE INDEX IF NOT EXISTS {pending} ON {shape.tracker}(trkrdestinationnode, {keys})
            WHERE NOT trkrprocessed""",
        f"""CREATE TABLE IF NOT EXISTS {shape.stamp}({stamps}, sttime bigint NOT NULL, stnode bigint NOT NULL,
            stdeleted boolean NOT NULL DEFAULT false, PRIMARY KEY ({stamp_keys}))""",
        keysql.postgres_numbering(shape),
    ]


def backfill(shape: Shape) -> list[str]:
    """Rows that were there before have no known author, so that equal versions of them are the same everywhere."""
    return [*_timed(shape), _stamped(shape)]


def catch_up(shape: Shape) -> list[str]:
    """The same for rows that came past the triggers, of which other nodes have to hear, too."""
    same = equal([f"s.{name}" for name in shape.stamp_key], [f"e.{name}" for name in shape.table_key])
    late = _stamped(shape, f"WHERE NOT EXISTS (SELECT 1 FROM {shape.stamp} AS s WHERE {same}) FOR KEY SHARE OF e")
    keys = ", ".join(shape.stamp_key)
    return [*_timed(shape), f"WITH late AS ({late} RETURNING {keys}) {_changes(shape, 1, 'late')}"]


def _timed(shape: Shape) -> list[str]:
    if shape.is_hash:
        return []
    no_time = f"{shape.version} IS NULL OR {shape.version} NOT BETWEEN 0 AND {now(shape)} + {AHEAD_MS}"
    return [f"UPDATE {shape.table} SET {shape.version} = {now(shape)} WHERE {no_time}"]


def _stamped(shape: Shape, which: str = "") -> str:
    keys = ", ".join(f"e.{name}" for name in shape.table_key)
    time = now(shape) if shape.is_hash else f"e.{shape.version}"
    return f"""INSERT INTO {shape.stamp}({", ".join(shape.stamp_key)}, sttime, stnode)
        SELECT {keys}, {time}, 0 FROM {shape.table} AS e {which} ON CONFLICT DO NOTHING"""


def triggers_of(shape: Shape) -> dict[str, str]:
    """By name: the view, functions and triggers, in the order in which they are made."""
    number = shape.table_id
    found = {shape.entity.view_name: f"CREATE VIEW {shape.view} AS {_select(shape)}"}
    functions = {
        "noticed": _noticed(shape),
        "received": _received(shape),
        "removed": _removed(shape),
        "emptied": _emptied(shape),
    }
    if not shape.is_hash:
        functions["versioned"] = _versioned(shape)
    if shape.entity.generate_key:
        functions["keyed"] = keysql.postgres_trigger(shape)
    for name, body in functions.items():
        settings = _settings(shape) if name in ("noticed", "emptied") else ""
        found[f"door_{number}_{name}()"] = _function(shape.own_table(f"door_{number}_{name}"), body, settings)
    loud = f"FOR EACH ROW WHEN (coalesce(current_setting('tailrace.quiet', true), '') <> '{number}')"
    triggers = {
        "received": f"INSTEAD OF INSERT ON {shape.view} FOR EACH ROW",
        "removed": f"INSTEAD OF DELETE ON {shape.view} FOR EACH ROW",
        "noticed": f"AFTER INSERT OR UPDATE OR DELETE ON {shape.table} {loud}",
        "keyed": f"BEFORE INSERT ON {shape.table} FOR EACH ROW WHEN {keysql.is_unkeyed('NEW', shape.key[0])}",
        "versioned": f"BEFORE INSERT OR UPDATE ON {shape.table} {loud}",
        "emptied": f"BEFORE TRUNCATE ON {shape.table} FOR EACH STATEMENT",
    }
    for name, when in triggers.items():
        if name in functions:
            function = f"door_{number}_{name}"
            full = {"noticed": FIRST, "versioned": LAST}.get(name, "") + function
            found[full] = f"CREATE TRIGGER {quoted(full)} {when} EXECUTE FUNCTION {shape.own_table(function)}()"
    return found


def quiet(shape: Shape) -> tuple[str, str]:
    """Statements between which the triggers on the table leave everything to whoever writes."""
    setting = "SELECT set_config('tailrace.quiet', '{}', true)"
    return setting.format(shape.table_id), setting.format("")


def _settings(shape: Shape) -> str:
    """Keys become texts in whatever session the application has; sync reads them in one with these settings."""
    from tailrace.adaptor.postgres.server import SETTINGS

    if all(kind.partition("(")[0] in _SAME_IN_ALL_SESSIONS for kind in shape.key_types):
        return ""  # a setting takes its time with every row
    wanted = {name: value for name, value in SETTINGS.items() if name != "client_encoding"}
    return "".join(f" SET {name} = '{value}'" for name, value in wanted.items())


def _function(name: str, body: str, settings: str) -> str:
    tag = "$door$"
    while tag in body:
        tag = tag[:-1] + "r$"
    body = f"#variable_conflict use_column\n{body}"  # columns may be called like variables of the language
    return f"CREATE OR REPLACE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql{settings} AS {tag}{body}{tag}"


def _select(shape: Shape) -> str:
    if shape.entity.receive.select is not None:
        return shape.entity.receive.select.of(shape.dialect)
    columns = ", ".join(f"e.{quoted(name)}" for name in shape.column_names)
    same = equal([f"t.{name}" for name in shape.tracker_key], [f"e.{name}" for name in shape.table_key])
    return f"""SELECT {columns}, t.*, 0::bigint AS fromnodeid, NULL::bigint AS doortime, NULL::bigint AS doornode,
        NULL::boolean AS doordeleted, NULL::text AS doorversion
        FROM {shape.table} AS e LEFT JOIN {shape.tracker} AS t ON {same}"""


def _row_name(shape: Shape, row: str) -> str:
    return f"jsonb_build_array({', '.join([str(shape.table_id), *shape.row_key(row)])})::text"


def _is_theirs(shape: Shape) -> str:
    """Whether the row is written as it came. One that a receive view's body makes of it is a change made here."""
    may_be_other = shape.is_hash or shape.entity.receive.body is None
    is_same = "" if may_be_other else f" AND current_setting('tailrace.time', true) = NEW.{shape.version}::text"
    row = "coalesce(current_setting('tailrace.row', true), '')"
    return f"{row} <> ''{is_same} AND {row} = {_row_name(shape, 'NEW')}"


def _versioned(shape: Shape) -> str:
    """A change made here gets a version above all that were known of the row, one that came has its own."""
    version, at_new = f"NEW.{shape.version}", equal(shape.stamp_key, shape.row_key("NEW"))
    return f"""
DECLARE known bigint;
BEGIN
    IF {_is_theirs(shape)} THEN
        {version} := current_setting('tailrace.time')::bigint;
        RETURN NEW;
    END IF;
    known := (SELECT sttime FROM {shape.stamp} WHERE {at_new});
    IF {version} IS NULL OR {version} <= coalesce(known, 0) OR {version} > {now(shape)} + {AHEAD_MS} THEN
        {version} := greatest({now(shape)}, coalesce(known, 0) + 1);
    END IF;
    RETURN NEW;
END"""


def _noticed(shape: Shape) -> str:
    """What happens to the table gets a stamp and a line in the ChangeLog. It never fails for an application: what a
    statement does to other rows, or somebody else meanwhile, may have outdated the version that a row has got."""
    new, old = shape.row_key("NEW"), shape.row_key("OLD")
    keys, at_old = ", ".join(shape.stamp_key), equal(shape.stamp_key, old)
    insert = f"INSERT INTO {shape.stamp} AS s ({keys}, sttime, stnode) VALUES ({', '.join(new)}, "
    conflict = f"ON CONFLICT ({keys}) DO UPDATE SET stdeleted = false, stnode = excluded.stnode, sttime = "
    is_newer = "WHERE (s.sttime, s.stnode) <= (excluded.sttime, excluded.stnode)"
    overtaken = _OVERTAKEN
    if shape.entity.conflict is Rule.CUSTOM:
        is_newer = overtaken = ""
    own = f"{insert}{now(shape)}, {_self(shape)}) {conflict}greatest(excluded.sttime, s.sttime + 1);"
    if not shape.is_hash:
        later = f"greatest({now(shape)}, s.sttime + 1)"
        later = f"CASE WHEN excluded.sttime > s.sttime THEN excluded.sttime ELSE {later} END"
        own = f"""{insert}NEW.{shape.version}, {_self(shape)}) {conflict}{later} RETURNING sttime INTO stamped;
        IF stamped <> NEW.{shape.version} THEN {_corrected(shape)}
        END IF;"""
    bury = f"UPDATE {shape.stamp} SET {_buried(shape)} WHERE {at_old}; {_change(shape, old, 2)}"
    if shape.entity.deletes is Deletes.KEEP:
        at_tracker = equal(shape.tracker_key, old)
        bury = f"DELETE FROM {shape.stamp} WHERE {at_old}; DELETE FROM {shape.tracker} WHERE {at_tracker};"
    return f"""
DECLARE stamped bigint;
BEGIN
    IF TG_OP = 'DELETE' THEN
        IF NOT EXISTS (SELECT 1 FROM {shape.stamp} WHERE {at_old} AND stdeleted) THEN {bury}
        END IF;
        RETURN OLD;
    END IF;
    IF TG_OP = 'UPDATE' AND ({", ".join(old)}) IS DISTINCT FROM ({", ".join(new)}) THEN {bury}
    END IF;
    IF {_is_theirs(shape)} THEN
        {insert}current_setting('tailrace.time')::bigint, current_setting('tailrace.node')::bigint)
            {conflict}excluded.sttime {is_newer};{overtaken}
    ELSE
        {own}
    END IF;
    {_change(shape, new, 1)}
    RETURN NEW;
END"""


def _corrected(shape: Shape) -> str:
    """The row gets the version of its stamp, as if it had come so; another one may be on its way meanwhile."""
    at_row = equal(shape.table_key, shape.row_key("NEW"))
    settings = ("row", "time", "node")
    kept = " ".join(f"outer_{name} text := current_setting('tailrace.{name}', true);" for name in settings)
    back = ", ".join(f"set_config('tailrace.{name}', coalesce(outer_{name}, ''), true)" for name in settings)
    return f"""
            DECLARE {kept}
            BEGIN
                PERFORM {_as_it_came(shape, "stamped", _self(shape))};
                UPDATE {shape.table} SET {shape.version} = stamped WHERE {at_row};
                PERFORM {back};
            END;"""


def _as_it_came(shape: Shape, time: str, node: str) -> str:
    """What says that the row is written with a stamp that it has already."""
    values = {"row": _row_name(shape, "NEW"), "time": f"({time})::text", "node": f"({node})::text"}
    return ", ".join(f"set_config('tailrace.{name}', {value}, true)" for name, value in values.items())


def _received(shape: Shape) -> str:
    """Rows that are inserted into the receive view: those of other nodes, and those of whoever else writes to it."""
    new = shape.row_key("NEW")
    at_stamp = equal(shape.stamp_key, new)
    newer = f"""NOT EXISTS (SELECT 1 FROM {shape.stamp} WHERE {at_stamp}
        AND (sttime, stnode) >= (NEW.doortime, NEW.doornode))"""
    taken = newer if shape.entity.conflict is Rule.NEWER else "true"
    if not shape.is_hash:
        version = f"NEW.{shape.version}"
        taken = f"""CASE WHEN NEW.doortime IS NOT NULL OR {version} IS NULL THEN {taken}
            ELSE NOT EXISTS (SELECT 1 FROM {shape.stamp} WHERE {at_stamp} AND sttime >= {version}) END"""
    gone = newer
    if shape.entity.receive.condition is not None:
        condition = shape.entity.receive.condition.of(shape.dialect)
        taken, gone = f"({taken}) AND ({condition})", f"({newer}) AND {shape.lets_go(condition)}"
    body = shape.entity.receive.body
    takes = f"""{shape.upsert()}
        IF NOT FOUND AND NEW.doortime IS NOT NULL THEN RAISE EXCEPTION '{names.NOT_TAKEN}'; END IF;"""
    if body is not None:
        takes = body.of(shape.dialect).strip().removesuffix(";") + ";"
    keys, at_row = ", ".join(shape.stamp_key), equal(shape.table_key, new)
    return f"""
BEGIN
    IF NEW.doordeleted AND NEW.doortime IS NULL THEN
        DELETE FROM {shape.table} WHERE {at_row};
    ELSIF NEW.doordeleted THEN
        IF ({gone}) THEN
            PERFORM 1 FROM {shape.table} WHERE {at_row} FOR UPDATE;
            INSERT INTO {shape.stamp} AS s ({keys}, sttime, stnode, stdeleted)
                VALUES ({", ".join(new)}, NEW.doortime, NEW.doornode, true)
                ON CONFLICT ({keys}) DO UPDATE
                SET sttime = excluded.sttime, stnode = excluded.stnode, stdeleted = true
                WHERE (s.sttime, s.stnode) < (excluded.sttime, excluded.stnode);{_OVERTAKEN}
            {_change(shape, new, 2)}
            DELETE FROM {shape.table} WHERE {at_row};
            IF EXISTS (SELECT 1 FROM {shape.table} WHERE {at_row})
                    AND EXISTS (SELECT 1 FROM {shape.stamp} WHERE {at_stamp} AND stdeleted) THEN
                RAISE EXCEPTION '{names.NOT_DELETED}';
            END IF;
        END IF;
    ELSIF ({taken}) THEN
        IF NEW.doortime IS NOT NULL THEN
            PERFORM {_as_it_came(shape, "NEW.doortime", "NEW.doornode")};
        END IF;
        {takes}
        PERFORM set_config('tailrace.row', '', true);
    END IF;
    RETURN NEW;
END"""


def _removed(shape: Shape) -> str:
    at_row = equal(shape.table_key, shape.row_key("OLD"))
    return f"""
BEGIN
    DELETE FROM {shape.table} WHERE {at_row};
    RETURN OLD;
END"""


def _emptied(shape: Shape) -> str:
    """TRUNCATE deletes all rows, and tells of none; or, called with an argument, those of a partition."""
    place = "\0"  # which no name has in it
    parted = _emptying(shape, f"SELECT {', '.join(shape.table_key)} FROM {place}")
    texts = [text.replace("'", "''").replace("%", "%%").replace(place, "%s") for text in parted]
    return f"""
BEGIN
    IF TG_NARGS = 0 THEN
        {" ".join(f"{text};" for text in _emptying(shape))}
    ELSIF EXISTS (SELECT 1 FROM pg_inherits WHERE inhrelid = TG_RELID) THEN
        {" ".join(f"EXECUTE format('{text}', TG_RELID::regclass);" for text in texts)}
    END IF;
    RETURN NULL;
END"""


def _emptying(shape: Shape, rows: str = "") -> list[str]:
    """Statements for the end of all rows, or of those whose keys a query gives."""
    if shape.entity.deletes is Deletes.KEEP:
        keys = {shape.stamp: shape.stamp_key, shape.tracker: shape.tracker_key}
        which = {table: f" WHERE ({', '.join(key)}) IN ({rows})" if rows else "" for table, key in keys.items()}
        return [f"DELETE FROM {table}{condition}" for table, condition in which.items()]
    key = ", ".join(shape.stamp_key)
    which_rows = f" AND ({key}) IN ({rows})" if rows else ""
    gone = f"UPDATE {shape.stamp} SET {_buried(shape)} WHERE NOT stdeleted{which_rows} RETURNING {key}"
    return [f"WITH gone AS ({gone}) {_changes(shape, 2, 'gone')}"]


def _buried(shape: Shape) -> str:
    return f"sttime = greatest({now(shape)}, sttime + 1), stnode = {_self(shape)}, stdeleted = true"


def _changes(shape: Shape, kind: int, stamps: str) -> str:
    """Lines of the ChangeLog for some stamps."""
    columns = ", ".join(names.CHANGED_KEY[: len(shape.key)])
    return f"""INSERT INTO {shape.own_table(names.CHANGES)}(chtableid, {columns}, chtype)
        SELECT {shape.table_id}, {", ".join(f"{name}::text" for name in shape.stamp_key)}, {kind} FROM {stamps}"""


def _change(shape: Shape, values: list[str], kind: int) -> str:
    columns = ", ".join(names.CHANGED_KEY[: len(values)])
    texts = ", ".join(f"{value}::text" for value in values)
    into = f"INSERT INTO {shape.own_table(names.CHANGES)}(chtableid, {columns}, chtype)"
    return f"{into} VALUES ({shape.table_id}, {texts}, {kind});"
