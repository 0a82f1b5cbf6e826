"""Receiving: rows of another node go through the receive view, and what became of each is told.

1. What is here of these rows is looked at.
2. The rows go into the receive view. Those that it refuses are found by halving, and kept in quarantine; those which
   only come too early wait.
3. An edit that loses against one that did not know it is kept in quarantine, too.
4. What the sender has now is noted, so that nothing goes back to where it came from.

Where the view does nothing but what sync does by itself, and nobody else has triggers on the table, `bulk` does the
same for all rows at once.
"""
# ruff: noqa: S608  names cannot be bound; all of them go through `quoted`

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from tailrace.sync import authors, bulk, cascades, changes, names, ownbody, quarantine, spelling, swapping, waiting
from tailrace.sync.columns import Columns
from tailrace.sync.database import Link
from tailrace.sync.entity import Rule
from tailrace.sync.exchange import ROW_STAMP, Ack, Key, Receipt, RowBatch
from tailrace.sync.incoming import Here, Incoming, Reception, Refusal, as_they_are, completed, incoming
from tailrace.sync.names import Dialect, equal, quoted
from tailrace.sync.shape import Shape
from tailrace.sync.strangers import has_strangers
from tailrace.sync.trackers import take_turn
from tailrace.sync.values import from_wire, recordset

_TRACKER: Final = (
    names.TRACKER_NODE,
    names.TRACKER_VERSION,
    names.TRACKER_VERSION_NODE,
    names.TRACKER_PROCESSED,
)
_AT_THE_SAME_TIME: Final = "another node changed the row at the same time"


def receive(reception: Reception, batch: RowBatch) -> Receipt:
    """Take rows of a node. All that is said of them is in the transaction of the rows themselves."""
    has_others = has_strangers(reception.link, reception.shape)
    is_told = not has_others and _is_told_by_stamps(reception.shape)
    if is_told and (receipt := bulk.receive(reception, batch)) is not None:
        return receipt
    return _receive_singly(reception, batch, is_told=is_told, has_others=has_others)


def _is_told_by_stamps(shape: Shape) -> bool:
    """Whether what was here says all about what becomes of a row."""
    receiver = shape.entity.receive
    return shape.entity.conflict is Rule.NEWER and receiver.condition is None and receiver.body is None


def _receive_singly(reception: Reception, batch: RowBatch, *, is_told: bool, has_others: bool) -> Receipt:
    """Where what was here does not tell it (`is_told`), what becomes of rows is seen afterwards."""
    link, shape, sender = reception.link, reception.shape, reception.sender
    rows = incoming(shape, sender, batch)
    refused: dict[Key, Refusal] = {}
    before: dict[Key, Here] = {}
    readable = _sound(reception, rows, refused, before)  # 1
    claimed = authors.claimed(reception, readable, before)
    left = {row.key: Ack(row.tracker, claimed[row.key]) for row in readable if row.key in claimed}
    readable = completed(link, shape, [row for row in readable if row.key not in left], batch.columns)
    losing = quarantine.unknown_edits(reception, readable, before)
    cascade = cascades.expected(reception, readable, before)
    crowded = dict.fromkeys(quarantine.without_room(reception, losing), _AT_THE_SAME_TIME)
    crowded |= dict.fromkeys(cascade.crowded, cascades.CROWDED)
    left |= {row.key: _left(row, crowded[row.key]) for row in readable if row.key in crowded}
    readable = [row for row in readable if row.key not in left]
    refused |= {key: why for key, why in cascade.waiting.items() if key not in left}
    with _Receiving(link, shape, sender) as view:
        put = as_they_are(link, shape, cascade.in_order([row for row in readable if row.key not in refused]))
        _put(reception, put, refused, view.put)  # 2
        _put_colliding(reception, put, refused, view.put)
    after = before if is_told else _settled(reception, readable, before, has_others=has_others)
    receipt, early = Receipt(left=list(left.values())), set[Key]()
    for row in rows:
        was, now = before.get(row.key), after.get(row.key)
        if row.key in left:
            continue
        refusal = refused.get(row.key) or (None if is_told else _why_not(row, was, now))
        if refusal is not None and not _kept(reception, row, refusal):
            receipt.left.append(_left(row, refusal.why))
        elif refusal is not None and refusal.is_about_others:
            early.add(row.key)
        elif refusal is not None:
            receipt.refused.append(Ack(row.tracker, refusal.why))
        elif _is_older(row, was, now, is_told=is_told):
            receipt.older.append(row.tracker)
    gone = {ack.tracker.key for ack in receipt.refused} | early
    not_here = gone | {ack.tracker.key for ack in receipt.left}
    quarantine.keep_lost(reception, [edit for edit in losing if edit.key not in not_here])  # 3
    cascade.keep()
    cascades.forget_known(reception, readable)
    _note_versions(reception, [(row, False) for row in readable if row.key not in not_here])  # 4
    _note_refused(reception, [row for row in readable if row.key in gone])
    return receipt


