"""A source that says and sends what it likes, over real Arrow Flight."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Self

import pyarrow as pa
import pyarrow.flight as fl

from tailrace.log.batch import Batch, batches_of, decode_body, encode_frame
from tailrace.log.frame import Codec, place_head
from tailrace.message import Lsn, Message, NodeId, Op, now
from tailrace.relay.flight import Call, _nothing, told
from tailrace.relay.outgoing import Frame
from tailrace.relay.request import Ballot, Heartbeat, Joined, Registered, Subscribed
from tailrace.relay.vclock import Vclock
from tailrace.relay.wire import SCHEMA

ID = NodeId(666)


class HostileSource(fl.FlightServerBase):
    """`rows` gives what is sent behind a proper answer to SUBSCRIBE; `chunk` what is sent of a JOIN."""

    def __init__(
        self,
        cluster: str,
        rows: Callable[[], Iterable[Any]] = tuple,
        *,
        ballot: dict[str, Any] | None = None,
        joined: Joined | None = None,
        chunk: Callable[[], Iterable[Any]] = tuple,
        final: Callable[[], Iterable[Any]] = tuple,
        vclock: Vclock | None = None,
    ) -> None:
        super().__init__("grpc://127.0.0.1:0")
        self._cluster = cluster
        self._rows = rows
        self._ballot = ballot or {}
        self._joined = joined or Joined(session="0" * 16, vclock=Vclock(), chunks=1)
        self._chunk = chunk
        self._final = final
        self._vclock = vclock or Vclock()
        self.is_over = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.is_over = True
        self.shutdown()

    @property
    def where(self) -> str:
        return f"grpc://127.0.0.1:{self.port}"

    def do_action(self, context: fl.ServerCallContext, action: fl.Action) -> Iterator[bytes]:
        match action.type:
            case Call.VOTE:
                said = {"node": ID, "cluster": self._cluster, "vclock": self._vclock, **self._ballot}
                yield Ballot(**said).packed()
            case Call.JOIN:
                yield self._joined.packed()
            case Call.FINISH:
                yield Registered(vclock=self._joined.vclock).packed()

    def do_get(self, context: fl.ServerCallContext, ticket: fl.Ticket) -> fl.FlightDataStream:
        return fl.GeneratorStream(SCHEMA, self._sent(ticket.ticket))

    def _sent(self, ticket: bytes) -> Iterator[Any]:
        with told():
            if b'"session"' in ticket:
                yield from self._final() if b'"final"' in ticket else self._chunk()
                return
            answer = Subscribed(node=ID, cluster=self._cluster, vclock=self._vclock, session="0" * 16, heartbeat_s=0.02)
            yield _nothing(), pa.py_buffer(answer.packed())
            yield from self._rows()
            while not self.is_over:
                yield _nothing(), pa.py_buffer(Heartbeat(vclock=self._vclock).packed())
                time.sleep(0.02)


def frame(*numbers: int, origin: NodeId = ID, namespace: str = "main.t") -> Frame:
    rows = [Message(Op.INSERT, now(), namespace, {"id": n, "word": "?"}, lsn=Lsn(n), origin=origin) for n in numbers]
    (batch,) = batches_of(rows)
    return encode_frame(batch, Codec.NONE)


def inflated(*columns: pa.Array[Any], codec: Codec = Codec.ZSTD) -> Frame:
    """A frame of one message, small on its way, whose row has these columns."""
    rows = frame_rows(1)
    names = [f"c{number}" for number in range(len(columns))]
    data = pa.StructArray.from_arrays(list(columns), names)
    made = rows.set_column(rows.schema.get_field_index("data"), "data", data)
    return encode_frame(Batch("main.t", made, origin=ID), codec)


def frame_rows(*numbers: int) -> pa.RecordBatch:
    return decode_body(frame(*numbers)[1])


def raw(made: Frame, *, closes: bool = True) -> bytes:
    head, body = made
    _, encoded = place_head(head, offset=head.offset, closes_group=closes)
    return encoded + bytes(body)


def sent(*frames: bytes) -> pa.RecordBatch:
    return pa.record_batch([pa.array(frames, pa.binary())], schema=SCHEMA)
