"""Pace: much at once where it goes fast, and nobody is given up because a way is slow."""

from __future__ import annotations

import random
import socket
import threading
import time
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Self

import pytest

from tailrace.log.commitlog import CommitLog
from tailrace.topology.pace import PIECE_BYTES_FIRST, PIECE_BYTES_MAX, PIECE_BYTES_MIN, Pace
from tests.topology.logs import Copying, Served, append, segments

_PIECE_BYTES = 20_000


class SlowWay:
    """Leads to a port, and lets only so much come back in a second."""

    def __init__(self, port: int, bytes_s: int) -> None:
        self._to, self._bytes_s = port, bytes_s
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listening.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listening.accept()
                far = socket.create_connection(("127.0.0.1", self._to))
                threading.Thread(target=self._lead, args=(near, far, 0.0), daemon=True).start()
                threading.Thread(target=self._lead, args=(far, near, 1 / self._bytes_s), daemon=True).start()

    @staticmethod
    def _lead(source: socket.socket, sink: socket.socket, byte_s: float) -> None:
        with suppress(OSError), source, sink:
            while piece := source.recv(_PIECE_BYTES):
                time.sleep(len(piece) * byte_s)
                sink.sendall(piece)


def test_pieces_grow_and_shrink_with_the_way() -> None:
    pace = Pace(1.0)
    assert pace.piece_bytes == PIECE_BYTES_FIRST
    pace.note(PIECE_BYTES_FIRST, 0.01)
    assert pace.piece_bytes == PIECE_BYTES_FIRST, "it may be in a buffer on the way"
    for _ in range(100):
        pace.note(pace.piece_bytes, 0.01)
    assert pace.piece_bytes == PIECE_BYTES_MAX
    pace.note(PIECE_BYTES_MAX, 1.5)
    assert pace.piece_bytes == PIECE_BYTES_MAX, "neither quick nor slow"
    pace.note(PIECE_BYTES_MAX, 2.5)
    assert pace.piece_bytes == PIECE_BYTES_MAX // 2
    for _ in range(20):
        pace.note(pace.piece_bytes, 3.0)
    assert pace.piece_bytes == PIECE_BYTES_MIN


@pytest.mark.long
def test_a_source_on_a_slow_way_is_not_given_up(tmp_path: Path) -> None:
    """A piece of 2 MiB would take longer than a source may be silent."""
    with ExitStack() as stack:
        log = stack.enter_context(CommitLog.open(tmp_path / "root"))
        word = random.Random(0).randbytes(150_000).hex()
        append(log, 0, 3, word)
        root = stack.enter_context(Served(tmp_path / "root"))
        way = stack.enter_context(SlowWay(root.server.port, bytes_s=500_000))
        source = replace(root.source, location=f"grpc://127.0.0.1:{way.port}")
        copy = stack.enter_context(Copying(tmp_path / "copy", [source], beat_s=1.0))
        copy.reaches(log, 60)
        assert segments(tmp_path / "copy") == segments(tmp_path / "root")
        assert not copy.said