def _sound(
    reception: Reception, rows: Sequence[Incoming], refused: dict[Key, Refusal], before: dict[Key, Here]
) -> list[Incoming]:
    """Rows that can be read, and what is here of them; those from the far future are refused, those whose key is spelt
    otherwise than here, and those that their sender may not send."""
    link, shape, horizon = reception.link, reception.shape, reception.horizon
    refused |= {row.key: Refusal(horizon.why_not(row.time)) for row in rows if row.time > horizon.latest_ms}
    in_time = [row for row in rows if row.key not in refused]
    found = _unless_refused(reception, in_time, refused, lambda some: before.update(_here(link, shape, some)))
    why = spelling.misspelt(link, shape, Columns.of_rows(row.key for row in found))
    why |= authors.foreign(reception, [row for row in found if row.key not in why], before)
    refused |= {key: Refusal(each) for key, each in why.items()}
    return [row for row in found if row.key not in why]


def _settled(
    reception: Reception, rows: Sequence[Incoming], before: Mapping[Key, Here], *, has_others: bool
) -> dict[Key, Here]:
    """What is here of rows that went through a view of somebody's own, or through triggers of others."""
    link, shape = reception.link, reception.shape
    now = _here(link, shape, rows)
    written = [row for row in rows if now.get(row.key) != before.get(row.key)]
    if ownbody.settle(link, shape, written, now, has_others=has_others):
        now = _here(link, shape, rows)
    return now


def set_aside(reception: Reception, batch: RowBatch, error: BaseException) -> Receipt:
    """Keep a row which the database does not want at the end of a transaction, or because of which it ends one."""
    rows, refusal = incoming(reception.shape, reception.sender, batch), reception.refusal(error)
    receipt = Receipt(left=[_left(row, refusal.why) for row in rows if not _kept(reception, row, refusal)])
    left = {ack.tracker.key for ack in receipt.left}
    kept = [row for row in rows if row.key not in left]
    if not refusal.is_about_others:
        receipt.refused.extend(Ack(row.tracker, refusal.why) for row in kept)
    _note_refused(reception, kept)
    return receipt


def _kept(reception: Reception, row: Incoming, refusal: Refusal) -> bool:
    if refusal.is_about_others:
        return waiting.keep(reception, row, refusal.why)
    return quarantine.keep_refused(reception, row, refusal.why)


def _left(row: Incoming, why: str) -> Ack:
    return Ack(row.tracker, f"{why}; and there is no more room for rows of its sender in quarantine")


def _is_older(row: Incoming, before: Here | None, after: Here | None, *, is_told: bool) -> bool:
    if is_told:
        return before is not None and before.stamp > row.stamp
    return after is not None and after.stamp != row.stamp


def _why_not(row: Incoming, before: Here | None, after: Here | None) -> Refusal | None:
    """A receive view can leave a row out without a word."""
    if after is not None and after.stamp >= row.stamp:
        return None
    return None if after != before else Refusal("the receive view did not take it")


