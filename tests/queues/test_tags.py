"""Tags: who reads one reads its frames and little else, wherever it goes on."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tailrace.log.batch import decode_body
from tailrace.log.commitlog import CommitLog
from tailrace.message import Micros
from tailrace.queues.entries import Outgoing, outgoing_batches, shipped_rows
from tailrace.queues.names import client_tag, entry_tag
from tailrace.queues.tags import Tagged, Tags

CLIENT = "inventory"


@pytest.fixture
def log(tmp_path: Path) -> Iterator[CommitLog]:
    with CommitLog.open(tmp_path / "log") as opened:
        yield opened


def send(log: CommitLog, payload: str, *sites: str, client: str = CLIENT) -> None:
    with log.group() as group:
        entry = Outgoing(client, payload.encode(), sites)
        for batch in outgoing_batches([("transaction", [entry])], log.next_offset, Micros(1)):
            group.add(batch)


def frames(tags: Tags, site: str, start: int = 0, end: int | None = None) -> Iterator[Tagged]:
    return tags.frames(entry_tag(site), client_tag(CLIENT), start, tags.end if end is None else end)


def payloads(tags: Tags, site: str, start: int = 0, end: int | None = None) -> list[str]:
    found: list[str] = []
    for frame in frames(tags, site, start, end):
        column: Any = shipped_rows(decode_body(frame.body())).column("payload")
        found += [payload.decode() for payload in column.to_pylist()]
    return found


@pytest.mark.parametrize("is_sealed", [True, False])
def test_one_destination_of_many_reads_its_own_frames(
    log: CommitLog, monkeypatch: pytest.MonkeyPatch, is_sealed: bool
) -> None:
    for number in range(200):
        send(log, f"{number}", f"site-{number % 40}")
    if is_sealed:
        log.roll()
    tags = Tags(log.directory)
    own = [frame.head.frame_bytes for frame in frames(tags, "site-7")]
    pread = os.pread
    asked: list[int] = []

    def counted(fd: int, size: int, at: int) -> bytes:
        asked.append(size)
        return pread(fd, size, at)

    monkeypatch.setattr(os, "pread", counted)
    assert payloads(tags, "site-7") == ["7", "47", "87", "127", "167"]
    assert sum(asked) <= sum(own) + 300 * (len(own) + 1)  # and the log's head


def test_going_on_from_anywhere_finds_the_same(log: CommitLog) -> None:
    """Whatever was asked for before, and whether a segment was sealed meanwhile."""
    tags = Tags(log.directory)
    sent: list[tuple[int, str]] = []
    for number in range(120):
        site = "office" if number % 3 else "depot"
        if site == "office":
            sent.append((log.next_offset, str(number)))
        send(log, str(number), site)
        if number in (40, 80):
            log.roll()
        for start in (number - 1, number // 2, 0, number):
            expected = [payload for offset, payload in sent if offset >= start]
            assert payloads(tags, "office", max(0, start)) == expected


def test_nothing_behind_the_end_is_given(log: CommitLog) -> None:
    for number in range(6):
        send(log, str(number), "office")
    tags = Tags(log.directory)
    assert payloads(tags, "office", 1, 4) == ["1", "2", "3"]
    assert payloads(tags, "office", 5, 6) == ["5"]
    assert payloads(tags, "nowhere") == []
