"""Refusals: what a database raises because of a row concerns that row alone, and what is about all rows none."""

from __future__ import annotations

import secrets

import pytest

from tailrace.errors import TailraceError
from tailrace.sync.entity import Entity
from tailrace.sync.store import SyncStore
from tests.sync.conftest import Places
from tests.sync.direct import sync
from tests.sync.places import Place

NOTE, OTHER = Entity("note", 1, "changed"), Entity("other", 2, "changed", batch=200)


def made(place: Place, *more: str, key: str = "bigint") -> SyncStore:
    place.run(
        f"CREATE TABLE note(id {key} PRIMARY KEY, what text, changed bigint)",
        "CREATE TABLE other(id bigint PRIMARY KEY, changed bigint)",
        *more,
    )
    return place.install(NOTE, OTHER)


def raising(code: str, when: str = "BEFORE INSERT OR UPDATE") -> list[str]:
    """What makes a table of PostgreSQL raise something."""
    constraint = "CONSTRAINT" if "DEFERRED" in when else ""
    timing, _, how = when.partition(" ON note ")
    return [
        f"""CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN
            IF NEW.what = 'bad' THEN RAISE EXCEPTION 'not here' USING ERRCODE = '{code}'; END IF; RETURN NEW; END$$""",
        f"CREATE {constraint} TRIGGER refuse {timing} ON note {how} FOR EACH ROW EXECUTE FUNCTION refuse()",
    ]


def write(place: Place) -> None:
    place.run(
        "INSERT INTO note(id, what) VALUES (1, 'good'), (2, 'bad'), (3, 'good'), (4, 'good')",
        "INSERT INTO other(id) VALUES (1)",
    )


def check_refused_alone(one: SyncStore, two: SyncStore, other: Place, why: str) -> None:
    """What is not wanted is told and kept, and nothing waits for it."""
    assert sync(one, two).refused == 1
    assert other.ask("SELECT id FROM note ORDER BY id") == [(1,), (3,), (4,)]
    assert other.ask("SELECT id FROM other") == [(1,)]
    (rejected,), (refused,) = one.quarantined(), two.quarantined()
    assert (rejected.why, rejected.key, refused.why, refused.key) == ("rejected", [2], "refused", [2])
    assert why in refused.reason and why in rejected.reason
    assert sync(one, two).sent == 0


@pytest.mark.parametrize(
    "code", ["42501", "P0001", "P0002", "PT403", "U0001", "55000", "55P03", "54000", "0A000", "42P01", "28000", "25006"]
)
def test_a_row_is_refused_with_whatever_state_a_trigger_raises(places: Places, code: str) -> None:
    place, other = places("sqlite"), places("postgres")
    one, two = made(place), made(other, *raising(code))
    write(place)
    check_refused_alone(one, two, other, "not here")


def test_a_row_is_refused_by_what_is_looked_at_when_a_transaction_ends(places: Places) -> None:
    place, other = places("sqlite"), places("postgres")
    when = "AFTER INSERT OR UPDATE ON note DEFERRABLE INITIALLY DEFERRED"
    one, two = made(place), made(other, *raising("P0001", when))
    write(place)
    check_refused_alone(one, two, other, "not here")


@pytest.mark.parametrize("code", ["40001", "53400", "57014", "XX000"])
def test_what_is_about_the_server_refuses_nothing(places: Places, code: str) -> None:
    """And the hint leads to what has raised it."""
    place, other = places("sqlite"), places("postgres")
    one, two = made(place), made(other, *raising(code))
    write(place)
    with pytest.raises(TailraceError) as failed:
        sync(one, two)
    assert failed.value.code == "sync.unreachable" and "refuse()" in failed.value.hint
    assert one.quarantined() == two.quarantined() == []
    other.run("DROP TRIGGER refuse ON note")
    assert sync(one, two).sent == 5


def test_a_statement_that_does_not_fit_the_tables_refuses_nothing(places: Places) -> None:
    """A receive view is away for a while before a column is dropped."""
    place, other = places("sqlite"), places("postgres")
    one, two = made(place), made(other, *raising("P0001"))
    write(place)
    other.run('ALTER VIEW "note_ReceiveView" RENAME TO away')
    with pytest.raises(TailraceError, match="note_ReceiveView"):
        sync(one, two)
    assert one.quarantined() == two.quarantined() == []
    other.run('ALTER VIEW away RENAME TO "note_ReceiveView"')
    check_refused_alone(one, two, other, "not here")


@pytest.mark.parametrize("how", ["ABORT", "FAIL", "ROLLBACK"])
def test_a_row_is_refused_however_a_trigger_of_sqlite_raises(places: Places, how: str) -> None:
    place, other = places("sqlite"), places("sqlite")
    trigger = f"BEFORE INSERT ON note WHEN NEW.what = 'bad' BEGIN SELECT RAISE({how}, 'not here'); END"
    one, two = made(place), made(other, f"CREATE TRIGGER refuse {trigger}")
    write(place)
    check_refused_alone(one, two, other, "not here")


@pytest.mark.parametrize("how", ["ABORT", "FAIL", "ROLLBACK"])
def test_a_row_is_refused_however_a_constraint_of_sqlite_says_so(places: Places, how: str) -> None:
    place, other = places("sqlite"), places("sqlite")
    one = made(place)
    other.run(
        f"CREATE TABLE note(id bigint PRIMARY KEY, what text NOT NULL ON CONFLICT {how}, changed bigint)",
        "CREATE TABLE other(id bigint PRIMARY KEY, changed bigint)",
    )
    two = other.install(NOTE, OTHER)
    write(place)
    place.run("UPDATE note SET what = NULL WHERE id = 2")
    check_refused_alone(one, two, other, "NOT NULL constraint failed")


@pytest.mark.parametrize(("length", "fits"), [(2_600, True), (2_690, False), (20_000, False)])
def test_a_key_that_is_too_long_for_an_index_is_refused_alone(places: Places, length: int, fits: bool) -> None:
    """The one of 2,690 characters is too long only where sync keeps it. The beginning of a long key is shown."""
    place, other = places("sqlite"), places("postgres")
    one, two = made(place, key="text"), made(other, key="text")
    key = secrets.token_urlsafe(length)[:length]
    place.ask("INSERT INTO note(id, what) VALUES (?, 'long'), ('short', 's')", (key,))
    place.run("INSERT INTO other(id) VALUES (1)")
    assert sync(one, two).refused == (0 if fits else 1)
    assert other.ask("SELECT id FROM other") == [(1,)]
    assert {found for (found,) in other.ask("SELECT id FROM note")} == ({key, "short"} if fits else {"short"})
    assert one.nodes_with_pending() == {}
    for rejected, refused in zip(one.quarantined(), two.quarantined(), strict=True):
        assert (rejected.why, rejected.key, refused.why) == ("rejected", [key], "refused")
        assert refused.key[0].startswith(key[:60]) and (refused.row or {})["id"] == key
