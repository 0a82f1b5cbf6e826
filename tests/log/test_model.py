"""The log against a model of it: a dict of messages and a few dicts of positions.

Whatever is done in whatever order, with crashes in between, the log gives back what the model says.
"""

import os
import re
import shutil
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tailrace.errors import TailraceError
from tailrace.log.agreement import Hold, Policy
from tailrace.log.batch import Batch, batches_of, with_key
from tailrace.log.commitlog import CommitLog, LogConfig
from tailrace.log.compaction import By, compact
from tailrace.log.consumers import DRAFT_NAME, Consumers, State
from tailrace.log.disk import DRAFT_SUFFIX, Disk
from tailrace.log.frame import place_head
from tailrace.log.group import OffsetRange
from tailrace.log.head import head_path, read_head
from tailrace.log.offsets import WHOLE_LOG
from tailrace.log.operator import Operator
from tailrace.log.reader import LogReader
from tailrace.log.retention import retain
from tailrace.log.segment import Segment, list_segments, segment_name
from tailrace.log.selection import Selection
from tailrace.log.session import ConsumerSession
from tailrace.log.verification import verify
from tailrace.message import Entry, Lsn, Message, Micros, Mode, NodeId, Offset, Op
from tests.log.material import NEVER_S, SECOND

KEYED = ("A", "B")
NAMESPACES = ("A", "B", "C")
NAMES = st.sampled_from(["first", "second", "third"])
FRACTION = st.sampled_from([0, 20, 50, 80, 100, 100])
"""A place in a range whose ends are known only when the rule runs, in hundredths."""
POSITIONS = st.just((100, 100, 100)) | st.tuples(FRACTION, FRACTION, FRACTION)
"""How far consumers come before something is removed."""
POLICIES = st.sampled_from([Policy.HOLD, Policy.HOLD, Policy.NONE])


def make_message(
    namespace: str, key: int, second: int, origin: int, lsn: int, destinations: tuple[str, ...], is_delete: bool
) -> Message:
    row = {"id": key, "text": "some text that is worth compacting " * 8}
    return Message(
        op=Op.DELETE if is_delete else Op.INSERT,
        timestamp=Micros(second * SECOND),
        namespace=namespace,
        data=None if is_delete else row,
        before=row if is_delete else None,
        origin=NodeId(origin),
        lsn=Lsn(lsn),
        destinations=destinations,
    )


def make_run(namespace: str, keys: list[int]) -> list[Message]:
    """Messages that become one frame."""
    return [make_message(namespace, key, 5, 1, number, ("x",), is_delete=False) for number, key in enumerate(keys)]


MIXED = st.lists(
    st.builds(
        make_message,
        namespace=st.sampled_from(NAMESPACES),
        key=st.integers(0, 3),
        second=st.integers(1, 20),
        origin=st.integers(0, 2),
        lsn=st.integers(0, 30),
        destinations=st.sampled_from([(), ("x",), ("x", "y")]),
        is_delete=st.booleans(),
    ),
    min_size=1,
    max_size=8,
)
RUNS = st.builds(make_run, st.sampled_from(NAMESPACES), st.lists(st.integers(0, 3), min_size=4, max_size=12))
MESSAGES = MIXED | RUNS


LOOKS = st.one_of(
    st.tuples(st.just("read_a_range"), FRACTION, FRACTION),
    st.tuples(st.just("read_a_namespace"), st.sampled_from(["A", "[AB]", "^C$", "D"])),
    st.tuples(st.just("read_a_destination"), st.sampled_from(["x", "y", "z"]), FRACTION),
    st.tuples(st.just("read_since"), st.dictionaries(st.integers(0, 2), st.integers(0, 30))),
    st.tuples(st.just("find_a_timestamp"), st.integers(0, 21)),
    st.tuples(st.just("find_an_lsn"), st.integers(0, 3), st.integers(0, 31)),
    st.tuples(st.just("read_outside")),
    st.tuples(st.just("look_at_a_consumer"), NAMES),
)


