"""Changes: what the ChangeLog says becomes trackers, some time after the changes were made.

The lines are taken away first, and who gets what is asked afterwards. So a change that is committed meanwhile either is
seen already, or its line is still there for the next time. The SQL that people write sees only the lines that were
taken: a temporary table stands before `ChangeLog`, and another one before the tracker, so that what it inserts cannot
make a node's version forgotten.
"""
# ruff: noqa: S608  names cannot be bound; all of them go through `quoted`

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from tailrace.sync import names, postgresddl, sqliteddl
from tailrace.sync.database import Link
from tailrace.sync.entity import Changes, RunOnChange
from tailrace.sync.exchange import Key
from tailrace.sync.failing import HookFailed
from tailrace.sync.names import Dialect, equal
from tailrace.sync.shape import Shape
from tailrace.sync.templates import fitted, for_node, with_table
from tailrace.sync.trackers import current, table_join, take_turn
from tailrace.sync.untold import keep_untold
from tailrace.sync.values import from_wire, to_wire

LINES_MAX: Final = 20_000
"""So many lines of the ChangeLog are worked off in one transaction."""
_COLUMNS: Final = ("chTableId", "chEntityPk", "chEntityPk2", "chEntityPk3", "chEntityPk4", "chType", "chId")
_UPSERTED: Final = 1
_DELETED: Final = 2


def watched(shapes: Sequence[Shape]) -> set[int]:
    """The tables whose changes may concern other rows than those that changed."""
    found: set[int] = set()
    by_table = {shape.entity.table.lower(): shape.table_id for shape in shapes}
    for shape in shapes:
        entity = shape.entity
        if entity.run_on_change or entity.on_change is not None:
            found.add(shape.table_id)
        found.update(by_table[name.lower()] for hook in entity.run_on_change for name in hook.on)
    return found


def has_changes(link: Link, shapes: Sequence[Shape]) -> bool:
    """Whether there are lines in the ChangeLog."""
    return bool(shapes) and bool(link.rows(f"SELECT 1 FROM ChangeLog WHERE {about(shapes)} LIMIT 1"))


def process(link: Link, shapes: Sequence[Shape], held: Collection[int] = (), after: int = 0) -> None:
    """Take lines of the ChangeLog, and say in the trackers who gets what they are about; those of some tables stay.
    Up to `after` there are none."""
    take_turn(link, shapes[0], alone=True)
    taken = _take(link, [shape for shape in shapes if shape.table_id not in held], after)
    present = {table_id for (table_id,) in link.rows(f"SELECT DISTINCT chTableId FROM {taken}")}
    by_table = {shape.entity.table.lower(): shape for shape in shapes}
    for shape in shapes:
        if shape.table_id in present:
            _bury(link, shape, taken)
            _merge(link, shape, _buried(shape, taken))
        _run(link, shape, by_table, present, taken)
        if shape.table_id in present:
            same = equal([f"door_st.{name}" for name in shape.stamp_key], _keys(shape, "door_c"))
            keep_untold(link, shape, f"JOIN {taken} AS door_c ON door_c.chTableId = {shape.table_id} AND {same}")
    link.run(f"DELETE FROM {taken}")


def welcome(link: Link, shape: Shape, node: int, refusals: tuple[type[Exception], ...] = ()) -> None:
    """A node is new: say what it gets. `refusals` is what the driver raises when a tracker is there already."""
    entity = shape.entity
    if entity.by_hand:
        return
    if entity.run_on_new_node is not None:
        with _Shadows(link, shape) as shadows:
            text = with_table(fitted(entity.run_on_new_node.of(shape.dialect), shape.dialect), shape.table)
            shadows.run(for_node(text, node))
            _merge(link, shape, shadows.wanted(), is_unique=True)
    elif entity.on_new_node is not None:
        with _Shadows(link, shape) as shadows:
            with _told_by(shape, "on_new_node", entity.on_new_node):
                shadows.put((key, node) for key in entity.on_new_node(_driver(link), node))
            _merge(link, shape, shadows.wanted(), is_unique=True)
    else:
        keys = ", ".join(f"{shape.table}.{name}" for name in shape.table_key)
        audience = "" if entity.audience is None else f" WHERE {for_node(entity.audience.of(shape.dialect), node)}"
        wanted = f"SELECT {keys}, {_bigint(shape, str(node))} FROM {shape.table}{audience}"
        is_first = bool(refusals) and not link.rows(
            f"SELECT 1 FROM {_main(shape, shape.tracker)} WHERE {shape.own('trkrDestinationNode')} = {node:d} LIMIT 1"
        )
        try:
            with link.savepoint():
                _merge(link, shape, wanted, is_unique=True, is_first=is_first)
        except refusals:  # somebody inserts trackers for it at the same time
            if not is_first:
                raise
            _merge(link, shape, wanted, is_unique=True)


