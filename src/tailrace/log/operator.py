"""What an operator may do to a consumer: mark messages as delivered, acknowledge one, or have them delivered again.

Every move is written to the audit trail. Nobody else may be using the consumer meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tailrace.errors import TailraceError
from tailrace.log import audit
from tailrace.log.consumers import Consumers, outside_log
from tailrace.log.disk import Disk, disk_errors
from tailrace.log.note import REWOUND, ConsumerNote
from tailrace.log.offsets import WHOLE_LOG, Kind, OffsetLog, Positions, Record
from tailrace.log.reader import LogReader
from tailrace.message import Offset


@dataclass(frozen=True, slots=True)
class Move:
    """Where a consumer stood and where it stands now: the last offset up to which everything is acknowledged."""

    consumer: str
    before: int
    after: int


class Operator:
    """An operator's hand on a log's consumers."""

    def __init__(self, consumers: Consumers, disk: Disk | None = None, *, via: str | None = None) -> None:
        """`via` says whence it is moved, if not by the command line."""
        self._consumers = consumers
        self._via = via
        self._disk = disk or Disk()

    def mark(self, name: str, offset: int, *, namespace: str = WHOLE_LOG, reason: str) -> Move:
        """Everything up to `offset` counts as delivered. Only forward; `rewind` goes back."""
        self._check_in_log(offset)
        self._check_namespace(namespace)
        before = self._position(name)
        at = self._consumers.get(name).positions.of(namespace) if namespace else before
        if offset <= at:
            raise TailraceError(
                "offset.direction",
                f"consumer {name} is at {at} already, and a mark only goes forward",
                hint=f"tailrace offset rewind {name} {offset + 1}",
            )
        return self._move("mark", name, before, [Record(Kind.COMMIT, namespace, offset)], offset, namespace, reason)

    def acknowledge(self, name: str, offset: int, *, reason: str) -> Move:
        """One message counts as delivered without being sent; the others around it do not."""
        self._check_in_log(offset)
        entry = next(LogReader(self._consumers.directory).entries(offset, offset + 1), None)
        if entry is None:
            raise TailraceError(
                "offset.outside_log", f"message {offset} was compacted away", hint=f"tailrace offset show {name}"
            )
        if self._consumers.get(name).positions.covers(entry.message.namespace, offset):
            raise TailraceError(
                "offset.direction",
                f"consumer {name} has acknowledged message {offset} already",
                hint=f"tailrace offset show {name}",
            )
        records = [Record(Kind.ACK, entry.message.namespace, offset)]
        return self._move("ack", name, self._position(name), records, offset, entry.message.namespace, reason)

    def rewind(self, name: str, offset: int, *, namespace: str = WHOLE_LOG, reason: str) -> Move:
        """Messages from `offset` on will be delivered again. Only back; `mark` goes forward."""
        view = self._consumers.view
        oldest, end = view.bases()[0], view.head().next_offset
        if not oldest <= offset <= end:
            raise outside_log(offset, oldest, end)
        self._check_namespace(namespace)
        positions = self._consumers.get(name).positions
        before = self._position(name)
        furthest = positions.of(namespace) if namespace else max([before, *positions.by_namespace.values()])
        if offset > max(furthest + 1, oldest):
            raise TailraceError(
                "offset.direction",
                f"consumer {name} has not come that far: it is at {furthest}",
                hint=f"tailrace offset mark {name} {offset - 1}",
            )
        records = [Record(Kind.REWIND, WHOLE_LOG, offset)]
        if oldest > 0:
            records.append(Record(Kind.COMMIT, WHOLE_LOG, oldest - 1))  # what is gone cannot be delivered any more
        if namespace:
            others = {*view.last_offsets(), *positions.by_namespace} - {namespace, WHOLE_LOG}
            kept = {other: positions.of(other) for other in others}
            records += [Record(Kind.COMMIT, other, at) for other, at in sorted(kept.items()) if at >= offset]
            records += [ack for ack in self._acks(positions, offset) if ack.namespace != namespace]
            records += self._acknowledged_elsewhere(positions, namespace, offset)
        ConsumerNote(self._consumers.directory, name, REWOUND, self._disk).write(b"%d" % max(furthest, before))
        return self._move("rewind", name, before, records, offset, namespace, reason)

    def _acknowledged_elsewhere(self, positions: Positions, namespace: str, offset: int) -> Iterator[Record]:
        """Single messages of other namespaces stay acknowledged (I3)."""
        reader = LogReader(self._consumers.directory)
        for single in sorted(single for single in positions.acknowledged if single >= offset):
            for entry in reader.entries(single, single + 1):
                if entry.message.namespace != namespace:
                    yield Record(Kind.ACK, entry.message.namespace, single)

    def _move(
        self, action: str, name: str, before: int, records: list[Record], offset: int, namespace: str, reason: str
    ) -> Move:
        """1. Write the audit trail, so that nothing happens unseen. 2. Write the offsets. 3. The consumer may go on."""
        consumers = self._consumers
        with consumers.owning(name) as path, consumers.changing(), disk_errors("moving a consumer", path):
            audit.record(
                self._disk,
                consumers.directory,
                action,
                name,
                offset=offset,
                namespace=namespace or None,
                position_before=before,
                reason=reason,
                **audit.whence(self._via),
            )
            offsets = OffsetLog(path, self._disk)
            try:
                offsets.append(records, int(consumers.clock()))
            finally:
                offsets.close()
            consumers.revalidate(name)
        return Move(name, before, self._position(name))

    def _position(self, name: str) -> int:
        return self._consumers.position(self._consumers.get(name))

    def _acks(self, positions: Positions, start: int) -> list[Record]:
        """The single acknowledgements from an offset on, each with its namespace."""
        reader = LogReader(self._consumers.directory)
        return [
            Record(Kind.ACK, entry.message.namespace, single)
            for single in sorted(positions.acknowledged)
            if single >= start
            for entry in reader.entries(single, single + 1)
        ]

    def _check_namespace(self, namespace: str) -> None:
        known = self._consumers.view.last_offsets()
        if namespace and namespace not in known:
            raise TailraceError(
                "input.invalid",
                f"the log has no namespace {namespace!r}; it has: {', '.join(sorted(known)) or 'none'}",
                hint="tailrace log stat",
            )

    def _check_in_log(self, offset: int) -> None:
        view = self._consumers.view
        oldest, end = view.bases()[0], view.head().next_offset
        if not oldest <= offset < end:
            raise outside_log(offset, oldest, Offset(end))
