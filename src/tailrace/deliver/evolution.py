"""Schema change: what a writer was promised about the fields of a namespace, and what happens when they change.

The promise is kept beside the consumer's offsets. `evolve` extends it, `freeze` stops at the first message that breaks
it, `discard` leaves out what is new and counts it. A field that no longer comes is no change: it stays as it was.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.deliver.conforming import plain_text
from tailrace.deliver.messages import Messages
from tailrace.errors import TailraceError
from tailrace.log.documents import is_json, json_field
from tailrace.pipeline.spec import SchemaPolicy


@dataclass(slots=True)
class Evolution:
    """The fields of every namespace as one writer knows them."""

    policy: SchemaPolicy
    known: dict[str, pa.Schema] = field(default_factory=dict)
    news: list[str] = field(default_factory=list)
    """What has changed, for people."""

    def admit(self, messages: Messages) -> Messages:
        """The messages as the writer may have them. Learns from them."""
        incoming = pa.schema(list(messages.data.type))
        first = messages.offsets()[0].as_py()
        kept = self.admit_fields(messages.namespace, incoming, first)
        return messages if kept.equals(incoming, check_metadata=True) else self._cut(messages, kept)

    def admit_fields(self, namespace: str, incoming: pa.Schema, first: int) -> pa.Schema:
        """Which of the fields that come from offset `first` on the writer may have, and of which type."""
        known = self.known.get(namespace)
        if known is None:
            self.known[namespace] = incoming
            return incoming
        added = [entry for entry in incoming if entry.name not in known.names]
        changed = [entry for entry in incoming if entry.name in known.names and _is_other(known, entry)]
        if not added and not changed:
            return incoming
        if self.policy is SchemaPolicy.FREEZE:
            raise _frozen(namespace, first, known, added, changed)
        if self.policy is SchemaPolicy.EVOLVE:
            self._evolve(namespace, known, added, changed)
            return incoming
        for entry in added:
            self._tell(f"{namespace}: field {entry.name} is new and left out")
        return pa.schema([known.field(e.name) if e in changed else e for e in incoming if e not in added])

    def _evolve(
        self, namespace: str, known: pa.Schema, added: list[pa.Field[Any]], changed: list[pa.Field[Any]]
    ) -> None:
        fields = {entry.name: entry for entry in known}
        for entry in added:
            fields[entry.name] = entry
            self._tell(f"{namespace}: new field {entry.name} ({_kind(entry)})")
        for entry in changed:
            before, wide = known.field(entry.name), wider(known.field(entry.name), entry)
            if _kind(wide) != _kind(before):
                self._tell(f"{namespace}: field {entry.name} was {_kind(before)}, is now {_kind(wide)}")
            fields[entry.name] = wide
        self.known[namespace] = pa.schema(list(fields.values()))

    def _cut(self, messages: Messages, kept: pa.Schema) -> Messages:
        """Only the fields that are kept; a value that does not fit its field's type becomes null, and is counted."""
        data = messages.data
        places = {entry.name: at for at, entry in enumerate(data.type)}
        columns: list[pa.Array[Any]] = []
        for entry in kept:
            column = pc.struct_field(data, [places[entry.name]])
            fitted = _fitted(column, data.type.field(places[entry.name]), entry)
            lost = fitted.null_count - column.null_count
            first, last = messages.offsets()[0].as_py(), messages.offsets()[-1].as_py()
            self.tell_discarded(messages.namespace, entry.name, lost, first, last)
            columns.append(fitted)
        mask: Any = data.is_null()
        return messages.with_column("data", pa.StructArray.from_arrays(columns, fields=list(kept), mask=mask))

    def tell_discarded(self, namespace: str, name: str, lost: int, first: int, last: int) -> None:
        """Values of a field did not fit its type."""
        if lost:
            self._tell(f"{namespace}: {lost} values of {name} discarded in offsets {first} to {last}")

    def _tell(self, news: str) -> None:
        if news not in self.news:
            self.news.append(news)


def _is_other(known: pa.Schema, entry: pa.Field[Any]) -> bool:
    """Whether a field has another type; one that has no values yet has none, and JSON holds what any text can."""
    before = known.field(entry.name)
    is_wider = is_json(entry) and not is_json(before)
    return (entry.type != before.type or is_wider) and not pa.types.is_null(entry.type)


def _kind(entry: pa.Field[Any]) -> str:
    """A field's type for people."""
    return "values of several types" if is_json(entry) else str(entry.type)


def _frozen(
    namespace: str, first: int, known: pa.Schema, added: list[pa.Field[Any]], changed: list[pa.Field[Any]]
) -> TailraceError:
    parts = [f"new field {entry.name} ({_kind(entry)})" for entry in added]
    parts += [f"field {entry.name} is {_kind(entry)}, was {_kind(known.field(entry.name))}" for entry in changed]
    return TailraceError(
        "schema.changed",
        f"{namespace} has changed from offset {first} on: {'; '.join(parts)}; the schema is frozen",
        hint="set on_schema_change to evolve or discard, or change the destination; then run again",
    )


def wider(known: pa.Field[Any], incoming: pa.Field[Any]) -> pa.Field[Any]:
    """A field that holds the values of both; text when nothing else does, JSON when one of them is."""
    if is_json(known) or is_json(incoming):
        return json_field(known.name)
    if known.type == incoming.type:
        return known
    try:
        unified = pa.unify_schemas(
            [pa.schema([known.remove_metadata()]), pa.schema([incoming.remove_metadata()])],
            promote_options="permissive",
        )
    except pa.ArrowException:
        return pa.field(known.name, pa.string())
    return unified.field(0)


def encode_schemas(known: dict[str, pa.Schema]) -> dict[str, str]:
    """Schemas as plain JSON."""
    return {name: schema.serialize().to_pybytes().hex() for name, schema in known.items()}


def decode_schemas(told: dict[str, str]) -> dict[str, pa.Schema]:
    """The inverse of `encode_schemas`."""
    return {name: pa.ipc.read_schema(pa.py_buffer(bytes.fromhex(text))) for name, text in told.items()}


def _fitted(column: pa.Array[Any], field: pa.Field[Any], wanted: pa.Field[Any]) -> pa.Array[Any]:
    """A column as a field wants it; what does not fit is null."""
    if is_json(field) and not is_json(wanted) and pa.types.is_string(wanted.type):
        return plain_text(column)
    return column if column.type == wanted.type else _cast(column, wanted.type)


def _cast(column: pa.Array[Any], wanted: pa.DataType) -> pa.Array[Any]:
    try:
        return column.cast(wanted)
    except pa.ArrowException:
        return _cast_each(column, wanted)


def _cast_each(column: pa.Array[Any], wanted: pa.DataType) -> pa.Array[Any]:
    values: list[Any] = []
    for value in column:
        try:
            values.append(value.cast(wanted).as_py())
        except pa.ArrowException:
            values.append(None)
    return pa.array(values, wanted)
