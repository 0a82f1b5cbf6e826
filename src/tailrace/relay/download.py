"""Rows of a join on their way into files. A source that sends without end, or nothing any more, is given up (I10)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final

import pyarrow as pa
import pyarrow.flight as fl
from pyarrow import ipc

from tailrace.errors import TailraceError
from tailrace.limits import GIB
from tailrace.log.disk import disk_errors
from tailrace.relay import flight
from tailrace.relay.watchdog import Watchdog
from tailrace.relay.wire import SCHEMA, check_batch

CHUNKS_MAX: Final = 1_000_000
"""So many a join may have."""
CHUNK_BYTES_MAX: Final = 64 * GIB
"""One chunk. A table is served in many."""
SILENCE_S: Final = 120.0
"""A source that sends no row for so long is given up."""


def download(
    client: fl.FlightClient, ticket: bytes, token: str, path: str, *, bytes_max: int, silence_s: float
) -> None:
    """Put the rows that a ticket is for into a file, which is there when it is whole."""
    draft = f"{path}.part"
    with disk_errors("keeping what a source sends", draft):
        with open(draft, "wb") as file, ipc.new_stream(file, SCHEMA) as stream:
            for batch in _received(client, ticket, token, silence_s):
                stream.write_batch(batch)
                if file.tell() > bytes_max:
                    raise endless(f"a chunk has more than {bytes_max} bytes")
        os.replace(draft, path)


def stored(path: str) -> Iterator[pa.RecordBatch]:
    """What was downloaded."""
    with pa.memory_map(path) as file, ipc.open_stream(file) as stream:
        yield from stream


def endless(why: str) -> TailraceError:
    what = f"the source sends more than a join can have: {why}"
    return TailraceError("relay.endless_join", what, hint="join through another source")


def _received(client: fl.FlightClient, ticket: bytes, token: str, silence_s: float) -> Iterator[pa.RecordBatch]:
    with flight.our_errors():
        reader = client.do_get(fl.Ticket(ticket), flight.options(token))
        empty = 0
        with Watchdog(reader.cancel, silence_s) as watchdog:
            try:
                for chunk in reader:
                    if chunk.data is None or not len(chunk.data):
                        empty += 1
                        continue
                    watchdog.pet()
                    empty = 0
                    yield check_batch(chunk.data)
            except (fl.FlightError, pa.ArrowException) as error:
                if watchdog.has_bitten and empty:
                    raise endless(f"{empty} batches without a row came in {silence_s:g} s") from error
                raise
            finally:
                reader.cancel()
