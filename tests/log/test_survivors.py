"""Which messages compaction keeps: the last of each namespace, or of each key."""

import datetime
import math
from pathlib import Path
from typing import Any

import pytest

from tailrace.log.batch import Batch
from tailrace.log.commitlog import CommitLog
from tailrace.log.reader import LogReader
from tailrace.log.selection import SelectedFrame
from tailrace.log.survivors import LastOfKey, LastOfNamespace
from tailrace.message import Op
from tests.log.material import batch, change, keyed, transporter_log, write_plain

INSERT, UPDATE, DELETE, COMMAND = Op.INSERT, Op.UPDATE, Op.DELETE, Op.COMMAND


def frames_of(directory: Path, *batches: Batch) -> list[SelectedFrame]:
    """The batches as frames of a log, one each."""
    with CommitLog.open(directory) as log:
        for one in batches:
            log.append([one])
    return list(LogReader(directory).frames())


def survivors(frames: list[SelectedFrame]) -> list[list[int] | None]:
    """For each frame the offsets that stay, by key."""
    by_key = LastOfKey()
    for frame in frames:
        by_key.learn(frame)
    found = [by_key.of(frame.head, lambda frame=frame: frame) for frame in frames]  # type: ignore[misc]
    return [None if staying is None else sorted(staying) for staying in found]


def rows(*ids: Any) -> list[tuple[Op, dict[str, Any] | None, dict[str, Any] | None]]:
    return [(INSERT, {"id": number}, None) for number in ids]


class TestLastOfNamespace:
    def test_its_frame_keeps_it_and_the_others_nothing(self, tmp_path: Path) -> None:
        a, b, c = frames_of(
            tmp_path, *(batch([change(name, at) for at in range(3)])[0] for name in ("first", "other", "first"))
        )
        by_namespace = LastOfNamespace({"first": 8, "other": 5})

        def fetch() -> SelectedFrame:
            raise AssertionError("the head tells")

        assert by_namespace.of(a.head, fetch) == frozenset()
        assert by_namespace.of(b.head, fetch) == frozenset((5,))
        assert by_namespace.of(c.head, fetch) == frozenset((8,))


class TestLastOfKey:
    def test_the_last_message_of_each_key_stays(self, tmp_path: Path) -> None:
        frames = frames_of(tmp_path, keyed("t", rows(1, 2, 1), ["id"]), keyed("t", rows(3, 2), ["id"]))
        assert survivors(frames) == [[2], [3, 4]]

    def test_namespaces_have_keys_of_their_own(self, tmp_path: Path) -> None:
        frames = frames_of(tmp_path, keyed("t", rows(1), ["id"]), keyed("u", rows(1), ["id"]))
        assert survivors(frames) == [[0], [1]]

    def test_a_key_of_several_columns(self, tmp_path: Path) -> None:
        pairs = [("ch", 1), ("ch", 2), ("de", 1), ("ch", 1), ("de", 1)]
        changes: list[tuple[Op, dict[str, Any] | None, dict[str, Any] | None]] = [
            (INSERT, {"land": land, "number": number, "text": str(at)}, None) for at, (land, number) in enumerate(pairs)
        ]
        assert survivors(frames_of(tmp_path, keyed("t", changes, ["land", "number"]))) == [[1, 3, 4]]

    def test_a_delete_is_the_last_word(self, tmp_path: Path) -> None:
        deleted = keyed("t", [*rows(1, 2), (DELETE, None, {"id": 1}), (DELETE, {"id": 2}, None)], ["id"])
        assert survivors(frames_of(tmp_path, deleted)) == [[2, 3]]

    def test_a_delete_is_not_the_last_word_when_the_key_comes_back(self, tmp_path: Path) -> None:
        again = keyed("t", [*rows(1), (DELETE, None, {"id": 1}), *rows(1)], ["id"])
        assert survivors(frames_of(tmp_path, again)) == [[2]]

    def test_a_changed_key_is_a_word_on_both(self, tmp_path: Path) -> None:
        moved = (UPDATE, {"id": 2}, {"id": 1})
        assert survivors(frames_of(tmp_path / "a", keyed("t", [*rows(1), moved], ["id"]))) == [[1]]
        assert survivors(frames_of(tmp_path / "b", keyed("t", [*rows(1), moved, *rows(2)], ["id"]))) == [[1, 2]]
        assert survivors(frames_of(tmp_path / "c", keyed("t", [*rows(1), moved, *rows(2, 1)], ["id"]))) == [[2, 3]]

    def test_without_a_key_everything_stays(self, tmp_path: Path) -> None:
        frames = frames_of(tmp_path, keyed("t", rows(1, 1), []), *batch([change("u", 1)]))
        assert survivors(frames) == [None, None]

    def test_a_message_without_its_key_keeps_its_frame(self, tmp_path: Path) -> None:
        frames = frames_of(
            tmp_path,
            keyed("t", [*rows(1), (COMMAND, None, None)], ["id"]),
            keyed("t", [*rows(1), (DELETE, {"id": None}, None)], ["id"]),
            keyed("t", rows(1, 1), ["id"]),
        )
        assert survivors(frames) == [None, None, [5]]

    def test_a_key_that_names_no_column_keeps_its_frame(self, tmp_path: Path) -> None:
        assert survivors(frames_of(tmp_path, keyed("t", rows(1, 1), ["number"]))) == [None]

    def test_another_key_is_another_key(self, tmp_path: Path) -> None:
        """The table's primary key was changed from one column to another; equal values mean nothing then."""
        one = keyed("t", [(INSERT, {"a": 1, "b": 2}, None)], ["a"])
        other = keyed("t", [(INSERT, {"a": 2, "b": 1}, None)], ["b"])
        assert survivors(frames_of(tmp_path, one, other)) == [[0], [1]]

    @pytest.mark.parametrize(
        ("value", "other"),
        [
            ("a", "b"),
            (1.5, 2.5),
            (math.nan, 1.0),
            (b"\x00", b"\x01"),
            (True, False),
            ([1, 2], [1]),
            ({"x": 1}, {"x": 2}),
            (datetime.date(2024, 1, 1), datetime.date(2024, 1, 2)),
        ],
    )
    def test_values_of_every_kind(self, tmp_path: Path, value: object, other: object) -> None:
        frames = frames_of(tmp_path, keyed("t", rows(value, other), ["id"]), keyed("t", rows(value), ["id"]))
        assert survivors(frames) == [[1], [2]]

    def test_a_list_is_not_the_text_of_it(self, tmp_path: Path) -> None:
        frames = frames_of(tmp_path, keyed("t", rows([1]), ["id"]), keyed("t", rows("[1]"), ["id"]))
        assert survivors(frames) == [[0], [1]]


