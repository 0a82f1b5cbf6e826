"""What must be found in a log after a crash, and the check that it is: nothing acknowledged is lost, nothing appears
half, nothing is invented, and the log goes on.

`Expected` says what may be found if the crash came now. Whoever works on a log brings it up to date before each step
(what may happen) and after it (what did).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Final, NamedTuple

from tailrace.errors import TailraceError
from tailrace.log import contents
from tailrace.log.commitlog import CommitLog, LogConfig
from tailrace.log.consumers import PREFIX, Consumers, State
from tailrace.log.disk import Disk
from tailrace.log.group import OffsetRange
from tailrace.log.reader import LogReader
from tailrace.log.segment import list_segments
from tailrace.log.selection import Selection
from tailrace.log.session import ConsumerSession
from tailrace.log.staging import Staged
from tailrace.log.verification import verify
from tailrace.message import Message, Micros, NodeId, Offset, Op
from tests.crash.simdisk import SECTOR

LOG: Final = "log"
DESTINATION: Final = "north"
_EPOCH_US: Final = 1_700_000_000_000_000


class Violation(AssertionError):
    """A crash did what no crash may do."""


@contextmanager
def explaining(story: str) -> Iterator[None]:
    """Whatever fails within it says how to make it happen again."""
    try:
        yield
    except BaseException as error:
        error.add_note(f"It happened {story}")
        raise


class Row(NamedTuple):
    """One message, told from all others by its number."""

    namespace: str
    number: int
    key: int = 0
    size: int = 0

    @property
    def message(self) -> Message:
        return Message(
            op=Op.INSERT,
            timestamp=Micros(_EPOCH_US + self.number),
            namespace=self.namespace,
            data={"number": self.number, "key": self.key, "filling": "x" * self.size},
            origin=NodeId(7),
            destinations=(DESTINATION,) if self.number % 3 == 0 else (),
        )


class Group(NamedTuple):
    """A commit group and where it starts."""

    first: int
    rows: tuple[Row, ...]
    batch_id: str | None = None

    @property
    def end(self) -> int:
        return self.first + len(self.rows)


@dataclass(frozen=True, slots=True)
class Progress:
    """A consumer: whether it is certainly there, and the positions it may have, the oldest first."""

    is_certain: bool
    positions: tuple[Mapping[str, int], ...]


@dataclass(frozen=True, slots=True)
class StagedBatch:
    """A batch whose tasks have all finished."""

    parts: tuple[Staged, ...]
    rows: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class Expected:
    """What may be found in a log if a crash came now."""

    groups: tuple[Group, ...] = ()
    """Acknowledged: these survive a power cut."""
    branches: tuple[tuple[Group, ...], ...] = ()
    """How the log may go on: with the first few groups of one of these."""
    published: int = 0
    """How many groups of the only branch readers have seen; these survive the death of the process."""
    gone: frozenset[int] = frozenset()
    """Offsets that compaction has removed."""
    going: tuple[frozenset[int], ...] = ()
    """Offsets that compaction is removing: of each set all or none."""
    oldest: tuple[int, ...] = (0,)
    """Where the log may begin."""
    consumers: Mapping[str, Progress] = field(default_factory=dict)
    staged: Mapping[str, StagedBatch] = field(default_factory=dict)

    @property
    def next_number(self) -> int:
        """A number that no message has had."""
        groups = (*self.groups, *(group for branch in self.branches for group in branch))
        staged = (batch.rows for batch in self.staged.values())
        rows = (*(row for group in groups for row in group.rows), *(row for rows in staged for row in rows))
        return max((row.number for row in rows), default=0) + 1

    @property
    def end(self) -> int:
        return self.groups[-1].end if self.groups else 0


class Seen(NamedTuple):
    """What a reader found at an offset."""

    offset: int
    namespace: str
    number: int


def look(directory: str, selection: Selection | None = None) -> list[Seen]:
    """All that a reader finds."""
    entries = LogReader(directory).entries(selection=selection or Selection())
    return [seen_at(entry.offset, entry.message) for entry in entries]


def seen_at(offset: int, message: Message) -> Seen:
    """A message as it was found. It carries enough to tell whether it is what was written."""
    if message.data is None:
        raise Violation(f"the message at offset {offset} has lost its data")
    seen = Seen(offset, message.namespace, message.data["number"])
    row = Row(message.namespace, seen.number, message.data["key"], len(message.data["filling"]))
    if message != row.message:
        raise Violation(f"the message at offset {offset} is not what was written: {message}")
    return seen


def check(
    directory: str,
    expected: Expected,
    *,
    config: LogConfig | None = None,
    disk: Disk | None = None,
    killed: bool = False,
) -> Expected:
    """Open a log after a crash, look at everything, use it, open it again. Returns what is certain from now on.

    `killed` says that only the process died, so that what readers have seen must still be there.
    """
    config = config or LogConfig()
    check_readers(directory, expected)
    with _refusal_is_a_violation():
        log = CommitLog.open(directory, config, disk=disk)
    with log:
        settled = settle(directory, expected, log.next_offset, killed=killed)
        _check_ways_in(directory)
        settled = _use(log, settled)
        for name in settled.consumers:
            _take_up(directory, name, disk)
        _check_leftovers(directory)
    with CommitLog.open(directory, config, disk=disk) as again:
        if not again.report.is_clean:
            raise Violation(f"after closing properly there was still something to mend: {again.report}")
        settle(directory, settled, again.next_offset, killed=True)
        _check_verified(directory)
    return settled


class _refusal_is_a_violation:  # noqa: N801  used as a statement
    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, TailraceError):
            raise Violation(f"a crash is no reason to refuse the log: {error}") from error


def check_readers(directory: str, expected: Expected) -> None:
    """Before any writer has mended anything, readers may see less than there is, but nothing wrong."""
    if not os.path.isdir(directory) or not list_segments(directory):
        return
    try:
        seen = look(directory)
    except TailraceError as refusal:
        if expected.published:
            return  # readers had seen more than was durable: they are told so until the writer has cut it
        raise Violation(f"a crash is no reason to refuse readers: {refusal}") from refusal
    known = [{row_at: row for group in way for row_at, row in _rows(group)} for way in _ways(expected)]
    for found in seen:
        if not any(way.get(found.offset, _NOBODY)[:2] == found[1:] for way in known):
            raise Violation(f"a reader finds what was never written there: {found}")


_NOBODY: Final = Row("", -1)


def _rows(group: Group) -> Iterator[tuple[int, Row]]:
    return enumerate(group.rows, group.first)


def _ways(expected: Expected) -> Iterator[tuple[Group, ...]]:
    """Every way the log may have gone."""
    yield expected.groups
    for branch in expected.branches:
        yield expected.groups + branch


def settle(directory: str, expected: Expected, next_offset: int, *, killed: bool) -> Expected:
    """Which of the possible things happened. Raises when it was none of them, or when anything is amiss."""
    with _refusal_is_a_violation():
        seen = look(directory)
        oldest = list_segments(directory)[0]
        groups = _settle_groups(expected, next_offset, seen, killed=killed)
        gone = _settle_compaction(expected, oldest, {found.offset for found in seen})
        consumers = dict(_settle_consumers(directory, expected, next_offset))
    if oldest not in expected.oldest:
        raise Violation(f"the log begins at {oldest}, which is none of {expected.oldest}")
    wanted = [
        Seen(offset, row.namespace, row.number)
        for offset, row in offsets_of(groups).items()
        if offset >= oldest and offset not in gone
    ]
    if seen != wanted:
        raise Violation(_difference(wanted, seen))
    published = {group.batch_id for group in groups}
    return Expected(
        groups=groups,
        gone=gone,
        oldest=(oldest,),
        consumers=consumers,
        staged={batch_id: batch for batch_id, batch in expected.staged.items() if batch_id not in published},
    )


def _settle_compaction(expected: Expected, oldest: int, found: set[int]) -> frozenset[int]:
    gone = expected.gone
    for going in expected.going:
        there = {offset for offset in going if offset >= oldest}
        left = there & found
        if left and left != there:
            raise Violation(f"of the messages {sorted(there)}, which go together, only {sorted(left)} are left")
        if not left:
            gone |= going
    return gone


def _settle_groups(expected: Expected, next_offset: int, seen: list[Seen], *, killed: bool) -> tuple[Group, ...]:
    at_least = expected.end
    if killed and expected.published:
        at_least = expected.branches[0][expected.published - 1].end
    if next_offset < at_least:
        raise Violation(f"LOST: the log ends at {next_offset}, but everything below {at_least} was acknowledged")
    numbers = {found.number for found in seen}
    for branch in ((), *expected.branches):
        ends = [expected.end, *(group.end for group in branch)]
        if next_offset in ends:
            present = branch[: ends.index(next_offset)]
            if not present or any(row.number in numbers for row in present[-1].rows):
                return expected.groups + present
    raise Violation(
        f"HALF: the log ends at {next_offset}, where no group ends; acknowledged are {expected.end} messages, then may"
        f" come {[[(group.first, group.end) for group in branch] for branch in expected.branches]}"
    )


def _settle_consumers(directory: str, expected: Expected, end: int) -> Iterator[tuple[str, Progress]]:
    consumers = Consumers(directory)
    names = consumers.names()
    for name in names:
        if name not in expected.consumers:
            raise Violation(f"nobody registered a consumer {name}")
    for name, progress in expected.consumers.items():
        if name not in names:
            if progress.is_certain:
                raise Violation(f"LOST: the consumer {name} is no longer registered")
            continue
        consumer = consumers.get(name)
        if consumer.state is not State.LIVE:
            raise Violation(f"consumer {name} is {consumer.state}, though the log was held for it")
        positions = dict(consumer.positions.by_namespace)
        if positions not in [_taken_back(possible, end) for possible in progress.positions]:
            raise Violation(f"consumer {name} is at {positions}, which is none of {progress.positions}, end {end}")
        yield name, Progress(True, (positions,))


def _taken_back(positions: Mapping[str, int], end: int) -> dict[str, int]:
    """Nobody is ahead of a log that a power cut has made shorter."""
    within = {namespace: min(position, end - 1) for namespace, position in positions.items()}
    return {namespace: position for namespace, position in within.items() if position >= 0}


def _check_ways_in(directory: str) -> None:
    """By destination, by offset and by time a reader comes to the same messages."""
    with _refusal_is_a_violation():
        seen = look(directory)
        for_destination = look(directory, Selection(destination=DESTINATION))
        reader = LogReader(directory)
        last = [reader.entries(found.offset, found.offset + 1) for found in seen[-3:]]
        by_offset = [seen_at(entry.offset, entry.message) for entries in last for entry in entries]
        by_time = reader.offset_at(Micros(_EPOCH_US + seen[-1].number)) if seen else None
    if for_destination != [found for found in seen if found.number % 3 == 0]:
        raise Violation("the tag index does not lead to all messages of a destination")
    if by_offset != seen[-3:]:
        raise Violation("the sparse index leads astray")
    if seen and by_time != min(found.offset for found in seen if found.number >= seen[-1].number):
        raise Violation(f"time leads to {by_time} instead of {seen[-1].offset}")


def _difference(wanted: list[Seen], seen: list[Seen]) -> str:
    lost = [found for found in wanted if found not in seen]
    invented = [found for found in seen if found not in wanted]
    if lost or invented:
        return f"LOST: {lost}; INVENTED: {invented}"
    return f"OUT OF ORDER: {[(a, b) for a, b in pairwise(seen) if a.offset >= b.offset]}"


def _take_up(directory: str, name: str, disk: Disk | None) -> None:
    """A consumer goes on where it was."""
    consumers = Consumers(directory, disk=disk)
    positions = consumers.get(name).positions
    with _refusal_is_a_violation(), ConsumerSession(consumers, name, disk=disk) as session:
        if session.positions != positions:
            raise Violation(f"consumer {name} was at {positions}, and goes on at {session.positions}")


def _check_leftovers(directory: str) -> None:
    """Who opens a log, or takes up a consumer, clears away what the crash left half done."""
    consumers = [name for name in os.listdir(directory) if name.startswith(PREFIX)]
    names = [
        *os.listdir(directory),
        *(file for name in consumers for file in os.listdir(os.path.join(directory, name))),
    ]
    segments = {os.path.splitext(name)[0] for name in names if name.endswith(".log")}
    strays = [
        name
        for name in names
        if name.endswith(".tmp") or (name.endswith((".toc", ".index")) and os.path.splitext(name)[0] not in segments)
    ]
    if strays:
        raise Violation(f"left lying about: {strays}")


def _use(log: CommitLog, settled: Expected) -> Expected:
    """Publish again what was staged, and append something new."""
    for group in settled.groups:
        if group.batch_id and group.first >= settled.oldest[0]:
            _check_known(group, log.append((), batch_id=group.batch_id))
    published = {group.batch_id for group in settled.groups}
    groups = list(settled.groups)
    for batch_id, batch in settled.staged.items():
        if batch_id in published:
            continue
        with _refusal_is_a_violation():
            first, end = log.publish(batch_id, batch.parts)
        groups.append(Group(first, batch.rows, batch_id))
        if groups[-1].end != end:
            raise Violation(f"batch {batch_id} was published as {end - first} messages, not {len(batch.rows)}")
    row = Row("after", replace(settled, groups=tuple(groups)).next_number)
    with _refusal_is_a_violation():
        first, _ = log.append_messages([row.message])
    groups.append(Group(first, (row,)))
    return replace(settled, groups=tuple(groups), staged={})


def _check_known(group: Group, found: OffsetRange) -> None:
    """A batch that is not known has just got an empty range. Compaction may move where a known one begins."""
    if not found.first < group.end <= found.end:
        raise Violation(f"batch {group.batch_id} at {group.first} is no longer known: it would be published twice")


def _check_verified(directory: str) -> None:
    found = verify(directory)
    remarks = [remark for remark in found.remarks if not _is_about_hidden_damage(directory, remark)]
    if found.problems or remarks:
        raise Violation(f"verification finds {[*map(str, found.problems), *remarks]}")


def _is_about_hidden_damage(directory: str, remark: str) -> bool:
    """A table of contents is never synced. One that a power cut has damaged behind its first sector looks right to who
    opens the log; readers see that it is not, and walk the segment instead."""
    segment = re.search(r"the contents of (\S+\.log)", remark)
    if segment is None:
        return False
    path = os.path.join(directory, segment[1])
    is_long = os.path.getsize(contents.contents_path(path)) > SECTOR
    return is_long and contents.load_extent(path, os.path.getsize(path)) is not None


def offsets_of(groups: Iterable[Group]) -> dict[int, Row]:
    """Every message by its offset."""
    return {offset: row for group in groups for offset, row in _rows(group)}


def segment_ends(directory: str, end: Offset) -> dict[int, int]:
    """Where each segment begins and ends."""
    bases = list_segments(directory)
    return dict(zip(bases, [*bases[1:], end], strict=True))
