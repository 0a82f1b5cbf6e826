"""Work on a log that knows at any moment what a crash may leave of it. Steps come from a seed, so any run repeats."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from tailrace.log.agreement import Hold, Policy
from tailrace.log.batch import Batch, batches_of, with_key
from tailrace.log.commitlog import CommitLog, LogConfig
from tailrace.log.compaction import By, compact
from tailrace.log.consumers import Consumer, Consumers
from tailrace.log.disk import Disk
from tailrace.log.group import OffsetRange
from tailrace.log.offsets import NOTHING, WHOLE_LOG
from tailrace.log.retention import retain
from tailrace.log.segment import list_segments
from tailrace.log.session import ConsumerSession
from tailrace.log.staging import Staging
from tailrace.message import Offset
from tests.crash.ledger import (
    Expected,
    Group,
    Progress,
    Row,
    StagedBatch,
    offsets_of,
    segment_ends,
    settle,
)

KEYED: Final = "keyed"
NAMESPACES: Final = ("alpha", "beta", KEYED)
NEVER_S: Final = 3600.0
"""No thread flushes by itself: every step is the workload's own."""


@dataclass(frozen=True, slots=True)
class Step:
    """One thing to do, by the name of a method of `Work` and its arguments."""

    name: str
    arguments: tuple[int | str, ...] = ()

    def __str__(self) -> str:
        return f"{self.name}({', '.join(map(repr, self.arguments))})"


