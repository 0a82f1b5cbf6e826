"""The identity of a log."""

from __future__ import annotations

import threading
from pathlib import Path

from tailrace.log.identity import NAME, identity_of


def test_all_who_ask_at_once_are_told_the_same(tmp_path: Path) -> None:
    for number in range(20):
        directory = tmp_path / str(number)
        directory.mkdir()
        together = threading.Barrier(8)
        told: list[str] = []

        def ask(directory: Path = directory, together: threading.Barrier = together, told: list[str] = told) -> None:
            together.wait()
            told.append(identity_of(str(directory)))

        threads = [threading.Thread(target=ask) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert told == [identity_of(str(directory))] * 8
        assert [path.name for path in directory.iterdir()] == [NAME], "nothing else is left"
