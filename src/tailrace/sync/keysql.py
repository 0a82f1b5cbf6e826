"""Keys in SQL: where each table's numbering is kept, and what takes from it.

SQLite has it in the table `DoorKey`. PostgreSQL has a sequence for each table, so that transactions which insert do not
wait for each other.
"""
# ruff: noqa: S608  names cannot be bound; all of them go through `quoted`

from __future__ import annotations

from typing import Final

from tailrace.sync.names import quoted
from tailrace.sync.shape import Shape

EPOCH_S: Final = 1_577_836_800
"""2020-01-01, since when seconds are counted."""
SEQUENCE_BITS: Final = 12
NODE_BITS: Final = 20
SECOND_BITS: Final = 31
_NODE_SHIFT: Final = SEQUENCE_BITS
_SECOND_SHIFT: Final = SEQUENCE_BITS + NODE_BITS
_SEQUENCE_MAX: Final = (1 << SEQUENCE_BITS) - 1
_MOVING: Final = 0x446F6F72
"""The class of the advisory locks under which a sequence is moved on."""

_ROOM_BITS: Final = 20
"""PostgreSQL's sequences count on in this room of each second, though only the first numbers of it become keys. Its
connections, each of which takes one number too many at most, cannot fill it. So a second is entered only by who holds
the lock, and nobody can have got a number of it that is given out again."""
_ROOM: Final = (1 << _ROOM_BITS) - 1

SQLITE_TABLES: Final = (
    """CREATE TABLE IF NOT EXISTS DoorKey(
        tableId INTEGER PRIMARY KEY, firstTick INTEGER NOT NULL DEFAULT 0, lastTick INTEGER NOT NULL DEFAULT 0)""",
    f"""CREATE VIEW IF NOT EXISTS DoorLastKey AS SELECT tableId,
        ((lastTick >> {SEQUENCE_BITS}) << {_SECOND_SHIFT}) | (keyNode << {_NODE_SHIFT}) | (lastTick & {_SEQUENCE_MAX})
            AS lastKey FROM DoorKey, DoorSelf""",
)
"""A tick is a second and a number in it. `DoorLastKey` is for those who insert rows with the key 0."""

SQLITE_TAKE: Final = f"""
WITH said(id, second, wanted) AS (VALUES (?1, ?2, ?3))
UPDATE DoorKey SET
    firstTick = max(lastTick + 1, second << {SEQUENCE_BITS}),
    lastTick = min(max(lastTick + 1, second << {SEQUENCE_BITS}) + wanted - 1,
        max(lastTick + 1, second << {SEQUENCE_BITS}) | {_SEQUENCE_MAX})
FROM said WHERE tableId = id AND (lastTick + 1) >> {SEQUENCE_BITS} <> second + 1
RETURNING firstTick, lastTick, (SELECT keyNode FROM DoorSelf)
"""
"""Takes the next ticks, all of one second. There is no row when those of this second are used up. If the last one is
further ahead, then the clock was set back, and the numbers go on from there."""

