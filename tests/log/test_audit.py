"""The audit trail: who did what to which consumer, and that no line is ever lost."""

import json
import threading
from datetime import datetime
from pathlib import Path

import pytest

from tailrace.log import audit
from tailrace.log.agreement import Hold, Policy
from tailrace.log.consumers import Consumers
from tailrace.log.disk import Disk
from tailrace.log.operator import Operator
from tailrace.log.retention import retain
from tests.log.material import BrokenDisk, make_log


def test_no_trail_yet(tmp_path: Path) -> None:
    assert list(audit.read(str(tmp_path))) == []


def test_what_a_line_says(tmp_path: Path) -> None:
    audit.record(Disk(), str(tmp_path), "ack", "c", offset=3, reason='a "bad" one\nwith an ü')
    (line,) = audit.read(str(tmp_path))
    assert (line["action"], line["consumer"], line["offset"]) == ("ack", "c", 3)
    assert line["reason"] == 'a "bad" one\nwith an ü'
    assert line["user"]
    assert line["host"]
    assert datetime.fromisoformat(line["time"]).tzinfo is not None
    assert (tmp_path / audit.NAME).read_bytes().count(b"\n") == 1
    assert (tmp_path / audit.NAME).stat().st_mode & 0o777 == 0o600


def test_a_reason_that_is_no_text(tmp_path: Path) -> None:
    """As it comes from a command line in another encoding."""
    audit.record(Disk(), str(tmp_path), "ack", "c", reason="caf\udce9")
    (line,) = audit.read(str(tmp_path))
    assert line["reason"] == "caf\udce9"


def test_lines_are_added_and_never_rewritten(tmp_path: Path) -> None:
    before = b""
    for number in range(5):
        audit.record(Disk(), str(tmp_path), "mark", "c", offset=number)
        after = (tmp_path / audit.NAME).read_bytes()
        assert after.startswith(before)
        before = after
    assert [line["offset"] for line in audit.read(str(tmp_path))] == [0, 1, 2, 3, 4]


def test_a_line_is_on_disk_before_it_counts(tmp_path: Path) -> None:
    disk = BrokenDisk()
    disk.is_broken = True
    with pytest.raises(OSError, match="Input/output"):
        audit.record(disk, str(tmp_path), "ack", "c")


@pytest.mark.crash
def test_a_line_that_a_crash_cut_short(tmp_path: Path) -> None:
    """Whatever is left of it, the lines before and after it are read."""
    audit.record(Disk(), str(tmp_path), "mark", "c", offset=1)
    first = (tmp_path / audit.NAME).read_bytes()
    audit.record(Disk(), str(tmp_path), "mark", "c", offset=2, reason="ü")
    both = (tmp_path / audit.NAME).read_bytes()
    for size in range(len(first), len(both)):
        (tmp_path / audit.NAME).write_bytes(both[:size])
        assert [line["offset"] for line in audit.read(str(tmp_path))] in ([1], [1, 2])
        audit.record(Disk(), str(tmp_path), "mark", "c", offset=3)
        kept = [line["offset"] for line in audit.read(str(tmp_path))]
        assert kept == ([1, 2, 3] if size == len(both) - 1 else [1, 3])


def test_many_at_once(tmp_path: Path) -> None:
    """Several operators at work leave all their lines."""
    start = threading.Barrier(6)

    def work(name: str) -> None:
        start.wait()
        for number in range(20):
            audit.record(Disk(), str(tmp_path), "mark", name, offset=number)

    threads = [threading.Thread(target=work, args=(f"c{number}",)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lines = [json.loads(line) for line in (tmp_path / audit.NAME).read_bytes().splitlines()]
    for number in range(6):
        assert [line["offset"] for line in lines if line["consumer"] == f"c{number}"] == list(range(20))


def test_everything_an_operator_does_leaves_a_line(tmp_path: Path) -> None:
    make_log(tmp_path, "AAAA", "AAAA")
    consumers = Consumers(tmp_path)
    operator = Operator(consumers)
    consumers.register("c")
    consumers.register("capped", hold=Hold(Policy.CAP, cap_bytes=0))
    operator.mark("c", 3, reason="known")
    operator.acknowledge("c", 5, reason="bad")
    operator.rewind("c", 2, reason="again")
    retain(tmp_path)
    consumers.delete("c", "gone")
    lines = [(line["action"], line["consumer"]) for line in audit.read(str(tmp_path))]
    assert lines == [("mark", "c"), ("ack", "c"), ("rewind", "c"), ("invalidate", "capped"), ("delete", "c")]
    assert all(line["reason"] for line in audit.read(str(tmp_path)))
