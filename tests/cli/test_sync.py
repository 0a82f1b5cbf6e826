"""`tailrace sync`, as people use it: files, processes, signals."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Self

import pytest

from tests.cli.conftest import Tailrace
from tests.relay.nodes import wait_for

TODO = "CREATE TABLE todo(id INTEGER PRIMARY KEY, changed INTEGER, what TEXT)"
WORD = "canary-enrol-3f8a91"
ENTITY = "{table: todo, table_id: 42, version: changed}"


class Desk:
    """A database with a file that declares its sync."""

    def __init__(self, directory: Path, name: str, more: str = "", entity: str = ENTITY) -> None:
        self.directory = directory
        self.name = name
        self.path = directory / f"{name}.db"
        self.file = directory / f"{name}.yml"
        text = f"  database: {{sqlite: {{path: {name}.db}}}}\n  entities: [{entity}]\n"
        self.file.write_text("sync:\n" + text + "".join(f"  {line}\n" for line in more.splitlines()))
        if not self.path.exists():
            self.run(TODO)

    def run(self, *statements: str) -> None:
        with closing(sqlite3.connect(self.path, timeout=30)) as connection:
            for statement in statements:
                connection.execute(statement)
            connection.commit()

    def ask(self, query: str) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self.path, timeout=30)) as connection:
            return connection.execute(query).fetchall()

    def rows(self) -> list[tuple[Any, ...]]:
        return self.ask("SELECT id, what FROM todo ORDER BY id")


class Process:
    """A command that runs until it is ended."""

    def __init__(self, desk: Desk, *command: str) -> None:
        self.errors = desk.directory / f"{desk.name}.err"
        self.out = desk.directory / f"{desk.name}.out"
        with self.errors.open("wb") as errors, self.out.open("wb") as out:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tailrace", *command],
                cwd=desk.directory,
                stderr=errors,
                stdout=out,
                env={**os.environ, "ENROL": WORD},
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait(timeout=60)

    @property
    def command_line(self) -> str:
        return Path(f"/proc/{self._process.pid}/cmdline").read_text()

    def says(self, text: str) -> bool:
        assert self._process.poll() is None, self.errors.read_text()
        return text in self.errors.read_text()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(timeout=60)

    def end(self) -> int:
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(timeout=60)


@pytest.fixture
def port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        number: int = taken.getsockname()[1]
    yield number


@pytest.fixture(autouse=True)
def word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENROL", WORD)


@pytest.fixture
def central(tmp_path: Path, port: int) -> Desk:
    return Desk(tmp_path, "central", f'listen: 127.0.0.1:{port}\nenrol: "${{ENROL}}"')


@pytest.fixture
def laptop(tmp_path: Path, port: int) -> Desk:
    return Desk(tmp_path, "laptop", f'peers: [{{name: office, url: "http://127.0.0.1:{port}", enrol: "${{ENROL}}"}}]')


def test_resync_by_command(tailrace: Tailrace, tmp_path: Path) -> None:
    desk = Desk(tmp_path, "desk")
    tailrace("sync", "install", desk.file)
    assert "no other node is known" in tailrace("sync", "resync", desk.file).out
    unknown = tailrace("sync", "resync", desk.file, "--node", "4711")
    assert unknown.status == 2 and "node 4711 is unknown" in unknown.err
    desk.run("INSERT INTO DoorNode(nodeId, ownCount, theirCount) VALUES (4711, 3, 4), (4712, 5, 6)")
    done = tailrace("sync", "resync", desk.file, "--node", "4711", "--json")
    assert json.loads(done.out) == {"nodes": ["4711"]}
    assert desk.ask("SELECT ownCount, theirCount FROM DoorNode ORDER BY nodeId") == [(0, 0), (5, 6)]
    assert "4711, 4712" in tailrace("sync", "resync", desk.file).out


def test_triggers_that_are_gone_are_told_with_the_cure(tailrace: Tailrace, laptop: Desk) -> None:
    tailrace("sync", "install", laptop.file)
    laptop.run("INSERT INTO todo(id, what) VALUES (1, 'x'), (2, 'y')")
    laptop.run("DROP TRIGGER door_42_del")
    laptop.run("DELETE FROM todo WHERE id = 1")
    for command in (("sync", "status", laptop.file), ("sync", "run", laptop.file, "--once")):
        told = tailrace(*command)
        assert told.status == 2 and "door_42_del" in told.err and "tailrace sync install" in told.err
    done = tailrace("sync", "install", laptop.file)
    assert done.status == 0 and "0 changed and 1 deleted rows" in done.out
    assert tailrace("sync", "install", laptop.file, "--json").json["unnoticed"] == []
    assert tailrace("sync", "status", laptop.file).status == 0


def test_installing_is_idempotent_and_uninstalling_leaves_nothing(tailrace: Tailrace, laptop: Desk) -> None:
    laptop.run("INSERT INTO todo(id, what) VALUES (1, 'x')")
    before = laptop.ask("SELECT name FROM sqlite_master WHERE name NOT LIKE 'sqlite%'")
    assert tailrace("sync", "status", laptop.file).status == 2
    first = tailrace("sync", "install", laptop.file, "--json")
    again = tailrace("sync", "install", laptop.file, "--json")
    assert first.status == again.status == 0 and first.json == again.json
    assert first.json["tables"] == ["todo"] and first.json["node"].isdecimal()
    asked = tailrace("sync", "uninstall", laptop.file)
    assert asked.status == 2 and str(laptop.path) in asked.err and "Of 1 rows" in asked.err and "--yes" in asked.err
    done = tailrace("sync", "uninstall", laptop.file, "--yes", "--json")
    assert done.status == 0 and done.json == {"database": str(laptop.path), "removed": ["todo"]}
    assert laptop.ask("SELECT name FROM sqlite_master WHERE name NOT LIKE 'sqlite%'") == before
    assert laptop.rows() == [(1, "x")]
    assert "nothing is installed" in tailrace("sync", "uninstall", laptop.file, "--yes").out


@pytest.mark.parametrize(
    "command",
    [["install"], ["uninstall", "--yes"], ["status"], ["resync"], ["run", "--once"], ["node", "list"]],
    ids=lambda command: command[0],
)
def test_a_path_that_is_mistyped_makes_no_database(tailrace: Tailrace, laptop: Desk, command: list[str]) -> None:
    laptop.path.unlink()
    where = command[:2] if command[0] == "node" else command[:1]
    told = tailrace("sync", *where, str(laptop.file), *command[len(where) :])
    assert told.status == 3 and "there is no database" in told.err
    assert not laptop.path.exists()


def test_a_table_that_the_file_does_not_name_any_more(tailrace: Tailrace, tmp_path: Path, laptop: Desk) -> None:
    both = Desk(tmp_path, "both", entity=f"{ENTITY}, {{table: note, table_id: 7, version: changed}}")
    both.run("CREATE TABLE note(id INTEGER PRIMARY KEY, changed INTEGER)")
    assert tailrace("sync", "install", both.file, "--json").json["not_declared"] == []
    both = Desk(tmp_path, "both")
    both.run("INSERT INTO note(id) VALUES (1)")
    assert "--table note" in tailrace("sync", "install", both.file).out
    assert "--table note" in tailrace("sync", "status", both.file).out
    (left,) = tailrace("sync", "status", both.file, "--json").json["wrong"]
    assert left["code"] == "sync.not_declared" and "note" in left["what"]
    unknown = tailrace("sync", "uninstall", both.file, "--table", "other", "--yes")
    assert unknown.status == 2 and "other" in unknown.err
    done = tailrace("sync", "uninstall", both.file, "--table", "note", "--yes", "--json")
    assert done.json["removed"] == ["note"]
    assert "note" not in tailrace("sync", "status", both.file).out
    assert both.ask("SELECT * FROM ChangeLog") == []


def test_two_that_run_exchange_what_changes(tailrace: Tailrace, central: Desk, laptop: Desk) -> None:
    for desk in (central, laptop):
        assert tailrace("sync", "install", desk.file).status == 0
    with (
        Process(central, "sync", "run", "central.yml") as serving,
        Process(laptop, "sync", "run", "laptop.yml", "--json") as calling,
    ):
        wait_for(lambda: serving.says("reached at http://127.0.0.1:"), 60)
        wait_for(lambda: calling.says("office: waiting"), 60)
        laptop.run("INSERT INTO todo(id, what) VALUES (1, 'from the laptop')")
        wait_for(lambda: central.rows() == [(1, "from the laptop")])
        central.run("INSERT INTO todo(id, what) VALUES (2, 'from central')")
        wait_for(lambda: len(laptop.rows()) == 2)
        assert WORD not in serving.command_line + calling.command_line
        assert calling.end() == 0
        told = json.loads(calling.out.read_text())
        assert [(peer["name"], peer["sent"]) for peer in told["peers"]] == [("office", 1)]
        assert serving.end() == 0
    secrets = [WORD, *(desk.ask("SELECT secret FROM DoorSelf")[0][0] for desk in (central, laptop))]
    said = "".join(path.read_text() for path in laptop.directory.glob("*.[eo][ru][rt]"))
    assert not any(secret in said for secret in secrets)
    assert "sync has ended" in said


def test_what_a_run_knows_of_its_peers_is_seen_from_outside(tailrace: Tailrace, central: Desk, laptop: Desk) -> None:
    def seen() -> dict[str, Any]:
        found: dict[str, Any] = tailrace("sync", "status", laptop.file, "--json").json
        return found

    def office() -> dict[str, Any]:
        (found,) = (part for part in seen()["parts"] if part["kind"] == "sync")
        return dict(found)

    for desk in (central, laptop):
        assert tailrace("sync", "install", desk.file).status == 0
    laptop.run("INSERT INTO todo(id, what) VALUES (1, 'x')")
    assert seen()["is_running"] is None, "nobody has said anything yet"
    with (
        Process(central, "sync", "run", "central.yml") as serving,
        Process(laptop, "sync", "run", "laptop.yml") as calling,
    ):
        wait_for(lambda: seen()["is_running"] is True and office()["state"] == "waiting", 60)
        assert office()["health"] == seen()["health"] == "good"
        assert office()["more"]["rows sent"] == 1 and office()["more"]["rounds"] >= 1
        assert office()["seen_s_ago"] is not None and office()["wrong"] is None
        serving.kill()
        wait_for(lambda: office()["health"] == "troubled", 60)
        wrong = office()["wrong"]
        assert wrong["code"] == "sync.unreachable" and wrong["cure"]
        shown = tailrace("sync", "status", laptop.file).out
        assert "offline" in shown and "next: " in shown and "process" in shown and "here lately" not in shown
        calling.kill()
        found = seen()
        assert found["is_running"] is False and found["told_s_ago"] >= 0
        assert all(part["state"].startswith("not running, was ") for part in found["parts"])
        assert office()["wrong"]["code"] == "sync.unreachable", "what was wrong still is"
        assert re.search(r"does not run, heard of .* ago", tailrace("sync", "status", laptop.file).out)
    with Process(central, "sync", "run", "central.yml") as serving:
        wait_for(lambda: serving.says("reached at"), 60)
        assert tailrace("sync", "run", laptop.file, "--once").status == 0
        assert office()["wrong"] is None, "it was heard of since"


def test_once(tailrace: Tailrace, central: Desk, laptop: Desk) -> None:
    for desk in (central, laptop):
        assert tailrace("sync", "install", desk.file).status == 0
    laptop.run("INSERT INTO todo(id, what) VALUES (1, 'x')")
    away = tailrace("sync", "run", laptop.file, "--once", "--json")
    assert away.status == 3 and away.json["peers"]["office"]["error"]["code"] == "sync.unreachable"
    with Process(central, "sync", "run", "central.yml") as serving:
        wait_for(lambda: serving.says("reached at"), 60)
        done = tailrace("sync", "run", laptop.file, "--once", "--json")
        assert done.status == 0
        assert done.json == {
            "peers": {"office": {"fetched": 0, "sent": 1, "refused": 0, "older": 0, "left": 0, "warnings": []}}
        }
        told = tailrace("sync", "run", laptop.file, "--once")
        assert told.out == "office: 0 rows fetched, 0 sent\n"
    assert central.rows() == [(1, "x")]
    status = tailrace("sync", "status", laptop.file, "--json").json
    table, node = status["parts"]
    assert (table["kind"], table["name"], table["more"]["rows"]) == ("table", "todo", 1)
    assert (node["kind"], node["name"], node["state"]) == ("sync", "office", "here lately")
    assert table["lag"]["messages"] == node["lag"]["messages"] == 0 and node["seen_s_ago"] >= 0
    shown = tailrace("sync", "status", laptop.file).out
    assert "tableId 42" in shown and "rows 1" in shown and "ago" in shown
    assert tailrace("status", laptop.file, "--json").json["parts"][0] == table


def test_nodes_are_added_listed_and_removed(tailrace: Tailrace, tmp_path: Path, port: int) -> None:
    central = Desk(tmp_path, "central", f"listen: 127.0.0.1:{port}")
    laptop = Desk(tmp_path, "laptop", f'peers: [{{name: office, url: "http://127.0.0.1:{port}"}}]')
    for desk in (central, laptop):
        assert tailrace("sync", "install", desk.file).status == 0
    with Process(central, "sync", "run", "central.yml") as serving:
        wait_for(lambda: serving.says("reached at"), 60)
        stranger = tailrace("sync", "run", laptop.file, "--once")
        assert stranger.status == 2 and "sync.not_admitted" in stranger.err
        proof = tailrace("sync", "node", "self", laptop.file).out.split()
        assert laptop.ask("SELECT secret FROM DoorSelf")[0][0] not in " ".join(proof)
        assert tailrace("sync", "node", "add", central.file, proof[0], "sesame").status == 2
        assert tailrace("sync", "node", "self", laptop.file, "office").out.split()[0] == proof[0]
        nobody = tailrace("sync", "node", "self", laptop.file, "elsewhere")
        assert nobody.status == 2 and "name one of: office" in nobody.err
        assert tailrace("sync", "node", "add", central.file, *proof).status == 0
        assert tailrace("sync", "run", laptop.file, "--once").status == 0
    listed = tailrace("sync", "node", "list", central.file, "--json").json["nodes"]
    assert [(node["node"], node["calls_us"], node["we_call"]) for node in listed] == [(proof[0], True, False)]
    assert "it calls us" in tailrace("sync", "node", "list", central.file).out
    assert "we call it" in tailrace("sync", "node", "list", laptop.file).out
    assert tailrace("sync", "node", "remove", central.file, proof[0]).status == 2
    assert tailrace("sync", "node", "remove", central.file, proof[0], "--yes").status == 0
    assert tailrace("sync", "node", "remove", central.file, proof[0], "--yes").status == 2
    assert tailrace("sync", "node", "list", central.file).out == "no other node is known\n"


def test_quarantine_is_listed_and_released(tailrace: Tailrace, tmp_path: Path, port: int) -> None:
    body = "SELECT RAISE(ABORT, 'no rights');"
    entity = f'{{table: todo, table_id: 42, version: changed, receive: {{body: "{body}"}}}}'
    central = Desk(tmp_path, "central", f"listen: 127.0.0.1:{port}\naccept: anyone", entity)
    laptop = Desk(tmp_path, "laptop", f'peers: [{{name: office, url: "http://127.0.0.1:{port}"}}]')
    for desk in (central, laptop):
        assert tailrace("sync", "install", desk.file).status == 0
    laptop.run("INSERT INTO todo(id, what) VALUES (1, 'x')")
    with Process(central, "sync", "run", "central.yml") as serving:
        wait_for(lambda: serving.says("reached at"), 60)
        assert tailrace("sync", "run", laptop.file, "--once", "--json").json["peers"]["office"]["refused"] == 1
        assert tailrace("sync", "run", laptop.file, "--once", "--json").json["peers"]["office"]["refused"] == 0
        assert tailrace("sync", "quarantine", "retry", laptop.file, "99").status == 2
        assert tailrace("sync", "quarantine", "retry", laptop.file, "1").status == 0
        assert tailrace("sync", "quarantine", "list", laptop.file).out == "nothing is in quarantine\n"
        assert tailrace("sync", "run", laptop.file, "--once", "--json").json["peers"]["office"]["refused"] == 1
    for desk, why in ((central, "refused"), (laptop, "rejected")):
        (kept,) = tailrace("sync", "quarantine", "list", desk.file, "--json").json["quarantine"]
        assert (kept["why"], kept["table"], kept["key"], kept["row"]["what"]) == (why, "todo", [1], "x")
        shown = tailrace("sync", "quarantine", "list", desk.file).out
        assert why in shown and "no rights" in shown
        assert f"in quarantine, {why} 1" in tailrace("sync", "status", desk.file).out
        assert tailrace("sync", "quarantine", "release", desk.file, kept["id"]).status == 2
        assert tailrace("sync", "quarantine", "release", desk.file, kept["id"], "--yes").status == 0
        assert tailrace("sync", "quarantine", "release", desk.file, kept["id"], "--yes").status == 2
        assert tailrace("sync", "quarantine", "list", desk.file).out == "nothing is in quarantine\n"


def test_nothing_to_run(tailrace: Tailrace, tmp_path: Path) -> None:
    alone = Desk(tmp_path, "alone")
    for options in ((), ("--once",)):
        done = tailrace("sync", "run", alone.file, *options)
        assert done.status == 2 and "names no peers" in done.err


def test_a_node_serves_it_and_tells_of_its_peers(tailrace: Tailrace, tmp_path: Path, central: Desk, port: int) -> None:
    served = Desk(tmp_path, "served", f'peers: [{{name: office, url: "http://127.0.0.1:{port}", enrol: "${{ENROL}}"}}]')
    served.file.write_text(f"node: berlin\ndata: data\nlisten: 127.0.0.1:0\nfounder: true\n{served.file.read_text()}")
    for desk in (central, served):
        assert tailrace("sync", "install", desk.file).status == 0
    with Process(central, "sync", "run", "central.yml") as serving, Process(served, "serve", "served.yml") as node:
        wait_for(lambda: serving.says("reached at"), 60)
        wait_for(lambda: node.says("calls office"), 60)
        served.run("INSERT INTO todo(id, what) VALUES (1, 'x')")
        wait_for(lambda: central.rows() == [(1, "x")])

        def office() -> dict[str, Any]:
            parts = tailrace("node", "status", served.file, "--json").json["parts"]
            return next(part for part in parts if part["kind"] == "sync" and part["name"] == "office")

        wait_for(lambda: office()["state"] == "waiting" and office()["more"]["rows sent"] == 1)
        assert "rows sent 1" in tailrace("node", "status", served.file).out
        (same,) = (part for part in tailrace("sync", "status", served.file, "--json").json["parts"] if part["moved"])
        assert same["more"] == office()["more"], "the node says it, whoever asks"
        assert node.end() == 0
