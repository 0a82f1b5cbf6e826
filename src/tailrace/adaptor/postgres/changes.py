"""Changes: what the slot tells, as batches, in the order of commits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa

from tailrace.adaptor.postgres import sql
from tailrace.adaptor.postgres.arrowlink import ArrowLink
from tailrace.adaptor.postgres.catalog import TableInfo, all_tables, load_kinds
from tailrace.adaptor.postgres.converting import converted
from tailrace.adaptor.postgres.pgoutput import Cells, Chunk, Decoder, Flags, Ints, Relation, Rows, Transactions
from tailrace.adaptor.postgres.slot import Slot, lsn_text
from tailrace.adaptor.postgres.types import Choices, Kind, Kinds
from tailrace.adaptor.postgres.unchanged import Unchanged
from tailrace.log.batch import TIMESTAMP, Batch, with_key
from tailrace.message import Micros, Mode, Op
from tailrace.source.contract import Piece, Position
from tailrace.source.rows import emptied

CHANGES_MAX: Final = 200_000
"""A piece ends with the transaction in which it comes to so many messages of the slot."""
_OPS: Final = {ord("I"): Op.INSERT, ord("U"): Op.UPDATE, ord("D"): Op.DELETE}


class ChangeReader:
    """The changes of one piece. Afterwards `reached` says where it ended."""

    def __init__(self, slot: Slot, choices: Choices, link: ArrowLink) -> None:
        self.reached: Position | None = None
        self._slot = slot
        self._choices = choices
        self._link = link
        self._tables: dict[tuple[str, str], TableInfo] = {}
        self._kinds = Kinds({}, choices)

    def read(self, piece: Piece) -> Iterator[Batch]:
        """Whole transactions. What the slot tells again from before the piece is passed over."""
        server = self._slot.server
        with server.session() as connection:
            self._kinds = load_kinds(connection, self._choices)
            self._tables = {(table.schema, table.name): table for table in all_tables(connection, self._kinds)}
            self._slot.advance(connection, piece["lsn"])  # it is in the log, so the server need not keep it (I2)
        told = last = skipped = kept = 0
        decoder = Decoder(self._slot.origin)
        unchanged = Unchanged(server)
        for messages in self._peek(piece):
            chunk = decoder.decode(messages)
            told += len(messages)
            commits = chunk.transactions.commit_lsn
            last = max(last, int(commits[-1])) if len(commits) else last
            is_new = commits >= piece["lsn"]
            old = self._passed_over(chunk, is_new)
            skipped += old
            kept += chunk.changes - old
            wanted = is_new & ~chunk.transactions.is_ours
            yield from self._batches(chunk, wanted, piece["seq"] - skipped, unchanged, piece["unwanted"])
        is_cut = told >= piece["changes_max"]
        self.reached = {"lsn": last + 1 if is_cut else piece["upto"], "seq": piece["seq"] + kept}

    def _peek(self, piece: Piece) -> Iterator[pa.BinaryArray]:
        query = sql.peek(self._slot.name, self._slot.publications, piece["upto"], piece["changes_max"])
        for batch in self._link.answer(query.as_string()):
            column: Any = batch.column(0)
            yield column

    def _passed_over(self, chunk: Chunk, is_new: Flags) -> int:
        count = 0
        for part in chunk.parts:
            if isinstance(part, Rows):
                count += int(np.count_nonzero(~is_new[part.transactions]))
            else:
                count += not is_new[part.transaction]
        return count

    def _batches(
        self, chunk: Chunk, is_wanted: Flags, base: int, unchanged: Unchanged, unwanted: Sequence[str]
    ) -> Iterator[Batch]:
        for part in chunk.parts:
            table = self._table(part.relation)
            namespace = f"{part.relation.schema}.{part.relation.name}"
            if namespace in unwanted or (table is not None and table.oid != part.relation.oid):
                continue  # nobody wants it, or it is of a table that is gone, whose name another one has
            if isinstance(part, Rows):
                places = np.flatnonzero(is_wanted[part.transactions])
                rows = part if len(places) == len(part.ops) else part.take(places)
                yield from self._rows(namespace, rows, table, chunk.transactions, base, unchanged)
            elif is_wanted[part.transaction]:
                yield from emptied(namespace, Micros(int(chunk.transactions.committed_us[part.transaction])))

    def _table(self, relation: Relation) -> TableInfo | None:
        return self._tables.get((relation.schema, relation.name))

    def _rows(
        self,
        namespace: str,
        rows: Rows,
        table: TableInfo | None,
        transactions: Transactions,
        base: int,
        unchanged: Unchanged,
    ) -> Iterator[Batch]:
        if not len(rows.ops):
            return
        key = _key(rows.relation, table)
        data, untold = unchanged.filled(rows, key, table)
        kinds = [self._kind(column.name, column.type_oid, column.typmod, table) for column in rows.relation.columns]
        names = [column.name for column in rows.relation.columns]
        for run, absent in _runs(untold):
            wanted = [at for at in range(len(names)) if at not in absent]
            told = rows.take(run)
            columns = [data[at].take(run) for at in wanted]
            new = _struct(namespace, [names[at] for at in wanted], [kinds[at] for at in wanted], columns)
            old = _struct(namespace, names, kinds, told.before, told.has_before) if told.has_before.any() else None
            yield _batch(namespace, told, key, transactions, base, new, old)

    def _kind(self, name: str, type_oid: int, typmod: int, table: TableInfo | None) -> Kind:
        known = next((column for column in table.columns if column.name == name), None) if table else None
        return self._kinds.of(type_oid, typmod, known.dimensions if known else 1)


def _key(relation: Relation, table: TableInfo | None) -> tuple[str, ...]:
    """The key that the table had when these rows were written, else the one it has now, if they have its columns."""
    told = tuple(column.name for column in relation.columns if column.is_identity) if relation.identity in "di" else ()
    known = table.key if table is not None else ()
    if not told:
        return known if set(known) <= {column.name for column in relation.columns} else ()
    return known if set(known) == set(told) else told


def _runs(untold: Mapping[int, Flags]) -> Iterator[tuple[Ints, frozenset[int]]]:
    """Neighbours of which the same columns are told, and which are not."""
    flags = np.array(list(untold.values()))
    changes = np.any(flags[:, 1:] != flags[:, :-1], axis=0)
    borders = [0, *(np.flatnonzero(changes) + 1).tolist(), flags.shape[1]]
    for begin, end in pairwise(borders):
        yield np.arange(begin, end), frozenset(at for at, column in untold.items() if column[begin])


def _struct(
    namespace: str, names: Sequence[str], kinds: Sequence[Kind], cells: Sequence[Cells], valid: Flags | None = None
) -> pa.StructArray:
    columns = [
        converted(namespace, name, kind.arrow, kind.convert, column.text())
        for name, kind, column in zip(names, kinds, cells, strict=True)
    ]
    fields = [kind.field(name) for name, kind in zip(names, kinds, strict=True)]
    mask: Any = None if valid is None else pa.array(~valid)
    return pa.StructArray.from_arrays(columns, fields=fields, mask=mask)


def _batch(
    namespace: str,
    rows: Rows,
    key: Sequence[str],
    transactions: Transactions,
    base: int,
    data: pa.StructArray,
    before: pa.StructArray | None,
) -> Batch:
    ops = np.zeros(256, np.int8)
    for letter, op in _OPS.items():
        ops[letter] = op
    used, which = np.unique(rows.transactions, return_inverse=True)
    labels = [f"{transactions.xid[at]}@{lsn_text(int(transactions.commit_lsn[at]))}" for at in used.tolist()]
    columns: dict[str, pa.Array[Any]] = {
        "op": pa.array(ops[rows.ops]),
        "timestamp": pa.array(transactions.committed_us[rows.transactions], pa.int64()).cast(TIMESTAMP),
        "lsn": pa.array(rows.numbers + base),
        "tx": pa.array(labels, pa.string()).take(pa.array(which, pa.int64())),
        "data": data,
    }
    if before is not None:
        columns["before"] = before
    made = pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
    return Batch(namespace, with_key(made, tuple(key)), Mode.SYNC)
