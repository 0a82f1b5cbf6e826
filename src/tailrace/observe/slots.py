"""What a replication slot keeps at its source, asked seldom, by a thread of its own: whoever looks does not wait."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from tailrace.errors import TailraceError

if TYPE_CHECKING:
    from tailrace.pipeline.spec import PipelineSpec

EVERY_S: Final = 30.0


class SlotGauge:
    """The bytes as they were when last asked; None before the first answer, and while there is none."""

    def __init__(self, ask: Callable[[], int | None]) -> None:
        self._ask = ask
        self._asked_s = -EVERY_S
        self._bytes: int | None = None
        self._lock = threading.Lock()

    def read(self) -> int | None:
        """What is known. If that is old, somebody is sent to ask."""
        with self._lock:
            if time.monotonic() - self._asked_s >= EVERY_S:
                self._asked_s = time.monotonic()
                threading.Thread(target=self._work, name="tailrace-slot", daemon=True).start()
            return self._bytes

    def _work(self) -> None:
        try:
            found = self._ask()
        except TailraceError:  # the reader tells what is wrong with its source
            found = None
        with self._lock:
            self._bytes = found


def slot_gauge(spec: PipelineSpec) -> SlotGauge | None:
    """Of the pipeline's source; None where there are no slots."""
    if spec.read.adaptor != "postgres":
        return None
    from tailrace.adaptor.postgres.options import ChangesBy, PostgresReaderOptions
    from tailrace.adaptor.postgres.slot import Slot

    options = spec.read.options
    if not isinstance(options, PostgresReaderOptions) or options.changes is not ChangesBy.SLOT:
        return None
    slot = Slot(options.server(), options.slot_name)

    def ask() -> int | None:
        with slot.server.session() as connection:
            state = slot.state(connection)
        return None if state is None else state.held_bytes

    return SlotGauge(ask)