def _put(
    reception: Reception,
    rows: Sequence[Incoming],
    refused: dict[Key, Refusal],
    work: Callable[[Sequence[Incoming]], None],
) -> None:
    """Rows may refer to each other: those that are refused are tried again as long as that helps."""
    left: Sequence[Incoming] = rows
    while left:
        again: dict[Key, Refusal] = {}
        _unless_refused(reception, left, again, work)
        tried, left = len(left), [row for row in left if row.key in again]
        if len(left) in (0, tried):
            refused.update(again)
            return


def _put_colliding(
    reception: Reception,
    rows: Sequence[Incoming],
    refused: dict[Key, Refusal],
    work: Callable[[Sequence[Incoming]], None],
) -> None:
    """Rows may collide only with each other, if they have exchanged something. A body may not write all of a row."""
    colliding = [row for row in rows if row.key in refused and refused[row.key].is_collision]
    if not colliding or reception.shape.entity.receive.body is not None:
        return

    def are_here(some: Sequence[Incoming]) -> bool:
        here = _here(reception.link, reception.shape, some)
        return all(row.key in here and here[row.key].stamp == row.stamp for row in some)

    for key in swapping.put_together(reception, colliding, work, are_here):
        del refused[key]


def _unless_refused(
    reception: Reception,
    rows: Sequence[Incoming],
    refused: dict[Key, Refusal],
    work: Callable[[Sequence[Incoming]], None],
) -> list[Incoming]:
    """Do something with rows that the database may not want. Those that it does not are found by halving, and left."""
    if not rows:
        return []
    try:
        with reception.link.savepoint():
            work(rows)
    except reception.refusals as error:
        if len(rows) == 1:
            refused[rows[0].key] = reception.refusal(error)
            return []
        half = len(rows) // 2
        first = _unless_refused(reception, rows[:half], refused, work)
        return first + _unless_refused(reception, rows[half:], refused, work)
    return list(rows)


def _here(link: Link, shape: Shape, rows: Sequence[Incoming]) -> dict[Key, Here]:
    """What is here of some rows, by their keys."""
    columns = [shape.own(name) for name in ("stTime", "stNode", "stDeleted")]
    if shape.dialect is Dialect.POSTGRES:
        told = recordset(
            [(*key, place) for place, key in enumerate(from_wire(shape, [row.key for row in rows], shape.key))]
        )
        keys = ", ".join(f"c{number} {kind}" for number, kind in enumerate(shape.key_types))
        same = equal([f"st.{name}" for name in shape.stamp_key], [f"a.c{place}" for place in range(len(shape.key))])
        query = f"""SELECT a.c{len(shape.key)}, {", ".join(f"st.{name}" for name in columns)}
            FROM jsonb_to_recordset($1::jsonb) AS a({keys}, c{len(shape.key)} integer)
            JOIN {shape.stamp} AS st ON {same}"""
        return {rows[place].key: Here(time, node, gone) for place, time, node, gone in link.rows(query, (told,))}
    at_stamp = equal(shape.stamp_key, [shape.mark(number) for number in range(1, len(shape.key) + 1)])
    query = f"SELECT {', '.join(columns)} FROM {shape.stamp} WHERE {at_stamp}"
    found = {}
    for row in rows:
        for time, node, gone in link.rows(query, from_wire(shape, [row.key], shape.key)[0]):
            found[row.key] = Here(time, node, bool(gone))
    return found


class _Receiving:
    """The receive view, open for rows of one node."""

    def __init__(self, link: Link, shape: Shape, sender: int) -> None:
        self._link = link
        self._shape = shape
        self._sender = sender

    def __enter__(self) -> _Receiving:
        if self._shape.dialect is Dialect.SQLITE:
            self._link.run("INSERT INTO DoorReceiving DEFAULT VALUES")
        return self

    def __exit__(self, *_: object) -> None:
        if self._shape.dialect is Dialect.SQLITE:
            self._link.run("DELETE FROM DoorReceiving")

    def put(self, rows: Sequence[Incoming]) -> None:
        """Insert rows."""
        shape = self._shape
        columns = [*map(quoted, shape.column_names), *map(shape.own, (names.FROM_NODE, *ROW_STAMP[:3]))]
        values = [(*row.values, self._sender, row.time, row.node, row.is_deleted) for row in rows]
        into = f"INSERT INTO {shape.view}({', '.join(columns)})"
        stamp = ["bigint", "bigint", "bigint", "boolean"]
        kinds = [*((column.declared, column.read_as) for column in shape.columns), *zip(stamp, stamp, strict=True)]
        _insert(self._link, shape, into, kinds, from_wire(shape, values, shape.column_names))