def ask_hooks(link: Link, shape: Shape, keys: Sequence[tuple[tuple[object, ...], bool]]) -> None:
    """Let be asked who gets some rows though nothing has changed; with each key goes whether the row is gone."""
    columns = (_COLUMNS[0], *_COLUMNS[1 : 1 + len(shape.key)], _COLUMNS[5])
    marks = [shape.mark(number) for number in range(1, len(shape.key) + 2)]
    if shape.dialect is Dialect.POSTGRES:
        marks = [*(f"{place}::text" for place in marks[:-1]), marks[-1]]
    into = f"INSERT INTO {shape.own_table(names.CHANGES)}({', '.join(columns)})"
    lines = [(*key, _DELETED if is_gone else _UPSERTED) for key, is_gone in keys]
    if lines:
        link.run_many(f"{into} VALUES ({shape.table_id}, {', '.join(marks)})", lines)


def _run(link: Link, shape: Shape, by_table: dict[str, Shape], present: set[int], taken: str) -> None:
    entity = shape.entity
    if entity.by_hand:
        return
    for hook in entity.run_on_change:
        watched = [by_table[name.lower()] for name in hook.on] or [shape]
        if any(each.table_id in present for each in watched):
            _run_hook(link, shape, hook, watched, taken)
    if entity.run_on_change or shape.table_id not in present:
        return
    if entity.on_change is not None:
        with _Shadows(link, shape) as shadows:
            changed = _changes(link, shape, taken)
            with _told_by(shape, "on_change", entity.on_change):
                shadows.put(entity.on_change(_driver(link), changed))
            _merge(link, shape, shadows.wanted(), is_unique=True)
        return
    keys = ", ".join(f"{shape.table}.{name}" for name in shape.table_key)
    nodes = shape.own_table(names.NODES)
    node = f"{nodes}.{shape.own('nodeId')}"
    audience = "" if entity.audience is None else f" WHERE {for_node(entity.audience.of(shape.dialect), node)}"
    same = equal([f"{shape.table}.{name}" for name in shape.table_key], _keys(shape, "door_c"))
    _merge(
        link,
        shape,
        f"""SELECT {keys}, {node} FROM {taken} AS door_c
            JOIN {shape.table} ON door_c.chTableId = {shape.table_id} AND {same} CROSS JOIN {nodes}{audience}""",
    )


def _run_hook(link: Link, shape: Shape, hook: RunOnChange, watched: Sequence[Shape], taken: str) -> None:
    with _Shadows(link, shape) as shadows:
        shadows.show_changes(watched, taken)
        shadows.run(fitted(hook.sql.of(shape.dialect), shape.dialect), watched)
        _merge(link, shape, shadows.wanted(), is_unique=True)


def about(shapes: Sequence[Shape]) -> str:
    """Lines about other tables are for whoever knows these."""
    return f"chTableId IN ({', '.join(str(shape.table_id) for shape in shapes)})"


def _take(link: Link, shapes: Sequence[Shape], after: int) -> str:
    """Lines, moved out of the ChangeLog into a table that only this transaction sees."""
    shape, columns = shapes[0], ", ".join(_COLUMNS)
    if shape.dialect is Dialect.POSTGRES:
        changes = shape.own_table(names.CHANGES)
        kinds = "chtableid integer, chentitypk text, chentitypk2 text, chentitypk3 text, chentitypk4 text"
        own = f"door_taken({kinds}, chtype integer, chid bigint)"
        link.run(f"CREATE TEMP TABLE IF NOT EXISTS {own} {postgresddl.SCRATCH}")
        link.run("SET LOCAL enable_seqscan = off")  # what is dead in it is not vacuumed yet
        link.run(
            f"""WITH gone AS (DELETE FROM {changes} WHERE chid = ANY (ARRAY(
                    SELECT chid FROM {changes} WHERE chid > {after:d} AND {about(shapes)}
                    ORDER BY chid LIMIT {LINES_MAX}))
                RETURNING {columns})
            INSERT INTO pg_temp.door_taken SELECT * FROM gone"""
        )
        link.run("SET LOCAL enable_seqscan TO DEFAULT")
        return "pg_temp.door_taken"
    link.run(f"CREATE TEMP TABLE IF NOT EXISTS door_taken({columns})")
    link.run(
        f"""INSERT INTO temp.door_taken SELECT {columns} FROM main.ChangeLog WHERE {about(shapes)}
            ORDER BY chId LIMIT {LINES_MAX}"""
    )
    link.run("DELETE FROM main.ChangeLog WHERE chId IN (SELECT chId FROM temp.door_taken)")
    return "temp.door_taken"


