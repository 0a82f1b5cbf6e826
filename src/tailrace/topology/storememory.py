"""What a replica's store remembers about itself, in the database, so that it is true of the rows beside it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from tailrace.errors import TailraceError
from tailrace.message import Offset
from tailrace.relay.vclock import Vclock, decode_vclock

if TYPE_CHECKING:
    from tailrace.node.contract import NodeWriter

_NAME: Final = "replica"
_REACHED: Final = "replica_reached"


@dataclass(frozen=True, slots=True)
class StoreMemory:
    """Which log a store follows, and what it has of it."""

    log: str
    """The log's identity."""
    owner: str
    """The number of the replica: what is put aside is in its data directory."""
    epoch: int = 0
    """How often it was to be filled; what was noted about its tables before does not count any more."""
    vclock: Vclock | None = None
    """What it had when it was filled; None when it is to be filled, for the first time or again."""
    namespace: str = ""
    """Which tables were wanted then."""
    lacks: dict[str, Offset] = field(default_factory=dict)
    """The tables that are ignored. Rows that each had were put aside; from its offset on the log tells the rest."""

    def keep(self, writer: NodeWriter) -> None:
        """In the transaction that is open."""
        clock = None if self.vclock is None else self.vclock.encode()
        told = {
            "log": self.log,
            "owner": self.owner,
            "epoch": self.epoch,
            "vclock": clock,
            "namespace": self.namespace,
            "lacks": self.lacks,
        }
        writer.remember(_NAME, json.dumps(told))


def recall(writer: NodeWriter) -> StoreMemory | None:
    """None when no replica ever used this database."""
    raw = writer.recalled(_NAME)
    if raw is None:
        return None
    try:
        told: dict[str, Any] = json.loads(raw)
        clock = told["vclock"]
        return StoreMemory(
            str(told["log"]),
            str(told["owner"]),
            int(told["epoch"]),
            None if clock is None else decode_vclock(clock),
            str(told["namespace"]),
            {name: Offset(offset) for name, offset in told["lacks"].items()},
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        what = f"what the store of a replica remembers cannot be read: {error}"
        raise TailraceError("topology.store", what, hint="give the replica an empty database") from error


def keep_reached(writer: NodeWriter, offset: Offset) -> None:
    """Everything before an offset of the log is in the database; in the transaction that is open."""
    writer.remember(_REACHED, str(offset))


def recall_reached(writer: NodeWriter) -> Offset:
    return Offset(int(writer.recalled(_REACHED) or 0))
