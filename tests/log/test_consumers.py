"""The registry of consumers: who there is, what each agreed to, and in which state it is."""

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tailrace.errors import TailraceError
from tailrace.log import audit
from tailrace.log.agreement import Agreement, Hold, Policy
from tailrace.log.commitlog import CommitLog
from tailrace.log.compaction import compact
from tailrace.log.consumers import AGREEMENT_NAME, DRAFT_NAME, PREFIX, Consumers, State
from tailrace.log.disk import Disk
from tailrace.log.head import LogHead
from tailrace.log.operator import Operator
from tailrace.log.reader import LogReader
from tailrace.log.retention import retain
from tailrace.log.session import ConsumerSession
from tailrace.log.verification import verify
from tailrace.log.view import LogView
from tailrace.message import Offset
from tests.log.material import (
    NEVER_S,
    BrokenDisk,
    TellingDisk,
    change,
    fill,
    has_read,
    make_log,
    offset_log,
    offsets_of,
    transporter_log,
)

HOLD_THE_CONSUMER = """
import sys
from tailrace.log.consumers import Consumers
with Consumers(sys.argv[1]).owning(sys.argv[2]):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Ten messages, of which the first five are removable."""
    directory = tmp_path / "log"
    make_log(directory, "ABABA", "BABAB")
    return directory


def age(directory: Path, name: str, seconds: float) -> None:
    """Let it be so long that the consumer was last seen."""
    then = time.time() - seconds
    for file in (offset_log(directory, name), directory / f"{PREFIX}{name}" / AGREEMENT_NAME):
        os.utime(file, (then, then))


def code_of(error: pytest.ExceptionInfo[TailraceError]) -> str:
    assert error.value.hint or error.value.place
    return error.value.code