class TestTransporter:
    def test_its_documents_have_their_key_in_id(self, tmp_path: Path) -> None:
        documents = [b'{"_id":1}', b'{"_id":2}', b'{"_id":1,"x":[1,"a"]}', b'{"_id":"1"}', b'{"_id":{"$oid":"ab"}}']
        write_plain(tmp_path, 0, [(at, "t", document) for at, document in enumerate(documents)])
        CommitLog.open(tmp_path).close()
        assert survivors(list(LogReader(tmp_path).frames())) == [[], [1], [2], [3], [4]]

    def test_a_document_without_one_stays(self, tmp_path: Path) -> None:
        write_plain(tmp_path, 0, [(0, "t", b'{"x":1}'), (1, "t", b"[1]"), (2, "t", b"null"), (3, "t", b'{"_id":null}')])
        CommitLog.open(tmp_path).close()
        assert survivors(list(LogReader(tmp_path).frames())) == [None] * 4

    def test_ours_go_on_with_the_same_key(self, tmp_path: Path) -> None:
        directory = transporter_log(tmp_path / "xlog")
        ours = keyed("orders.json", [(UPDATE, {"_id": number}, None) for number in (3, 24)], ["_id"])
        with CommitLog.open(directory) as log:
            log.append([ours])
        gone = [frame[0] for frame in enumerate(survivors(list(LogReader(directory).frames()))) if frame[1] == []]
        assert gone == [3, 24]

    def test_what_an_update_does_not_tell_stays_where_it_was_told(self, tmp_path: Path) -> None:
        whole = {"id": 1, "a": "x", "b": "y"}
        frames = frames_of(
            tmp_path,
            keyed("t", [(INSERT, whole, None)], ["id"]),
            keyed("t", [(Op.UPDATE, {"id": 1, "a": "z"}, None)], ["id"]),
            keyed("t", [(Op.UPDATE, {"id": 1, "a": "zz"}, None)], ["id"]),
        )
        assert survivors(frames) == [[0], [], [2]]
        later = frames_of(tmp_path / "later", *([keyed("t", [(INSERT, whole, None)], ["id"])] * 2))
        assert survivors(later) == [[], [1]]
        gone = frames_of(
            tmp_path / "gone",
            keyed("t", [(INSERT, whole, None)], ["id"]),
            keyed("t", [(Op.DELETE, {"id": 1}, None)], ["id"]),
        )
        assert survivors(gone) == [[], [1]]
