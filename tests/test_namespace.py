"""Names from outside: what could be a path, or cannot be printed, names nothing."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.errors import TailraceError
from tailrace.limits import NAME_BYTES_MAX
from tailrace.log.batch import Batch, batch_of
from tailrace.log.commitlog import CommitLog
from tailrace.log.consumers import Consumers
from tailrace.log.reader import LogReader
from tailrace.message import Message, Micros, Op
from tailrace.namespace import check_file_name, check_name, strangers_pattern
from tests.log.refusals import refused

BAD: Final = {
    "nothing": "",
    "parent": "..",
    "way up": "../x",
    "way out": "a/../../x",
    "absolute": "/etc/passwd",
    "slash": "a/b",
    "backslash": "a\\b",
    "dot": ".",
    "NUL": "a\0b",
    "line break": "a\nb",
    "escape": "\x1b[31m",
    "half a character": "\ud800",
    "direction override": "a\u202eb",
    "300 bytes": "x" * 300,
    "300 bytes of few characters": "é" * 150,
    "one byte too long": "x" * (NAME_BYTES_MAX + 1),
}
bad_names = pytest.mark.parametrize("name", BAD.values(), ids=BAD)


def sample(namespace: str) -> Batch:
    return batch_of(namespace, pa.RecordBatch.from_pydict({"n": [1]}), timestamp=Micros(1))


def message(namespace: str, *destinations: str) -> Message:
    return Message(Op.INSERT, Micros(1), namespace, {"n": 1}, destinations=destinations)


@bad_names
def test_bad_names_are_refused(name: str) -> None:
    for check in (check_name, check_file_name):
        with refused("name.invalid", saying="namespace "):
            check(name, "namespace")


def test_refusal_shows_the_beginning_of_a_long_name_only() -> None:
    with refused("name.invalid", saying="it has 100000 bytes, 255 are allowed") as refusal:
        check_name("x" * 100_000, "consumer")
    assert len(str(refusal.value)) < 300


@pytest.mark.parametrize(
    "name", ["shop.orders", "größe", "a b", "日本語", "__consumer_offsets-x", "x" * 255, "a:b", "..."]
)
def test_good_names_are_returned(name: str) -> None:
    assert check_name(name, "namespace") == name


@pytest.mark.parametrize("name", ["a", "Sink_1", "writer-2.eu@west", "0"])
def test_good_file_names_are_returned(name: str) -> None:
    assert check_file_name(name, "consumer") == name


@pytest.mark.parametrize("name", [".hidden", "-rf", "@x", "größe", "a b ", " a", "a:b", "a*", "x~"])
def test_file_names_are_stricter(name: str) -> None:
    with refused("name.invalid", saying="only letters, digits"):
        check_file_name(name, "consumer")


@given(st.text())
def test_any_name_is_safe_or_refused(name: str) -> None:
    try:
        check_name(name, "namespace")
    except TailraceError as refusal:
        assert refusal.code == "name.invalid"
        return
    assert 0 < len(name.encode()) <= NAME_BYTES_MAX
    assert os.path.basename(name) == name
    assert not set(name) & set("/\\\0\n\r")


@bad_names
def test_nowhere_in_the_log_does_a_bad_name_get_in(tmp_path: Path, name: str) -> None:
    directory = tmp_path / "log"
    with CommitLog.open(directory) as log:
        log.append([sample("good")])
        before = sorted(os.listdir(directory))
        consumers = Consumers(directory)
        steps: list[Callable[[], object]] = [
            lambda: sample(name),
            lambda: log.append_messages([message(name)]),
            lambda: log.append_messages([message("good", "north", name)]),
            lambda: log.append([sample("good")], batch_id=name),
            lambda: log.append_soon([sample("good")], batch_id=name),
            lambda: log.publish(name, []),
            lambda: log.staging.writer(name, "task"),
            lambda: log.staging.writer("batch", name),
            lambda: consumers.register(name),
            lambda: consumers.get(name),
            lambda: consumers.delete(name, "test"),
        ]
        for step in steps:
            with refused("name.invalid"):
                step()
        assert log.next_offset == 1
        assert sorted(os.listdir(directory)) == before
    assert os.listdir(tmp_path) == ["log"]
    assert len(list(LogReader(directory).entries())) == 1


@pytest.mark.parametrize("text", ["(a+)+$", "(.|a)*b", ".*.*.*x", "(x){9}"])
def test_a_pattern_of_somebody_else_that_could_take_for_ever(text: str) -> None:
    with pytest.raises(TailraceError) as caught:
        strangers_pattern(text)
    assert caught.value.code == "input.invalid"


@pytest.mark.parametrize("text", [None, r"^shop\.(orders|items)$", "^a.*b.*$"])
def test_a_pattern_of_somebody_else(text: str | None) -> None:
    found = strangers_pattern(text)
    assert (None if found is None else found.pattern) == text