class TestRegister:
    def test_it_begins_at_the_oldest_message(self, log: Path) -> None:
        consumers = Consumers(log)
        consumer = consumers.register("c")
        assert consumer.state is State.LIVE
        assert consumers.position(consumer) == -1
        assert consumers.names() == ["c"]
        assert consumers.all() == [consumer]

    def test_it_begins_at_the_oldest_message_that_is_left(self, log: Path) -> None:
        consumers = Consumers(log)
        consumers.register("other", start=10)
        retain(log)
        consumer = consumers.register("c")
        assert consumers.position(consumer) == 4
        assert consumer.state is State.LIVE

    def test_it_begins_at_the_end(self, log: Path) -> None:
        consumers = Consumers(log)
        assert consumers.position(consumers.register("c", start=10)) == 9
        with CommitLog.open(log) as writer:
            fill(writer, "C")
        assert consumers.position(consumers.get("c")) == 9

    def test_it_begins_at_an_offset(self, log: Path) -> None:
        consumers = Consumers(log)
        consumer = consumers.register("c", start=7)
        assert consumers.position(consumer) == 6
        assert not consumer.needs("A", 6)
        assert consumer.needs("B", 7)

    @pytest.mark.parametrize("start", [-1, 11, 1 << 64])
    def test_outside_the_log_is_refused(self, log: Path, start: int) -> None:
        with pytest.raises(TailraceError) as caught:
            Consumers(log).register("c", start=start)
        assert code_of(caught) == "offset.outside_log"
        assert "from 0 to 9" in caught.value.what
        assert Consumers(log).names() == []

    def test_below_the_oldest_is_refused(self, log: Path) -> None:
        consumers = Consumers(log)
        consumers.register("other", start=10)
        retain(log)
        with pytest.raises(TailraceError) as caught:
            consumers.register("c", start=4)
        assert code_of(caught) == "offset.outside_log"
        assert "from 5 to 9" in caught.value.what

    def test_an_empty_log(self, tmp_path: Path) -> None:
        CommitLog.open(tmp_path).close()
        consumers = Consumers(tmp_path)
        assert consumers.position(consumers.register("c")) == -1

    def test_no_log(self, tmp_path: Path) -> None:
        with pytest.raises(TailraceError) as caught:
            Consumers(tmp_path).register("c")
        assert code_of(caught) == "log.not_found"
        assert not (tmp_path / f"{PREFIX}c").exists()

    def test_a_name_that_is_taken(self, log: Path) -> None:
        consumers = Consumers(log)
        consumers.register("c", start=3)
        with pytest.raises(TailraceError) as caught:
            consumers.register("c")
        assert code_of(caught) == "consumer.exists"
        assert consumers.register("c", start=8, exist_ok=True) == consumers.get("c")
        assert consumers.position(consumers.get("c")) == 2

    @pytest.mark.parametrize(
        "name",
        [
            "",
            "../up",
            "a/b",
            "a\\b",
            ".",
            "..",
            ".hidden",
            "-option",
            "nul\0",
            "new\nline",
            "x" * 300,
            "x" * 240,
            "é",
            "a b ",
        ],
    )
    def test_a_name_that_is_no_file_name(self, log: Path, name: str) -> None:
        consumers = Consumers(log)
        for use in (consumers.register, consumers.get, consumers.is_in_use):
            with pytest.raises(TailraceError) as caught:
                use(name)
            assert code_of(caught) == "name.invalid"
        assert os.listdir(log.parent) == [log.name]
        assert consumers.names() == []

    @pytest.mark.parametrize("name", ["c", "a.b", "user@host", "x-1_2", "9", "C" * 200])
    def test_a_name_that_is_one(self, log: Path, name: str) -> None:
        consumers = Consumers(log)
        consumers.register(name)
        assert consumers.names() == [name]

    def test_it_is_all_there_or_not_at_all(self, log: Path) -> None:
        """The directory gets its name when everything in it is on disk, and the name is on disk on return."""
        disk = TellingDisk()
        Consumers(log, disk=disk).register("c", start=3)
        assert disk.calls[-2:] == [("rename", f"{PREFIX}c"), ("sync_directory", log.name)]
        assert ("rename", AGREEMENT_NAME) in disk.calls[:-2]

    @pytest.mark.crash
    def test_what_a_crash_left_is_cleared_away(self, log: Path) -> None:
        broken = BrokenDisk()
        broken.is_broken = True
        with pytest.raises(TailraceError) as caught:
            Consumers(log, disk=broken).register("c", start=3)
        assert code_of(caught) == "log.io"
        assert (log / DRAFT_NAME).is_dir()
        consumers = Consumers(log)
        assert consumers.names() == []
        assert consumers.position(consumers.register("d", start=5)) == 4
        assert not (log / DRAFT_NAME).exists()
        assert consumers.names() == ["d"]


class TestHold:
    def test_what_was_agreed_is_kept(self, log: Path) -> None:
        consumers = Consumers(log)
        hold = Hold(Policy.CAP, cap_bytes=1000, cap_age_s=2.5)
        consumers.register("c", hold=hold, ttl_s=60)
        assert Consumers(log).get("c").agreement == Agreement(hold, 60, None)

    @pytest.mark.parametrize(
        "hold",
        [
            (Policy.CAP, None, None),
            (Policy.CAP, -1, None),
            (Policy.CAP, None, -1.0),
            (Policy.HOLD, 5, None),
            (Policy.NONE, None, 5.0),
        ],
    )
    def test_what_makes_no_sense(self, hold: tuple[Policy, int | None, float | None]) -> None:
        with pytest.raises(TailraceError) as caught:
            Hold(*hold)
        assert code_of(caught) == "input.invalid"

    def test_who_holds(self, log: Path) -> None:
        consumers = Consumers(log)
        assert consumers.register("holds").needs("A", 0)
        assert consumers.register("capped", hold=Hold(Policy.CAP, cap_bytes=1)).needs("A", 0)
        assert not consumers.register("none", hold=Hold(Policy.NONE)).needs("A", 0)

    def test_a_time_to_live_that_makes_no_sense(self, log: Path) -> None:
        for ttl_s in (0, -1.0):
            with pytest.raises(TailraceError) as caught:
                Consumers(log).register("c", ttl_s=ttl_s)
            assert code_of(caught) == "input.invalid"
        assert Consumers(log).names() == []

    def test_an_agreement_that_cannot_be_read(self, log: Path) -> None:
        consumers = Consumers(log)
        consumers.register("c")
        file = log / f"{PREFIX}c" / AGREEMENT_NAME
        whole = json.loads(file.read_bytes())
        for broken in (
            b"",
            b"{",
            b"[]",
            json.dumps({**whole, "hold": {"policy": "maybe", "cap_bytes": None, "cap_age_s": None}}).encode(),
            json.dumps({**whole, "hold": {"policy": "hold", "cap_bytes": 5, "cap_age_s": None}}).encode(),
            json.dumps({**whole, "ttl_s": "a day"}).encode(),
            json.dumps({**whole, "ttl_s": -1}).encode(),
            json.dumps({**whole, "new_field": 1}).encode(),
        ):
            file.write_bytes(broken)
            with pytest.raises(TailraceError) as caught:
                consumers.get("c")
            assert code_of(caught) == "log.corrupt"
            assert caught.value.place is not None
            assert caught.value.place.file == str(file)


