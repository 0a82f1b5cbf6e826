"""Files that are complete from the start: Parquet, and compressed ones."""

from __future__ import annotations

import gzip
import os
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from tailrace.adaptor.files.marks import SETTLED_S
from tailrace.errors import Place, TailraceError
from tests.adaptor.files.material import changed, copied, lsns_of, reader_of, rows_of

ROWS = [{"n": number, "s": f"text {number}"} for number in range(1000)]
JSON = b"".join(b'{"n": %d, "s": "text %d"}\n' % (number, number) for number in range(1000))


def packed(path: Path, text: bytes) -> Path:
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(text))
    else:
        with pa.CompressedOutputStream(str(path), "zstd") as out:
            out.write(text)
    return path


def table(count: int = 1000) -> pa.Table:
    return pa.Table.from_pylist(ROWS[:count])


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_compressed_lines(tmp_path: Path, suffix: str) -> None:
    assert copied(packed(tmp_path / f"a.jsonl{suffix}", JSON)) == ROWS
    assert copied(packed(tmp_path / f"b.csv{suffix}", b"n,s\n1,x\n")) == [{"n": 1, "s": "x"}]


def test_namespace_of_a_compressed_file(tmp_path: Path) -> None:
    packed(tmp_path / "a.jsonl.gz", JSON)
    assert [table.namespace for table in reader_of(tmp_path).tables()] == ["files.a"]


