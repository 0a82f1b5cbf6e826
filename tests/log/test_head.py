"""The head file: what the writer published last, or nothing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tailrace.log.disk import Disk
from tailrace.log.head import HeadWriter, LogHead, head_path, read_head
from tailrace.message import Offset
from tests.log.files import every_flip, overwrite

HEAD = LogHead(Offset(2**40), 3_000, 2_000, Offset(2**40 + 17))


@pytest.fixture
def raw(tmp_path: Path) -> bytes:
    writer = HeadWriter(Disk(), str(tmp_path))
    writer.publish(HEAD)
    writer.close()
    return Path(head_path(str(tmp_path))).read_bytes()


def test_what_is_published_is_read(tmp_path: Path) -> None:
    writer = HeadWriter(Disk(), str(tmp_path))
    assert read_head(str(tmp_path)) is None
    for published in (LogHead(Offset(0), 1, 0, Offset(1)), HEAD):
        writer.publish(published)
        assert read_head(str(tmp_path)) == published
    writer.close()


def test_layout_is_the_documented_one(raw: bytes) -> None:
    assert raw == bytes.fromhex(
        "74726831"  # trh1
        "0000010000000000"  # base of the active segment
        "0000000000000bb8"  # bytes of it that are published
        "00000000000007d0"  # bytes of it that are durable
        "0000010000000011"  # next offset
        "bf8f63ab"  # CRC-32 of all this
    )


def test_file_is_written_in_place_so_that_watchers_keep_seeing_it(tmp_path: Path, raw: bytes) -> None:
    before = os.stat(head_path(str(tmp_path)))
    writer = HeadWriter(Disk(), str(tmp_path))
    writer.publish(LogHead(Offset(0), 1, 1, Offset(1)))
    writer.close()
    assert os.stat(head_path(str(tmp_path))).st_ino == before.st_ino


def test_missing_head_is_none(tmp_path: Path) -> None:
    assert read_head(str(tmp_path)) is None


def test_head_cut_anywhere_is_none(tmp_path: Path, raw: bytes) -> None:
    for size in range(len(raw)):
        overwrite(Path(head_path(str(tmp_path))), raw[:size])
        assert read_head(str(tmp_path)) is None


def test_head_with_any_flipped_bit_is_none(tmp_path: Path, raw: bytes) -> None:
    for flipped in every_flip(raw):
        overwrite(Path(head_path(str(tmp_path))), flipped)
        assert read_head(str(tmp_path)) is None


def test_read_that_met_a_write_is_repeated(tmp_path: Path, raw: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    torn = raw[:20] + bytes(20)
    answers = [torn, torn, raw]
    monkeypatch.setattr(os, "pread", lambda fd, size, at: answers.pop(0))
    assert read_head(str(tmp_path)) == HEAD
    assert answers == []
