"""A consumer at work: what it commits, when that reaches the disk, and where it goes on after a stop or a crash."""

import shutil
import threading
import time
from pathlib import Path

import pytest

from tailrace.errors import TailraceError
from tailrace.log.agreement import Hold, Policy
from tailrace.log.commitlog import CommitLog
from tailrace.log.consumers import Consumers, State
from tailrace.log.offsets import WHOLE_LOG, Kind, OffsetLog, Record, read_positions, read_records
from tailrace.log.operator import Operator
from tailrace.log.reader import LogReader
from tailrace.log.retention import retain
from tailrace.log.session import ConsumerSession
from tests.log.material import (
    NEVER_S,
    BrokenDisk,
    TellingDisk,
    eventually,
    fill,
    has_read,
    make_log,
    offset_log,
)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Ten messages in two segments, and a consumer `c` that has had none of them."""
    directory = tmp_path / "log"
    make_log(directory, "ABABA", "BABAB")
    Consumers(directory).register("c")
    return directory


def on_disk(directory: Path, namespace: str = WHOLE_LOG, name: str = "c") -> int:
    return read_positions(str(offset_log(directory, name).parent)).of(namespace)


class TestCommit:
    def test_each_namespace_has_its_own_offset(self, log: Path) -> None:
        with ConsumerSession(Consumers(log), "c", flush_s=NEVER_S) as session:
            session.commit(6, "A")
            session.commit(3, "B")
            session.commit(8, "A")
            session.flush()
            assert session.positions.by_namespace == {"A": 8, "B": 3}
            assert session.resume_offset == 5  # 4 is of A, which is ahead
        assert read_positions(str(offset_log(log, "c").parent)).by_namespace == {"A": 8, "B": 3}

    def test_one_flush_writes_the_last_word_on_each_namespace(self, log: Path) -> None:
        with ConsumerSession(Consumers(log), "c", flush_s=NEVER_S) as session:
            for offset in range(10):
                session.commit(offset, "AB"[offset % 2])
            session.flush()
        records = read_records(str(offset_log(log, "c").parent))
        assert [(record.namespace, record.offset) for record in records] == [("A", 8), ("B", 9)]

    def test_a_lower_commit_is_no_news(self, log: Path) -> None:
        with ConsumerSession(Consumers(log), "c", flush_s=NEVER_S) as session:
            session.commit(6)
            session.commit(4)
            session.flush()
            size = offset_log(log, "c").stat().st_size
            session.commit(6)
            session.commit(5)
            session.flush()
            assert offset_log(log, "c").stat().st_size == size
        assert on_disk(log) == 6

    @pytest.mark.parametrize("offset", [-1, 10, 1 << 64])
    def test_outside_the_log_is_refused(self, log: Path, offset: int) -> None:
        with ConsumerSession(Consumers(log), "c", flush_s=NEVER_S) as session:
            with pytest.raises(TailraceError) as caught:
                session.commit(offset)
            assert caught.value.code == "offset.outside_log"
            assert "from 0 to 9" in caught.value.what
            session.commit(9)
        assert on_disk(log) == 9

    def test_what_the_writer_appends_can_be_committed_at_once(self, log: Path) -> None:
        with CommitLog.open(log) as writer, ConsumerSession(Consumers(log), "c", flush_s=NEVER_S) as session:
            fill(writer, "C")
            session.commit(10)
        assert on_disk(log) == 10

    @pytest.mark.parametrize("namespace", ["n" * 5000, "\ud800"])
    def test_a_namespace_that_could_not_be_read_back_is_refused(self, log: Path, namespace: str) -> None:
        has_read(log, "c", 2)
        with ConsumerSession(Consumers(log), "c", flush_s=NEVER_S) as session:
            with pytest.raises(TailraceError) as caught:
                session.commit(3, namespace)
            assert caught.value.code == "name.invalid"
            session.commit(4)
        assert on_disk(log) == 4

    def test_namespaces_of_other_programs_may_be_long(self, log: Path) -> None:
        with ConsumerSession(Consumers(log), "c", flush_s=NEVER_S) as session:
            session.commit(3, "n" * 4000)
        assert on_disk(log, "n" * 4000) == 3

    def test_many_threads(self, log: Path) -> None:
        start = threading.Barrier(4)

        def commit(session: ConsumerSession, offsets: range) -> None:
            start.wait()
            for offset in offsets:
                session.commit(offset, "AB"[offset % 2])
                session.flush()

        with ConsumerSession(Consumers(log), "c", flush_s=0.001) as session:
            threads = [threading.Thread(target=commit, args=(session, range(first, 10, 4))) for first in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        assert (on_disk(log, "A"), on_disk(log, "B")) == (8, 9)


class TestFlush:
    def test_nothing_is_written_before_its_time(self, log: Path) -> None:
        with ConsumerSession(Consumers(log), "c", flush_s=NEVER_S) as session:
            session.commit(6)
            assert on_disk(log) == -1
            assert session.resume_offset == 0
            session.flush()
            assert on_disk(log) == 6

    def test_it_happens_by_itself(self, log: Path) -> None:
        with ConsumerSession(Consumers(log), "c", flush_s=0.01) as session:
            for offset in (3, 7):
                session.commit(offset)
                eventually(lambda offset=offset: on_disk(log) == offset)  # type: ignore[misc]

    def test_it_happens_by_itself_unless_told_otherwise(self, log: Path) -> None:
        with ConsumerSession(Consumers(log), "c") as session:
            session.commit(3)
            eventually(lambda: on_disk(log) == 3)

    def test_closing_flushes(self, log: Path) -> None:
        session = ConsumerSession(Consumers(log), "c", flush_s=NEVER_S)
        session.commit(6)
        session.close()
        session.close()
        assert on_disk(log) == 6
        with pytest.raises(TailraceError) as caught:
            session.commit(7)
        assert caught.value.code == "log.closed"
        with pytest.raises(TailraceError) as caught:
            session.flush()
        assert caught.value.code == "log.closed"

    def test_leaving_by_an_exception_flushes_what_was_committed(self, log: Path) -> None:
        with pytest.raises(ConnectionError), ConsumerSession(Consumers(log), "c", flush_s=NEVER_S) as session:
            session.commit(6)
            raise ConnectionError
        assert on_disk(log) == 6

    @pytest.mark.crash
    def test_a_crash_repeats_what_was_not_flushed(self, log: Path, tmp_path: Path) -> None:
        with ConsumerSession(Consumers(log), "c", flush_s=NEVER_S) as session:
            session.commit(3)
            session.flush()
            session.commit(7)
            shutil.copytree(log, tmp_path / "after the crash")
        with ConsumerSession(Consumers(tmp_path / "after the crash"), "c") as session:
            assert session.resume_offset == 4

    def test_a_disk_that_does_not_confirm(self, log: Path) -> None:
        """I7: it is told to whoever commits next, and not tried again."""
        disk = BrokenDisk()
        session = ConsumerSession(Consumers(log), "c", flush_s=0.005, disk=disk)
        session.commit(2)
        eventually(lambda: session.positions.of("A") == 2)
        disk.is_broken = True
        session.commit(5)

        def fails() -> bool:
            try:
                session.commit(6)
            except TailraceError as error:
                assert error.code == "log.io"
                return True
            return False

        eventually(fails)
        with pytest.raises(TailraceError) as caught:
            session.flush()
        assert caught.value.code == "log.io"
        session.close()
        assert disk.failed_syncs == 1
        assert not Consumers(log).is_in_use("c")
        assert session.positions.of("A") == 2

    def test_the_offsets_are_compacted_while_it_runs(self, log: Path) -> None:
        disk = TellingDisk()
        offsets = OffsetLog(str(offset_log(log, "c").parent), disk)
        offsets.append([Record(Kind.COMMIT, WHOLE_LOG, 0)] * 1000, 1)
        offsets.close()
        with ConsumerSession(Consumers(log), "c", flush_s=NEVER_S, disk=disk) as session:
            for offset in range(1, 10):
                session.commit(offset)
                session.flush()
            assert len(read_records(str(offset_log(log, "c").parent))) < 10
            assert [call for call, _ in disk.calls].count("rename") == 1
        assert on_disk(log) == 9


class TestResume:
    def test_two_writers_that_see_different_messages(self, tmp_path: Path) -> None:
        """One gets 1, 2, 4 and the other 1, 3, 5, 7; what a filter drops counts as acknowledged."""
        names = ["none", "both", "one", "two", "one", "two", "none", "two"]
        make_log(tmp_path, names)
        consumers = Consumers(tmp_path)
        wanted = {"first": {"both", "one"}, "second": {"both", "two"}}
        for name, namespaces in wanted.items():
            consumers.register(name)
            with ConsumerSession(consumers, name, flush_s=NEVER_S) as session:
                delivered = []
                for entry in LogReader(tmp_path).entries(session.resume_offset):
                    if entry.message.namespace in namespaces:
                        delivered.append(entry.offset)
                        session.commit(entry.offset, entry.message.namespace)
                assert delivered == {"first": [1, 2, 4], "second": [1, 3, 5, 7]}[name]
        first, second = consumers.get("first").positions, consumers.get("second").positions
        assert first.by_namespace == {"both": 1, "one": 4}
        assert second.by_namespace == {"both": 1, "two": 7}
        assert [offset for offset, name in enumerate(names) if first.covers(name, offset)] == [1, 2, 4]
        assert [offset for offset, name in enumerate(names) if second.covers(name, offset)] == [1, 3, 5, 7]
        for name, namespaces in wanted.items():
            with ConsumerSession(consumers, name, flush_s=NEVER_S) as session:
                assert session.resume_offset == 0
                for skipped in set(names) - namespaces:
                    session.commit(7, skipped)
                session.flush()
                assert session.resume_offset == 8

    def test_where_it_goes_on_is_never_inside_what_was_acknowledged(self, log: Path) -> None:
        with ConsumerSession(Consumers(log), "c", flush_s=NEVER_S) as session:
            session.commit(8, "A")
            session.commit(9, "B")
            session.flush()
            assert session.resume_offset == 10

    def test_an_empty_log(self, tmp_path: Path) -> None:
        CommitLog.open(tmp_path).close()
        consumers = Consumers(tmp_path)
        consumers.register("c")
        with ConsumerSession(consumers, "c", flush_s=NEVER_S) as session:
            assert session.resume_offset == 0


class TestLife:
    def test_an_idle_session_shows_life(self, log: Path) -> None:
        consumers = Consumers(log)
        consumers.register("idle", ttl_s=0.03)
        with ConsumerSession(consumers, "idle", flush_s=0.005):
            first = consumers.get("idle").seen_s
            eventually(lambda: consumers.get("idle").seen_s > first + 0.1)

    def test_a_busy_one_does_so_by_committing(self, log: Path) -> None:
        Consumers(log).register("busy", ttl_s=60)
        late = Consumers(log, clock=lambda: time.time() + 61)
        assert late.get("busy").state is State.EXPIRED
        has_read(log, "busy", 3)
        assert Consumers(log).get("busy").state is State.LIVE

    def test_what_it_needs_is_held_as_soon_as_it_is_open(self, log: Path) -> None:
        """It had expired, and retention comes right after it has returned."""
        consumers = Consumers(log)
        consumers.delete("c", "")
        consumers.register("late", ttl_s=3600)
        clock = lambda: time.time() + 3000  # noqa: E731
        with ConsumerSession(consumers, "late", flush_s=NEVER_S):
            assert retain(log, clock=clock).removed == []
        assert [fate.base for fate in retain(log, clock=lambda: time.time() + 4000).removed] == [0]

    def test_the_way_out_of_an_invalidated_consumer(self, log: Path) -> None:
        """What the error says is what helps."""
        consumers = Consumers(log)
        consumers.register("slow", hold=Hold(Policy.NONE))
        has_read(log, "slow", 1, "B")
        has_read(log, "slow", 9, "A")
        Operator(consumers).mark("c", 9, reason="it is not what this is about")
        retain(log)
        with pytest.raises(TailraceError) as caught:
            ConsumerSession(consumers, "slow")
        assert caught.value.code == "consumer.invalidated"
        assert "rewind slow oldest" in caught.value.hint
        Operator(consumers).rewind("slow", consumers.view.bases()[0], reason="new snapshot")
        with ConsumerSession(consumers, "slow", flush_s=NEVER_S) as session:
            assert session.resume_offset == 5

    def test_one_that_never_came_as_far_as_the_log_begins(self, log: Path) -> None:
        consumers = Consumers(log)
        consumers.register("slow", hold=Hold(Policy.NONE))
        Operator(consumers).mark("c", 9, reason="it is not what this is about")
        retain(log)
        Operator(consumers).rewind("slow", 5, reason="new snapshot")
        with ConsumerSession(consumers, "slow", flush_s=NEVER_S) as session:
            assert session.resume_offset == 5
