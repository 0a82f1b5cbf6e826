"""Lines: every one is read once, wherever a range is divided."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tailrace.adaptor.files import lines
from tailrace.adaptor.files.lines import (
    blocks_of_range,
    blocks_of_stream,
    divide,
    end_of_lines,
    end_of_records,
    record_end,
)
from tailrace.errors import TailraceError

TEXTS = st.lists(st.binary(max_size=8).map(lambda line: line.replace(b"\n", b"") + b"\n")).map(b"".join)
any_number_of_files = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


def opened(path: Path, text: bytes) -> int:
    path.write_bytes(text)
    return os.open(path, os.O_RDONLY)


@any_number_of_files
@given(text=TEXTS, step=st.integers(1, 40))
@example(text=b"\r\x00\n", step=1)
def test_ranges_are_whole_lines_and_all_of_them(tmp_path: Path, text: bytes, step: int) -> None:
    fd = opened(tmp_path / "a", text)
    ranges = divide(fd, 0, len(text), step, "a")
    os.close(fd)
    assert b"".join(text[first:last] for first, last in ranges) == text
    assert all(text[last - 1 : last] == b"\n" for _, last in ranges)
    longest = max(len(line) + 1 for line in text.split(b"\n"))  # a carriage return ends no line
    assert all(last - first < step + longest for first, last in ranges)


@any_number_of_files
@given(text=TEXTS, torn=st.binary(max_size=5), block_bytes=st.integers(1, 20))
def test_blocks_are_whole_lines(tmp_path: Path, text: bytes, torn: bytes, block_bytes: int) -> None:
    torn = torn.replace(b"\n", b"")
    fd = opened(tmp_path / "a", text + torn)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines, "BLOCK_BYTES", block_bytes)
        of_range = list(blocks_of_range(fd, 0, len(text + torn), "a"))
        of_stream = list(blocks_of_stream(io.BytesIO(text + torn), "a", 1 << 20))
    os.close(fd)
    for blocks in (of_range, of_stream):
        assert b"".join(block.text for block in blocks) == text + torn
        assert all(block.text.endswith(b"\n") for block in blocks[:-1])
        assert [block.start for block in blocks] == [
            len(b"".join(b.text for b in blocks[:n])) for n in range(len(blocks))
        ]


@any_number_of_files
@given(text=st.binary(max_size=40))
def test_last_complete_line(tmp_path: Path, text: bytes) -> None:
    fd = opened(tmp_path / "a", text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines, "_STEP_BYTES", 4)
        assert end_of_lines(fd, len(text), "a") == text.rfind(b"\n") + 1
    os.close(fd)


def records_end(text: bytes) -> int:
    """Where the last line end outside of quotes is, the slow way."""
    end = quotes = 0
    for at, octet in enumerate(text):
        quotes += octet == ord('"')
        if octet == ord("\n") and quotes % 2 == 0:
            end = at + 1
    return end


@any_number_of_files
@given(text=st.lists(st.sampled_from([b'"', b"\n", b"a"]), max_size=30).map(b"".join), block_bytes=st.integers(1, 10))
def test_last_complete_record(tmp_path: Path, text: bytes, block_bytes: int) -> None:
    assert record_end(b'"')(text) == records_end(text)
    fd = opened(tmp_path / "a", text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines, "BLOCK_BYTES", block_bytes)
        assert end_of_records(fd, len(text), "a", b'"') == records_end(text)
    os.close(fd)


def test_file_that_became_shorter(tmp_path: Path) -> None:
    fd = opened(tmp_path / "a", b"one\ntwo\nthr")
    assert [block.text for block in blocks_of_range(fd, 0, 100, "a")] == [b"one\ntwo\n"]
    os.close(fd)


def test_no_end_in_sight(tmp_path: Path) -> None:
    fd = opened(tmp_path / "a", b"ok\n" + b"x" * 100)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines, "LINE_BYTES_MAX", 50)
        patch.setattr(lines, "_STEP_BYTES", 10)
        with pytest.raises(TailraceError, match="longer"):
            end_of_lines(fd, 103, "a")
    os.close(fd)


def test_bomb() -> None:
    with pytest.raises(TailraceError, match="unpacked"):
        list(blocks_of_stream(io.BytesIO(b"x\n" * 1000), "a", 1000))