class Work:
    """A process that works on a log. `note` is told what a crash may leave, each time that changes."""

    def __init__(
        self,
        directory: str,
        note: Callable[[Expected], None],
        *,
        disk: Disk | None = None,
        config: LogConfig | None = None,
        expected: Expected | None = None,
    ) -> None:
        self.directory = directory
        self.disk = disk or Disk()
        self.config = config or LogConfig()
        self.expected = expected or Expected()
        self._note = note
        self._log: CommitLog | None = None

    @property
    def log(self) -> CommitLog:
        if self._log is None:
            raise AssertionError("the log is not open")
        return self._log

    def on_written_soon(self) -> None:
        """A group was written and not waited for."""

    def on_waiting(self) -> None:
        """All groups of a burst were written; now they are waited for."""

    def do(self, step: Step) -> None:
        getattr(self, step.name)(*step.arguments)

    # The writer.

    def open(self) -> None:
        self._log = CommitLog.open(self.directory, self.config, disk=self.disk)
        self.take_stock()

    def close(self) -> None:
        self.log.close()
        self._confirm(())

    def take_stock(self) -> None:
        """See what became of a step that did not come to its end."""
        settled = settle(self.directory, self.expected, self.log.next_offset, killed=True)
        self._expect(replace(settled, consumers=self.expected.consumers))  # a reader's look promises nothing

    def reopen(self) -> None:
        self.close()
        self.open()

    def append(self, rows: int, size: int = 0) -> None:
        group = self._next_group(rows, size)
        self._attempt((group,))
        self._check_range(group, self.log.append(batches(group.rows)))
        self._acknowledge((group,))

    def append_soon(self, groups: int, rows: int) -> None:
        """Several groups before the first is waited for."""
        burst: list[Group] = []
        for _ in range(groups):
            burst.append(self._next_group(rows, 0, burst))
        self._attempt(burst)
        pending = []
        for group in burst:
            pending.append(self.log.append_soon(batches(group.rows)))
            self.on_written_soon()
        self.on_waiting()
        for group, waiting in zip(burst, pending, strict=True):
            self._check_range(group, waiting.wait())
        self._acknowledge(burst)

    def abandon(self, rows: int) -> None:
        """A group whose source fails before it is complete."""
        try:
            with self.log.group() as group:
                for batch in batches(self._next_group(rows, 600).rows):
                    group.add(batch)
                raise _SourceFailed
        except _SourceFailed:
            pass

    def stage(self, batch_id: str, tasks: int, rows: int) -> None:
        """Tasks write their part of a batch."""
        first = self.expected.next_number
        parts = []
        numbers: list[Row] = []
        for task in range(tasks):
            part = _rows(first + task * rows, rows)
            with Staging(self.directory, disk=self.disk).writer(batch_id, f"task{task}") as writer:
                for batch in batches(part):
                    writer.add(batch)
                parts.append(writer.close())
            numbers += part
        staged = StagedBatch(tuple(parts), tuple(numbers))
        self._expect(replace(self.expected, staged={**self.expected.staged, batch_id: staged}))

    def publish(self, batch_id: str) -> None:
        known = [group for group in (*self.expected.groups, *self._unsynced()) if group.batch_id == batch_id]
        if known:
            self._check_range(known[0], self.log.publish(batch_id, ()))
            return
        batch = self.expected.staged.get(batch_id)
        if batch is None:
            return
        group = Group(self._end(), batch.rows, batch_id)
        self._attempt((group,))
        self._check_range(group, self.log.publish(batch_id, batch.parts))
        staged = {name: waiting for name, waiting in self.expected.staged.items() if name != batch_id}
        self._acknowledge((group,), staged)

    def roll(self) -> None:
        self.log.roll()
        self._confirm(())

    def sync(self) -> None:
        self.log.sync()
        self._confirm(())

    # Consumers.

    def register(self, name: str) -> None:
        if name not in self.expected.consumers or not self.expected.consumers[name].is_certain:
            oldest = list_segments(self.directory)[0]
            start = {WHOLE_LOG: oldest - 1} if oldest else {}
            known = self.expected.consumers.get(name, Progress(False, ()))
            self._expect_consumer(name, Progress(False, (*known.positions, start)))
            found = Consumers(self.directory, disk=self.disk).register(name, hold=Hold(Policy.HOLD), exist_ok=True)
            self._settle_consumer(name, dict(found.positions.by_namespace))

    def commit(self, name: str, percent: int, namespace: str = WHOLE_LOG) -> None:
        """Acknowledge so much of the log."""
        consumers = Consumers(self.directory, disk=self.disk)
        if name not in consumers.names():
            return
        offset = (consumers.view.head().next_offset - 1) * percent // 100
        with ConsumerSession(consumers, name, flush_s=NEVER_S, disk=self.disk) as session:
            before = dict(session.positions.by_namespace)
            self._settle_consumer(name, before)
            if offset < 0:
                return
            session.commit(offset, namespace)
            after = {**before, namespace: max(offset, before.get(namespace, NOTHING))}
            self._expect_consumer(name, Progress(True, (before, after)))
            session.flush()
            self._expect_consumer(name, Progress(True, (after,)))

    def delete(self, name: str) -> None:
        progress = self.expected.consumers.get(name)
        consumers = Consumers(self.directory, disk=self.disk)
        if progress is None or name not in consumers.names():
            return
        self._expect_consumer(name, replace(progress, is_certain=False))
        consumers.delete(name, "for a test")
        left = {other: there for other, there in self.expected.consumers.items() if other != name}
        self._expect(replace(self.expected, consumers=left))

    def compact_offsets(self) -> None:
        """What otherwise happens after a thousand records."""
        consumers = Consumers(self.directory, disk=self.disk)
        consumers.compact_offsets()
        for consumer in consumers.all():
            self._settle_consumer(consumer.name, dict(consumer.positions.by_namespace))

    def _settle_consumer(self, name: str, positions: dict[str, int]) -> None:
        """A session was told these positions, so they are certain from now on."""
        progress = self.expected.consumers[name]
        if positions not in progress.positions:
            raise AssertionError(f"consumer {name} is at {positions}, not at one of {progress.positions}")
        self._expect_consumer(name, Progress(True, (positions,)))

    # Maintenance.

    def compact(self, by: str = By.NAMESPACE) -> None:
        going = self._compactable(By(by))
        self._expect(replace(self.expected, going=tuple(going.values())))
        result = compact(self.directory, by=By(by), disk=self.disk)
        removed = {segment.base: segment.messages_before - segment.messages_after for segment in result.segments}
        for base, count in removed.items():
            if count not in (0, len(going.get(base, ()))):  # 0: holes only were joined
                raise AssertionError(f"compaction removed {count} messages of segment {base}, not {going.get(base)}")
        gone = self.expected.gone.union(*(going[base] for base, count in removed.items() if count))
        self._expect(replace(self.expected, gone=gone, going=()))

    def _compactable(self, by: By) -> dict[int, frozenset[int]]:
        """By segment the messages that nobody needs and that are not the last of their kind."""
        there = self._messages()
        *sealed, _ = list_segments(self.directory)
        ends = segment_ends(self.directory, self.log.next_offset)
        candidates = {offset: row for offset, row in there.items() if sealed and sealed[0] <= offset < ends[sealed[-1]]}
        last: dict[tuple[str, int], int] = {}
        for offset, row in candidates.items():
            last[row.namespace, row.key if by is By.KEY else 0] = offset
        removable = frozenset(
            offset
            for offset, row in candidates.items()
            if all(consumer.positions.of(row.namespace) >= offset for consumer in self._holders())
            and (by is By.NAMESPACE or row.namespace == KEYED)
            and offset not in last.values()
        )
        if not self._holders():
            return {}
        by_segment = {base: frozenset(range(base, ends[base])) & removable for base in sealed}
        return {base: offsets for base, offsets in by_segment.items() if offsets}

    def retain(self) -> None:
        there = self._messages()
        ends = segment_ends(self.directory, self.log.next_offset)
        oldest = [list_segments(self.directory)[0]]
        for base in list_segments(self.directory)[:-1]:
            rows = {offset: row for offset, row in there.items() if base <= offset < ends[base]}
            needed = [
                offset
                for offset, row in rows.items()
                if any(consumer.positions.of(row.namespace) < offset for consumer in self._holders())
            ]
            if needed or not self._holders():
                break
            oldest.append(Offset(ends[base]))
        self._expect(replace(self.expected, oldest=tuple(oldest)))
        result = retain(self.directory, disk=self.disk)
        if sorted(fate.end for fate in result.removed) != oldest[1:]:
            raise AssertionError(f"retention removed {result.removed}, not what lies below {oldest}")
        self._expect(replace(self.expected, oldest=(oldest[-1],)))
        self._forget(oldest[-1])

    def _forget(self, oldest: int) -> None:
        """What is gone for good needs no ledger."""
        groups = tuple(group for group in self.expected.groups if group.end > oldest) or self.expected.groups[-1:]
        gone = frozenset(offset for offset in self.expected.gone if offset >= oldest)
        self._expect(replace(self.expected, groups=groups, gone=gone))

    def _messages(self) -> dict[int, Row]:
        groups = (*self.expected.groups, *(self.expected.branches[0] if self.expected.branches else ()))
        return {offset: row for offset, row in offsets_of(groups).items() if offset not in self.expected.gone}

    def _holders(self) -> list[Consumer]:
        return Consumers(self.directory).all()

    # The ledger.

    def _expect(self, expected: Expected) -> None:
        self.expected = expected
        self._note(expected)

    def _expect_consumer(self, name: str, progress: Progress) -> None:
        self._expect(replace(self.expected, consumers={**self.expected.consumers, name: progress}))

    def _end(self) -> int:
        branch = self._unsynced()
        return branch[-1].end if branch else self.expected.end

    def _unsynced(self) -> tuple[Group, ...]:
        """What readers have seen but a power cut may take; nothing when every group is synced."""
        return self.expected.branches[0][: self.expected.published] if self.expected.branches else ()

    def _next_group(self, rows: int, size: int, before: Sequence[Group] = ()) -> Group:
        first = before[-1].end if before else self._end()
        number = max(self.expected.next_number, *(row.number + 1 for group in before for row in group.rows), 0)
        return Group(first, _rows(number, rows, size))

    def _attempt(self, groups: Sequence[Group]) -> None:
        """The log may go on with these, or with what was tried before and failed."""
        unsynced = self._unsynced()
        failed = () if unsynced else self.expected.branches
        self._expect(replace(self.expected, branches=(*failed, (*unsynced, *groups))))

    def _acknowledge(self, groups: Sequence[Group], staged: Mapping[str, StagedBatch] | None = None) -> None:
        expected = self.expected if staged is None else replace(self.expected, staged=staged)
        if self.config.sync_every_s == 0:
            self._confirm(groups, expected)
        else:
            branch = expected.branches[-1]
            self._expect(replace(expected, branches=(branch,), published=len(branch)))

    def _confirm(self, groups: Sequence[Group], expected: Expected | None = None) -> None:
        """These, and all that was seen before, are durable."""
        certain = (*self.expected.groups, *self._unsynced(), *groups)
        self._expect(replace(expected or self.expected, groups=certain, branches=(), published=0))

    def _check_range(self, group: Group, found: OffsetRange) -> None:
        if (group.first, group.end) != found:
            raise AssertionError(f"a group was to get the offsets from {group.first} to {group.end}, not {found}")


class _SourceFailed(Exception):
    pass


def _rows(first: int, count: int, size: int = 0) -> tuple[Row, ...]:
    """The next rows, those of one namespace together as they will be in their group."""
    rows = [
        Row(NAMESPACES[number % 7 % 3], number, key=number % 4, size=size) for number in range(first, first + count)
    ]
    return tuple(sorted(rows, key=lambda row: row.namespace))


def batches(rows: Iterable[Row]) -> list[Batch]:
    """Rows as batches; those of one namespace name their key."""
    return [
        replace(batch, rows=with_key(batch.rows, ["key"])) if batch.namespace == KEYED else batch
        for batch in batches_of([row.message for row in rows])
    ]
