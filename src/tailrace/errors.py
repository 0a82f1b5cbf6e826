"""What can go wrong: every error has a stable code, says what failed and where, and names the next command."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import partial
from typing import Any, Final

from tailrace.masking import masked


class Exit(IntEnum):
    """What a failed command returns to the shell."""

    RUNTIME = 1
    INPUT = 2
    ENVIRONMENT = 3


CODES: Final[dict[str, Exit]] = {
    "log.not_found": Exit.INPUT,
    "log.locked": Exit.RUNTIME,
    "log.is_copy": Exit.RUNTIME,
    "log.closed": Exit.RUNTIME,
    "log.failed": Exit.RUNTIME,
    "log.fsync_failed": Exit.ENVIRONMENT,
    "log.disk_full": Exit.ENVIRONMENT,
    "log.read_only": Exit.ENVIRONMENT,
    "log.io": Exit.ENVIRONMENT,
    "log.corrupt": Exit.RUNTIME,
    "log.version_unknown": Exit.RUNTIME,
    "log.codec_unknown": Exit.RUNTIME,
    "log.op_unknown": Exit.RUNTIME,
    "log.mode_unknown": Exit.RUNTIME,
    "log.frame_too_long": Exit.RUNTIME,
    "log.below_oldest": Exit.INPUT,
    "log.past_end": Exit.INPUT,
    "log.compacted": Exit.INPUT,
    "log.bad_range": Exit.INPUT,
    "log.staging_missing": Exit.RUNTIME,
    "log.staging_mismatch": Exit.RUNTIME,
    "log.busy": Exit.RUNTIME,
    "name.invalid": Exit.INPUT,
    "message.invalid": Exit.INPUT,
    "consumer.unknown": Exit.INPUT,
    "consumer.exists": Exit.INPUT,
    "consumer.locked": Exit.RUNTIME,
    "consumer.invalidated": Exit.RUNTIME,
    "offset.outside_log": Exit.INPUT,
    "offset.direction": Exit.INPUT,
    "input.invalid": Exit.INPUT,
    "output.refused": Exit.RUNTIME,
    "config.invalid": Exit.INPUT,
    "source.unreachable": Exit.ENVIRONMENT,
    "source.no_rights": Exit.INPUT,
    "source.unsupported": Exit.INPUT,
    "source.malformed": Exit.INPUT,
    "source.position_lost": Exit.RUNTIME,
    "destination.unreachable": Exit.ENVIRONMENT,
    "destination.refused": Exit.RUNTIME,
    "function.failed": Exit.RUNTIME,
    "schema.changed": Exit.RUNTIME,
    "pipeline.stopped": Exit.RUNTIME,
    "spark.unavailable": Exit.ENVIRONMENT,
    "spark.failed": Exit.RUNTIME,
    "verify.differs": Exit.RUNTIME,
    "topology.mismatch": Exit.RUNTIME,
    "topology.damaged": Exit.RUNTIME,
    "topology.not_a_copy": Exit.INPUT,
    "topology.other_log": Exit.INPUT,
    "topology.full": Exit.RUNTIME,
    "topology.older": Exit.RUNTIME,
    "topology.rollback": Exit.RUNTIME,
    "topology.gone": Exit.RUNTIME,
    "topology.nothing_yet": Exit.RUNTIME,
    "topology.diverged": Exit.RUNTIME,
    "topology.handshake": Exit.RUNTIME,
    "topology.store": Exit.RUNTIME,
    "queue.no_destination": Exit.INPUT,
    "queue.unknown_destination": Exit.INPUT,
    "queue.payload": Exit.INPUT,
    "queue.full": Exit.RUNTIME,
    "queue.gap": Exit.RUNTIME,
    "queue.other_log": Exit.RUNTIME,
    "queue.other_site": Exit.INPUT,
    "queue.ahead": Exit.RUNTIME,
    "queue.too_large": Exit.RUNTIME,
    "queue.outbox_taken": Exit.INPUT,
    "queue.too_many": Exit.RUNTIME,
    "queue.no_outbox": Exit.INPUT,
    "queue.malformed": Exit.INPUT,
    "queue.claim_lost": Exit.RUNTIME,
    "queue.failed": Exit.RUNTIME,
    "relay.malformed": Exit.RUNTIME,
    "relay.gap": Exit.RUNTIME,
    "relay.ahead": Exit.RUNTIME,
    "relay.unsent": Exit.RUNTIME,
    "relay.no_log": Exit.INPUT,
    "relay.bad_group": Exit.RUNTIME,
    "relay.interleaved": Exit.RUNTIME,
    "relay.endless_join": Exit.RUNTIME,
    "relay.inside_transaction": Exit.RUNTIME,
    "relay.bad_ack": Exit.RUNTIME,
    "relay.wrong_cluster": Exit.INPUT,
    "relay.self": Exit.INPUT,
    "relay.unknown_replica": Exit.INPUT,
    "relay.duplicate": Exit.RUNTIME,
    "relay.join_lost": Exit.RUNTIME,
    "relay.no_snapshot": Exit.RUNTIME,
    "relay.not_empty": Exit.INPUT,
    "relay.failed": Exit.RUNTIME,
    "relay.conflict": Exit.RUNTIME,
    "relay.not_leader": Exit.INPUT,
    "relay.fenced": Exit.RUNTIME,
    "relay.no_quorum": Exit.RUNTIME,
    "relay.rolled_back": Exit.RUNTIME,
    "relay.undecided": Exit.RUNTIME,
    "relay.anonymous": Exit.INPUT,
    "relay.read_only": Exit.INPUT,
    "relay.loading": Exit.RUNTIME,
    "relay.busy": Exit.RUNTIME,
    "relay.no_rights": Exit.INPUT,
    "relay.unreachable": Exit.ENVIRONMENT,
    "topology.refused": Exit.RUNTIME,
    "topology.unknown_node": Exit.INPUT,
    "topology.cycle": Exit.INPUT,
    "topology.unknown_tunable": Exit.INPUT,
    "topology.registry_taken": Exit.RUNTIME,
    "topology.registry_failed": Exit.ENVIRONMENT,
    "queue.parked_failed": Exit.ENVIRONMENT,
    "sync.unreachable": Exit.ENVIRONMENT,
    "sync.not_installed": Exit.INPUT,
    "sync.malformed": Exit.INPUT,
    "sync.hook_failed": Exit.RUNTIME,
    "sync.unknown_table": Exit.INPUT,
    "sync.bad_node": Exit.INPUT,
    "sync.no_rights": Exit.INPUT,
    "sync.not_admitted": Exit.INPUT,
    "sync.unknown_route": Exit.INPUT,
    "sync.too_large": Exit.INPUT,
    "sync.slow": Exit.RUNTIME,
    "sync.media_type": Exit.INPUT,
    "sync.busy": Exit.RUNTIME,
    "sync.failed": Exit.RUNTIME,
    "sync.clock": Exit.ENVIRONMENT,
    "sync.left": Exit.RUNTIME,
    "sync.bad_answer": Exit.RUNTIME,
    "web.bad_host": Exit.INPUT,
    "web.bad_origin": Exit.INPUT,
    "web.no_token": Exit.INPUT,
    "web.too_large": Exit.INPUT,
    "web.too_many_tries": Exit.INPUT,
    "web.slow": Exit.RUNTIME,
    "web.busy": Exit.RUNTIME,
    "web.failed": Exit.RUNTIME,
    "web.not_started": Exit.ENVIRONMENT,
}
"""Every code that exists, with the exit status of a command that ends with it."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where in the log something is wrong."""

    file: str
    byte: int | None = None
    offset: int | None = None

    def __str__(self) -> str:
        parts = [self.file]
        if self.byte is not None:
            parts.append(f"byte {self.byte}")
        if self.offset is not None:
            parts.append(f"offset {self.offset}")
        return ", ".join(parts)