def _bury(link: Link, shape: Shape, taken: str) -> None:
    """In SQLite, rows may have gone without a trigger having fired: somebody replaced them."""
    if shape.uniques:
        keys = ", ".join(_keys(shape, "c"))
        gone = f"SELECT {keys} FROM {taken} AS c WHERE c.chTableId = {shape.table_id} AND c.chType = {_DELETED}"
        for statement in sqliteddl.bury_missing(shape, gone):
            link.run(statement)


def _merge(link: Link, shape: Shape, wanted: str, *, is_unique: bool = False, is_first: bool = False) -> None:
    """A query gives keys and nodes: these get the version that is here, unless they have it. If nothing was ever said
    of them before (`is_first`), nothing is looked for, which in PostgreSQL takes a third of the time off.

    They are inserted in the order in which they will be read; in any other, large indexes are slow.
    """
    keys = shape.tracker_key
    node, processed = shape.own("trkrDestinationNode"), shape.own("trkrProcessed")
    columns = ", ".join((*keys, node))
    nodes, oneself = shape.own_table(names.NODES), shape.own_table(names.SELF)
    version, version_node = current(shape)
    if shape.dialect is Dialect.POSTGRES:
        has_it = f"door_t.trkrversionid IS NOT DISTINCT FROM {version} AND door_t.trkrversionnode = {version_node}"
        is_sent, no = "door_t.trkrprocessed", "false"
    else:
        has_it = f"door_t.trkrVersionId IS {version} AND door_t.trkrVersionNode = {version_node}"
        is_sent, no = "door_t.trkrProcessed = 1", "0"
    at_stamp = equal([f"door_st.{name}" for name in shape.stamp_key], [f"door_w.{name}" for name in keys])
    at_tracker = equal([f"door_t.{name}" for name in (*keys, node)], [f"door_w.{name}" for name in (*keys, node)])
    known = f"""LEFT JOIN {_main(shape, shape.tracker)} AS door_t ON {at_tracker}"""
    is_open = f"AND (door_t.{keys[0]} IS NULL OR ({is_sent} AND NOT ({has_it})))"
    conflict = f"ON CONFLICT ({columns}) DO UPDATE SET {processed} = {no}"
    if is_first:
        known = is_open = conflict = ""
    link.run(
        f"""INSERT INTO {_main(shape, shape.tracker)}({columns})
        WITH door_w({columns}) AS ({wanted})
        SELECT {"" if is_unique else "DISTINCT"} {", ".join(f"door_w.{name}" for name in (*keys, node))} FROM door_w
            JOIN {nodes} AS door_n ON door_n.{shape.own("nodeId")} = door_w.{node}
            JOIN {shape.stamp} AS door_st ON {at_stamp} {table_join(shape) if shape.is_hash else ""}
            {known}
        WHERE door_w.{node} <> (SELECT {shape.own("nodeId")} FROM {oneself}) {is_open}
        ORDER BY {", ".join(f"door_w.{name}" for name in (*keys, node))}
        {conflict}"""
    )


def _buried(shape: Shape, taken: str) -> str:
    """All who have a row that is gone, or were to get it."""
    keys = ", ".join(f"door_had.{name}" for name in shape.tracker_key)
    same = equal([f"door_had.{name}" for name in shape.tracker_key], _keys(shape, "door_c"))
    return f"""SELECT {keys}, door_had.{shape.own("trkrDestinationNode")} FROM {taken} AS door_c
        JOIN {_main(shape, shape.tracker)} AS door_had ON {same}
        WHERE door_c.chTableId = {shape.table_id} AND door_c.chType = {_DELETED}"""


def _keys(shape: Shape, row: str) -> list[str]:
    """The key of a line of the ChangeLog, in its own type."""
    columns = [f"{row}.{name}" for name in _COLUMNS[1 : 1 + len(shape.key)]]
    if shape.dialect is Dialect.SQLITE:
        return columns
    return [f"{column}::{kind}" for column, kind in zip(columns, shape.key_types, strict=True)]


def _main(shape: Shape, table: str) -> str:
    """The table itself, and not one that stands before it."""
    return table if shape.schema else f"main.{table}"


def _bigint(shape: Shape, number: str) -> str:
    return f"{number}::bigint" if shape.dialect is Dialect.POSTGRES else number