def test_parts_of_gzip_put_together(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl.gz"
    file.write_bytes(gzip.compress(b'{"n":1}\n{"n"') + gzip.compress(b":2}\n"))
    assert copied(file) == [{"n": 1}, {"n": 2}]


def frames(suffix: str, *texts: bytes) -> list[bytes]:
    """Texts, each compressed by itself."""
    kind: Any = {".gz": "gzip", ".zst": "zstd"}[suffix]
    return [bytes(pa.compress(text, kind, asbytes=True)) for text in texts]


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_a_stream_that_is_still_being_written_waits(
    tmp_path: Path, suffix: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Wherever it is cut, no row comes before all of them do, and none comes twice."""
    file = packed(tmp_path / f"a.jsonl{suffix}", JSON)
    complete = file.read_bytes()
    watched = reader_of(tmp_path)  # one that follows it, beside those that see it for the first time
    file.write_bytes(b"")
    for cut in [*range(1, 40), *range(40, len(complete) - 40, 97), *range(len(complete) - 40, len(complete))]:
        with file.open("r+b") as opened:
            opened.write(complete[:cut])
            opened.truncate()
        assert watched.position() == reader_of(tmp_path).position() == {"files": {}}, cut
    assert watched.tables() == []
    assert copied(tmp_path) == copied(tmp_path, tail=False) == []
    assert sum("not complete yet" in line for line in caplog.messages if str(file) in line) > 0
    file.write_bytes(complete)
    assert watched.position() == reader_of(tmp_path).position() != {"files": {}}
    assert changed(tmp_path, {}) == ROWS
    caplog.clear()
    assert watched.position()
    assert caplog.messages == []


def test_what_is_not_complete_is_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = packed(tmp_path / "a.jsonl.gz", JSON)
    complete = file.read_bytes()
    reader = reader_of(tmp_path)
    for cut in (10, 20, 30):
        file.write_bytes(complete[:cut])
        reader.position()
    assert caplog.messages == [f"{str(file)!r} is not complete yet; what is missing is read when it is there"]


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_whole_members_are_read_while_others_are_written(tmp_path: Path, suffix: str) -> None:
    """A line may go on from one member to the next, so not every end of a member will do."""
    file = tmp_path / f"a.jsonl{suffix}"
    parts = frames(suffix, b'{"n":1}\n', b'{"n":', b'2}\n{"n":3}\n', b'{"n":4}\n')
    content = b"".join(parts)
    rows: list[Any] = []
    position: Any = {}
    for size in range(len(content) + 1):
        file.write_bytes(content[:size])
        reader = reader_of(tmp_path)
        end = reader.position()
        rows += changed(tmp_path, position, end)
        position = end
        whole = [sum(map(len, parts[:count])) for count in (1, 3, 4)]
        assert len(rows) == sum(count for count, at in zip((1, 2, 1), whole, strict=True) if size >= at), size
    assert rows == [{"n": number} for number in (1, 2, 3, 4)]


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_a_member_that_is_added_to_csv_has_no_header(tmp_path: Path, suffix: str) -> None:
    file = tmp_path / f"a.csv{suffix}"
    first, second = frames(suffix, b"n,s\n1,x\n", b"2,y\n")
    file.write_bytes(first)
    start = reader_of(tmp_path).position()
    file.write_bytes(first + second)
    assert changed(tmp_path, start) == [{"n": 2, "s": "y"}]
    assert changed(tmp_path, {}) == [{"n": 1, "s": "x"}, {"n": 2, "s": "y"}]


@pytest.mark.parametrize("name", ["a.jsonl.gz", "a.jsonl.zst", "a.parquet"])
def test_what_nobody_completes_is_damaged(tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    if name == "a.parquet":
        parquet.write_table(table(), file)
    else:
        packed(file, JSON)
    file.write_bytes(file.read_bytes()[:-20])
    reader = reader_of(tmp_path)
    assert reader.position() == {"files": {}}
    hours_ago = time.time() - 2 * SETTLED_S
    os.utime(file, (hours_ago, hours_ago))
    assert reader.position() != {"files": {}}
    with pytest.raises(TailraceError) as told:
        copied(file)
    assert (told.value.code, told.value.place) == ("source.malformed", Place(str(file)))
    assert "move it away" in told.value.hint


def test_zstd_frames_without_data_belong_to_the_one_before(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl.zst"
    empty = (0x184D2A50).to_bytes(4, "little") + (3).to_bytes(4, "little") + b"abc"
    (data,) = frames(".zst", b'{"n":1}')
    file.write_bytes(empty + data + empty)
    assert copied(file) == [{"n": 1}]
    file.write_bytes(empty + data + empty[:-1])
    assert copied(file) == [{"n": 1}]
    file.write_bytes(empty + data[:-1])
    assert copied(file) == []


def test_bomb(tmp_path: Path) -> None:
    file = packed(tmp_path / "a.jsonl.gz", b"\n" * (20 << 20))
    with pytest.raises(TailraceError, match="unpacked"):
        copied(file, unpacked_bytes_max="1MiB")
    assert copied(file) == []


def test_new_compressed_file_comes_as_changes(tmp_path: Path) -> None:
    start = reader_of(tmp_path).position()
    packed(tmp_path / "a.jsonl.gz", JSON)
    reader = reader_of(tmp_path)
    end = reader.position()
    assert changed(tmp_path, start) == ROWS
    assert changed(tmp_path, end) == []
    (piece,) = reader.plan_changes(start, end)
    lsns = lsns_of(reader.read_changes(piece))
    assert lsns == sorted(lsns)
    assert lsns[-1] <= end["files"]["a.jsonl.gz"]["size"]


@pytest.mark.parametrize("piece_bytes", [1, 10**9])
def test_parquet(tmp_path: Path, piece_bytes: int) -> None:
    file = tmp_path / "a.parquet"
    parquet.write_table(table(), file, row_group_size=100)
    assert copied(file, piece_bytes=piece_bytes) == ROWS
    reader = reader_of(file, piece_bytes=piece_bytes)
    assert [found.schema.names for found in reader.tables()] == [["n", "s"]]
    assert len(reader.plan_copy(reader.tables()[0])) == (10 if piece_bytes == 1 else 1)


def test_parquet_changes_are_in_order(tmp_path: Path) -> None:
    parquet.write_table(table(), tmp_path / "a.parquet", row_group_size=100)
    reader = reader_of(tmp_path, piece_bytes=1)
    batches = [b for piece in reader.plan_changes({}, reader.position()) for b in reader.read_changes(piece)]
    lsns = lsns_of(batches)
    assert rows_of(batches) == ROWS
    assert lsns == sorted(lsns)


def test_parquet_is_taken_when_complete(tmp_path: Path) -> None:
    file = tmp_path / "a.parquet"
    parquet.write_table(table(), file)
    complete = file.read_bytes()
    file.write_bytes(complete[:-10])
    start = reader_of(tmp_path).position()
    assert start == {"files": {}}
    assert reader_of(tmp_path).tables() == []
    file.write_bytes(complete)
    assert changed(tmp_path, start) == ROWS


def test_parquet_that_was_written_anew(tmp_path: Path) -> None:
    file = tmp_path / "a.parquet"
    parquet.write_table(table(10), file)
    start = reader_of(file).position()
    parquet.write_table(table(20), file)
    assert changed(file, start) == ROWS[:20]


def test_types_of_parquet_stay(tmp_path: Path) -> None:
    file = tmp_path / "a.parquet"
    values: dict[str, Any] = {
        "small": pa.array([1], pa.int8()),
        "moment": pa.array([1], pa.timestamp("ms", tz="UTC")),
        "bytes": pa.array([b"\0"]),
        "word": pa.array(["x"]).dictionary_encode(),
        "list": pa.array([[{"a": 1}]]),
    }
    parquet.write_table(pa.table(values), file)
    (found,) = reader_of(file).tables()
    expected = [pa.int8(), pa.timestamp("ms", tz="UTC"), pa.binary(), pa.string()]
    assert [field.type for field in found.schema][:4] == expected
    assert copied(file)[0]["word"] == "x"


def test_compressed_parquet_is_refused(tmp_path: Path) -> None:
    packed(tmp_path / "a.parquet.gz", b"")
    with pytest.raises(TailraceError, match="unpack"):
        reader_of(tmp_path).tables()