class TailraceError(Exception):
    """An error with a code, what failed, where, and what to type next; never with a secret."""

    def __init__(self, code: str, what: str, *, place: Place | None = None, hint: str = "") -> None:
        what, hint = masked(what), masked(hint)
        super().__init__(code, what, place, hint)
        self.exit_status = CODES[code]
        self.code = code
        self.what = what
        self.place = place
        self.hint = hint

    def __reduce__(self) -> tuple[object, ...]:
        """Errors travel between processes."""
        return partial(type(self), self.code, self.what, place=self.place, hint=self.hint), ()

    def encode(self) -> dict[str, Any]:
        """The error as plain JSON."""
        place = self.place
        return {
            "code": self.code,
            "what": self.what,
            "place": [place.file, place.byte, place.offset] if place else None,
            "hint": self.hint,
        }

    @classmethod
    def decode(cls, told: Mapping[str, Any]) -> TailraceError:
        """The inverse of `encode`."""
        place = Place(*told["place"]) if told["place"] else None
        return cls(told["code"], told["what"], place=place, hint=told["hint"])

    def __str__(self) -> str:
        where = f" ({self.place})" if self.place else ""
        hint = f". Next: {self.hint}" if self.hint else ""
        return f"{self.code}: {self.what}{where}{hint}"
