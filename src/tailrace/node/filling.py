"""Filling a store with the rows of a snapshot, and with the versions that came beside them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from tailrace.deliver.messages import Messages
from tailrace.log.batch import Batch, key_of
from tailrace.node.contract import NodeWriter, VersionRow
from tailrace.node.merging import LATEST, LIMBO, put
from tailrace.relay.limbo import Limbo, encode_limbo
from tailrace.relay.names import VERSIONS
from tailrace.source.rows import inserted

_VERSION_FIELDS: Final = ("namespace", "key", "at", "origin", "lsn")


@dataclass(frozen=True, slots=True)
class Filled:
    """What was written."""

    count: int
    latest_us: int
    """The latest time of all messages that wrote the rows."""


def fill(
    writer: NodeWriter, batches: Iterable[Batch], wants: Callable[[str], bool], limbo: Limbo | None, known_us: int
) -> Filled:
    """Write the rows of the tables that are wanted; `known_us` is the latest time that the store knows of."""
    count = 0
    latest_us = known_us
    for batch in batches:
        if batch.namespace == VERSIONS:
            rows = list(_version_rows(batch))
            writer.put_versions(rows)
            latest_us = max([latest_us, *(at_us for _, _, at_us, _, _ in rows)])
        elif wants(batch.namespace):
            count += put(writer, as_messages(batch, count))
    writer.remember(LATEST, str(latest_us))
    writer.remember(LIMBO, encode_limbo(limbo or Limbo()))
    return Filled(count, latest_us)


def as_messages(batch: Batch, first: int) -> Messages:
    """Rows as messages with offsets that count from `first`."""
    offsets = pa.array(range(first, first + len(batch)), pa.int64())
    return Messages(batch.namespace, batch.rows.append_column("offset", offsets), key_of(batch.rows.schema), batch.mode)


def version_batch(rows: list[VersionRow]) -> Batch:
    """Versions as they travel."""
    columns = [pa.array(column) for column in zip(*rows, strict=True)]
    return inserted(VERSIONS, pa.StructArray.from_arrays(columns, list(_VERSION_FIELDS)), ())


def _version_rows(batch: Batch) -> Iterator[VersionRow]:
    data: Any = batch.rows.column("data")
    columns = [data.field(name).to_pylist() for name in _VERSION_FIELDS]
    return zip(*columns, strict=True)
