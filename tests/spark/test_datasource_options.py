"""Options of a read: what is understood, and that nothing else is guessed at."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailrace.errors import TailraceError
from tailrace.log.reader import LogReader
from tailrace.spark.source_options import Bound, Edge, OnNewField, read_options
from tests.log.material import SECOND, make_log


def refusal(**given: str) -> str:
    with pytest.raises(TailraceError) as raised:
        read_options({"path": "log", **given})
    assert raised.value.code == "input.invalid"
    return raised.value.what


def test_names_are_known_in_any_case() -> None:
    options = read_options({"path": "/log", "startingoffset": "7", "ONNEWFIELD": "Ignore", "MaxBytesPerTrigger": "2kB"})
    assert options.start == Bound(7)  # type: ignore[arg-type]
    assert options.on_new_field is OnNewField.IGNORE
    assert options.trigger_bytes_max == 2000


def test_an_unknown_option_is_refused_with_the_one_that_was_meant() -> None:
    assert refusal(startingofset="7") == "there is no option 'startingofset'; did you mean startingOffset?"
    assert refusal(quorum="3") == "there is no option 'quorum'"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("startingOffset", "-1"),
        ("startingOffset", "first"),
        ("endingOffset", "1.5"),
        ("startingTimestamp", "yesterday"),
        ("maxBytesPerTrigger", "much"),
        ("includeNoop", "1"),
        ("failOnDataLoss", "perhaps"),
        ("onNewField", "drop"),
        ("namespaces", "("),
    ],
)
def test_a_wrong_value_is_refused_by_the_name_of_its_option(name: str, value: str) -> None:
    assert refusal(**{name: value}).startswith(f"option {name}: ")


@pytest.mark.parametrize(
    ("one", "other"),
    [("namespace", "namespaces"), ("startingOffset", "startingTimestamp"), ("endingOffset", "endingTimestamp")],
)
def test_two_options_for_one_thing_are_refused(one: str, other: str) -> None:
    assert refusal(**{one: "1", other: "1"}) == f"options {one} and {other} say the same in two ways"


def test_a_path_is_a_directory_of_this_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert read_options({"path": "log"}).path == str(tmp_path / "log")
    assert read_options({"path": "file:///var/log"}).path == "/var/log"
    assert "s3://bucket/log" in refusal(path="s3://bucket/log")
    with pytest.raises(TailraceError, match="no log is named"):
        read_options({})


@pytest.mark.parametrize("text", ["1970-01-01T00:00:03Z", "1970-01-01T01:00:03+01:00", "19700101T000003", "3000000"])
def test_moments_are_text_or_microseconds_and_utc(text: str) -> None:
    assert read_options({"path": "log", "startingTimestamp": text}).start == Bound(3 * SECOND, is_moment=True)  # type: ignore[arg-type]


def test_bounds_are_places_in_the_log_as_it_is(tmp_path: Path) -> None:
    make_log(tmp_path, "ab", "c")
    reader = LogReader(tmp_path)
    assert Bound(Edge.EARLIEST).offset_in(reader) == 0
    assert Bound(Edge.LATEST).offset_in(reader) == 3
    assert Bound(SECOND, is_moment=True).offset_in(reader) == 0  # type: ignore[arg-type]
    assert Bound(SECOND + 1, is_moment=True).offset_in(reader) == 3  # type: ignore[arg-type]