class TestState:
    def test_expired_and_live_again(self, log: Path) -> None:
        consumers = Consumers(log)
        consumers.register("c", ttl_s=60)
        assert consumers.get("c").state is State.LIVE
        age(log, "c", 61)
        expired = consumers.get("c")
        assert expired.state is State.EXPIRED
        assert not expired.holds
        with ConsumerSession(consumers, "c", flush_s=NEVER_S):
            assert consumers.get("c").state is State.LIVE
            assert consumers.get("c").needs("A", 0)

    def test_without_a_time_to_live_it_never_expires(self, log: Path) -> None:
        consumers = Consumers(log)
        consumers.register("c")
        age(log, "c", 1e9)
        assert consumers.get("c").state is State.LIVE

    def test_the_clock_decides(self, log: Path) -> None:
        Consumers(log).register("c", ttl_s=60)
        assert Consumers(log, clock=lambda: time.time() + 50).get("c").state is State.LIVE
        assert Consumers(log, clock=lambda: time.time() + 70).get("c").state is State.EXPIRED

    def test_compaction_is_no_sign_of_life(self, log: Path) -> None:
        consumers = Consumers(log)
        consumers.register("c", ttl_s=60)
        has_read(log, "c", 3)
        has_read(log, "c", 4)
        age(log, "c", 61)
        compact(log)
        assert consumers.get("c").state is State.EXPIRED
        assert consumers.get("c").positions.of("A") == 4

    def test_invalidated_and_valid_again(self, log: Path) -> None:
        consumers = Consumers(log)
        consumers.register("c")
        consumers.invalidate("c", "it held back too much")
        invalidated = consumers.get("c")
        assert invalidated.state is State.INVALIDATED
        assert not invalidated.holds
        with pytest.raises(TailraceError) as caught:
            ConsumerSession(consumers, "c")
        assert code_of(caught) == "consumer.invalidated"
        assert "it held back too much" in caught.value.what
        assert not consumers.is_in_use("c")
        assert [line["action"] for line in audit.read(str(log))] == ["invalidate"]
        consumers.revalidate("c")
        assert consumers.get("c").state is State.LIVE
        ConsumerSession(consumers, "c").close()

    def test_invalidated_when_what_it_needs_was_removed(self, log: Path) -> None:
        consumers = Consumers(log)
        consumers.register("slow", hold=Hold(Policy.NONE))
        consumers.register("fast", start=10)
        assert consumers.get("slow").state is State.LIVE
        assert [fate.base for fate in retain(log).removed] == [0]
        assert consumers.get("slow").state is State.INVALIDATED
        with pytest.raises(TailraceError) as caught:
            ConsumerSession(consumers, "slow")
        assert code_of(caught) == "consumer.invalidated"
        Operator(consumers).mark("slow", 5, reason="new snapshot")
        assert consumers.get("slow").state is State.LIVE

    def test_invalidated_when_only_one_namespace_was_behind(self, log: Path) -> None:
        consumers = Consumers(log)
        consumers.register("slow", hold=Hold(Policy.NONE))
        has_read(log, "slow", 9, "B")
        has_read(log, "slow", 2, "A")
        consumers.register("fast", start=10)
        retain(log)
        assert consumers.get("slow").state is State.INVALIDATED

    def test_a_namespace_that_went_quiet_is_no_loss(self, tmp_path: Path) -> None:
        """All of B was acknowledged long before the log's beginning was removed."""
        make_log(tmp_path, "ABA", "AAA", "AAA")
        consumers = Consumers(tmp_path)
        consumers.register("c")
        has_read(tmp_path, "c", 1, "B")
        has_read(tmp_path, "c", 7, "A")
        assert [fate.base for fate in retain(tmp_path).removed] == [0, 3]
        assert consumers.get("c").state is State.LIVE
        with ConsumerSession(consumers, "c", flush_s=NEVER_S) as session:
            assert session.resume_offset == 8

    def test_a_commit_that_was_on_its_way_is_no_loss(self, log: Path) -> None:
        """Retention came between a delivery and the flush of its offset; the flush sets it right."""
        consumers = Consumers(log)
        consumers.register("c", hold=Hold(Policy.NONE))
        with ConsumerSession(consumers, "c", flush_s=NEVER_S) as session:
            session.commit(6)
            assert [fate.base for fate in retain(log).removed] == [0]
            session.flush()
            assert consumers.get("c").state is State.LIVE

    def test_a_log_that_lost_its_beginning_by_other_hands(self, log: Path) -> None:
        consumers = Consumers(log)
        consumers.register("c", start=2)
        consumers.register("d", start=5)
        for file in log.glob("00000000000000000000.*"):
            file.unlink()
        assert consumers.get("c").state is State.INVALIDATED
        assert consumers.get("d").state is State.LIVE


