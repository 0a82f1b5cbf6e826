"""What a replication slot keeps at its source."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tailrace.gauge import Gauge

if TYPE_CHECKING:
    from tailrace.pipeline.spec import PipelineSpec

EVERY_S: Final = 30.0


def slot_gauge(spec: PipelineSpec) -> Gauge[int] | None:
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

    return Gauge(ask, EVERY_S)
