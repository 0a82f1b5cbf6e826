"""Files that declare sync."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailrace.errors import TailraceError
from tailrace.sync.auth import Accept
from tailrace.sync.clock import ClockPolicy, ClockRule
from tailrace.sync.entity import Deletes, Entity, Receive, Rule, RunOnChange, Sql, VersionKind
from tailrace.sync.load import load_sync

WHOLE = """
sync:
  database: {postgres: {url: "postgresql://anna@db.example/todo", password: "${DB_PASSWORD}"}}
  listen: 127.0.0.1:8087
  accept: anyone
  enrol: "${ENROL}"
  clock: {warn_after: 2m, policy: correct, ahead_max: 2d}
  peers:
    - {name: central, url: "https://central.example:8087/", enrol: "${ENROL}", ca: ca.pem}
  entities:
    - table: todo
      table_id: 42
      version: etag
      version_kind: hash
      key: [owner, id]
      batch: 3
      batch_rows: 50
      tracker: todo_sent
      audience: {sqlite: "owner = :nodeId", postgres: "owner::bigint = :nodeId"}
      receive: {view: todo_in, condition: "NEW.id > 0", body: "SELECT 1", select: "SELECT 2"}
      conflict: custom
      deletes: keep
      run_on_change:
        - REPLACE INTO todo_sent SELECT 1
        - {sql: {sqlite: a, postgres: b}, on: [folder]}
      run_on_new_node: SELECT 3
    - {table: folder, table_id: 7, version: changed, by_hand: true, generate_key: true, run_on_change: []}
"""
PLAIN = """
sync:
  database: {sqlite: {path: todo.db}}
  entities: [{table: todo, table_id: 42, version: changed}]
"""
ENVIRONMENT = {"DB_PASSWORD": "canary pass/1", "ENROL": "canary-enrol-word"}


def written(directory: Path, text: str) -> str:
    (directory / "todo.yml").write_text(text)
    return str(directory / "todo.yml")


def problems(directory: Path, text: str) -> str:
    with pytest.raises(TailraceError) as refused:
        load_sync(written(directory, text), ENVIRONMENT)
    assert refused.value.code == "config.invalid"
    return refused.value.what


def test_everything_that_can_be_said(tmp_path: Path) -> None:
    form = load_sync(written(tmp_path, WHOLE), ENVIRONMENT)
    assert form.accept is Accept.ANYONE
    assert form.clock.rule == ClockRule(ClockPolicy.CORRECT, 120.0, 172_800.0)
    assert form.database.address == "postgresql://anna@db.example/todo?password=canary%20pass%2F1"
    (peer,) = form.peers
    assert peer.address.url == "https://central.example:8087"
    assert peer.address.enrol == "canary-enrol-word" and peer.address.ca == str(tmp_path / "ca.pem")
    assert form.declared == (
        Entity(
            "todo",
            42,
            "etag",
            VersionKind.HASH,
            key=("owner", "id"),
            batch=3,
            batch_rows=50,
            tracker="todo_sent",
            receive=Receive("todo_in", _same("SELECT 2"), _same("NEW.id > 0"), _same("SELECT 1")),
            conflict=Rule.CUSTOM,
            audience=Sql("owner = :nodeId", "owner::bigint = :nodeId"),
            run_on_change=(
                RunOnChange(_same("REPLACE INTO todo_sent SELECT 1")),
                RunOnChange(Sql("a", "b"), ("folder",)),
            ),
            run_on_new_node=_same("SELECT 3"),
            deletes=Deletes.KEEP,
        ),
        Entity("folder", 7, "changed", by_hand=True, generate_key=True),
    )
    assert "canary" not in repr(form) and "canary" not in repr(peer.address)


def test_what_is_not_said(tmp_path: Path) -> None:
    form = load_sync(written(tmp_path, PLAIN))
    assert form.declared == (Entity("todo", 42, "changed"),)
    assert form.database.address == str(tmp_path / "todo.db")
    assert form.accept is Accept.KNOWN and form.listen is None and form.clock.rule == ClockRule()


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("  lsten: 127.0.0.1:1", "unknown key 'lsten' in sync; did you mean listen?"),
        ("  listen: 0.0.0.0:8087", "can be reached by others, so `tls` is needed"),
        ("  listen: 127.0.0.1", "should be host:port"),
        ("  enrol: short", "enrol"),
        ("  enrol: long enough a word", "`listen` is needed"),
        ("  peers: [{name: a, url: 'http://10.0.0.1:1'}]", "use https://"),
        ("  peers: [{name: a, url: 'https://x', tokn: y}]", "unknown key 'tokn' in sync.peers[1]"),
        ("  peers: [{name: a, url: 'https://x'}, {name: a, url: 'https://y'}]", "two have the same name"),
        ("  clock: {policy: guess}", "'warn', 'refuse' or 'correct'"),
        ("  clock: {polcy: warn}", "did you mean policy?"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(tmp_path: Path, said: str, told: str) -> None:
    found = problems(tmp_path, f"{PLAIN}{said}\n")
    assert told in found
    assert f"{tmp_path / 'todo.yml'}:" in found


@pytest.mark.parametrize(
    ("entity", "told"),
    [
        ("{table: todo, table_id: 42, version: changed, audiance: x}", "did you mean audience?"),
        ("{table: todo, table_id: 0, version: changed}", "table_id"),
        ("{table: todo, table_id: 42}", "version: this key is missing"),
        ("{table: todo, table_id: 42, version: c, receive: {vew: x}}", "did you mean view?"),
        ("{table: todo, table_id: 42, version: c, run_on_change: {sql: x, onn: [y]}}", "did you mean on?"),
        ("{table: todo, table_id: 42, version: c, run_on_change: {sql: x, on: [y]}}", "names y, which is no entity"),
        ("{table: a, table_id: 1, version: c}, {table: b, table_id: 1, version: c}", "the same table_id"),
        ("", "should not be empty"),
    ],
)
def test_entities_that_cannot_be(tmp_path: Path, entity: str, told: str) -> None:
    assert told in problems(tmp_path, f"sync: {{database: {{sqlite: {{path: x}}}}, entities: [{entity}]}}")


@pytest.mark.parametrize(
    ("database", "told"),
    [
        ("{}", "either sqlite or postgres"),
        ("{sqlite: {path: x}, postgres: {url: 'postgresql://x'}}", "either sqlite or postgres"),
        ("{postgres: {url: 'mysql://canary-pass@x'}}", "no address of PostgreSQL"),
        ("{sqllite: {path: x}}", "did you mean sqlite?"),
    ],
)
def test_databases_that_cannot_be(tmp_path: Path, database: str, told: str) -> None:
    text = f"sync: {{database: {database}, entities: [{{table: t, table_id: 1, version: c}}]}}"
    found = problems(tmp_path, text)
    assert told in found and "canary" not in found


def test_a_node_file_that_has_it(tmp_path: Path) -> None:
    node = "node: n\ndata: d\nfounder: true\n"
    form = load_sync(written(tmp_path, node + PLAIN))
    assert form.declared == (Entity("todo", 42, "changed"),)
    with pytest.raises(TailraceError, match="no key `sync`"):
        load_sync(written(tmp_path, node))
    assert "unknown key 'pears' in sync; did you mean peers?" in problems(tmp_path, f"{node}{PLAIN}  pears: []\n")
    assert "did you mean sync?" in problems(tmp_path, f"{PLAIN}\nsynk: 1\n")


def _same(text: str) -> Sql:
    return Sql(text, text)