class TestPosition:
    """While a writer appends and rolls, the position of a consumer never covers a message it has not acknowledged."""

    @pytest.mark.parametrize("rolls", [False, True])
    @pytest.mark.parametrize("look", range(1, 7))
    def test_growth_while_it_is_looked_up(self, log: Path, look: int, rolls: bool) -> None:
        consumers = Consumers(log)
        consumer = consumers.register("c", start=10)
        with CommitLog.open(log) as writer:

            class GrowingView(LogView):
                """Just after one of the looks at the head there is a message more, of a namespace never seen before."""

                looks = 0

                def head(self) -> LogHead:
                    found = super().head()
                    self.looks += 1
                    if self.looks == look:
                        fill(writer, ["new"])
                        if rolls:
                            writer.roll()
                    return found

            consumers.view = view = GrowingView(str(log))
            assert consumers.position(consumer) == 9
            with ConsumerSession(consumers, "c", flush_s=NEVER_S) as session:
                while view.looks < 6:
                    assert session.resume_offset == 10
            assert writer.next_offset == 11

    def test_every_segment_is_seen_although_the_writer_rolls(self, log: Path) -> None:
        with CommitLog.open(log) as writer:
            view = LogView(str(log))
            fill(writer, "C")
            found = view.all_contents()
            assert [next(found)[0]] == [0]
            writer.roll()
            fill(writer, "D")
            ((base, active),) = found
            assert base == 5
            assert set(active.namespaces) == {"A", "B", "C"}

    def test_segments_that_retention_removes_meanwhile_are_left_out(self, tmp_path: Path) -> None:
        make_log(tmp_path, "A", "A", "A", "A")
        consumers = Consumers(tmp_path)
        consumers.register("c", start=4)
        found = consumers.view.all_contents()
        assert next(found)[0] == 0
        assert [fate.base for fate in retain(tmp_path).removed] == [0, 1, 2]
        assert [base for base, _ in found] == [3]


class TestUnknown:
    def test_it_says_who_there_is(self, log: Path) -> None:
        consumers = Consumers(log)
        consumers.register("orders")
        consumers.register("billing")
        for use in (
            consumers.get,
            lambda name: ConsumerSession(consumers, name),
            lambda name: consumers.delete(name, ""),
        ):
            with pytest.raises(TailraceError) as caught:
                use("order")
            assert code_of(caught) == "consumer.unknown"
            assert "billing, orders" in caught.value.what

    def test_nobody_at_all(self, log: Path) -> None:
        with pytest.raises(TailraceError) as caught:
            Consumers(log).get("c")
        assert "there are: none" in caught.value.what


