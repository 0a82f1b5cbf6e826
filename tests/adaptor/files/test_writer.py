"""Files as a destination: envelopes, deletes, CSV, and what is not written twice."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tailrace.adaptor.files.columns import batches_of_documents
from tailrace.adaptor.files.names import file_stem_of
from tailrace.adaptor.files.options import FilesWriterOptions
from tailrace.deliver.contract import Spread, Target
from tailrace.deliver.messages import Messages
from tailrace.errors import TailraceError
from tailrace.log.documents import JSON, TYPE_METADATA
from tailrace.message import Offset, Op
from tests.adaptor.files.material import copied, messages

ROWS = [{"n": 1, "s": "one"}, {"n": 2, "s": None}]


def deliver(path: Path, *batches: Messages, **options: Any) -> None:
    writer: Any = FilesWriterOptions.model_validate({"path": str(path), **options}).open()
    try:
        for batch in batches:
            writer.prepare(Target(batch.namespace, pa.schema(list(batch.data.type)), batch.key))
            writer.write(batch)
        writer.commit(Offset(max(batch.offsets().to_pylist()[-1] or 0 for batch in batches)))
    finally:
        writer.close()


def lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_file_for_each_namespace(tmp_path: Path) -> None:
    deliver(tmp_path, messages("main.a", ROWS), messages("main.b", ROWS[:1], first=2))
    assert lines(tmp_path / "main.a.jsonl") == ROWS
    assert lines(tmp_path / "main.b.jsonl") == ROWS[:1]


def test_spread(tmp_path: Path) -> None:
    assert FilesWriterOptions(path=str(tmp_path)).open().spread is Spread.NAMESPACE
    assert FilesWriterOptions(path=str(tmp_path / "a.jsonl")).open().spread is Spread.NONE


def test_nothing_is_written_twice(tmp_path: Path) -> None:
    """The batch comes again with other borders."""
    rows = [{"n": number} for number in range(6)]
    deliver(tmp_path, messages("a", rows[:4]))
    deliver(tmp_path, messages("a", rows[2:], first=2))
    assert lines(tmp_path / "a.jsonl") == rows


def test_namespaces_in_one_file_have_their_own_offsets(tmp_path: Path) -> None:
    file = tmp_path / "all.jsonl"
    deliver(file, messages("a", ROWS[:1], first=5))
    deliver(file, messages("b", ROWS[1:], first=3))
    assert lines(file) == ROWS


def test_envelope(tmp_path: Path) -> None:
    file = tmp_path / "all.jsonl"
    before = pa.array([{"n": 0}])
    deliver(file, messages("a.b", [{"n": 1}], first=7, op=Op.UPDATE, before=before), with_envelope=True)
    assert lines(file) == [
        {
            "op": "update",
            "namespace": "a.b",
            "timestamp": "2023-11-14T22:13:20.000000Z",
            "offset": 7,
            "data": {"n": 1},
            "before": {"n": 0},
        }
    ]


def test_deletes(tmp_path: Path) -> None:
    ops = pa.array([int(Op.INSERT), int(Op.DELETE)], pa.int8())
    batch = messages("a", ROWS).with_column("op", ops)
    deliver(tmp_path, batch)
    first, second = lines(tmp_path / "a.jsonl")
    assert first == ROWS[0]
    assert (second["op"], second["data"]) == ("delete", ROWS[1])
    deliver(tmp_path / "other", batch, deletes="skip")
    assert lines(tmp_path / "other" / "a.jsonl") == ROWS[:1]


def test_json_text_is_written_as_what_it_is(tmp_path: Path) -> None:
    field = pa.field("v", pa.string(), metadata={TYPE_METADATA: JSON})
    values = ['[1,"a"]', "123456789012345678901234567890", None]
    data = pa.StructArray.from_arrays([pa.array(values)], fields=[field])
    deliver(tmp_path, messages("a", data))
    assert lines(tmp_path / "a.jsonl") == [{"v": [1, "a"]}, {"v": 123456789012345678901234567890}, {"v": None}]


def test_files_to_files(tmp_path: Path) -> None:
    """What was read and written reads the same."""
    rows = [{"n": 9007199254740993, "x": [1, {"y": "\n"}], "f": 1.0}, {"n": 1, "x": [], "f": 0.1}]
    (batch,) = batches_of_documents(rows, keep_missing=False)
    deliver(tmp_path, messages("a", batch.to_struct_array()))
    assert copied(tmp_path / "a.jsonl") == rows


@pytest.mark.parametrize(
    "namespace", ["../up", "/etc/passwd", "a/../../b", "..", ".hidden", "-", "a\nb", "x" * 300, "é:*"]
)
def test_namespaces_do_not_lead_out_of_the_directory(tmp_path: Path, namespace: str) -> None:
    out = tmp_path / "deep" / "out"
    deliver(out, messages(namespace, ROWS))
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {path.parent for path in files} == {out}
    assert [lines(path) for path in files if path.suffix == ".jsonl"] == [ROWS]


def test_file_names_stay_apart() -> None:
    names = ["a/b", "a%2Fb", "a:b", ".a", "%2Ea", "a", "A", "x" * 300 + "1", "x" * 300 + "2", "-", "~"]
    assert len({file_stem_of(name) for name in names}) == len(names)


def test_csv(tmp_path: Path) -> None:
    rows = [
        {"n": 1, "s": 'a "quoted", text\nwith lines', "f": 1.0, "l": [1, None], "b": b"\0", "t": True},
        {"n": None, "s": "", "f": 0.1, "l": None, "b": None, "t": None},
        {"n": 3, "s": None, "f": None, "l": [], "b": b"", "t": False},
    ]
    deliver(tmp_path, messages("a", rows), format="csv")
    found = copied(tmp_path / "a.csv", csv={"quoted_newlines": True})
    assert [list(row.values()) for row in found] == [
        [1, 'a "quoted", text\nwith lines', 1.0, "[1,null]", "AA==", True],
        [None, "", 0.1, None, None, None],
        [3, None, None, "[]", "", False],
    ]


def test_csv_has_one_header(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    deliver(file, messages("a", ROWS))
    deliver(file, messages("a", [{"s": "three"}], first=2))
    assert file.read_text().splitlines() == ['"n","s"', '1,"one"', "2,", ',"three"']


def test_csv_gets_no_new_column(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    deliver(file, messages("a", ROWS))
    with pytest.raises(TailraceError) as told:
        deliver(file, messages("a", [{"n": 3, "new": 1}], first=2))
    assert told.value.code == "schema.changed"
    assert "new" in told.value.what
    assert len(file.read_text().splitlines()) == 3


def test_csv_with_envelope(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    deliver(file, messages("a", ROWS[:1], op=Op.DELETE), with_envelope=True)
    header, row = file.read_text().splitlines()
    assert header == '"_op","_namespace","_timestamp","_offset","_before","n","s"'
    assert row == '"delete","a","2023-11-14T22:13:20.000000Z",0,,1,"one"'


def test_csv_has_no_form_for_deletes(tmp_path: Path) -> None:
    with pytest.raises(TailraceError, match="with_envelope"):
        deliver(tmp_path / "a.csv", messages("a", ROWS, op=Op.DELETE))
    deliver(tmp_path / "b.csv", messages("a", ROWS, op=Op.DELETE), deletes="skip")
    assert (tmp_path / "b.csv").read_text().splitlines() == ['"n","s"']


@pytest.mark.parametrize("path", ["-", "a.txt", "a.parquet"])
def test_paths_that_are_refused(tmp_path: Path, path: str) -> None:
    with pytest.raises(ValueError, match="validation error"):
        FilesWriterOptions(path=path if path == "-" else str(tmp_path / path))


def test_probe(tmp_path: Path) -> None:
    (good,) = FilesWriterOptions(path=str(tmp_path / "new" / "deeper")).probe()
    assert good.ok
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").touch()
    (bad,) = FilesWriterOptions(path=str(tmp_path / "file" / "deeper")).probe()
    assert not bad.ok
    assert bad.cure
    assert os.fspath(tmp_path / "file") in bad.found
