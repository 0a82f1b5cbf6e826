"""Redelivery: after a failure the messages of its range go one at a time, in order, all inside one task.

Each is committed before the next is tried. At one that cannot be written the task ends, or, where that is wished, it is
put aside and the next one is tried.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from tailrace.deliver.acks import Acks
from tailrace.deliver.contract import Writer
from tailrace.deliver.evolution import Evolution, decode_schemas, encode_schemas
from tailrace.deliver.messages import Messages
from tailrace.deliver.passing import Passing
from tailrace.deliver.task import DeliverItem, open_writer, read_range, write
from tailrace.errors import TailraceError
from tailrace.log.batch import message_rows
from tailrace.message import Offset
from tailrace.pipeline.spec import OnError, SchemaPolicy

if TYPE_CHECKING:
    from tailrace.adaptor.options import WriterOptions
    from tailrace.spark.tasks import Receipt
    from tailrace.transform.chain import Chain

OF_MESSAGES: Final = frozenset({"destination.refused", "function.failed", "schema.changed", "message.invalid"})
"""Errors that a message can be the cause of, so that it helps to try them one by one."""
ASIDE_MAX: Final = 10_000
"""When so many messages of one range are refused the destination is at fault, not the messages."""


@dataclass(frozen=True, slots=True)
class RedeliverSingly:
    """Writes the messages of a range one by one."""

    log: str
    consumer: str
    options: WriterOptions
    chain: Chain
    policy: SchemaPolicy
    on_error: OnError
    schemas: dict[str, str] = field(default_factory=dict)
    passing: Passing = field(default_factory=Passing)

    def __call__(self, item: DeliverItem) -> Receipt:
        evolution = Evolution(self.policy, decode_schemas(self.schemas))
        acks = Acks(self.log, self.consumer)
        aside: list[Receipt] = []
        acked: Offset | None = None
        written: Counter[str] = Counter()
        writer: Writer | None = None
        try:
            for offset, message in self._singles(item):
                try:
                    if writer is None:
                        writer = open_writer(self.options)
                    written.update(self._deliver(writer, evolution, message, offset))
                except TailraceError as error:
                    if error.code not in OF_MESSAGES:
                        raise
                    refused = {"offset": offset, "error": error.encode(), "message": describe(message)}
                    if self.on_error is OnError.STOP or len(aside) >= ASIDE_MAX:
                        return self._receipt(acked, written, aside, refused, evolution)
                    aside.append(refused)
                    if writer is not None:
                        writer.close()
                        writer = None
                    continue
                acked = offset
                if not aside:
                    acks.note(offset)
        finally:
            if writer is not None:
                writer.close()
        return self._receipt(acked, written, aside, None, evolution)

    def _singles(self, item: DeliverItem) -> Iterator[tuple[Offset, Messages]]:
        for messages in read_range(self.log, item, self.passing):
            for at in range(len(messages)):
                one = messages.slice(at, 1)
                yield Offset(one.offsets()[0].as_py()), one

    def _deliver(self, writer: Writer, evolution: Evolution, message: Messages, offset: Offset) -> list[str]:
        """Gives the namespace that the message was written to, if it was."""
        changed = self.passing.unwritten(self.chain.apply(message), writer.applied)
        if not len(changed):
            return []
        admitted = evolution.admit(changed)
        write(writer, evolution.known[admitted.namespace], admitted)
        writer.commit(offset)
        return [admitted.namespace]

    def _receipt(
        self,
        acked: Offset | None,
        written: Counter[str],
        aside: list[Receipt],
        refused: Receipt | None,
        evolution: Evolution,
    ) -> Receipt:
        return {
            "acked": acked,
            "written": dict(written),
            "aside": aside,
            "refused": refused,
            "schemas": encode_schemas(evolution.known),
            "news": evolution.news,
        }


def describe(message: Messages) -> Receipt:
    """A message that was refused, whole, as text."""
    rows = message.rows.drop_columns(["offset"])
    for one in message_rows(rows, message.namespace, message.origin):
        described: dict[str, Any] = {
            "namespace": one.namespace,
            "op": one.op.name.lower(),
            "timestamp": one.timestamp,
            "data": json.dumps(one.data, default=str),
            "before": None if one.before is None else json.dumps(one.before, default=str),
        }
        return described
    return {}
