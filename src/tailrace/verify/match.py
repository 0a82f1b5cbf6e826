"""A match: one namespace of the source and what one writer has made of it, ready to be compared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from tailrace.deliver.evolution import decode_schemas
from tailrace.deliver.promise import PromiseFile
from tailrace.log.documents import JSON, TYPE_METADATA
from tailrace.pipeline.spec import SchemaPolicy
from tailrace.spark.types import arrow_schema
from tailrace.transform.chain import Chain
from tailrace.transform.remap import Remap
from tailrace.verify.comparison import Comparison
from tailrace.verify.contract import Keeps, ReadBack, Stored
from tailrace.verify.differences import Differences
from tailrace.verify.digest import Digest
from tailrace.verify.sides import (
    ExpectedFrame,
    ExpectedRows,
    Side,
    SourcePieces,
    StoredRows,
    frame_after,
    numbers_frame,
    stored_rows,
    without_rows,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tailrace.adaptor.options import ReaderOptions
    from tailrace.pipeline.spec import WriteSpec
    from tailrace.source.contract import Table

LOOSE = {
    Keeps.TEXT: (Keeps.NUMBER, Keeps.ANYTHING),
    Keeps.NUMBER: (Keeps.TEXT, Keeps.ANYTHING),
    Keeps.ANYTHING: (),
}
"""By what a column keeps, what comes that it converts."""


@dataclass(frozen=True, slots=True)
class Match:
    """Everything is looked up anew by each method, so that what has changed meanwhile counts."""

    log: str
    source: ReaderOptions
    table: Table
    write: WriteSpec
    back: ReadBack

    @property
    def namespace(self) -> str:
        """What the destination calls it."""
        namespace = self.table.namespace
        for function in self.write.through:
            if isinstance(function, Remap) and function.applies_to(namespace):
                namespace = function.namespaces.get(namespace, namespace)
        return namespace

    def differences(self, session: SparkSession) -> Differences:
        """In what both differ now."""
        chain = Chain(self.write.through)
        leading, rest = chain.split()
        source = self.source_pieces(leading)
        empty = leading.apply(without_rows(self.table))
        if rest:
            typed = frame_after(session, source, empty, rest)
            data = arrow_schema(typed.frame.schema).field("data").type
            known = stored_rows(pa.array([], data), self.back).schema
            expected = Side(typed.frame, ExpectedFrame(self.back))
            namespace, key = typed.namespace, typed.key
        else:
            known = stored_rows(empty.data, self.back).schema
            expected = Side(numbers_frame(session, len(source.pieces)), ExpectedRows(source, self.back))
            namespace, key = empty.namespace, empty.key
        stored = self.back.find(namespace, key) or Stored({}, key)
        digest = self.digest(namespace, known, stored, chain)
        rows = StoredRows(self.back, stored.pieces, digest.fields)
        label = f"verify {namespace} of {self.write.name}"
        return Comparison(label, expected, Side(numbers_frame(session, len(stored.pieces)), rows), digest).differences()

    def source_pieces(self, chain: Chain) -> SourcePieces:
        reader = self.source.open()
        try:
            return SourcePieces(self.source, self.table.namespace, tuple(reader.plan_copy(self.table)), chain)
        finally:
            reader.close()

    def digest(self, namespace: str, known: pa.Schema, stored: Stored, chain: Chain) -> Digest:
        """What is compared: the fields that come, or, where nobody knows them before, those that the writer had."""
        fields = tuple(known.names)
        if not chain.knows_columns or self.write.on_schema_change is SchemaPolicy.DISCARD:
            promised = decode_schemas(PromiseFile(self.log, self.write.name).read().schemas)
            had = promised.get(namespace)
            fields = tuple(stored.fields) if had is None else tuple(had.names)
        key = stored.key if set(stored.key) <= set(fields) else ()
        kept = {name.lower(): keeps for name, keeps in stored.fields.items()}
        loose = frozenset(
            name for name in fields if _comes(known, name) in LOOSE[kept.get(name.lower(), Keeps.ANYTHING)]
        )
        return Digest(fields, key, loose)


def tables_of(options: ReaderOptions) -> Mapping[str, Table]:
    """The namespaces of a source."""
    reader = options.open()
    try:
        return {table.namespace: table for table in sorted(reader.tables(), key=lambda table: table.namespace)}
    finally:
        reader.close()


def _comes(known: pa.Schema, name: str) -> Keeps | None:
    """What class of values a field has; None for those that no column converts."""
    if name not in known.names:
        return Keeps.ANYTHING
    field, types = known.field(name), pa.types
    if (field.metadata or {}).get(TYPE_METADATA) == JSON:
        return Keeps.ANYTHING
    if types.is_string(field.type) or types.is_large_string(field.type):
        return Keeps.TEXT
    is_number = types.is_integer(field.type) or types.is_floating(field.type) or types.is_boolean(field.type)
    return Keeps.NUMBER if is_number or types.is_decimal(field.type) else None