POSTGRES_FUNCTION: Final = f"""
CREATE OR REPLACE FUNCTION {{schema}}.door_next_key(tableid integer) RETURNS bigint LANGUAGE plpgsql
    SET search_path = {{schema}}, pg_temp AS $door$
DECLARE
    numbers constant regclass := to_regclass('door_' || tableid || '_keys');
    tick bigint;
    last bigint;
    moment numeric;
    is_used_up boolean;
BEGIN
    IF numbers IS NULL THEN
        RAISE EXCEPTION 'there is no entity with tableId %', tableid USING HINT = 'tailrace sync install';
    END IF;
    LOOP
        tick := nextval(numbers);
        moment := extract(epoch FROM clock_timestamp()) - {EPOCH_S};
        IF (tick & {_ROOM}) <= {_SEQUENCE_MAX} AND (tick >> {_ROOM_BITS}) >= floor(moment) THEN
            RETURN ((tick >> {_ROOM_BITS}) << {_SECOND_SHIFT}) | (tick & {_ROOM})
                | ((SELECT keynode::bigint FROM doorself) << {_NODE_SHIFT});
        END IF;
        BEGIN  -- the lock ends with this block, and not with the transaction
            PERFORM pg_advisory_xact_lock({_MOVING}, tableid);
            EXECUTE format('SELECT last_value FROM %s', numbers) INTO last;
            moment := extract(epoch FROM clock_timestamp()) - {EPOCH_S};
            is_used_up := (last & {_ROOM}) >= {_SEQUENCE_MAX};
            IF (last >> {_ROOM_BITS}) < floor(moment) THEN
                PERFORM setval(numbers, floor(moment)::bigint << {_ROOM_BITS}, false);
                is_used_up := false;
            ELSIF is_used_up AND (last >> {_ROOM_BITS}) > floor(moment) THEN  -- the clock was set back
                PERFORM setval(numbers, ((last >> {_ROOM_BITS}) + 1) << {_ROOM_BITS}, false);
                is_used_up := false;
            END IF;
            RAISE SQLSTATE 'DOOR1';
        EXCEPTION WHEN SQLSTATE 'DOOR1' THEN
        END;
        IF is_used_up THEN
            PERFORM pg_sleep(greatest(floor(moment) + 1 - moment, 0.001)::double precision);
        END IF;
    END LOOP;
END$door$"""

POSTGRES_TAKE: Final = "SELECT door_next_key($1) FROM generate_series(1, $2)"


def sqlite_numbering(shape: Shape) -> str:
    return f"INSERT INTO DoorKey(tableId) VALUES ({shape.table_id}) ON CONFLICT DO NOTHING"


def postgres_numbering(shape: Shape) -> str:
    return f"CREATE SEQUENCE IF NOT EXISTS {shape.own_table(f'door_{shape.table_id}_keys')} AS bigint"


def sqlite_triggers(shape: Shape) -> dict[str, str]:
    """Rows with the key 0 get another one. To one without a key SQLite would give one that others may get, too."""
    key, number = shape.table_key[0], shape.table_id
    is_ours = f"NOT EXISTS (SELECT 1 FROM DoorReceiving WHERE rcTableId = {number})"
    why = f"table {shape.entity.table}: insert the key 0, and it gets one of its own".replace("'", "''")
    second = f"CAST(strftime('%s', 'now') AS INTEGER) - {EPOCH_S}"
    return {
        "unkeyed": f"""BEFORE INSERT ON {shape.table} WHEN coalesce(NEW.{key}, -1) = -1 AND {is_ours} BEGIN
            SELECT RAISE(ABORT, '{why}'); END""",
        "keyed": f"""AFTER INSERT ON {shape.table} WHEN NEW.{key} = 0 AND {is_ours} BEGIN
            UPDATE DoorKey SET lastTick = max(lastTick + 1, ({second}) << {SEQUENCE_BITS}) WHERE tableId = {number};
            UPDATE {shape.table} SET {key} = (SELECT lastKey FROM DoorLastKey WHERE tableId = {number})
                WHERE {key} = 0; END""",
    }


def postgres_trigger(shape: Shape) -> str:
    """The body of what gives rows their key before they are inserted."""
    function = shape.own_table("door_next_key")
    row, quiet = (f"coalesce(current_setting('tailrace.{name}', true), '')" for name in ("row", "quiet"))
    return f"""
BEGIN
    IF NOT starts_with({row}, '[{shape.table_id},') AND {quiet} <> '{shape.table_id}' THEN
        NEW.{shape.table_key[0]} := {function}({shape.table_id});
    END IF;
    RETURN NEW;
END"""


def is_unkeyed(row: str, name: str) -> str:
    """Whether a row of PostgreSQL wants a key."""
    column = f"{row}.{quoted(name)}"
    return f"({column} IS NULL OR {column} = 0)"
