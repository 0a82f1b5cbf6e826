"""What the log's browser says of messages."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace.errors import TailraceError
from tailrace.message import Message, Op, now
from tailrace.pipeline.spec import PipelineSpec
from tailrace.web.browsing import SHOWN_LETTERS, Difference, differences, message_at
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


def test_a_message_that_is_not_there_is_called_by_its_offset(spec: PipelineSpec) -> None:
    for offset in (12, 99):
        with pytest.raises(TailraceError, match=f"offset {offset} is past the end of the log, the newest is 11"):
            message_at(spec.log, offset)