class TestDelete:
    def test_it_is_forgotten_and_the_trail_remembers(self, log: Path) -> None:
        consumers = Consumers(log)
        consumers.register("c", start=4)
        consumers.delete("c", "moved away")
        assert consumers.names() == []
        assert not (log / DRAFT_NAME).exists()
        (line,) = audit.read(str(log))
        assert (line["action"], line["consumer"], line["position"], line["reason"]) == ("delete", "c", 3, "moved away")
        assert consumers.position(consumers.register("c")) == -1

    def test_what_only_it_held_can_go(self, log: Path) -> None:
        consumers = Consumers(log)
        consumers.register("slow")
        consumers.register("fast", start=10)
        assert retain(log).removed == []
        consumers.delete("slow", "gone")
        assert [fate.base for fate in retain(log).removed] == [0]

    def test_while_it_is_in_use(self, log: Path) -> None:
        consumers = Consumers(log)
        consumers.register("c")
        with ConsumerSession(consumers, "c", flush_s=NEVER_S):
            with pytest.raises(TailraceError) as caught:
                consumers.delete("c", "")
            assert code_of(caught) == "consumer.locked"
        assert consumers.names() == ["c"]

    def test_when_its_offsets_are_damaged(self, log: Path) -> None:
        """It is what the error says to do."""
        consumers = Consumers(log)
        consumers.register("c", start=4)
        for offset in (5, 6):
            has_read(log, "c", offset)
        raw = bytearray(offset_log(log, "c").read_bytes())
        raw[40] ^= 1
        offset_log(log, "c").write_bytes(raw)
        with pytest.raises(TailraceError) as caught:
            consumers.get("c")
        assert code_of(caught) == "log.corrupt"
        assert "offset delete" in caught.value.hint
        consumers.delete("c", "damaged")
        assert consumers.names() == []
        (line,) = audit.read(str(log))
        assert line["position"] is None

    @pytest.mark.crash
    def test_a_crash_on_the_way_leaves_it_deleted(self, log: Path) -> None:
        class CrashingDisk(Disk):
            def sync_directory(self, path: str) -> None:
                raise OSError(5, "Input/output error")

        consumers = Consumers(log)
        consumers.register("c", start=4)
        with pytest.raises(TailraceError):
            Consumers(log, disk=CrashingDisk()).delete("c", "")
        assert consumers.names() == []
        assert consumers.position(consumers.register("c")) == -1


class TestAheadOfTheLog:
    """A power cut can take messages that were delivered although they were not durable, and a repair those behind the
    damage. Their offsets are given once more; whoever had the old messages has not had the new ones."""

    @pytest.fixture
    def shorter(self, log: Path) -> Path:
        """The last four of ten messages are lost; the consumers have acknowledged up to 9, 8 and 5."""
        consumers = Consumers(log)
        for name in ("c", "d", "e"):
            consumers.register(name)
        has_read(log, "c", 9)
        has_read(log, "d", 8, "A")
        has_read(log, "d", 5)
        has_read(log, "e", 5)
        cut = LogReader(log).view.find(Offset(6)).position
        with open(log / "00000000000000000005.log", "r+b") as file:
            file.truncate(cut)
        (log / "head").unlink()
        return log

    def test_they_are_taken_back(self, shorter: Path) -> None:
        consumers = Consumers(shorter)
        remarks = verify(shorter).remarks
        assert [remark.split(";")[0] for remark in remarks] == [
            "consumer c is ahead of the log, at 9",
            "consumer d is ahead of the log, at 8",
        ]
        with CommitLog.open(shorter) as writer:
            assert writer.report.taken_back == ["c", "d"]
            assert not writer.report.is_clean
            assert writer.next_offset == 6
            fill(writer, "ABAB")
        for name in ("c", "d", "e"):
            assert consumers.position(consumers.get(name)) == 5
            with ConsumerSession(consumers, name, flush_s=NEVER_S) as session:
                assert session.resume_offset == 6
        lines = [(line["action"], line["consumer"], line["offset"]) for line in audit.read(str(shorter))]
        assert lines == [("rewind", "c", 6), ("rewind", "d", 6)]
        assert verify(shorter).remarks == []

    def test_one_that_is_in_use_is_waited_for(self, shorter: Path) -> None:
        with Consumers(shorter).owning("c"):
            with pytest.raises(TailraceError) as caught:
                CommitLog.open(shorter)
            assert code_of(caught) == "consumer.locked"
        CommitLog.open(shorter).close()

    def test_one_that_is_damaged_keeps_nobody_from_writing(self, shorter: Path) -> None:
        raw = bytearray(offset_log(shorter, "d").read_bytes())
        raw[40] ^= 1
        offset_log(shorter, "d").write_bytes(raw)
        with CommitLog.open(shorter) as writer:
            assert writer.report.taken_back == ["c"]
            fill(writer, "A")


