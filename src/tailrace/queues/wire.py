"""What sites tell each other about queues."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Final

import pyarrow as pa
from pydantic import Field

from tailrace.errors import TailraceError
from tailrace.limits import MIB
from tailrace.queues.entries import SHIPPED
from tailrace.relay.paper import Paper
from tailrace.relay.refusal import malformed

SHIP_BYTES: Final = 8 * MIB
"""About so much goes at once; a transaction that is larger goes as it is."""
SHIP_BYTES_MAX: Final = 1024 * MIB
_HEAD_BYTES: Final = 4
_HEAD_BYTES_MAX: Final = 4096

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9]([A-Za-z0-9_.-]{0,58}[A-Za-z0-9])?$")]
Position = Annotated[int, Field(ge=-1, lt=1 << 63)]
LogId = Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")]
Request = Annotated[str, Field(pattern=r"^[0-9a-zA-Z.-]{1,80}$")]


class Call(StrEnum):
    """What one site asks of another."""

    NEGOTIATE = "queue_negotiate"
    SHIP = "queue_ship"


class Phase(StrEnum):
    """What is carried."""

    ENTRIES = "entries"
    SNAPSHOT = "snapshot"
    SNAPSHOT_END = "snapshot_end"


class Session(Paper):
    """Of one client from one site to another."""

    client: Name
    source: Name
    sink: Name
    log: LogId
    """The source's log: positions are places in it."""


class Standing(Paper):
    """How far a sink is with a source."""

    log: LogId | None = None
    position: Position = -1
    """All entries before this place are here; -1 when nothing ever came."""
    applied: Request | None = None
    """The last snapshot that is here."""
    staged: Request | None = None
    """The snapshot of which some has come."""
    staged_position: Position = -1
    """And up to where."""
    is_applying: bool = False
    """Whether that is being put in place: it has come whole."""


class Shipment(Paper):
    """Some rows: all that the session has between two places of the source's log."""

    session: Session
    phase: Phase
    previous: Position
    current: Position
    request: Request | None = None
    base: Position = -1
    """Of a snapshot: entries from this place on follow it."""


def pack(shipment: Shipment, rows: pa.RecordBatch | None) -> bytes:
    """A shipment and its rows, as one message."""
    head = shipment.packed()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, SHIPPED, options=pa.ipc.IpcWriteOptions(compression="lz4")) as stream:
        if rows is not None:
            stream.write_batch(rows)
    body = sink.getvalue()
    if _HEAD_BYTES + len(head) + body.size > SHIP_BYTES_MAX:
        what = f"a transaction has {body.size} bytes, about {SHIP_BYTES_MAX} can be sent at once"
        raise TailraceError("queue.too_large", what, hint="send less in one transaction, or let snapshots be sent")
    return len(head).to_bytes(_HEAD_BYTES, "big") + head + body.to_pybytes()


def unpack(raw: bytes) -> tuple[Shipment, pa.RecordBatch]:
    """The inverse of `pack`, for what comes from outside."""
    size = int.from_bytes(raw[:_HEAD_BYTES], "big")
    if not 0 < size <= _HEAD_BYTES_MAX or len(raw) > SHIP_BYTES_MAX:
        raise malformed("a shipment has a head or a body of a length that cannot be")
    shipment = Shipment.read(raw[_HEAD_BYTES : _HEAD_BYTES + size])
    try:
        with pa.ipc.open_stream(pa.py_buffer(raw).slice(_HEAD_BYTES + size)) as stream:
            if stream.schema != SHIPPED:
                raise malformed("a shipment has other columns than it should")
            batches: list[Any] = list(stream)
            for batch in batches:
                batch.validate(full=True)
            table = pa.Table.from_batches(batches, SHIPPED).combine_chunks()
    except (pa.ArrowException, OSError) as error:
        raise malformed(f"a shipment cannot be read: {str(error)[:200]}") from error
    found = table.to_batches()
    if any(column.null_count for column in table.columns):
        raise malformed("a shipment has rows without a value where there must be one")
    rows = found[0] if found else pa.RecordBatch.from_pylist([], schema=SHIPPED)
    ids: Any = rows.column("id").to_numpy()
    if rows.num_rows and (ids[-1] >= shipment.current or ids[0] < 0 or not (ids[1:] > ids[:-1]).all()):
        raise malformed("a shipment has rows that are not in order, or not between its places")
    return shipment, rows