def make_batches(messages: Iterable[Message]) -> list[Batch]:
    """Messages as batches; of some namespaces the key is known."""
    return [
        Batch(one.namespace, with_key(one.rows, ["id"]), one.mode, one.origin) if one.namespace in KEYED else one
        for one in batches_of(messages)
    ]


def key_of(message: Message) -> tuple[str, Any]:
    row = message.data or message.before
    assert row is not None
    return message.namespace, row["id"]


class HastyDisk(Disk):
    """A disk that waits for nothing: here processes crash, but no power is cut."""

    def sync(self, fd: int) -> None:
        pass

    def sync_directory(self, path: str) -> None:
        pass


DISK = HastyDisk()


@dataclass
class ModelConsumer:
    """A consumer as it should be."""

    policy: Policy
    positions: dict[str, int] = field(default_factory=dict)
    singles: set[int] = field(default_factory=set)
    pending: dict[str, int] = field(default_factory=dict)
    """Committed but not flushed."""
    session: ConsumerSession | None = None

    def of(self, namespace: str) -> int:
        return max(self.positions.get(WHOLE_LOG, -1), self.positions.get(namespace, -1))

    def had(self, offset: int, namespace: str) -> bool:
        return offset <= self.of(namespace) or offset in self.singles

    def commit(self, namespace: str, offset: int) -> None:
        self.positions[namespace] = max(offset, self.positions.get(namespace, -1))

    def rewind(self, offset: int) -> None:
        self.positions = {name: min(position, offset - 1) for name, position in self.positions.items()}
        self.singles = {single for single in self.singles if single < offset}

    def flush(self) -> None:
        for namespace, offset in self.pending.items():
            self.commit(namespace, offset)
        self.pending.clear()


