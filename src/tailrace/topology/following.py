"""Following: one connection of a copy to a source, from the question what it has to the last byte that comes."""

from __future__ import annotations

import struct
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.flight as fl

from tailrace.ahead import one_ahead
from tailrace.errors import TailraceError
from tailrace.limits import MIB
from tailrace.log.identity import identity_of
from tailrace.log.standing import standing_of
from tailrace.message import Offset
from tailrace.relay.applier import Source
from tailrace.relay.flight import ask, options, our_errors
from tailrace.relay.heartbeat import SILENCE
from tailrace.relay.paper import Paper
from tailrace.relay.watchdog import Watchdog
from tailrace.topology.copied import CopiedLog, Spot
from tailrace.topology.framing import Framing
from tailrace.topology.matching import Meeting, Rollback, meet
from tailrace.topology.pace import PIECE_BYTES_FIRST
from tailrace.topology.request import Call, Extent, Keep, Leave, Matched, Piece, Pull
from tailrace.topology.serving import ticket_of

CONNECT_S: Final = 10.0
_GOODBYE_S: Final = 1.0
_SYNC_BYTES: Final = 16 * MIB
"""While much comes it is synced so often, beside what comes meanwhile."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """How far a copy is after something came."""

    next_offset: Offset
    """Of the copy, durably."""
    source_offset: Offset
    behind_bytes: int
    came_bytes: int
    age_s: float
    """How long ago the log itself was heard of, at the top."""


class Following:
    """`with Following(source, name) as following`: one client, used by one thread."""

    def __init__(self, source: Source, name: str, *, beat_s: float) -> None:
        self.source = source
        self._name = name
        self._silence_s = SILENCE * beat_s
        self._client: fl.FlightClient = source.client()

    def __enter__(self) -> Following:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def extent(self) -> Extent:
        """What the source has."""
        return Extent.read(self._ask(Call.EXTENT, Paper()))

    def meet(self, log: CopiedLog, extent: Extent, allowed: Rollback) -> Meeting | None:
        """Where the copy goes on; None when the source does not have that any more."""
        if extent.log != identity_of(log.directory):
            what = "the copy is of another log than the source's"
            raise TailraceError("topology.other_log", what, hint="copy this one into a directory of its own")
        mine = standing_of(log.directory).generation
        if extent.generation < mine:
            what = f"the source is of generation {extent.generation}, this copy has seen generation {mine}"
            hint = "follow the log that was promoted; the source is to become a copy of it"
            raise TailraceError("topology.older", what, hint=hint)
        return meet(log, extent, lambda asked: Matched.read(self._ask(Call.MATCH, asked)), allowed)

    def leave(self) -> None:
        """The source need not wait to hear of this copy; it still keeps its log for it."""
        with suppress(TailraceError):
            ask(self._client, Call.LEAVE, Leave(name=self._name), self.source.token, _GOODBYE_S)

    def keep(self, offset: Offset) -> None:
        """The source keeps its log from here on."""
        ask(self._client, Call.KEEP, Keep(name=self._name, offset=offset), self.source.token, CONNECT_S)

    def pull(self, log: CopiedLog, extent: Extent, *, waits: bool, is_over: Callable[[], bool]) -> Iterator[Arrival]:
        """Write what comes into the copy; says each time how far it is."""
        log.forget_rest()
        framing = Framing(log.spot, log.next_offset)
        unsynced = 0
        for piece, raw in self._pieces(log.spot, extent, waits=waits):
            if raw:
                log.copy(Offset(piece.base), framing.frames(Spot(Offset(piece.base), piece.position), raw))
                unsynced += len(raw)
            if not piece.behind_bytes:
                log.sync()
                unsynced = 0
            elif unsynced >= _SYNC_BYTES:
                log.sync_soon()
                unsynced = 0
            yield Arrival(log.durable_offset, Offset(piece.next_offset), piece.behind_bytes, len(raw), piece.age_s)
            if is_over():
                return

    def _pieces(self, spot: Spot, extent: Extent, *, waits: bool) -> Iterator[tuple[Piece, bytes]]:
        wish = Pull(
            name=self._name,
            log=extent.log,
            edition=extent.edition,
            base=spot.base,
            position=spot.position,
            waits=waits,
        )
        with our_errors():
            reader = self._client.do_get(fl.Ticket(ticket_of(wish)), options(self.source.token))
            with Watchdog(reader.cancel, self._silence_s) as watchdog:
                pieces = _read(reader, watchdog)
                if _is_far(spot, extent):
                    pieces = one_ahead(pieces)
                try:
                    for each in pieces:  # noqa: UP028  closing this must not close them before the reader
                        yield each
                finally:
                    reader.cancel()  # before who reads ahead is waited for
                    pieces.close()

    def _ask(self, call: Call, paper: Paper) -> bytes:
        (answer,) = ask(self._client, call, paper, self.source.token, CONNECT_S)
        return answer


def _read(reader: Any, watchdog: Watchdog) -> Generator[tuple[Piece, Any]]:
    for chunk in reader:
        watchdog.pet()
        if chunk.app_metadata is not None:
            watchdog.rest()  # who is busy with what came cannot hear
            yield Piece.read(chunk.app_metadata.to_pybytes()), _bytes_of(chunk.data)
            watchdog.pet()


def _is_far(spot: Spot, extent: Extent) -> bool:
    """Whether so much is missing that it pays to receive a piece while another one is written."""
    return extent.base > spot.base or extent.position - spot.position > PIECE_BYTES_FIRST


def _bytes_of(batch: Any) -> Any:
    if batch is None or not len(batch):
        return b""
    batch.validate(full=True)
    column: pa.BinaryArray = batch.column(0)
    _, ends, data = column.buffers()  # a scalar would be a copy
    if ends is None or data is None:
        return b""
    first, end = struct.unpack_from("=ii", ends, 4 * column.offset)
    return memoryview(data)[first:end]