def _note_versions(reception: Reception, rows: Sequence[tuple[Incoming, bool]]) -> None:
    """The sender has what it sent. If another version stays here, it gets that; of one that was refused it would not
    want what is older than its own. Where an own rule decides that says nothing: what it was to get, it still gets.

    Where only hooks know who may have a row, they are asked: it does not get one because it has sent its key.
    """
    link, shape = reception.link, reception.shape
    take_turn(link, shape)
    here = _here(link, shape, [row for row, _ in rows])
    done: list[tuple[object, ...]] = []
    undecided: list[tuple[object, ...]] = []
    others: list[tuple[object, ...]] = []
    asked: list[tuple[tuple[object, ...], bool]] = []
    for row, is_refused in rows:
        key = from_wire(shape, [row.key], shape.key)[0]
        now = here.get(row.key)
        has = (*key, reception.sender, row.version, 0 if shape.is_hash else row.node)
        if now is None or now.stamp == row.stamp or (is_refused and now.stamp < row.stamp):
            is_undecided = is_refused and now is not None and shape.entity.conflict is Rule.CUSTOM
            (undecided if is_undecided else done).append((*has, True))
        else:
            others.append((*has, shape.entity.is_told_by_hooks))
            asked.append((key, now.is_deleted))
    _put_trackers(link, shape, done)
    _put_trackers(link, shape, undecided, leaves_open=True)
    _put_trackers(link, shape, others, leaves_open=shape.entity.is_told_by_hooks)
    if shape.entity.is_told_by_hooks:
        changes.ask_hooks(link, shape, asked)


def _note_refused(reception: Reception, rows: Sequence[Incoming]) -> None:
    """The same for rows that were not taken. One whose key is too long to be noted does without."""
    _unless_refused(reception, rows, {}, lambda some: _note_versions(reception, [(row, True) for row in some]))


def _put_trackers(link: Link, shape: Shape, values: Sequence[tuple[object, ...]], *, leaves_open: bool = False) -> None:
    """What a node has, and whether it gets nothing else; a tracker that is there may be left as open as it is."""
    if not values:
        return
    columns = [*shape.tracker_key, *(shape.own(name) for name in _TRACKER)]
    count = len(shape.key) + 1
    changed = ", ".join(f"{name} = excluded.{name}" for name in (columns[count:-1] if leaves_open else columns[count:]))
    conflict = f"ON CONFLICT ({', '.join(columns[:count])}) DO UPDATE SET {changed}"
    kinds = [(kind, kind) for kind in (*shape.key_types, "bigint", shape.version_type, "bigint", "boolean")]
    _insert(link, shape, f"INSERT INTO {shape.tracker}({', '.join(columns)})", kinds, values, conflict)


def _insert(
    link: Link,
    shape: Shape,
    into: str,
    kinds: Sequence[tuple[str, str]],
    values: Sequence[tuple[object, ...]],
    more: str = "",
) -> None:
    """Insert rows whose columns have these types, and in PostgreSQL are read out of JSON as those."""
    if shape.dialect is Dialect.SQLITE:
        marks = ", ".join(shape.mark(number) for number in range(1, len(kinds) + 1))
        link.run_many(f"{into} VALUES ({marks}) {more}", values)
        return
    typed = ", ".join(f"c{number} {read}" for number, (_, read) in enumerate(kinds))
    picked = ", ".join(f"c{number}::{kind}" for number, (kind, _) in enumerate(kinds))
    link.run(f"{into} SELECT {picked} FROM jsonb_to_recordset($1::jsonb) AS r({typed}) {more}", (recordset(values),))
