"""What is shown while rows are exchanged."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest

from tailrace.cli.syncprogress import sync_progress
from tailrace.errors import TailraceError
from tailrace.sync.address import PeerAddress
from tailrace.sync.peerloop import PeerStatus, State
from tailrace.sync.round import Progress

OFFICE = PeerAddress("office", "http://127.0.0.1:1")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_line_every_ten_seconds_where_nobody_watches(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 0.0
    monkeypatch.setattr("tailrace.cli.syncprogress.time.monotonic", lambda: now_s)
    stream = io.StringIO()
    with sync_progress(stream) as shown:
        for second in range(25):
            now_s = float(second)
            shown.moved(OFFICE, "todo", Progress(fetched=1000 * second, refused=1))
    assert stream.getvalue().splitlines() == [
        "office: todo, 10,000 rows fetched, 0 sent, 1 refused",
        "office: todo, 20,000 rows fetched, 0 sent, 1 refused",
    ]


def test_where_a_peer_stands_is_told_once() -> None:
    stream = io.StringIO()
    away = TailraceError("sync.unreachable", "office cannot be reached", hint="wait")
    status = PeerStatus("office", OFFICE.url)
    with sync_progress(stream) as shown:
        for _ in range(3):
            shown.changed(replace(status, state=State.CONNECTING))
            shown.changed(replace(status, state=State.OFFLINE, last_error=away))
        for _ in range(2):
            shown.changed(replace(status, state=State.SYNCING))
            shown.changed(replace(status, state=State.WAITING))
    assert stream.getvalue().splitlines() == [
        "office: offline: sync.unreachable: office cannot be reached. Next: wait",
        "office: waiting",
    ]


def test_bars_on_a_terminal_and_lines_above_them() -> None:
    stream = Terminal()
    with sync_progress(stream) as shown:
        shown.moved(OFFICE, "todo", Progress(sent=1234))
        shown.tell("a clock is [red]wrong[/red]\x1b[2J")
    text = stream.getvalue()
    assert "1,234 sent" in text and "a clock is [red]wrong[/red]\\x1b[2J" in text
