"""Candidates: a table that cannot be synced is told with what to do, and nothing is made."""

from __future__ import annotations

import pytest

from tailrace.errors import TailraceError
from tailrace.sync.entity import Entity
from tests.sync import todo
from tests.sync.conftest import Places
from tests.sync.direct import sync
from tests.sync.places import Place


def refused(place: Place, entity: Entity) -> TailraceError:
    with pytest.raises(TailraceError) as caught:
        place.install(entity)
    assert caught.value.code == "config.invalid"
    return caught.value


@pytest.mark.parametrize("key", [(), ("id",)])
def test_a_view_is_no_table(place: Place, key: tuple[str, ...]) -> None:
    place.run(todo.CREATE, "CREATE VIEW shown AS SELECT * FROM todo")
    error = refused(place, Entity("shown", 1, "changed", key=key))
    assert "shown: it is a view" in error.what and "name the tables" in error.hint


def test_a_materialized_view_is_none_either(places: Places) -> None:
    place = places("postgres")
    place.run(todo.CREATE, "CREATE MATERIALIZED VIEW shown AS SELECT * FROM todo")
    assert "it is a view" in refused(place, Entity("shown", 1, "changed", key=("id",))).what


def test_rows_without_a_key_are_told_before_anything_is_made(place: Place) -> None:
    place.run(
        "CREATE TABLE note(id text, part bigint NOT NULL, changed bigint, UNIQUE (id, part))",
        "INSERT INTO note(part) VALUES (1)",
    )
    entity = Entity("note", 1, "changed", key=("id", "part"))
    error = refused(place, entity)
    assert "NULL in its key (id)" in error.what and '"id" IS NULL' in error.hint
    place.run('DELETE FROM note WHERE "id" IS NULL')
    assert place.install(entity).status().entities[0].rows == 0


def test_a_key_that_is_generated_is_told_as_such(place: Place) -> None:
    place.run(
        "CREATE TABLE note(a bigint, b bigint, id bigint GENERATED ALWAYS AS (a * 100 + b) STORED, changed bigint)",
        "CREATE UNIQUE INDEX note_id ON note(id)",
    )
    error = refused(place, Entity("note", 1, "changed", key=("id",)))
    assert "id of its key is generated" in error.what and "unique index" not in error.what


def test_a_key_without_an_index_is_still_told(place: Place) -> None:
    place.run("CREATE TABLE note(id bigint NOT NULL, changed bigint)")
    assert "no unique index" in refused(place, Entity("note", 1, "changed", key=("id",))).what


def test_any_of_a_strict_table_keeps_keys_and_values_apart(places: Places) -> None:
    """There it is no type for numbers, as it is elsewhere."""
    place, other = places("sqlite"), places("sqlite")
    for each in (place, other):
        each.run("CREATE TABLE note(id ANY PRIMARY KEY, what ANY, changed INTEGER) STRICT, WITHOUT ROWID")
    one, two = (each.install(Entity("note", 1, "changed")) for each in (place, other))
    place.run("INSERT INTO note(id, what) VALUES ('01', '1'), (1, 1), ('1', x'00ff'), (1.5, '2.0')")
    sync(one, two)
    other.run("UPDATE note SET what = '007' WHERE id = '1'", "DELETE FROM note WHERE id = 1")
    sync(one, two)
    query = "SELECT id, typeof(id), what, typeof(what) FROM note ORDER BY id"
    assert place.ask(query) == other.ask(query)
    assert [row[0] for row in place.ask(query)] == [1.5, "01", "1"]
    assert [row[2] for row in place.ask(query)] == ["2.0", "1", "007"]
