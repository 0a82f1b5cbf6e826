"""Repair cuts at the damage, moves the rest aside, and leaves a log that goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailrace.errors import TailraceError
from tailrace.log.commitlog import CommitLog
from tailrace.log.reader import LogReader
from tailrace.log.repair import cut, find_damage
from tailrace.log.segment import segment_name
from tailrace.log.verification import verify
from tailrace.message import Message, Micros, Op


def message(number: int) -> Message:
    return Message(Op.INSERT, Micros(number), "shop.orders", {"id": number})


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Twelve messages, four in each of three segments."""
    with CommitLog.open(tmp_path / "log") as log:
        for number in range(12):
            if number in (4, 8):
                log.roll()
            log.append_messages([message(number)])
    return tmp_path / "log"


def offsets(log: Path) -> list[int]:
    return [entry.offset for entry in LogReader(log).entries()]


def flip(path: Path, byte: int) -> None:
    raw = bytearray(path.read_bytes())
    raw[byte] ^= 0x10
    path.write_bytes(raw)


def repair(log: Path) -> Path:
    damage = find_damage(log)
    assert damage is not None
    return Path(cut(log, damage, reason="test"))


def test_sound_log_has_no_damage(log: Path) -> None:
    assert find_damage(log) is None


def test_torn_tail_is_no_damage(log: Path) -> None:
    with (log / segment_name(8)).open("ab") as file:
        file.write(b"half a group")
    assert find_damage(log) is None


def test_damage_in_the_middle_cuts_there_and_keeps_the_rest_aside(log: Path) -> None:
    middle, last = log / segment_name(4), (log / segment_name(8)).read_bytes()
    flip(middle, middle.stat().st_size * 5 // 8)
    damaged = middle.read_bytes()
    damage = find_damage(log)
    assert damage is not None
    assert (damage.base, damage.next_offset) == (4, 6)
    assert damage.lost_bytes == len(damaged) - damage.position + len(last)
    aside = repair(log)
    assert offsets(log) == list(range(6))
    assert verify(log).problems == []
    assert (aside / segment_name(8)).read_bytes() == last
    assert (aside / f"{segment_name(4)}.from-byte-{damage.position}").read_bytes() == damaged[damage.position :]
    with CommitLog.open(log) as writer:
        assert writer.append_messages([message(99)]) == (6, 7)


def test_missing_segment_in_the_middle(log: Path) -> None:
    (log / segment_name(4)).unlink()
    repair(log)
    assert offsets(log) == [0, 1, 2, 3]


def test_missing_last_segment(log: Path) -> None:
    (log / segment_name(8)).unlink()
    with pytest.raises(TailraceError, match="tailrace log repair"):
        CommitLog.open(log)
    repair(log)
    with CommitLog.open(log) as writer:
        assert writer.append_messages([message(99)]) == (8, 9)


def test_log_in_use_is_left_alone(log: Path) -> None:
    flip(log / segment_name(0), 100)
    damage = find_damage(log)
    assert damage is not None
    flip(log / segment_name(0), 100)
    with CommitLog.open(log), pytest.raises(TailraceError) as refusal:
        cut(log, damage, reason="test")
    assert refusal.value.code == "log.locked"
    assert offsets(log) == list(range(12))