class TestRewind:
    def test_one_namespace_leaves_the_others_alone(self, log: Path) -> None:
        consumers = Consumers(log)
        consumers.register("c", start=4)
        has_read(log, "c", 7, "B")
        operator = Operator(consumers)
        operator.acknowledge("c", 6, reason="bad")
        operator.acknowledge("c", 9, reason="bad")
        before = consumers.get("c").positions
        operator.rewind("c", 2, namespace="A", reason="again")
        after = consumers.get("c").positions
        namespaces = "ABABABABAB"
        for offset, namespace in enumerate(namespaces):
            expected = before.covers(namespace, offset) and (namespace == "B" or offset < 2)
            assert after.covers(namespace, offset) == expected, offset


class TestTwoProcesses:
    def test_one_moves_a_consumer_at_a_time(self, log: Path) -> None:
        consumers = Consumers(log)
        consumers.register("c", start=4)
        consumers.register("d")
        command = [sys.executable, "-c", HOLD_THE_CONSUMER, str(log), "c"]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
            assert other.stdout is not None
            assert other.stdout.readline() == "held\n"
            assert consumers.is_in_use("c")
            assert not consumers.is_in_use("d")
            for use in (
                lambda: ConsumerSession(consumers, "c"),
                lambda: Operator(consumers).acknowledge("c", 7, reason=""),
                lambda: consumers.delete("c", ""),
            ):
                with pytest.raises(TailraceError) as caught:
                    use()
                assert code_of(caught) == "consumer.locked"
                assert f"process {other.pid}" in caught.value.what
            assert consumers.position(consumers.get("c")) == 3
            consumers.compact_offsets()  # passes it over
            other.kill()
        assert not consumers.is_in_use("c")
        has_read(log, "c", 5)
        assert consumers.position(consumers.get("c")) == 5

    def test_a_name_is_given_once(self, log: Path) -> None:
        consumers = Consumers(log)
        outcomes: list[str] = []
        start = threading.Barrier(8)

        def register() -> None:
            start.wait()
            try:
                outcomes.append(Consumers(log).register("c").name)
            except TailraceError as error:
                outcomes.append(error.code)

        threads = [threading.Thread(target=register) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(outcomes) == ["c"] + ["consumer.exists"] * 7
        assert consumers.names() == ["c"]


class TestTransporter:
    def test_its_consumer_agreed_to_nothing_and_can_go_on(self, tmp_path: Path) -> None:
        directory = transporter_log(tmp_path / "xlog")
        consumers = Consumers(directory)
        sink = consumers.get("sink")
        assert sink.agreement == Agreement()
        assert sink.state is State.LIVE
        with CommitLog.open(directory) as log:
            log.append_messages([change("orders.json", 25)])
        with ConsumerSession(consumers, "sink", flush_s=NEVER_S) as session:
            assert session.resume_offset == 25
            session.commit(25, "orders.json")
        assert consumers.get("sink").positions.of("orders.json") == 25
        assert offsets_of(directory) == list(range(26))

    def test_a_copy_of_a_log_is_a_log(self, log: Path, tmp_path: Path) -> None:
        Consumers(log).register("c", start=4)
        copy = tmp_path / "copy"
        shutil.copytree(log, copy)
        assert Consumers(copy).get("c").positions.of("A") == 3
