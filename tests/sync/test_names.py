"""Names: whatever tables and columns are called, nothing of it becomes SQL (S4)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tailrace.errors import TailraceError
from tailrace.sync import install, names
from tailrace.sync.entity import Deletes, Entity, Receive, Sql, VersionKind
from tailrace.sync.names import quoted
from tailrace.sync.store import SyncStore
from tests.sync.conftest import Places
from tests.sync.direct import sync
from tests.sync.places import Place

BYTES_MAX = 40
"""So that what sync adds to a name is not too long for PostgreSQL."""
HOSTILE = [
    *('"', '""', "'", "''", "`", "[a]", "\\", ";", "--", "/*", "*/", "$door$", "$$", "$1", "?1", ":nodeId", "%", "%s"),
    *("{schema}", "{}", "\n", "\t", " ", "e", "t", "tr", "st", "NEW", "OLD", "known", "select", "i", "s", "w", "ä"),
    *('"; DROP TABLE canary; --', "'); DROP TABLE canary; --", "$door$; DROP TABLE canary; $door$", "c0", "wins"),
]
RESERVED = {"true", "false", "new", "old", "excluded", "rowid", "_rowid_"}
RESERVED |= {"ctid", "oid", "xmin", "xmax", "cmin", "cmax", "tableoid"}
ALPHABET = st.characters(exclude_characters="\0", exclude_categories=("Cs", "Cn"))
PART = st.one_of(st.sampled_from(HOSTILE), st.text(ALPHABET, min_size=1, max_size=6))
NAME = (
    st.lists(PART, min_size=1, max_size=3)
    .map("".join)
    .filter(lambda name: len(name.encode()) <= BYTES_MAX and not re.match(r"(?i)sqlite_|door|pg_", name))
    .filter(lambda name: name.lower() not in RESERVED)
)


@dataclass(frozen=True)
class Named:
    """What a table and all that belongs to it are called."""

    table: str
    columns: tuple[str, ...]
    tracker: str
    view: str

    @property
    def entity(self) -> Entity:
        key, other, version, _ = self.columns
        receive = Receive(view=self.view)
        return Entity(self.table, 5, version, key=(key, other), tracker=self.tracker, receive=receive)

    def create(self) -> str:
        key, other, version, what = map(quoted, self.columns)
        columns = f"{key} bigint, {other} text, {version} bigint, {what} text, PRIMARY KEY ({key}, {other})"
        return f"CREATE TABLE {quoted(self.table)}({columns})"


def different(found: Sequence[str]) -> bool:
    return len({name.lower() for name in found}) == len(found)


COLUMNS = st.lists(NAME, min_size=4, max_size=4).filter(different).map(tuple)
NAMED = st.builds(Named, NAME, COLUMNS, NAME, NAME).filter(
    lambda named: different([named.table, named.tracker, named.view, f"{named.table}Stamp", "canary"])
)


def made(place: Place) -> list[tuple[object, ...]]:
    if place.is_postgres:
        where = "relnamespace = 'public'::regnamespace"
        functions = "SELECT proname::text FROM pg_proc WHERE pronamespace = 'public'::regnamespace"
        return place.ask(f"SELECT relname::text FROM pg_class WHERE {where} UNION ALL {functions} ORDER BY 1")
    return place.ask("SELECT name FROM sqlite_master WHERE name NOT LIKE 'sqlite%' ORDER BY 1")


def exchange(places: Sequence[Place], named: Named) -> None:
    key, other, version, what = map(quoted, named.columns)
    table = quoted(named.table)
    for place in places:
        place.run(named.create())
    before = [made(place) for place in places]
    entities = (named.entity,)
    one, two = (place.install(*entities) for place in places)
    places[0].run(f"INSERT INTO {table}({key}, {other}, {what}) VALUES (0, 'it''s', 'x'), (1, '', 'x'), (2, '', 'x')")
    assert sync(two, one).fetched == 3
    places[1].run(
        f"UPDATE {table} SET {what} = 'changed' WHERE {key} = 1",
        f"DELETE FROM {table} WHERE {key} = 2",
        f"UPDATE {table} SET {key} = 9 WHERE {key} = 0",
    )
    assert sync(two, one).sent == 4
    rows = f"SELECT {key}, {other}, {version}, {what} FROM {table} ORDER BY 1"
    assert places[0].ask(rows) == places[1].ask(rows)
    assert [row[0] for row in places[0].ask(rows)] == [1, 9]
    assert one.nodes_with_pending() == two.nodes_with_pending() == {}
    assert one.quarantined() == two.quarantined() == []
    for place, was in zip(places, before, strict=True):
        assert place.ask("SELECT count(*) FROM canary") == [(0,)]
        SyncStore(place.database(), entities)
        database = place.database()
        gone = database.write(partial(install.uninstall, entities=entities, dialect=database.dialect))
        assert gone == [named.table]
        assert made(place) == was
        place.run(f"DROP TABLE {table}")


def clear(place: Place) -> None:
    """As before, whatever has failed."""
    for opened in place.opened:
        opened.close()
    place.opened.clear()
    if place.is_postgres:
        place.run("DROP SCHEMA public CASCADE", "CREATE SCHEMA public", "CREATE TABLE canary(id bigint)")
        return
    for kind in ("trigger", "view", "table"):
        query = "SELECT name FROM sqlite_master WHERE type = ? AND name NOT LIKE 'sqlite%' AND name <> 'canary'"
        for (name,) in place.ask(query, (kind,)):
            place.run(f"DROP {kind} IF EXISTS {quoted(name)}")


def _check(places: Places, dialect: str, examples: int) -> None:
    both = places(dialect), places(dialect)
    for place in both:
        place.run("CREATE TABLE canary(id bigint)")

    @settings(max_examples=examples, suppress_health_check=list(HealthCheck))
    @given(NAMED)
    @example(Named('a"; DROP TABLE canary; --', ("NEW", 'x"y', "$door$", "{schema}"), "known", "%s ?1 $1"))
    @example(Named("select", ("e", "t", "tr", "st"), "from", "where"))
    @example(Named("tr", ("c", "w", "n", "a"), "st", "t"))
    def run(named: Named) -> None:
        try:
            exchange(both, named)
        finally:
            for place in both:
                clear(place)

    run()


def test_names_do_not_become_sql(places: Places, dialect: str) -> None:
    _check(places, dialect, 15)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_many_names_do_not_become_sql(places: Places, dialect: str) -> None:
    _check(places, dialect, 500)


@pytest.mark.parametrize("kind", VersionKind)
@pytest.mark.parametrize("name", ["a", "c", "st", "t", "w"])
def test_tables_with_short_names(place: Place, other: Place, name: str, kind: VersionKind) -> None:
    """What queries of sync call tables for themselves is nobody's name."""
    version = "bigint" if kind is VersionKind.TIME else "text"
    entity = Entity(name, 5, "v", version_kind=kind, audience=Sql(f"{name}.id < 3 AND :nodeId > 0"), batch_rows=1)
    for each in (place, other):
        each.run(f"CREATE TABLE {name}(id bigint PRIMARY KEY, v {version})")
    one, two = place.install(entity), other.install(entity)
    set_version = ", v = '{}'" if kind is VersionKind.HASH else ""
    place.run(f"INSERT INTO {name}(id) VALUES (1), (2), (3)")
    place.run(f"UPDATE {name} SET id = id {set_version.format('x')}")
    assert sync(two, one).fetched == 2
    other.run(f"DELETE FROM {name} WHERE id = 1", f"UPDATE {name} SET id = id {set_version.format('y')}")
    assert sync(two, one).sent == 2
    assert place.ask(f"SELECT id, v FROM {name} WHERE id < 3") == other.ask(f"SELECT id, v FROM {name}")
    assert one.nodes_with_pending() == two.nodes_with_pending() == {}


