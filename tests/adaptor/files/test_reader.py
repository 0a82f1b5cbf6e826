"""Files as a source: what was there, what is added, and what happens to them meanwhile."""

from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tailrace.adaptor.files import watch
from tailrace.adaptor.files.marks import mark_of
from tailrace.adaptor.files.names import namespace_of
from tailrace.errors import TailraceError
from tailrace.log.batch import key_of
from tailrace.message import Mode
from tests.adaptor.files.material import append_lines, changed, copied, lsns_of, reader_of, rows_of, write_lines

ONE, TWO, THREE, FOUR = ({"n": number} for number in (1, 2, 3, 4))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return write_lines(tmp_path / "orders.jsonl", [ONE, TWO])


def test_copy(file: Path) -> None:
    reader = reader_of(file, key=["n"])
    (table,) = reader.tables()
    assert (table.namespace, table.schema.names, table.key) == ("files.orders", ["n"], ("n",))
    (piece,) = reader.plan_copy(table)
    batches = list(reader.read_copy(table.namespace, piece))
    assert rows_of(batches) == [ONE, TWO]
    assert [(batch.mode, key_of(batch.rows.schema)) for batch in batches] == [(Mode.COPY, ("n",))]


def test_growth_comes_as_changes(file: Path) -> None:
    start = reader_of(file).position()
    assert reader_of(file).plan_changes(start, start) == []
    append_lines(file, [THREE])
    middle = reader_of(file).position()
    append_lines(file, [FOUR])
    assert changed(file, start, middle) == [THREE]
    assert changed(file, middle) == [FOUR]
    assert changed(file, start) == [THREE, FOUR]
    assert changed(file, {}) == [ONE, TWO, THREE, FOUR]


def test_changes_have_growing_numbers(tmp_path: Path) -> None:
    path = tmp_path / "in"
    path.mkdir()
    write_lines(path / "b.jsonl", [ONE])
    positions = [reader_of(path).position()]
    for name in ("b", "a", "c", "a"):
        append_lines(path / f"{name}.jsonl", [ONE, TWO] * 20)
        positions.append(reader_of(path).position())
    reader = reader_of(path, namespace="all", piece_bytes=100)
    batches = [
        batch
        for start, end in pairwise(positions)
        for piece in reader.plan_changes(start, end)
        for batch in reader.read_changes(piece)
    ]
    numbers = lsns_of(batches)
    assert len(numbers) == 160
    assert numbers == sorted(set(numbers))
    assert {(batch.mode, batch.namespace) for batch in batches} == {(Mode.SYNC, "all")}


def test_copy_ends_where_changes_begin(file: Path) -> None:
    """Nothing comes twice, although the file grows between the position and the copy."""
    reader = reader_of(file)
    start = reader.position()
    append_lines(file, [THREE])
    pieces = reader.plan_copy(reader.tables()[0])
    append_lines(file, [FOUR])
    found = rows_of(batch for piece in pieces for batch in reader_of(file).read_copy("files.orders", piece))
    assert found == [ONE, TWO]
    assert changed(file, start) == [THREE, FOUR]


def test_torn_line_waits(file: Path) -> None:
    with file.open("a") as opened:
        opened.write('{"n"')
    assert copied(file) == [ONE, TWO]
    start = reader_of(file).position()
    with file.open("a") as opened:
        opened.write(": 3")
    assert changed(file, start) == []
    with file.open("a") as opened:
        opened.write("}\n")
    assert changed(file, start) == [THREE]


def test_torn_line_is_read_when_nothing_is_waited_for(file: Path) -> None:
    with file.open("a") as opened:
        opened.write('{"n":3}')
    assert copied(file, tail=False) == [ONE, TWO, THREE]


def test_without_tail_a_run_sees_what_was_there_at_its_start(file: Path) -> None:
    reader = reader_of(file, tail=False)
    start = reader.position()
    append_lines(file, [THREE])
    assert reader.position() == start
    assert changed(file, start, tail=False) == [THREE]


@pytest.mark.parametrize("cut", range(1, 60))
def test_written_byte_by_byte(tmp_path: Path, cut: int) -> None:
    """Whatever part of the file is there when a position is taken, every line comes once."""
    text = b'{"n":1}\n{"n":2}\r\n\n{"n":3}\n{"n":"\xc3\xa9\xf0\x9f\x98\x80"}\n{"n":4}\n'
    file = tmp_path / "a.jsonl"
    file.write_bytes(text[:cut])
    start = reader_of(file).position()
    before = copied(file)
    file.write_bytes(text)
    os.utime(file)
    assert before + changed(file, start) == [ONE, TWO, THREE, {"n": "é😀"}, FOUR]


