"""Numbers that SQLite would change without a word: they come back as they were, or are refused."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace.sync.affinity import Affinity, affinity_of
from tailrace.sync.database import Unfit
from tailrace.sync.entity import Entity
from tailrace.sync.exchange import RowBatch
from tailrace.sync.shape import Shape, shape_of
from tailrace.sync.store import WE_CALL
from tailrace.sync.values import from_wire
from tests.sync.conftest import Places
from tests.sync.direct import sync
from tests.sync.places import Place

PRICE = Entity("price", 7, "changed")
EXACT = [
    "12345678901234567890.123",
    "0.1000000000000000055511151231257827",
    "99999999999999999999",
    "-9007199254740993.5",
]
"""No float is one of these."""
KEPT = ["0.1", "1.50", "-1234567890.12345", "9223372036854775807", "0", "NaN", "Infinity", "-Infinity"]
DECLARED = ["TEXT", "NUMERIC", "DECIMAL(30,10)", "REAL", ""]


def tables(places: Places, declared: str, kind: str = "numeric") -> tuple[Place, Place]:
    place, other = places("sqlite"), places("postgres")
    place.run(f"CREATE TABLE price(id bigint PRIMARY KEY, amount {declared}, what text, changed bigint)")
    other.run(f"CREATE TABLE price(id bigint PRIMARY KEY, amount {kind}, what text, changed bigint)")
    return place, other


@pytest.mark.parametrize("many", [1, 50])
@pytest.mark.parametrize("declared", DECLARED)
def test_an_edit_in_sqlite_changes_no_number_in_postgres(places: Places, declared: str, many: int) -> None:
    place, other = tables(places, declared)
    one, two = place.install(PRICE), other.install(PRICE)
    for key, amount in enumerate((EXACT + KEPT) * many):
        other.ask("INSERT INTO price(id, amount, what) VALUES (?, ?::numeric, 'x')", (key, amount))
    before = other.ask("SELECT id, amount FROM price WHERE amount <> 'NaN' ORDER BY id")
    done = sync(one, two)
    is_exact = affinity_of(declared) in (Affinity.TEXT, Affinity.NONE)
    refused = (len(EXACT) + (declared == "REAL")) * many
    assert done.refused == (0 if is_exact else refused)
    place.run("UPDATE price SET what = 'edited'")
    sync(one, two)
    assert other.ask("SELECT id, amount FROM price WHERE amount <> 'NaN' ORDER BY id") == before
    assert other.ask("SELECT count(*) FROM price WHERE amount = 'NaN'") == [(many,)]
    assert other.ask("SELECT count(*) FROM price WHERE what = 'x'") == [(done.refused,)]
    if not is_exact:
        told = {each.key[0]: each for each in one.quarantined()}
        assert told[0].why == "refused" and told[0].reason == (
            f"a column declared {declared} cannot keep {EXACT[0]} as it is; declare it TEXT"
        )
        assert told[0].row is not None and told[0].row["amount"] == EXACT[0]
        assert {each.why for each in two.quarantined()} == {"rejected"}


@pytest.mark.parametrize("declared", [*DECLARED, "INTEGER"])
def test_floats_come_back_as_they_were(places: Places, declared: str) -> None:
    place, other = tables(places, declared, "double precision")
    one, two = place.install(PRICE), other.install(PRICE)
    amounts = ["0.30000000000000004", "NaN", "Infinity", "-Infinity", "1e300", "5", "-0.1", "1e20"]
    for key, amount in enumerate(amounts):
        other.ask("INSERT INTO price(id, amount, what) VALUES (?, ?::double precision, 'x')", (key, amount))
    before = other.ask("SELECT amount::text FROM price ORDER BY id")
    assert sync(one, two).refused == 0
    place.run("UPDATE price SET what = 'edited'")
    sync(one, two)
    assert other.ask("SELECT amount::text FROM price WHERE what = 'edited' ORDER BY id") == before


def test_whole_numbers_that_no_float_can_be(places: Places) -> None:
    place, _ = tables(places, "REAL")
    store = place.install(PRICE)
    store.meet(4711, WE_CALL)
    rows = [(key, amount, "x", 1000, 1000, 4711, False, 1000) for key, amount in enumerate([1 << 53, (1 << 53) + 1])]
    receipt = store.receive(7, 4711, RowBatch(("id", "amount", "what", "changed"), rows))
    assert [ack.tracker.key for ack in receipt.refused] == [(1,)]
    assert place.ask("SELECT amount FROM price") == [(float(1 << 53),)]


@pytest.fixture
def shape(places: Places) -> Shape:
    place = places("sqlite")
    place.run("CREATE TABLE price(id bigint PRIMARY KEY, amount NUMERIC, day DATETIME, what TEXT, changed bigint)")
    return place.database().read(lambda link: shape_of(link, PRICE, place.dialect))


@pytest.mark.parametrize("text", ["007", "+5", " 5", "5 ", "1e5", ".5", "5.", "9" * 5000, "1" + "0" * 400])
def test_a_text_that_would_become_another_number(shape: Shape, text: str) -> None:
    with pytest.raises(Unfit):
        from_wire(shape, [(text,)], ["amount"])
    assert from_wire(shape, [(text,)], ["what"]) == [(text,)]


@pytest.mark.parametrize("value", ["2024-05-01", "12:30", "five", "", "-", "0x10", "1_000", "٣", 5, 1.5, None, True])
def test_what_is_no_such_text_stays(shape: Shape, value: Any) -> None:
    assert from_wire(shape, [(value, value)], ["amount", "day"]) == [(value, value)]


def test_a_key_that_would_become_another_is_no_key(places: Places) -> None:
    place, other = places("sqlite"), places("postgres")
    place.run("CREATE TABLE price(id NUMERIC PRIMARY KEY, what text, changed bigint)")
    other.run("CREATE TABLE price(id numeric PRIMARY KEY, what text, changed bigint)")
    one, two = place.install(PRICE), other.install(PRICE)
    other.run("INSERT INTO price(id, what) VALUES (1, 'x')")
    sync(one, two)
    other.run("INSERT INTO price(id, what) VALUES (12345678901234567890.5, 'bad'), (2, 'x')")
    assert sync(one, two).refused == 1
    assert place.ask("SELECT id FROM price ORDER BY id") == [(1,), (2,)]
    assert two.nodes_with_pending() == {}
