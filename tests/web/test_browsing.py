"""What the log's browser says of messages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tailrace.errors import TailraceError
from tailrace.log.commitlog import CommitLog, LogConfig
from tailrace.log.compaction import compact
from tailrace.log.consumers import Consumers
from tailrace.log.retention import retain
from tailrace.log.view import LogView
from tailrace.message import Message, Offset, Op, now
from tailrace.pipeline.spec import PipelineSpec
from tailrace.web.browsing import SHOWN_LETTERS, Compacted, Difference, Wanted, browse, differences, message_at
from tests.log.material import make_log
from tests.web.shops import make_shop


@pytest.fixture
def spec(tmp_path_factory: pytest.TempPathFactory) -> PipelineSpec:
    return make_shop(tmp_path_factory.mktemp("shop"))


def difference(before: Any, after: Any) -> Difference:
    message = Message(Op.UPDATE, now(), "t", {"field": after}, before={"field": before})
    (found,) = differences(message)
    return found


@pytest.mark.parametrize(
    ("before", "after", "shown"),
    [
        (None, "null", ("null", '"null"')),
        (1, "1", ("1", '"1"')),
        (True, "true", ("true", '"true"')),
        (1, 1.0, ("1", "1.0")),
        ("old", "new", ("old", "new")),
    ],
)
def test_what_only_looks_alike_has_changed(before: Any, after: Any, shown: tuple[str, str]) -> None:
    found = difference(before, after)
    assert found.is_changed
    assert (found.before, found.after) == shown


def test_a_change_behind_what_is_shown_is_one() -> None:
    text = "x" * SHOWN_LETTERS
    assert difference(f"{text}a", f"{text}b").is_changed
    assert not difference(f"{text}a", f"{text}a").is_changed


def test_what_is_no_number_has_not_changed() -> None:
    assert not difference(float("nan"), float("nan")).is_changed


def test_a_field_that_was_not_there_is_not_one_without_a_value() -> None:
    message = Message(Op.UPDATE, now(), "t", {"new": None}, before={"old": None})
    assert list(differences(message)) == [Difference("old", "null", None, True), Difference("new", None, "null", True)]


@pytest.mark.parametrize("said", [{}, {"since": "2020-01-01T00:00:00Z"}, {"offset": "3"}])
@pytest.mark.parametrize("look", range(1, 6))
def test_what_is_removed_while_it_is_looked_for_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: dict[str, str], look: int
) -> None:
    """Retention comes between looking which segments there are, and reading them."""
    log = str(tmp_path / "log")
    with CommitLog.open(log, LogConfig(segment_bytes=1)) as opened:
        for number in range(6):
            opened.append_messages([Message(Op.INSERT, now(), "t", {"id": number})])
    Consumers(log).register("reader", start=Offset(5))
    seen: list[list[Offset]] = []
    bases = LogView.bases

    def bases_before(view: LogView) -> list[Offset]:
        found = bases(view)
        seen.append(found)
        if len(seen) == look:
            retain(log)
        return found

    monkeypatch.setattr(LogView, "bases", bases_before)
    found = browse(log, Wanted.read(said))
    assert found.problem is None
    offsets = [entry.offset for entry in found.entries]
    assert offsets == list(range(offsets[0], 6))


def test_what_was_compacted_away_names_its_neighbours(tmp_path: Path) -> None:
    make_log(tmp_path, "ABAB", "AAA", "CA", "B")
    compact(tmp_path, upto=8)
    kept = [int(entry.offset) for entry in browse(str(tmp_path), Wanted()).entries]
    gone = sorted({*range(10)} - {*kept})
    assert gone and max(gone) < max(kept)
    for offset in gone:
        with pytest.raises(Compacted) as raised:
            message_at(str(tmp_path), offset)
        assert raised.value.before == max((each for each in kept if each < offset), default=None)
        assert raised.value.after == min(each for each in kept if each > offset)
    assert [message_at(str(tmp_path), offset).offset for offset in kept] == kept


def test_a_message_that_is_not_there_is_called_by_its_offset(spec: PipelineSpec) -> None:
    for offset in (12, 99):
        with pytest.raises(TailraceError, match=f"offset {offset} is past the end of the log, the newest is 11"):
            message_at(spec.log, offset)
