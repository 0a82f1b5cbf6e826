"""One process at a time maintains a log; whoever comes second is told who is at it."""

import subprocess
import sys
from pathlib import Path

import pytest

from tailrace.errors import TailraceError
from tailrace.log.commitlog import CommitLog
from tailrace.log.compaction import compact
from tailrace.log.consumers import Consumers
from tailrace.log.disk import DRAFT_SUFFIX
from tailrace.log.maintenance import maintaining
from tailrace.log.retention import retain
from tests.log.material import fill, make_log, offsets_of

MAINTAIN = """
import sys
from tailrace.log.maintenance import maintaining
with maintaining(sys.argv[1]):
    print("at it", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def log(tmp_path: Path) -> Path:
    make_log(tmp_path, "AAAA", "A")
    Consumers(tmp_path).register("c", start=5)
    return tmp_path


def test_another_process_is_at_it(log: Path) -> None:
    command = [sys.executable, "-c", MAINTAIN, str(log)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "at it\n"
        for work in (compact, retain):
            with pytest.raises(TailraceError) as caught:
                work(log)
            assert caught.value.code == "log.busy"
            assert f"process {other.pid}" in caught.value.what
        assert offsets_of(log) == [0, 1, 2, 3, 4]
        other.kill()
    compact(log)
    assert offsets_of(log) == [3, 4]


def test_it_is_given_back_after_an_error(log: Path) -> None:
    with pytest.raises(ZeroDivisionError), maintaining(str(log)):
        raise ZeroDivisionError
    with maintaining(str(log)):
        pass


def test_appends_go_on_meanwhile(log: Path) -> None:
    with maintaining(str(log)), CommitLog.open(log) as writer:
        fill(writer, "BB")
        writer.roll()
    assert offsets_of(log) == list(range(7))


def test_a_writer_that_opens_meanwhile_leaves_drafts_alone(log: Path) -> None:
    draft = log / f"00000000000000000000.log.1{DRAFT_SUFFIX}"
    draft.write_bytes(b"half of a new version")
    with maintaining(str(log)):
        CommitLog.open(log).close()
        assert draft.exists()
    with CommitLog.open(log) as writer:
        assert writer.report.removed == [draft.name]
    assert not draft.exists()