@pytest.mark.parametrize("name", [*names.OWN_TABLES, "changelog", names.LAST_KEYS, "NEW", "old", "excluded", "door_c"])
def test_tables_of_sync_are_not_synced(name: str) -> None:
    with pytest.raises(TailraceError) as caught:
        Entity(name, 5, "changed")
    assert caught.value.code == "config.invalid"


@pytest.mark.parametrize("name", ["TRUE", "False"])
def test_columns_that_a_view_cannot_have(place: Place, name: str) -> None:
    """Views of SQLite call them something else."""
    place.run(f"CREATE TABLE todo(id bigint PRIMARY KEY, changed bigint, {quoted(name)} text)")
    entity = Entity("todo", 5, "changed")
    if place.is_postgres:
        place.install(entity)
        return
    with pytest.raises(TailraceError, match=name) as caught:
        place.install(entity)
    assert caught.value.code == "config.invalid"


@pytest.mark.parametrize("name", ["ChangeLog", "todoReplicate", "todoStamp", "todo_ReceiveView"])
def test_tables_of_others_are_not_taken_for_those_of_sync(place: Place, name: str) -> None:
    shown = name if name.endswith("View") else name.lower()
    place.run("CREATE TABLE todo(id bigint PRIMARY KEY, changed bigint)", f"CREATE TABLE {quoted(shown)}(mine bigint)")
    before = made(place)
    with pytest.raises(TailraceError) as caught:
        place.install(Entity("todo", 5, "changed", deletes=Deletes.KEEP))
    assert caught.value.code == "config.invalid" and name.lower() in caught.value.what.lower()
    assert made(place) == before
