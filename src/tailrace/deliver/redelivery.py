"""Redelivery: after a failure the messages of its range go one at a time, in order, all inside one task.

Each is committed before the next is tried. At one that cannot be written the task ends, or, where that is wished, it is
put aside and the next one is tried.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from operator import itemgetter
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

Singles = Iterable[tuple[Offset, Messages]]
"""Messages in log order, with the offset of each."""


@dataclass(slots=True)
class Refusals:
    """Which messages of a range were refused: those put aside, and the one at which it ends, if it does."""

    on_error: OnError
    aside_max: int = ASIDE_MAX
    aside: list[Receipt] = field(default_factory=list)
    last: Receipt | None = None

    def note(self, offset: Offset, error: TailraceError, message: Messages) -> bool:
        """A message was refused; says whether to go on with the next. An error that is no message's fault is raised."""
        if error.code not in OF_MESSAGES:
            raise error
        refused = {"offset": offset, "error": error.encode(), "message": describe(message)}
        if self.on_error is OnError.STOP or len(self.aside) >= self.aside_max:
            self.last = refused
            return False
        self.aside.append(refused)
        return True

    def encode(self) -> Receipt:
        return {"aside": self.aside, "refused": self.last}


def one_by_one(singles: Singles, attempt: Callable[[Offset, Messages], None], refusals: Refusals) -> None:
    """Attempt messages in their order, up to one that is refused where that is the end."""
    for offset, message in singles:
        try:
            attempt(offset, message)
        except TailraceError as error:
            if not refusals.note(offset, error, message):
                return


class SingleWrites:
    """A destination that gets messages one at a time, each committed and acknowledged before the next."""

    def __init__(self, options: WriterOptions, evolution: Evolution, passing: Passing, acks: Acks | None) -> None:
        self.written: Counter[str] = Counter()
        self._options = options
        self._evolution = evolution
        self._passing = passing
        self._acks = acks
        self._writer: Writer | None = None

    def write(self, offset: Offset, messages: Messages, refusals: Refusals) -> None:
        """Write what has become of the message at `offset`. After one that was refused nothing is acknowledged: the
        driver does that, when it has put it aside."""
        try:
            if self._writer is None:
                self._writer = open_writer(self._options)
            self._write(self._writer, offset, messages)
        except TailraceError:
            self.close()
            raise
        if self._acks is not None and not refusals.aside:
            self._acks.note(offset)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def receipt(self, refusals: Refusals) -> Receipt:
        evolution = self._evolution
        told = {"written": dict(self.written), "schemas": encode_schemas(evolution.known), "news": evolution.news}
        return {**told, **refusals.encode()}

    def _write(self, writer: Writer, offset: Offset, messages: Messages) -> None:
        unwritten = self._passing.unwritten(messages, writer.applied)
        if not len(unwritten):
            return
        admitted = self._evolution.admit(unwritten)
        write(writer, self._evolution.known[admitted.namespace], admitted)
        writer.commit(offset)
        self.written[admitted.namespace] += len(admitted)


@dataclass(frozen=True, slots=True)
class WriteSingly:
    """Writes messages to one destination one by one."""

    log: str
    consumer: str
    options: WriterOptions
    policy: SchemaPolicy
    on_error: OnError
    schemas: dict[str, str]
    passing: Passing
    acknowledges: bool = True
    """False where messages that come before are not settled."""

    def run(self, messages: Singles, apply: Callable[[Messages], Messages]) -> Receipt:
        """Write what `apply` makes of each message."""
        evolution = Evolution(self.policy, decode_schemas(self.schemas))
        refusals = Refusals(self.on_error)
        acks = Acks(self.log, self.consumer) if self.acknowledges else None
        writes = SingleWrites(self.options, evolution, self.passing, acks)
        try:
            one_by_one(messages, lambda offset, one: writes.write(offset, apply(one), refusals), refusals)
        finally:
            writes.close()
        return writes.receipt(refusals)


@dataclass(frozen=True, slots=True)
class RedeliverSingly:
    """Writes what functions make of the messages of a range, one by one."""

    write: WriteSingly
    chain: Chain

    def __call__(self, item: DeliverItem) -> Receipt:
        return self.write.run(singles(self.write.log, item, self.write.passing), self.chain.apply)


def summed(receipts: list[Receipt]) -> Receipt:
    """What several parts of a range have told, as one. What lies behind the message that is the end was not tried."""
    written: Counter[str] = Counter()
    schemas: dict[str, str] = {}
    news: list[str] = []
    for receipt in receipts:
        written.update(receipt.get("written", {}))
        schemas |= receipt.get("schemas", {})
        news += receipt.get("news", [])
    by_offset = itemgetter("offset")
    refused = min((each["refused"] for each in receipts if each["refused"] is not None), key=by_offset, default=None)
    aside = sorted((one for each in receipts for one in each["aside"]), key=by_offset)
    if refused is not None:
        aside = [one for one in aside if one["offset"] < refused["offset"]]
    return {"written": dict(written), "schemas": schemas, "news": news, "aside": aside, "refused": refused}


def with_originals(log: str, item: DeliverItem, receipt: Receipt) -> Receipt:
    """A receipt of a range whose refused messages are described as they are in the log, before any function."""
    refused = receipt["refused"]
    offsets = {one["offset"] for one in [*receipt["aside"], *([] if refused is None else [refused])]}
    if not offsets:
        return receipt
    few = replace(item, start=min(offsets), end=Offset(max(offsets) + 1))
    found = {offset: describe(message) for offset, message in singles(log, few, Passing()) if offset in offsets}
    aside = [{**one, "message": found[one["offset"]]} for one in receipt["aside"]]
    last = None if refused is None else {**refused, "message": found[refused["offset"]]}
    return {**receipt, "aside": aside, "refused": last}


def singles(log: str, item: DeliverItem, passing: Passing) -> Iterator[tuple[Offset, Messages]]:
    """The messages of a range of the log, one by one."""
    for messages in read_range(log, item, passing):
        for at in range(len(messages)):
            one = messages.slice(at, 1)
            yield Offset(one.offsets()[0].as_py()), one


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
