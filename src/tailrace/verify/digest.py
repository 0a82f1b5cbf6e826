"""Digests of rows: a hash of their key and a hash of everything that is compared."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from tailrace.log.documents import JSON, TYPE_METADATA
from tailrace.verify.hashing import hash_column, hash_values
from tailrace.verify.plain import plain_json
from tailrace.verify.spans import Hashes, mix

BUCKETS: Final = 1024
"""Rows are counted and summed up in so many groups of keys."""


@dataclass(frozen=True, slots=True)
class Digested:
    """The hashes of some rows."""

    keys: Hashes
    rows: Hashes

    @property
    def buckets(self) -> Hashes:
        return self.keys % np.uint64(BUCKETS)


@dataclass(frozen=True, slots=True)
class Digest:
    """What of a row is compared, and how. Order and absence of fields do not matter: what is not there is null."""

    fields: tuple[str, ...]
    key: tuple[str, ...]
    """None: the whole row is its key."""
    loose: frozenset[str] = frozenset()
    """Fields in which text of a number is a number, for the destination converts one to the other."""

    def of(self, rows: pa.RecordBatch) -> Digested:
        hashes = {name: self._hash(rows, name) for name in self.fields if name in rows.schema.names}
        everything = _together(hashes, rows.num_rows)
        if not self.key:
            return Digested(everything, everything)
        return Digested(_together({name: hashes[name] for name in self.key if name in hashes}, len(rows)), everything)

    def key_texts(self, rows: pa.RecordBatch) -> list[str]:
        """The keys of rows as JSON, for people and for messages about them: the parts in a list, or the whole row."""
        names = [name for name in (self.key or self.fields) if name in rows.schema.names]
        columns: list[list[Any]] = [rows.column(name).to_pylist() for name in names]
        if self.key:
            return [plain_json(list(parts)) for parts in zip(*columns, strict=True)]
        return [plain_json(dict(zip(names, parts, strict=True))) for parts in zip(*columns, strict=True)]

    def _hash(self, rows: pa.RecordBatch, name: str) -> Hashes:
        is_json = (rows.schema.field(name).metadata or {}).get(TYPE_METADATA) == JSON
        return hash_column(rows.column(name), is_json=is_json, is_loose=name in self.loose)


def _together(hashes: dict[str, Hashes], count: int) -> Hashes:
    """One hash for the fields of each row. A null adds nothing, so it is the same as a field that is not there."""
    total = np.zeros(count, np.uint64)
    for name, column in hashes.items():
        total += np.where(column == 0, np.uint64(0), mix(column ^ hash_values([name])[0]))
    return mix(total)
