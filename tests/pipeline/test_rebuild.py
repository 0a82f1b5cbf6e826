"""Tables as they were: at every offset the log says the same as a model that was kept along."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from tailrace.errors import TailraceError
from tailrace.log.batch import Batch, batches_of, rows_of, with_key
from tailrace.log.commitlog import CommitLog
from tailrace.log.compaction import By, compact
from tailrace.log.consumers import Consumers
from tailrace.log.retention import retain
from tailrace.log.session import ConsumerSession
from tailrace.message import Message, Micros, Mode, Op, moment
from tailrace.pipeline.rebuild import find_point, rebuild
from tailrace.pipeline.tableformat import TableFormat

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SECOND = 1_000_000
Model = dict[tuple[Any, ...], dict[str, Any]]


class Chronicle:
    """A log in which a table is copied and changed, and the table at every offset."""

    def __init__(self, log: CommitLog, key: tuple[str, ...] = ("id", "part")) -> None:
        self.log = log
        self.key = key
        self.now: Model = {}
        self.states: dict[int, Model] = {}

    def mark(self, mode: Mode) -> None:
        self.log.append(batches_of([self._message(Op.NOOP, None)], mode))
        self._note()

    def copy(self, rows: list[dict[str, Any]]) -> None:
        self.mark(Mode.COPY)
        for row in rows:
            self.put(row, mode=Mode.COPY)
        self.mark(Mode.COMPLETE)

    def put(self, row: dict[str, Any], before: dict[str, Any] | None = None, mode: Mode = Mode.SYNC) -> None:
        op = Op.UPDATE if before is not None or self._key(row) in self.now else Op.INSERT
        if before is not None:
            self.now.pop(self._key(before), None)
        self.now[self._key(row)] = row
        self._append(op, row, before, mode)

    def delete(self, key: tuple[Any, ...]) -> None:
        del self.now[key]
        self._append(Op.DELETE, dict(zip(self.key, key, strict=True)), None, Mode.SYNC)

    def other(self) -> None:
        """A message of another table."""
        self.log.append_messages([Message(Op.INSERT, self._at(), "shop.other", {"id": 1, "part": "a"})])
        self._note()

    def _append(self, op: Op, row: dict[str, Any], before: dict[str, Any] | None, mode: Mode) -> None:
        rows = with_key(rows_of([self._message(op, row, before)]), self.key)
        self.log.append([Batch("shop.orders", rows, mode)])
        self._note()

    def _message(self, op: Op, row: dict[str, Any] | None, before: dict[str, Any] | None = None) -> Message:
        return Message(op, self._at(), "shop.orders", row, before)

    def _at(self) -> Micros:
        """One message a second."""
        return Micros(self.log.next_offset * SECOND)

    def _note(self) -> None:
        self.states[self.log.next_offset - 1] = dict(self.now)

    def _key(self, row: dict[str, Any]) -> tuple[Any, ...]:
        return tuple(row[name] for name in self.key)


@pytest.fixture
def chronicle(tmp_path: Path) -> Chronicle:
    """Fifty rows that are copied and then changed a hundred times, by chance but always the same."""
    chance = random.Random(7)
    with CommitLog.open(tmp_path / "log") as log:
        made = Chronicle(log)
        made.other()
        made.copy([{"id": number // 2, "part": "ab"[number % 2], "amount": number} for number in range(50)])
        for number in range(100):
            key = chance.choice(list(made.now))
            what = chance.choice(("delete", "update", "move", "insert", "other"))
            if what == "delete":
                made.delete(key)
            elif what == "update":
                made.put({**made.now[key], "amount": -number, **({"note": f"n{number}"} if number > 60 else {})})
            elif what == "move":
                made.put({**made.now[key], "id": 1000 + number}, before=made.now[key])
            elif what == "insert":
                made.put({"id": 100 + number, "part": "ü", "amount": None})
            else:
                made.other()
        return made


def table(directory: str) -> Model:
    """What was written, by key; a key that comes twice fails."""
    rows = pq.read_table(directory).to_pylist()
    found = {(row["id"], row["part"]): row for row in rows}
    assert len(found) == len(rows)
    return found


def same(found: Model, expected: Model) -> bool:
    """Fields that a row never had are null."""
    names = {name for row in found.values() for name in row}
    return found == {key: {name: row.get(name) for name in names} for key, row in expected.items()}


def test_at_any_offset(chronicle: Chronicle, spark: SparkSession) -> None:
    log = chronicle.log.directory
    complete = 52
    for at in (complete, complete + 1, 80, 113, max(chronicle.states)):
        done = rebuild(find_point(log, "shop.orders", str(at)), f"at-{at}", spark)
        assert done.rows == len(chronicle.states[at])
        assert same(table(done.directory), chronicle.states[at])
    assert "note" not in pq.read_table("at-80").column_names


def test_at_a_time(chronicle: Chronicle, spark: SparkSession) -> None:
    """What happened at that very moment counts."""
    point = find_point(chronicle.log.directory, "shop.orders", moment(Micros(90 * SECOND)).isoformat())
    assert point.at == 90
    assert find_point(chronicle.log.directory, "shop.orders", "1970-01-01T00:01:30.999999").at == 90
    assert find_point(chronicle.log.directory, "shop.orders", "2100-01-01").at == max(chronicle.states)
    done = rebuild(point, point.default_directory, spark, TableFormat.JSONL)
    assert done.directory.endswith("/rebuild-shop.orders-90")
    rows = [json.loads(line) for path in Path(done.directory).glob("*.jsonl") for line in path.read_text().splitlines()]
    assert same({(row["id"], row["part"]): row for row in rows}, chronicle.states[90])


def test_without_a_key_every_insert_is_a_row(tmp_path: Path, spark: SparkSession) -> None:
    with CommitLog.open(tmp_path / "log") as log:
        log.append_messages(Message(Op.INSERT, Micros(1), "a:b", {"n": 1}) for _ in range(3))
    done = rebuild(find_point(str(tmp_path / "log"), "a:b", "1"), "out", spark)
    assert pq.read_table(done.directory).to_pylist() == [{"n": 1}, {"n": 1}]


def test_documents_of_transporter_have_their_key(tmp_path: Path, spark: SparkSession) -> None:
    with CommitLog.open(tmp_path / "log") as log:
        for number in range(6):
            log.append_messages([Message(Op.INSERT, Micros(1), "docs", {"_id": number % 2, "n": number})])
    done = rebuild(find_point(str(tmp_path / "log"), "docs", "4"), "out", spark)
    assert sorted(row["n"] for row in pq.read_table(done.directory).to_pylist()) == [3, 4]


def refusal(log: str, namespace: str, at: str) -> TailraceError:
    with pytest.raises(TailraceError) as raised:
        find_point(log, namespace, at)
    return raised.value


def test_what_makes_no_sense_is_refused(chronicle: Chronicle) -> None:
    log = chronicle.log.directory
    unknown = refusal(log, "shop.order", "5")
    assert "did you mean shop.orders?" in unknown.what
    assert unknown.hint == "there are: shop.orders, shop.other"
    assert refusal(log, "shop.orders", "9999").code == "log.past_end"
    assert refusal(log, "shop.orders", "yesterday").code == "input.invalid"
    assert refusal(log, "shop.orders", "1969-12-31T23:00:00").code == "log.below_oldest"
    assert refusal("nowhere", "shop.orders", "1").code == "log.not_found"
    Path("taken").mkdir()
    with pytest.raises(TailraceError, match="needs a new directory"):
        find_point(log, "shop.orders", "80").check_free("taken")


def test_while_it_is_copied_a_table_has_no_state(chronicle: Chronicle) -> None:
    error = refusal(chronicle.log.directory, "shop.orders", "30")
    assert error.code == "log.below_oldest"
    assert error.hint == "it can be rebuilt from offset 52 on: --at 52"


def test_a_later_copy_makes_the_state_whole_again(tmp_path: Path, spark: SparkSession) -> None:
    """The first copy goes with the segments that retention removes."""
    with CommitLog.open(tmp_path / "log") as log:
        made = Chronicle(log, ("id",))
        made.copy([{"id": number, "part": "a"} for number in range(10)])
        log.roll()
        made.copy([{"id": number, "part": "b"} for number in range(5, 10)])
        made.put({"id": 7, "part": "c"})
        log.roll()
        made.put({"id": 8, "part": "d"})
        last = log.next_offset - 1
    consumed(str(tmp_path / "log"), 12)
    retain(tmp_path / "log")
    error = refusal(str(tmp_path / "log"), "shop.orders", "15")
    assert error.hint == "it can be rebuilt from offset 18 on: --at 18"
    done = rebuild(find_point(str(tmp_path / "log"), "shop.orders", str(last)), "out", spark)
    rows = {row["id"]: row["part"] for row in pq.read_table(done.directory).to_pylist()}
    assert rows == {5: "b", 6: "b", 7: "c", 8: "d", 9: "b"}


def consumed(directory: str, upto: int) -> None:
    """Somebody has had everything up to an offset."""
    consumers = Consumers(directory)
    consumers.register("somebody")
    with ConsumerSession(consumers, "somebody") as session:
        session.commit(upto)


@pytest.mark.parametrize("by", By)
def test_what_compaction_has_removed_is_not_made_up(by: By, tmp_path: Path, spark: SparkSession) -> None:
    with CommitLog.open(tmp_path / "log") as log:
        made = Chronicle(log, ("id",))
        made.copy([{"id": number, "part": "a"} for number in range(4)])
        made.put({"id": 1, "part": "b"})
        made.put({"id": 1, "part": "c"})
        log.roll()
        base = log.next_offset
        made.put({"id": 2, "part": "d"})
    directory = str(tmp_path / "log")
    consumed(directory, base)
    compact(directory, by=by)
    if by is By.NAMESPACE:
        assert refusal(directory, "shop.orders", str(base)).hint.startswith("let the pipeline copy it again")
        return
    assert refusal(directory, "shop.orders", "6").hint.endswith(f"--at {base - 1}")
    done = rebuild(find_point(directory, "shop.orders", str(base - 1)), "out", spark)
    rows = {row["id"]: row["part"] for row in pq.read_table(done.directory).to_pylist()}
    assert rows == {0: "a", 1: "c", 2: "a", 3: "a"}
