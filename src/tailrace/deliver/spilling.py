"""Spilling: what functions make of a stretch, kept in files until its columns are known.

Spark wants to know the columns of a DataFrame before the first row. A function of the user's own cannot tell them; so
it is applied first, once, and the result waits in files beside the log.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyarrow import ipc

from tailrace.deliver.gathering import gathered
from tailrace.deliver.messages import Messages
from tailrace.deliver.passing import Passing
from tailrace.deliver.task import DeliverItem, read_range
from tailrace.log.batch import key_of, with_key

if TYPE_CHECKING:
    from tailrace.spark.tasks import Receipt
    from tailrace.transform.chain import Chain

SPILL_DIRECTORY: Final = "spill"
"""Beside the segments."""


@dataclass(frozen=True, slots=True)
class SpillRange:
    """Applies functions to ranges of the log; a file per range holds what is left, each batch with its schema."""

    log: str
    directory: str
    chain: Chain
    passing: Passing = field(default_factory=Passing)

    def __call__(self, item: DeliverItem) -> Receipt:
        os.makedirs(self.directory, exist_ok=True)
        path = spill_path(self.directory, item)
        schemas: list[str] = []
        namespace = item.namespaces[0]
        stream = (self.chain.apply(messages) for messages in read_range(self.log, item, self.passing))
        with pa.OSFile(f"{path}.draft", "wb") as file:
            for messages in gathered(stream):
                namespace = messages.namespace
                rows = with_key(messages.rows.replace_schema_metadata(None), messages.key)
                with ipc.new_stream(file, rows.schema) as writer:
                    writer.write_batch(rows)
                text = rows.schema.serialize().to_pybytes().hex()
                if text not in schemas:
                    schemas.append(text)
        os.replace(f"{path}.draft", path)
        return {"namespace": namespace, "schemas": schemas}


def spill_path(directory: str, item: DeliverItem) -> str:
    """Where the result for a range waits."""
    return os.path.join(directory, f"{item.start:020d}-{item.end:020d}.arrows")


def read_spill(directory: str, namespace: str, item: DeliverItem) -> Iterator[Messages]:
    """The messages that a task has spilled."""
    with pa.OSFile(spill_path(directory, item), "rb") as file:
        size = file.size()
        while file.tell() < size:
            with ipc.open_stream(file) as stream:
                for rows in stream:
                    yield Messages(namespace, rows, key_of(rows.schema))


def remove_spill(directory: str) -> None:
    shutil.rmtree(directory, ignore_errors=True)