def test_replaced_file_is_read_anew(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    start = reader_of(file).position()
    other = write_lines(file.with_name("other"), [THREE, FOUR, ONE])
    os.replace(other, file)
    assert changed(file, start) == [THREE, FOUR, ONE]
    assert "read again from its start" in caplog.text


def test_file_that_was_cut_and_written_anew(file: Path) -> None:
    """The same inode, and not shorter than before."""
    start = reader_of(file).position()
    write_lines(file, [THREE, FOUR, ONE])
    assert changed(file, start) == [THREE, FOUR, ONE]


def test_file_that_became_shorter(file: Path) -> None:
    start = reader_of(file).position()
    write_lines(file, [ONE])
    assert changed(file, start) == [ONE]


def test_removed_file_is_forgotten(tmp_path: Path) -> None:
    first = write_lines(tmp_path / "a.jsonl", [ONE])
    second = write_lines(tmp_path / "b.jsonl", [TWO])
    start = reader_of(tmp_path).position()
    first.unlink()
    append_lines(second, [THREE])
    end = reader_of(tmp_path).position()
    assert list(end["files"]) == ["b.jsonl"]
    assert changed(tmp_path, start, end) == [THREE]


def test_file_that_is_replaced_after_it_was_planned(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What was planned is gone; nothing of the new file is taken for it, and all of the new file comes later."""
    file = write_lines(tmp_path / "a.jsonl", [ONE, TWO])
    reader = reader_of(file)
    end = reader.position()
    (piece,) = reader.plan_changes({}, end)
    write_lines(file, [THREE, FOUR, ONE])
    assert rows_of(reader.read_changes(piece)) == []
    assert "before it was read" in caplog.text
    assert changed(file, end) == [THREE, FOUR, ONE]


def test_new_files_come_as_changes(tmp_path: Path) -> None:
    write_lines(tmp_path / "b.jsonl", [ONE])
    start = reader_of(tmp_path).position()
    write_lines(tmp_path / "a.jsonl", [TWO])
    write_lines(tmp_path / "c.jsonl", [THREE])
    reader = reader_of(tmp_path)
    (piece,) = reader.plan_changes(start, reader.position())
    found = {batch.namespace: rows_of([batch]) for batch in reader.read_changes(piece)}
    assert found == {"files.a": [TWO], "files.c": [THREE]}


def test_small_files_share_a_piece(tmp_path: Path) -> None:
    for number in range(50):
        write_lines(tmp_path / f"{number:02}.jsonl", [{"n": number}])
    reader = reader_of(tmp_path, namespace="all", piece_bytes=100)
    (table,) = reader.tables()
    pieces = reader.plan_copy(table)
    assert 5 <= len(pieces) <= 10
    found = rows_of(batch for piece in pieces for batch in reader.read_copy("all", piece))
    assert found == [{"n": number} for number in range(50)]


def test_positions_of_files_that_rest_cost_no_reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_lines(tmp_path / "a.jsonl", [ONE])
    write_lines(tmp_path / "b.jsonl", [ONE])
    reader = reader_of(tmp_path)
    first = reader.position()
    looked: list[str] = []

    def noted(path: str, *rest: Any) -> Any:
        looked.append(path)
        return mark_of(path, *rest)

    monkeypatch.setattr(watch, "mark_of", noted)
    assert reader.position() == first
    append_lines(tmp_path / "b.jsonl", [TWO])
    assert reader.position() != first
    assert [os.path.basename(path) for path in looked] == ["b.jsonl"]


def test_directory_takes_what_it_knows(tmp_path: Path) -> None:
    write_lines(tmp_path / "a.jsonl", [ONE])
    write_lines(tmp_path / "b.ndjson", [TWO])
    write_lines(tmp_path / ".hidden.jsonl", [THREE])
    write_lines(tmp_path / "c.jsonl.tmp", [THREE])
    (tmp_path / "d.jsonl").mkdir()
    os.mkfifo(tmp_path / "e.jsonl")
    assert copied(tmp_path) == [ONE, TWO]


def test_pattern(tmp_path: Path) -> None:
    (tmp_path / "x" / "y").mkdir(parents=True)
    write_lines(tmp_path / "x" / "a.jsonl", [ONE])
    write_lines(tmp_path / "x" / "y" / "a.jsonl", [TWO])
    write_lines(tmp_path / "b.jsonl", [THREE])
    assert copied(tmp_path / "x*" / "*.jsonl") == [ONE]
    assert copied(tmp_path / "**" / "a.jsonl") == [ONE, TWO]
    assert copied(tmp_path / "z*.jsonl") == []


def test_file_with_the_name_of_a_pattern(tmp_path: Path) -> None:
    write_lines(tmp_path / "a[1].jsonl", [ONE])
    write_lines(tmp_path / "a1.jsonl", [TWO])
    assert copied(tmp_path / "a[1].jsonl") == [ONE]


def test_links(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    inside, outside = tmp_path / "in", tmp_path / "out"
    inside.mkdir()
    outside.mkdir()
    write_lines(inside / "a.jsonl", [ONE])
    write_lines(outside / "b.jsonl", [TWO])
    (inside / "c.jsonl").symlink_to("a.jsonl")
    (inside / "d.jsonl").symlink_to(outside / "b.jsonl")
    (inside / "e").symlink_to(outside)
    (inside / "gone.jsonl").symlink_to("nowhere")
    assert copied(inside) == [ONE, ONE]
    assert "d.jsonl" in caplog.text
    assert copied(inside / "**" / "*.jsonl") == [ONE, ONE]
    assert copied(inside, follow_links=True) == [ONE, ONE, TWO]
    assert copied(inside / "d.jsonl") == [TWO]


@pytest.mark.parametrize(
    "name", ["a b", "é 漢", "a..", "a\nb", "a\\b", "%0A", "x" * 240, "'; DROP TABLE", "-rf", "a%b"]
)
def test_hostile_names(tmp_path: Path, name: str) -> None:
    write_lines(tmp_path / f"{name}.jsonl", [ONE])
    reader = reader_of(tmp_path)
    (table,) = reader.tables()
    assert table.namespace.isprintable()
    assert copied(tmp_path) == [ONE]


def test_names_stay_apart() -> None:
    names = ["a\nb", "a%0Ab", "a\\b", "x" * 300 + "1", "x" * 300 + "2"]
    assert len({namespace_of(name) for name in names}) == len(names)


def test_name_that_is_not_text(tmp_path: Path) -> None:
    (tmp_path / os.fsdecode(b"\xff.jsonl")).write_bytes(b"{}\n")
    with pytest.raises(TailraceError, match="not UTF-8"):
        reader_of(tmp_path).tables()


@pytest.mark.parametrize("path", ["nowhere", "nowhere/a.jsonl", "nowhere.jsonl"])
def test_nothing_there(tmp_path: Path, path: str) -> None:
    for look in ("tables", "position"):
        with pytest.raises(TailraceError) as told:
            getattr(reader_of(tmp_path / path), look)()
        assert told.value.code == "source.unreachable"


def test_file_that_is_away_for_a_moment(file: Path) -> None:
    """As when a log is rotated."""
    reader = reader_of(file)
    start = reader.position()
    file.rename(file.with_name("old"))
    assert reader.position() == {"files": {}}
    assert reader.tables() == []
    write_lines(file, [THREE])
    assert changed(file, start) == [THREE]


def test_unknown_format(tmp_path: Path) -> None:
    file = write_lines(tmp_path / "a.log", [ONE])
    with pytest.raises(TailraceError, match="format"):
        reader_of(file).tables()
    assert copied(file, format="jsonl") == [ONE]


@pytest.mark.parametrize("mark", [b"\xef\xbb\xbf", b""])
def test_byte_order_mark(tmp_path: Path, mark: bytes) -> None:
    file = tmp_path / "a.jsonl"
    file.write_bytes(mark + b'{"n":1}\n')
    start = reader_of(file).position()
    assert copied(file) == [ONE]
    append_lines(file, [TWO])
    assert changed(file, start) == [TWO]


def test_utf_16_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text('{"n":1}\n', "utf-16")
    with pytest.raises(TailraceError, match="UTF-16"):
        copied(file)


def test_empty_file(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.touch()
    start = reader_of(file).position()
    assert copied(file) == []
    append_lines(file, [ONE])
    assert changed(file, start) == [ONE]


def test_a_new_schema_of_a_file_is_told(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.touch()
    reader = reader_of(file)
    assert [table.schema.names for table in reader.tables()] == [[]]
    append_lines(file, [ONE])
    assert [table.schema.names for table in reader.tables()] == [["n"]]


def test_options_are_plain_json(file: Path) -> None:
    """They travel to tasks."""
    from tailrace.adaptor.files.options import FilesReaderOptions

    options = FilesReaderOptions.model_validate({"path": os.path.relpath(file), "csv": {"delimiter": ";"}})
    again = FilesReaderOptions.model_validate_json(options.model_dump_json())
    assert again == options
    assert again.path == str(file)


@pytest.mark.parametrize(
    "options", [{"path": ""}, {"path": "a\0b"}, {"namespace": "a/b"}, {"format": "xml"}, {"pth": 1}, {"piece_bytes": 0}]
)
def test_impossible_options(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="validation error"):
        reader_of("x", **options) if "path" not in options else reader_of(**options)
