"""One view that several threads look through."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from tailrace.log.commitlog import CommitLog
from tailrace.log.view import LogView
from tests.log.material import change, make_log

THREADS = 4
ROUNDS = 12
MESSAGES = 40


@pytest.fixture
def hurried() -> Iterator[None]:
    """Threads take turns as often as they can."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


def counted(view: LogView, together: Barrier) -> tuple[int, int]:
    together.wait()
    return view.active_contents().messages, len(view.last_offsets())


@pytest.mark.usefixtures("hurried")
def test_all_count_what_is_new(tmp_path: Path) -> None:
    """Every message counts once, whoever looks first."""
    view, together = LogView(str(tmp_path)), Barrier(THREADS)
    with CommitLog.open(tmp_path) as log, ThreadPoolExecutor(THREADS) as pool:
        for number in range(1, ROUNDS + 1):
            log.append_messages([change(f"N{number}_{each}", each) for each in range(MESSAGES)])
            looks = [pool.submit(counted, view, together) for _ in range(THREADS)]
            assert {look.result() for look in looks} == {(MESSAGES * number, MESSAGES * number)}


def test_another_process_looks_anew(tmp_path: Path) -> None:
    make_log(tmp_path, ["A", "B"])
    view = LogView(str(tmp_path))
    assert counted(view, Barrier(1)) == (2, 2)
    assert counted(pickle.loads(pickle.dumps(view)), Barrier(1)) == (2, 2)