def _changes(link: Link, shape: Shape, taken: str) -> Changes:
    """The last line about a row counts."""
    columns = ", ".join(_keys(shape, "c"))
    query = f"SELECT {columns}, c.chType FROM {taken} AS c WHERE c.chTableId = {shape.table_id} ORDER BY c.chId"
    last = {row[:-1]: row[-1] for row in to_wire(shape, link.rows(query), shape.key)}
    return Changes(
        [key for key, kind in last.items() if kind != _DELETED], [key for key, kind in last.items() if kind == _DELETED]
    )


@contextmanager
def _told_by(shape: Shape, hook: str, function: Callable[..., object]) -> Iterator[None]:
    """Whatever a function of the application raises, or says that cannot be."""
    try:
        yield
    except Exception as error:
        name = getattr(function, "__qualname__", type(function).__name__)
        why = f"{type(error).__name__}: {str(error).strip()}"
        what = f"{hook} of table {shape.entity.table}, the function {name}, failed: {why}"
        raise HookFailed(
            what, "correct it; changes of the table wait, and it is asked again", {shape.table_id}
        ) from error


def _driver(link: Link) -> Any:
    return link.connection  # type: ignore[attr-defined]


class _Shadows:
    """Temporary tables that stand before the ChangeLog and before a tracker."""

    def __init__(self, link: Link, shape: Shape) -> None:
        self._link = link
        self._shape = shape
        is_postgres = shape.dialect is Dialect.POSTGRES
        self._space = "pg_temp" if is_postgres else "temp"
        self._tracker = f"{self._space}.{shape.own(shape.entity.tracker_name)}"
        self._changes: str | None = None

    def __enter__(self) -> _Shadows:
        shape = self._shape
        kinds = ", ".join(f"{name} {kind}" for name, kind in zip(shape.tracker_key, shape.key_types, strict=True))
        is_postgres = shape.dialect is Dialect.POSTGRES
        processed = "boolean DEFAULT false" if is_postgres else "BOOLEAN DEFAULT 0"
        keys = ", ".join(shape.tracker_key)
        self._link.run(
            f"""CREATE TEMP TABLE {shape.own(shape.entity.tracker_name)}({kinds},
            {shape.own("trkrDestinationNode")} bigint, {shape.own("trkrVersionId")} {shape.version_type},
            {shape.own("trkrVersionNode")} bigint DEFAULT 0, {shape.own("trkrProcessed")} {processed},
            PRIMARY KEY ({keys}, {shape.own("trkrDestinationNode")}){"" if is_postgres else " ON CONFLICT REPLACE"})"""
        )
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:  # otherwise the transaction ends, and they with it
            self._link.run(f"DROP TABLE {self._tracker}")
            if self._changes is not None:
                self._link.run(f"DROP TABLE {self._changes}")

    def show_changes(self, watched: Sequence[Shape], taken: str) -> None:
        """Let the ChangeLog have lines of some tables, of each row the last one. Keys have their own type if there is
        only one."""
        name = self._shape.own(names.CHANGES)
        self._changes = f"{self._space}.{name}"
        columns = ", ".join(_COLUMNS)
        kinds = {each.key_types for each in watched}
        if self._shape.dialect is Dialect.POSTGRES and len(kinds) == 1:
            own = dict(zip(_COLUMNS[1:5], kinds.pop(), strict=False))
            columns = ", ".join(f"{each}::{own[each]} AS {each}" if each in own else each for each in _COLUMNS)
        tables = ", ".join(str(each.table_id) for each in watched)
        last = f"SELECT max(chId) FROM {taken} WHERE chTableId IN ({tables}) GROUP BY {', '.join(_COLUMNS[:5])}"
        self._link.run(f"CREATE TEMP TABLE {name} AS SELECT {columns} FROM {taken} WHERE chId IN ({last})")

    def run(self, statement: str, watched: Sequence[Shape] = ()) -> None:
        try:
            self._link.run(statement)
        except Exception as error:
            table = self._shape.entity.table
            what = f"the SQL that says who gets rows of table {table} failed: {str(error).strip()}"
            tables = {self._shape.table_id, *(each.table_id for each in watched)}
            raise HookFailed(what, "correct it, then tailrace sync install", tables) from error

    def put(self, wanted: Iterable[tuple[Key, int]]) -> None:
        """What a function says."""
        shape = self._shape
        found = sorted({(*from_wire(shape, [tuple(key)], shape.key)[0], node) for key, node in wanted})
        marks = ", ".join(shape.mark(number) for number in range(1, len(shape.key) + 2))
        columns = ", ".join((*shape.tracker_key, shape.own("trkrDestinationNode")))
        self._link.run_many(f"INSERT INTO {self._tracker}({columns}) VALUES ({marks})", found)

    def wanted(self) -> str:
        columns = ", ".join((*self._shape.tracker_key, self._shape.own("trkrDestinationNode")))
        return f"SELECT {columns} FROM {self._tracker}"
