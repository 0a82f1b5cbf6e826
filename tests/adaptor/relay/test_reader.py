"""A node that is read into a log: restarts, lost views, other nodes, holds."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from tailrace.errors import TailraceError
from tailrace.log.commitlog import CommitLog
from tailrace.log.consumers import Consumers
from tailrace.log.retention import retain
from tailrace.message import Message, Mode, Op
from tailrace.relay import reading
from tailrace.relay.applier import State
from tailrace.relay.holds import pipeline_name
from tailrace.source.capture import Capture
from tests.adaptor.capturing import messages_in, run_here
from tests.adaptor.relay.nodes import ServedNode
from tests.adaptor.sqlite.databases import ask, run
from tests.node.shops import settle
from tests.relay.nodes import TOKEN, wait_until

MANY = """INSERT INTO t WITH RECURSIVE n(value) AS
    (SELECT {} UNION ALL SELECT value + 1 FROM n WHERE value < {}) SELECT value, 'old' FROM n"""


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


@pytest.fixture
def node(stack: ExitStack, tmp_path: Path) -> ServedNode:
    made = stack.enter_context(ServedNode(tmp_path / "node"))
    run(made.path, MANY.format(1, 400))
    return made


class Pipeline:
    """The first half of a pipeline, without Spark."""

    def __init__(self, directory: Path, node: ServedNode, **more: Any) -> None:
        self.log = directory / "log"
        self.node = node
        self._more = more
        self._opened = CommitLog.open(self.log)
        self.capture = self.made()

    def made(self) -> Capture:
        made = Capture(
            self.node.options(**self._more),
            re.compile("."),
            self._opened,
            run_here,
            stop=threading.Event(),
            report=lambda _: None,
            parallel=1,
            once=True,
        )
        made.open()
        return made

    def __enter__(self) -> Pipeline:
        return self

    def __exit__(self, *_: object) -> None:
        self.capture.close()
        self._opened.close()

    def reopen(self) -> None:
        """As after a crash of the driver."""
        self.capture.close()
        self.capture = self.made()

    def catch_up(self) -> None:
        while self.capture.turn():
            pass

    def data(self) -> list[Message]:
        return [m for m in messages_in(self.log) if m.namespace == "main.t" and m.op is not Op.NOOP]

    def rows(self) -> list[tuple[Any, ...]]:
        """What whoever applies the log in order ends with."""
        found: dict[int, str] = {}
        for message in self.data():
            assert message.data is not None
            if message.before is not None:
                found.pop(message.before["id"], None)
            if message.op is Op.DELETE:
                found.pop(message.data["id"], None)
            else:
                found[message.data["id"]] = message.data["word"]
        return sorted(found.items())


@pytest.fixture
def pipeline(stack: ExitStack, tmp_path: Path, node: ServedNode) -> Pipeline:
    return stack.enter_context(Pipeline(tmp_path, node))


def rows_of(node: ServedNode) -> list[tuple[Any, ...]]:
    return ask(node.path, "SELECT * FROM t ORDER BY id")


def test_copy_then_changes(pipeline: Pipeline, node: ServedNode) -> None:
    pipeline.catch_up()
    assert pipeline.rows() == rows_of(node)
    run(node.path, "UPDATE t SET word = 'new' WHERE id = 7", "DELETE FROM t WHERE id = 8", MANY.format(401, 410))
    pipeline.catch_up()
    assert pipeline.rows() == rows_of(node)
    changed = [message for message in pipeline.data() if message.origin]
    assert [message.op for message in changed[:2]] == [Op.UPDATE, Op.DELETE]
    assert changed[0].before == {"id": 7, "word": "old"}
    assert {message.origin for message in changed} == {node.shop.id}
    assert len(changed) == 12
    assert all(message.tx for message in changed)
    assert list((node.directory / "copies").iterdir()) == [], "the view is not needed any more"


def test_a_node_that_is_restarted_in_the_middle_of_a_copy(pipeline: Pipeline, node: ServedNode) -> None:
    """Its view is lost. What was copied is brought up to the new one, and the rest is read from it."""
    pipeline.capture.turn()
    copied = len(pipeline.data())
    assert 0 < copied < 400
    run(node.path, "UPDATE t SET word = 'new'", "DELETE FROM t WHERE id % 3 = 0", MANY.format(401, 410))
    node.restart()
    run(node.path, "UPDATE t SET word = 'newer' WHERE id % 5 = 0")
    pipeline.reopen()
    run(node.path, "UPDATE t SET word = 'newest' WHERE id % 7 = 0")
    pipeline.catch_up()
    assert pipeline.rows() == rows_of(node)
    copies = [message for message in pipeline.data() if not message.origin]
    assert len(copies) < 400 + copied, "it began anew"


def test_a_pipeline_that_is_restarted_in_the_middle_of_a_copy(pipeline: Pipeline, node: ServedNode) -> None:
    """The node knows its view: no change is read that is newer than it."""
    pipeline.capture.turn()
    run(node.path, "UPDATE t SET word = 'new'", "DELETE FROM t WHERE id % 3 = 0")
    pipeline.reopen()
    pipeline.capture.turn()
    assert all(not message.origin for message in pipeline.data())
    pipeline.catch_up()
    assert pipeline.rows() == rows_of(node)


def test_a_node_that_is_away(pipeline: Pipeline, node: ServedNode) -> None:
    pipeline.catch_up()
    node.stop()
    with pytest.raises(TailraceError) as caught:
        pipeline.catch_up()
    assert caught.value.code == "source.unreachable"
    run(node.path, "DELETE FROM t WHERE id = 1")
    node.start()
    pipeline.capture.reopen()
    pipeline.catch_up()
    assert pipeline.rows() == rows_of(node)


@pytest.mark.parametrize("plan_bytes", [1, 10_000, 1 << 30])
def test_many_parts(pipeline: Pipeline, node: ServedNode, monkeypatch: pytest.MonkeyPatch, plan_bytes: int) -> None:
    """A turn reads some of them, each by a task of its own; nothing comes twice."""
    monkeypatch.setattr(reading, "SPAN_BYTES", 1)
    monkeypatch.setattr(reading, "PLAN_BYTES", plan_bytes)
    pipeline.catch_up()
    for number in range(1, 30):
        run(node.path, f"UPDATE t SET word = 'word {number}' WHERE id <= {number}")
        node.shop.turn()
    groups = pipeline.capture.stats.groups
    pipeline.catch_up()
    while pipeline.rows() != rows_of(node):
        pipeline.catch_up()
    changed = [message.lsn for message in pipeline.data() if message.origin]
    assert len(changed) == sum(range(1, 30))
    assert changed == sorted(set(changed))
    assert (pipeline.capture.stats.groups - groups == 1) == (plan_bytes == 1 << 30)


def test_another_node_of_the_cluster(pipeline: Pipeline, node: ServedNode, stack: ExitStack, tmp_path: Path) -> None:
    """It has another log, in which things are in other places; the clock says where to go on."""
    other = stack.enter_context(ServedNode(tmp_path / "other", None))
    wait_until(other.shop.join(node.shop), State.FOLLOW)
    pipeline.catch_up()
    run(node.path, "UPDATE t SET word = 'read from the first' WHERE id = 1")
    pipeline.catch_up()
    run(node.path, "UPDATE t SET word = 'not read' WHERE id = 2")
    node.shop.follow(other.shop)
    settle([node.shop, other.shop])
    run(other.path, "UPDATE t SET word = 'of the other' WHERE id = 3")
    settle([node.shop, other.shop])
    pipeline.node = other
    pipeline.reopen()
    pipeline.catch_up()
    assert pipeline.rows() == rows_of(other)
    changed = [(message.data or {})["word"] for message in pipeline.data() if message.origin]
    assert [word for word in changed if word != "old"] == ["read from the first", "not read", "of the other"]
    assert len({message.origin for message in pipeline.data() if message.origin}) == 2


@pytest.mark.parametrize("is_read_between", [False, True], ids=["at once", "between"])
def test_two_nodes_that_change_a_row_at_the_same_time(
    pipeline: Pipeline, node: ServedNode, stack: ExitStack, tmp_path: Path, is_read_between: bool
) -> None:
    """The older change comes later. Stores know that; a pipeline must not end with it either."""
    other = stack.enter_context(ServedNode(tmp_path / "other", None))
    wait_until(other.shop.join(node.shop), State.FOLLOW)
    settle([node.shop, other.shop])
    pipeline.catch_up()
    changes = [f"UPDATE t SET word = 'older' WHERE id = {number}" for number in (9, 10, 11)]
    run(other.path, *changes)
    other.shop.store.capture()  # nobody follows it yet
    run(node.path, "UPDATE t SET word = 'newer' WHERE id = 9", "DELETE FROM t WHERE id = 10")
    node.shop.turn()
    if is_read_between:
        pipeline.catch_up()
    node.shop.follow(other.shop)
    settle([node.shop, other.shop])
    run(node.path, "UPDATE t SET word = 'and then' WHERE id = 12", "UPDATE t SET word = 'at last' WHERE id = 12")
    settle([node.shop, other.shop])
    pipeline.catch_up()
    assert pipeline.rows() == rows_of(node) == rows_of(other)
    assert {(9, "newer"), (11, "older"), (12, "at last")} <= set(pipeline.rows())
    words = [(message.data or {})["word"] for message in pipeline.data()]
    assert "and then" in words, "what one node did comes as it happened"


def test_the_log_is_kept_until_the_pipeline_has_it(pipeline: Pipeline, node: ServedNode) -> None:
    """And when it was let go before, that is told."""
    pipeline.catch_up()
    consumers, name = Consumers(node.log), pipeline_name("test")
    before = consumers.position(consumers.get(name))
    for number in range(100):
        run(node.path, f"UPDATE t SET word = 'word {number}' WHERE id <= 50")
        node.shop.turn()
    assert consumers.position(consumers.get(name)) == before
    node.shop.store._session.flush()
    retain(node.log)
    pipeline.catch_up()
    assert pipeline.rows() == rows_of(node)
    assert consumers.position(consumers.get(name)) > before
    consumers.delete(name, "a test")
    for number in range(100):
        run(node.path, f"UPDATE t SET word = 'other {number}' WHERE id <= 50")
        node.shop.turn()
    node.shop.store._session.flush()
    retain(node.log)
    with pytest.raises(TailraceError) as caught:
        pipeline.reopen()
    assert caught.value.code == "source.position_lost"
    assert "new log" in caught.value.hint


def test_a_copy_that_the_node_has_forgotten(pipeline: Pipeline, node: ServedNode) -> None:
    pipeline.capture.turn()
    with closing(node.options().open()) as other:
        other.uninstall()
    with pytest.raises(TailraceError) as caught:
        pipeline.catch_up()
    assert caught.value.code == "source.position_lost"


def test_a_new_table(pipeline: Pipeline, node: ServedNode) -> None:
    pipeline.catch_up()
    run(node.path, "CREATE TABLE other(id INTEGER PRIMARY KEY)", "INSERT INTO other VALUES (1)")
    pipeline.reopen()
    pipeline.catch_up()
    run(node.path, "INSERT INTO other VALUES (2)")
    pipeline.catch_up()
    found = [m for m in messages_in(pipeline.log) if m.namespace == "main.other" and m.op is not Op.NOOP]
    assert {(message.data or {})["id"] for message in found} == {1, 2}


@pytest.mark.parametrize("token", ["", "wrong"])
def test_a_wrong_token(node: ServedNode, token: str) -> None:
    with closing(node.options(token=token).open()) as reader, pytest.raises(TailraceError) as caught:
        reader.tables()
    assert caught.value.code == "relay.no_rights"
    assert TOKEN not in str(caught.value)


def test_what_doctor_says(node: ServedNode) -> None:
    assert [check.ok for check in node.options().probe()] == [True, True]
    assert [check.ok for check in node.options(token="wrong").probe()] == [True, False]
    node.stop()
    (check,) = node.options().probe()
    assert not check.ok
    assert check.cure


def test_copies_have_their_mode(node: ServedNode) -> None:
    with closing(node.options().open()) as reader:
        (table,) = reader.tables()
        pieces = reader.plan_copy(table)
        assert len(pieces) == 10
        assert {b.mode for piece in pieces for b in reader.read_copy("main.t", piece)} == {Mode.COPY}