class LogMachine(RuleBasedStateMachine):
    """What can be done to a log, and what must come of it."""

    batch_ids: Bundle[str] = Bundle("batch_ids")

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="tailrace-model-"))
        self.directory = self.root / "log0"
        self.messages: dict[int, Message] = {}
        self.oldest = 0
        self.end = 0
        self.removed: list[tuple[int, str]] = []
        """What retention took, by offset and namespace."""
        self.batches: dict[str, OffsetRange] = {}
        self.published = 0
        self.crashes = 0
        self.known: dict[str, ModelConsumer] = {}

    @initialize(
        segment_bytes=st.sampled_from([1 << 30, 6000, 1000]),
        consumers=st.dictionaries(NAMES, POLICIES),
        groups=st.lists(MESSAGES, max_size=4),
    )
    def begin(self, segment_bytes: int, consumers: dict[str, Policy], groups: list[list[Message]]) -> None:
        self.config = LogConfig(segment_bytes=segment_bytes)
        self.open()
        for name, policy in consumers.items():
            self.register(name, 0, policy)
        self.append(groups, rolls=True)

    def open(self) -> None:
        self.log = CommitLog.open(self.directory, self.config, disk=DISK)
        self.reader = LogReader(self.directory)
        self.consumers = Consumers(self.directory, disk=DISK)

    def teardown(self) -> None:
        try:
            if hasattr(self, "log"):
                self.leave()
                self.check_everything()
                for name in self.known:
                    self.look_at_a_consumer(name)
        finally:
            shutil.rmtree(self.root)

    def leave(self) -> None:
        for consumer in self.known.values():
            self.close_session(consumer)
        self.log.close()

    def close_session(self, consumer: ModelConsumer) -> None:
        if consumer.session is not None:
            consumer.session.close()
            consumer.session = None
            consumer.flush()

    # What there should be

    def entries(self, start: int | None = None, end: int | None = None) -> list[Entry]:
        return [
            Entry(Offset(offset), Mode.SYNC, message)
            for offset, message in sorted(self.messages.items())
            if (start or 0) <= offset < (self.end if end is None else end)
        ]

    def at(self, fraction: int) -> int:
        """An offset between the log's beginning and its end, both included."""
        return self.oldest + (self.end - self.oldest) * fraction // 100

    def bases(self) -> list[int]:
        return list(list_segments(str(self.directory)))

    def in_segment(self, base: int) -> list[tuple[int, Message]]:
        following = min((other for other in self.bases() if other > base), default=self.end)
        return [(offset, message) for offset, message in sorted(self.messages.items()) if base <= offset < following]

    def has_lost(self, consumer: ModelConsumer) -> bool:
        return any(not consumer.had(offset, namespace) for offset, namespace in self.removed)

    def holders(self) -> list[ModelConsumer]:
        return [one for one in self.known.values() if one.policy is Policy.HOLD and not self.has_lost(one)]

    def grow(self, messages: list[Message], got: OffsetRange) -> None:
        assert got == (self.end, self.end + len(messages))
        for message in messages:
            self.messages[self.end] = message
            self.end += 1

    # Appending

    @rule(groups=st.lists(MESSAGES, min_size=1, max_size=4), rolls=st.booleans())
    def append(self, groups: list[list[Message]], rolls: bool) -> None:
        for messages in groups:
            self.grow(messages, self.log.append(make_batches(messages)))
        if rolls:
            self.log.roll()

    @rule(target=batch_ids, messages=MESSAGES)
    def append_batch(self, messages: list[Message]) -> str:
        batch_id = f"batch-{self.published}"
        self.published += 1
        self.grow(messages, self.log.append(make_batches(messages), batch_id=batch_id))
        self.batches[batch_id] = OffsetRange(Offset(self.end - len(messages)), Offset(self.end))
        return batch_id

    @rule(target=batch_ids, tasks=st.lists(MESSAGES, min_size=1, max_size=3))
    def publish(self, tasks: list[list[Message]]) -> str:
        batch_id = f"batch-{self.published}"
        self.published += 1
        staged = []
        for number, messages in enumerate(tasks):
            with self.log.staging.writer(batch_id, f"task-{number}") as writer:
                for one in make_batches(messages):
                    writer.add(one)
                staged.append(writer.close())
        messages = [message for task in tasks for message in task]
        self.grow(messages, self.log.publish(batch_id, staged))
        self.batches[batch_id] = OffsetRange(Offset(self.end - len(messages)), Offset(self.end))
        assert self.log.staging.waiting() == {}
        return batch_id

    @rule(target=batch_ids, batch_id=consumes(batch_ids), messages=MESSAGES, is_published=st.booleans())
    def repeat(self, batch_id: str, messages: list[Message], is_published: bool) -> Any:
        """A batch that the log has is not appended again, even when nothing of it is left but its id."""
        if self.batches[batch_id].first < self.oldest:
            return multiple()
        if is_published:
            self.log.publish(batch_id, [])
        else:
            self.log.append(make_batches(messages), batch_id=batch_id)
        self.check_known(self.log, batch_id)
        return batch_id

    def check_known(self, log: CommitLog, batch_id: str) -> None:
        again = log.append([], batch_id=batch_id)
        assert log.next_offset == self.end
        left = [offset for offset in range(*self.batches[batch_id]) if offset in self.messages]
        assert all(again.first <= offset < again.end for offset in left)
        assert again.first < again.end <= self.end

    @rule(messages=MESSAGES)
    def fail_in_a_group(self, messages: list[Message]) -> None:
        with pytest.raises(ConnectionError), self.log.group() as group:
            for one in make_batches(messages):
                group.add(one)
            raise ConnectionError

    # Reading

    @rule(look=LOOKS)
    def read(self, look: tuple[str, *tuple[Any, ...]]) -> None:
        name, *arguments = look
        getattr(self, name)(*arguments)

    def read_a_range(self, first: int, last: int) -> None:
        start, end = sorted((self.at(first), self.at(last)))
        assert list(self.reader.entries(start, end)) == self.entries(start, end)

    def read_a_namespace(self, pattern: str) -> None:
        found = list(self.reader.entries(selection=Selection(namespace=re.compile(pattern))))
        assert found == [entry for entry in self.entries() if re.search(pattern, entry.message.namespace)]

    def read_a_destination(self, destination: str, first: int) -> None:
        start = self.at(first)
        found = list(self.reader.entries(start, selection=Selection(destination=destination)))
        assert found == [entry for entry in self.entries(start) if destination in entry.message.destinations]

    def read_since(self, since: dict[int, int]) -> None:
        selection = Selection(since={NodeId(origin): Lsn(lsn) for origin, lsn in since.items()})
        found = list(self.reader.entries(selection=selection))
        assert found == [entry for entry in self.entries() if entry.message.lsn > since.get(entry.message.origin, 0)]

    def find_a_timestamp(self, second: int) -> None:
        late = [entry.offset for entry in self.entries() if entry.message.timestamp >= second * SECOND]
        assert self.reader.offset_at(Micros(second * SECOND)) == min(late, default=self.end)

    def find_an_lsn(self, origin: int, lsn: int) -> None:
        later = [entry.offset for entry in self.entries() if (m := entry.message).origin == origin and m.lsn >= lsn]
        assert self.reader.offset_of(NodeId(origin), Lsn(lsn)) == min(later, default=None)

    def read_outside(self) -> None:
        for start, code in ((self.oldest - 1, "log.below_oldest"), (self.end + 1, "log.past_end")):
            with pytest.raises(TailraceError) as caught:
                list(self.reader.entries(start))
            assert caught.value.code == code

    # Consumers

    @rule(name=NAMES, start=FRACTION, policy=POLICIES)
    def register(self, name: str, start: int, policy: Policy) -> None:
        first = self.at(start)
        if name in self.known:
            with pytest.raises(TailraceError) as caught:
                self.consumers.register(name)
            assert caught.value.code == "consumer.exists"
            return
        self.consumers.register(name, start=first, hold=Hold(policy))
        self.known[name] = ModelConsumer(policy, {WHOLE_LOG: first - 1} if first else {})

    @rule(name=NAMES, offset=FRACTION, namespace=st.sampled_from([WHOLE_LOG, *NAMESPACES]))
    @precondition(lambda self: self.known)
    def commit(self, name: str, offset: int, namespace: str) -> None:
        consumer = self.known.get(name)
        upto = self.at(offset) - 1
        if consumer is None or upto < 0:
            return
        if consumer.session is None:
            if self.consumers.get(name).state is State.INVALIDATED:
                with pytest.raises(TailraceError) as caught:
                    ConsumerSession(self.consumers, name)
                assert caught.value.code == "consumer.invalidated"
                return
            consumer.session = ConsumerSession(self.consumers, name, flush_s=NEVER_S, disk=DISK)
        consumer.session.commit(upto, namespace)
        consumer.pending[namespace] = max(upto, consumer.pending.get(namespace, -1))

    def catch_up(self, positions: tuple[int, ...]) -> None:
        for name, offset in zip(self.known, positions, strict=False):
            self.commit(name, offset, WHOLE_LOG)
            self.flush(name, closes=False)

    @rule(name=NAMES, closes=st.booleans())
    @precondition(lambda self: self.known)
    def flush(self, name: str, closes: bool) -> None:
        consumer = self.known.get(name)
        if consumer is None or consumer.session is None:
            return
        if closes:
            self.close_session(consumer)
        else:
            consumer.session.flush()
            consumer.flush()

    @rule(name=NAMES, offset=FRACTION, action=st.sampled_from(["mark", "ack", "ack last", "rewind"]))
    @precondition(lambda self: self.known)
    def move(self, name: str, offset: int, action: str) -> None:
        """An operator's hand: everything, one message, the last one of a segment, or back."""
        consumer = self.known.get(name)
        if consumer is None:
            return
        self.close_session(consumer)
        operator, target = Operator(self.consumers, DISK), self.at(offset)
        if action == "ack last":
            action, target = "ack", min((base for base in self.bases() if base > target), default=self.end) - 1
        position = self.consumers.position(self.consumers.get(name))
        message = self.messages.get(target)
        if action == "mark":
            is_refused = target >= self.end or target <= position
        elif action == "ack":
            is_refused = message is None or consumer.had(target, message.namespace)
        else:
            is_refused = target > max(position + 1, self.oldest, *(at + 1 for at in consumer.positions.values()))
        work = {"mark": operator.mark, "ack": operator.acknowledge, "rewind": operator.rewind}[action]
        if is_refused:
            with pytest.raises(TailraceError) as caught:
                work(name, target, reason="model")
            assert caught.value.code in ("offset.direction", "offset.outside_log")
            return
        work(name, target, reason="model")
        if action == "mark":
            consumer.commit(WHOLE_LOG, target)
        elif action == "ack":
            consumer.singles.add(target)
        else:
            consumer.rewind(target)
            consumer.commit(WHOLE_LOG, self.oldest - 1)
        self.look_at_a_consumer(name)

    @rule(name=NAMES)
    def delete(self, name: str) -> None:
        consumer = self.known.pop(name, None)
        if consumer is None:
            with pytest.raises(TailraceError) as caught:
                self.consumers.delete(name, "model")
            assert caught.value.code == "consumer.unknown"
            return
        self.close_session(consumer)
        self.consumers.delete(name, "model")

    def look_at_a_consumer(self, name: str) -> None:
        consumer = self.known.get(name)
        if consumer is None:
            return
        found = self.consumers.get(name)
        assert [found.positions.of(namespace) for namespace in NAMESPACES] == [consumer.of(one) for one in NAMESPACES]
        for offset, message in self.messages.items():
            assert found.positions.covers(message.namespace, offset) == consumer.had(offset, message.namespace)
        if self.has_lost(consumer):
            assert found.state is State.INVALIDATED
        elif not consumer.singles:
            assert found.state is State.LIVE
        needed = (offset for offset, message in self.messages.items() if not consumer.had(offset, message.namespace))
        position, furthest = self.consumers.position(found), min(needed, default=self.end) - 1
        assert position <= furthest
        if not consumer.singles:
            assert not any(position < offset <= furthest for offset in self.messages)

    # Maintenance

    @rule(by=st.sampled_from(By), upto=st.none() | FRACTION, positions=st.none() | POSITIONS)
    def compact(self, by: By, upto: int | None, positions: tuple[int, ...] | None) -> None:
        self.catch_up(positions or ())
        limit = None if upto is None else self.at(upto)
        sealed = [pair for base in self.bases()[:-1] for pair in self.in_segment(base)]
        staying = self.survivors(sealed, by)
        holders = [one for one in self.holders() if self.consumers.get(self.name_of(one)).holds]
        done = compact(self.directory, by=by, upto=limit, disk=DISK)
        for segment in done.segments:
            for offset, message in self.in_segment(segment.base):
                limits = [one.of(message.namespace) for one in holders] + ([] if limit is None else [limit])
                if all(offset <= least for least in limits) and offset not in staying:
                    del self.messages[offset]
        if not self.known and limit is None:
            assert done.segments == []

    def survivors(self, sealed: list[tuple[int, Message]], by: By) -> set[int]:
        if by is By.NAMESPACE:
            return set({message.namespace: offset for offset, message in sealed}.values())
        last = {key_of(message): offset for offset, message in sealed}
        return set(last.values()) | {offset for offset, message in sealed if message.namespace not in KEYED}

    def name_of(self, consumer: ModelConsumer) -> str:
        return next(name for name, one in self.known.items() if one is consumer)

    @rule(positions=st.none() | POSITIONS)
    def retain(self, positions: tuple[int, ...] | None) -> None:
        self.catch_up(positions or ())
        bases = self.bases()
        segments = {base: self.in_segment(base) for base in bases}
        holders = [one for one in self.holders() if self.consumers.get(self.name_of(one)).holds]
        done = retain(self.directory, disk=DISK)
        gone = [fate.base for fate in done.removed]
        assert gone == bases[: len(gone)]
        assert len(gone) < len(bases)
        for base in gone:
            for offset, message in segments[base]:
                assert all(one.had(offset, message.namespace) for one in holders)
                del self.messages[offset]
                self.removed.append((offset, message.namespace))
        first, is_active = bases[len(gone)], len(gone) == len(bases) - 1
        self.oldest = first
        if not is_active and self.known:
            assert any(offset > one.of(m.namespace) for one in holders for offset, m in segments[first])
        if not self.known:
            assert gone == []

    @rule()
    def reopen(self) -> None:
        self.log.close()
        self.log = CommitLog.open(self.directory, self.config, disk=DISK)
        assert self.log.report.is_clean

    @rule(
        tail=st.sampled_from(["nothing", "garbage", "half a frame", "half a group"]),
        loses_head=st.booleans(),
        loses_side_files=st.booleans(),
        leftovers=st.booleans(),
    )
    @precondition(lambda self: self.crashes < 5)
    def crash(self, tail: str, loses_head: bool, loses_side_files: bool, leftovers: bool) -> None:
        """The directory as it is at this moment, with what a writer can leave behind; nobody closes anything."""
        self.crashes += 1
        copy = self.root / f"log{self.crashes}"
        shutil.copytree(self.directory, copy)
        for consumer in self.known.values():
            consumer.pending.clear()
            if consumer.session is not None:
                consumer.session.close()
                consumer.session = None
        self.log.close()
        shutil.rmtree(self.directory)
        self.directory = copy
        torn = self.torn(tail)
        active = copy / segment_name(self.bases()[-1])
        with open(active, "ab") as file:
            file.write(torn)
        if loses_head:
            os.unlink(head_path(str(copy)))
        if loses_side_files:
            for file_name in [*copy.glob("*.toc"), *copy.glob("*.index")]:
                file_name.unlink()
        if leftovers:
            (copy / f"{segment_name(0)}.7{DRAFT_SUFFIX}").write_bytes(b"a draft")
            (copy / DRAFT_NAME).mkdir(exist_ok=True)
        note(f"crash into {copy}: {len(torn)} torn bytes")
        self.open()
        assert self.log.report.previous_writer is not None
        assert (self.log.report.cut is not None) == bool(torn)

    def torn(self, tail: str) -> bytes:
        if tail == "garbage":
            return b"\x00\xff" * 30
        if tail == "nothing":
            return b""
        head = read_head(str(self.directory))
        assert head is not None
        with tempfile.TemporaryDirectory() as name, CommitLog.open(name, disk=DISK) as other:
            other.append(make_batches([make_message("A", 1, 1, 0, 0, (), is_delete=False)]))
            with Segment(name, Offset(0)) as segment:
                (located,) = segment.frames()
        _, encoded = place_head(located.head, offset=self.end, closes_group=False)
        whole = encoded + bytes(located.body)
        return whole[:150] if tail == "half a frame" else whole

    # What always holds

    @invariant()
    def ends_agree(self) -> None:
        if hasattr(self, "log"):
            assert self.log.next_offset == self.reader.next_offset == self.end
            assert self.reader.oldest == self.oldest
            assert self.consumers.names() == sorted(self.known)

    def check_everything(self) -> None:
        assert list(LogReader(self.directory).entries()) == self.entries()
        found = verify(self.directory)
        assert (found.problems, found.remarks) == ([], [])
        assert found.messages == len(self.messages)
        with CommitLog.open(self.directory, disk=DISK) as log:
            assert log.report.is_clean
            assert log.next_offset == self.end
            for batch_id, offsets in self.batches.items():
                if offsets.first >= self.oldest:
                    self.check_known(log, batch_id)


QUICK = settings(
    max_examples=40,
    stateful_step_count=40,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)


@pytest.mark.parametrize("half", [1, 2])
def test_the_log_is_what_the_model_says(half: int) -> None:
    run_state_machine_as_test(LogMachine, settings=QUICK)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("half", [1, 2])
def test_the_log_is_what_the_model_says_for_long(half: int) -> None:
    run_state_machine_as_test(LogMachine, settings=settings(QUICK, max_examples=1000, stateful_step_count=80))
