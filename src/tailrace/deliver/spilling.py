"""Spilling: what functions make of a stretch, kept in files beside the log until it is written.

Spark wants to know the columns of a DataFrame before the first row, and a function of the user's own cannot tell them.
And such a function may take long, where the destination wants one task to write everything. So it is applied first, in
as many tasks as there are cores.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyarrow import ipc

from tailrace.deliver.gathering import gathered
from tailrace.deliver.messages import Messages
from tailrace.deliver.task import ApplyRange, DeliverItem
from tailrace.log.batch import key_of, with_key
from tailrace.message import Mode, NodeId

if TYPE_CHECKING:
    from tailrace.spark.tasks import Receipt

SPILL_DIRECTORY: Final = "spill"
"""Beside the segments."""
NAMESPACE: Final = b"tailrace.namespace"
MODE: Final = b"tailrace.mode"
ORIGIN: Final = b"tailrace.origin"


@dataclass(frozen=True, slots=True)
class SpillRange:
    """Applies functions to ranges of the log; a file per range holds what is left, each batch with its schema."""

    directory: str
    read: ApplyRange

    def __call__(self, item: DeliverItem) -> Receipt:
        os.makedirs(self.directory, exist_ok=True)
        path = spill_path(self.directory, item)
        schemas: list[str] = []
        namespace = item.namespaces[0]
        with pa.OSFile(f"{path}.draft", "wb") as file:
            for messages in gathered(self.read(item)):
                namespace = messages.namespace
                rows = described(messages)
                with ipc.new_stream(file, rows.schema) as writer:
                    writer.write_batch(rows)
                text = rows.schema.serialize().to_pybytes().hex()
                if text not in schemas:
                    schemas.append(text)
        os.replace(f"{path}.draft", path)
        return {"namespace": namespace, "schemas": schemas}


def spill_directory(log: str, writer: str) -> str:
    """Where the spills of a writer are."""
    return os.path.join(log, SPILL_DIRECTORY, writer)


def spill_path(directory: str, item: DeliverItem) -> str:
    """Where the result for a range waits."""
    return os.path.join(directory, f"{item.start:020d}-{item.end:020d}.arrows")


@dataclass(frozen=True, slots=True)
class ReadSpill:
    """Reads what functions have made of ranges before."""

    directory: str
    ranges: tuple[DeliverItem, ...] = ()
    """The ranges whose results make up the range that is asked for, in order; none when it is one itself."""

    def __call__(self, item: DeliverItem) -> Iterator[Messages]:
        for part in self.ranges or (item,):
            with pa.OSFile(spill_path(self.directory, part), "rb") as file:
                size = file.size()
                while file.tell() < size:
                    with ipc.open_stream(file) as stream:
                        yield from map(restored, stream)


def described(messages: Messages) -> pa.RecordBatch:
    """The rows, which tell whose they are."""
    about = {NAMESPACE: messages.namespace.encode(), MODE: b"%d" % messages.mode, ORIGIN: b"%d" % messages.origin}
    return with_key(messages.rows.replace_schema_metadata(about), messages.key)


def restored(rows: pa.RecordBatch) -> Messages:
    """The inverse of `described`."""
    about = rows.schema.metadata or {}
    mode, origin = Mode(int(about[MODE])), NodeId(int(about[ORIGIN]))
    return Messages(about[NAMESPACE].decode(), rows, key_of(rows.schema), mode, origin)


def remove_spill(directory: str) -> None:
    shutil.rmtree(directory, ignore_errors=True)
