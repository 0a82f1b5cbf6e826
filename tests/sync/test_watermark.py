"""The watermark of the ChangeLog: lines that are worked off are not read again, and none is passed over."""

from __future__ import annotations

from tailrace.sync import changes
from tailrace.sync.store import CALLS_US, SyncStore
from tailrace.sync.watermark import Watermark
from tests.sync import todo
from tests.sync.conftest import Places
from tests.sync.places import PostgresPlace

PEER = 4711
LOOKS = 5


def made(places: Places) -> tuple[PostgresPlace, SyncStore, Watermark]:
    place = places("postgres")
    assert isinstance(place, PostgresPlace)
    store = todo.node(place)
    store.meet(PEER, CALLS_US)
    return place, store, Watermark()


def look(store: SyncStore, watermark: Watermark) -> list[bool]:
    about = changes.about([store.shape(todo.TABLE_ID)])
    return [watermark.has_changes(store.database, about, store.shape(todo.TABLE_ID)) for _ in range(LOOKS)]


def last(place: PostgresPlace) -> int:
    return int(place.ask("SELECT pg_sequence_last_value('changelog_chid_seq')")[0][0])


def test_what_is_worked_off_is_behind_the_watermark(places: Places) -> None:
    place, store, watermark = made(places)
    assert look(store, watermark) == [False] * LOOKS and watermark.after == 0
    for key in (1, 2, 3):
        todo.put(place, key, "x")
        assert look(store, watermark) == [True] * LOOKS, "nobody has worked it off"
        store.process_changes()
        assert look(store, watermark) == [False] * LOOKS
        assert watermark.after == last(place)


def test_a_line_that_is_committed_late_is_not_passed_over(places: Places) -> None:
    place, store, watermark = made(places)
    late = place.connect()
    late.autocommit = False
    late.execute("INSERT INTO todo(id, what) VALUES (1, 'late')")
    number = last(place)
    todo.put(place, 2, "early")
    assert store.process_changes()
    for _ in range(LOOKS):
        assert look(store, watermark) == [False] * LOOKS and not store.process_changes()
    assert watermark.after < number
    late.commit()
    late.close()
    assert look(store, watermark)[0] and store.process_changes()
    assert [each.key for each in store.pending_trackers(todo.TABLE_ID, PEER, None, 10)] == [(1,), (2,)]
    look(store, watermark)
    assert watermark.after == last(place)


def test_who_numbers_anew_is_noticed(places: Places) -> None:
    place, store, watermark = made(places)
    todo.put(place, 1, "x")
    todo.put(place, 2, "x")
    store.process_changes()
    look(store, watermark)
    assert watermark.after > 0
    place.run("ALTER TABLE changelog ALTER COLUMN chid RESTART", "UPDATE todo SET what = 'y' WHERE id = 1")
    assert look(store, watermark)[0]
    assert store.process_changes()


def test_a_look_reads_nothing_of_what_was_worked_off_while_a_backup_runs(places: Places) -> None:
    """As long as somebody looks at an old state, nothing of it can be vacuumed."""
    place, store, watermark = made(places)
    backup = place.connect()
    backup.autocommit = False
    backup.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    backup.execute("SELECT count(*) FROM todo")
    place.run("INSERT INTO todo(id) SELECT generate_series(1, 20000)")
    store.process_changes()
    look(store, watermark)
    assert watermark.after == last(place)
    place.run("SET enable_seqscan = off")
    query = "SELECT 1 FROM changelog WHERE chid > {} AND chtableid = 42 ORDER BY chid LIMIT 1"

    def read(after: int) -> int:
        plan = place.ask(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {query.format(after)}")[0][0][0]["Plan"]
        return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])

    assert read(0) > 50
    assert read(watermark.after) < 5
    backup.close()
