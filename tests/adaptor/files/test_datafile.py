"""A data file and its side file: whatever moment a crash comes at, what is committed is there once."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tailrace.adaptor.files.datafile import DataFile
from tailrace.errors import TailraceError
from tailrace.message import Offset

STEPS = ("pwrite", "fdatasync", "fsync", "rename", "open", "close", "ftruncate")


class PowerCut(BaseException):
    """Ends everything at once; nothing in the code expects it."""


def file_of(path: Path) -> DataFile:
    return DataFile(str(path / "a.jsonl"))


def commit(file: DataFile, line: bytes, upto: int) -> None:
    file.append(line)
    file.commit({"n"}, Offset(upto))


def close_all(fds: list[int]) -> None:
    """As the operating system does for a process that is no more."""
    for fd in fds:
        os.close(fd)


def content(path: Path) -> bytes:
    return (path / "a.jsonl").read_bytes()


def test_commit_is_seen_by_the_next(tmp_path: Path) -> None:
    first = file_of(tmp_path)
    assert first.applied("n") is None
    commit(first, b"one\n", 7)
    first.close()
    second = file_of(tmp_path)
    assert (second.applied("n"), second.applied("other")) == (7, None)
    commit(second, b"two\n", 9)
    second.close()
    assert content(tmp_path) == b"one\ntwo\n"


def test_looking_changes_nothing(tmp_path: Path) -> None:
    file = file_of(tmp_path / "new")
    assert file.applied("n") is None
    file.close()
    assert list(tmp_path.iterdir()) == []


def test_close_without_commit_cuts_off(tmp_path: Path) -> None:
    file = file_of(tmp_path)
    commit(file, b"one\n", 1)
    file.append(b"two\n")
    file.close()
    assert content(tmp_path) == b"one\n"


@pytest.mark.parametrize("fails_at", range(50))
def test_crash_at_any_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails_at: int) -> None:
    """Lines are written as a pipeline does: after a crash from the offset on that the file itself knows."""
    lines = [b"line %d\n" % number for number in range(4)]
    steps = 0
    opened: list[int] = []

    def cut_off(name: str, step: Any) -> Any:
        def take(*given: Any, **named: Any) -> Any:
            nonlocal steps
            steps += 1
            if steps == fails_at:
                if name == "pwrite":
                    step(given[0], bytes(given[1])[:3], given[2])
                raise PowerCut
            result = step(*given, **named)
            if name == "open":
                opened.append(result)
            elif name == "close":
                opened.remove(given[0])
            return result

        return take

    def deliver() -> None:
        file = file_of(tmp_path)
        applied = file.applied("n")
        for number in range(0 if applied is None else applied + 1, len(lines)):
            commit(file, lines[number], number)

    with monkeypatch.context() as patch:
        for name in STEPS:
            patch.setattr(os, name, cut_off(name, getattr(os, name)))
        try:
            deliver()
        except PowerCut:
            is_cut = True
        else:
            is_cut = False
    assert is_cut == (0 < fails_at <= steps)
    close_all(opened)
    deliver()
    assert content(tmp_path) == b"".join(lines)


def test_steps_of_the_crash_test_are_all_there_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fifty are more than four commits take, and each kind of step occurs."""
    seen: list[str] = []

    def noted(name: str, step: Any) -> Any:
        def take(*given: Any, **named: Any) -> Any:
            seen.append(name)
            return step(*given, **named)

        return take

    for name in STEPS:
        monkeypatch.setattr(os, name, noted(name, getattr(os, name)))
    file = file_of(tmp_path)
    for number in range(4):
        commit(file, b"line\n", number)
    assert 20 < len(seen) < 50
    assert set(seen) == set(STEPS) - {"ftruncate"}


def test_foreign_file_is_added_to(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b"before\n")
    file = file_of(tmp_path)
    assert file.applied("n") is None
    file.append(b"lost\n")
    file.close()
    commit(file_of(tmp_path), b"after\n", 0)
    assert content(tmp_path) == b"before\nafter\n"


def test_foreign_file_with_a_torn_line_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b"before")
    with pytest.raises(TailraceError, match="no end"):
        file_of(tmp_path).open()
    assert content(tmp_path) == b"before"


def test_file_that_lost_committed_lines_is_refused(tmp_path: Path) -> None:
    file = file_of(tmp_path)
    commit(file, b"one\n", 0)
    file.close()
    (tmp_path / "a.jsonl").write_bytes(b"")
    with pytest.raises(TailraceError, match="4 were committed"):
        file_of(tmp_path).append(b"two\n")


def test_removed_file_begins_anew(tmp_path: Path) -> None:
    """So a user can have everything written once more."""
    file = file_of(tmp_path)
    commit(file, b"one\n", 5)
    file.close()
    (tmp_path / "a.jsonl").unlink()
    again = file_of(tmp_path)
    assert again.applied("n") is None
    commit(again, b"one\n", 5)
    assert content(tmp_path) == b"one\n"


def test_unreadable_side_file_is_told(tmp_path: Path) -> None:
    commit(file_of(tmp_path), b"one\n", 5)
    (tmp_path / ".a.jsonl.tailrace").write_bytes(b"{}")
    with pytest.raises(TailraceError, match="how much was committed"):
        file_of(tmp_path).applied("n")


def test_one_writer_at_a_time(tmp_path: Path) -> None:
    first = file_of(tmp_path)
    first.append(b"one\n")
    with pytest.raises(TailraceError, match="another writer"):
        file_of(tmp_path).append(b"two\n")
    first.close()
    file_of(tmp_path).append(b"two\n")


def test_disk_that_refuses(tmp_path: Path) -> None:
    (tmp_path / "in the way").write_bytes(b"")
    with pytest.raises(TailraceError) as told:
        file_of(tmp_path / "in the way").append(b"x\n")
    assert told.value.code == "destination.unreachable"


def test_mode_is_what_the_user_wants(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        commit(file_of(tmp_path), b"one\n", 0)
    finally:
        os.umask(before)
    assert {(path.stat().st_mode & 0o777) for path in tmp_path.iterdir()} == {0o640}
