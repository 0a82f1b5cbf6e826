"""Bytes of a log in pieces of any size are the frames that were written."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.errors import TailraceError
from tailrace.log.commitlog import CommitLog
from tailrace.log.segment import Located, Segment
from tailrace.message import Offset
from tailrace.topology.copied import Spot
from tailrace.topology.framing import Framing
from tests.topology.logs import append, segments

BASE = Offset(0)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, list[Located]]:
    """A segment's bytes, and the heads that are in it."""
    directory: Path = tmp_path_factory.mktemp("framing") / "log"
    with CommitLog.open(directory) as log:
        append(log, 0, 4)
        append(log, 4, 1, word="y" * 5000)
    (raw,) = segments(directory).values()
    with Segment(str(directory), BASE) as segment:
        return raw, list(segment.heads())


def frames_of(raw: bytes, cuts: list[int]) -> list[tuple[Located, bytes]]:
    framing = Framing(Spot(BASE, 0), BASE)
    found = []
    for begin, end in itertools.pairwise([0, *sorted(cuts), len(raw)]):
        if begin < end:
            found += [(each, bytes(own)) for each, own in framing.frames(Spot(BASE, begin), raw[begin:end])]
    return found


@given(data=st.data())
def test_pieces_are_cut_anywhere(written: tuple[bytes, list[Located]], data: st.DataObject) -> None:
    raw, heads = written
    cuts = data.draw(st.lists(st.integers(0, len(raw)), max_size=40))
    assert frames_of(raw, cuts) == [(head, raw[head.position : head.end]) for head in heads]


def test_byte_by_byte(written: tuple[bytes, list[Located]]) -> None:
    raw, heads = written
    assert [each for each, _ in frames_of(raw, list(range(len(raw))))] == heads


@given(data=st.data())
def test_damage_is_noticed_however_it_comes(written: tuple[bytes, list[Located]], data: st.DataObject) -> None:
    raw, heads = written
    at = data.draw(st.integers(0, len(raw) - 1))
    damaged = raw[:at] + bytes([raw[at] ^ data.draw(st.integers(1, 255))]) + raw[at + 1 :]
    cuts = data.draw(st.lists(st.integers(0, len(raw)), max_size=10))
    try:
        found = frames_of(damaged, cuts)
    except TailraceError:
        return
    assert [each for each, _ in found] == [head for head in heads if head.end <= at][: len(found)]


def test_bytes_of_another_place_are_refused(written: tuple[bytes, list[Located]]) -> None:
    raw, _ = written
    framing = Framing(Spot(BASE, 0), BASE)
    list(framing.frames(Spot(BASE, 0), raw[:100]))
    with pytest.raises(TailraceError, match="where others should follow"):
        list(framing.frames(Spot(BASE, 200), raw[200:]))
