"""The examples are right, and the two that say the same mean the same."""

from __future__ import annotations

import os
import runpy
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tailrace.pipeline.load import load
from tailrace.topology.form import ReplicaSpec
from tailrace.topology.load import load_any
from tests.adaptor.postgres.conftest import database, postgres
from tests.servers.postgres import PASSWORD

__all__ = ["database", "postgres"]  # fixtures

EXAMPLES = Path(__file__).parents[2] / "examples"
FILES = sorted(EXAMPLES.glob("*.yml"))


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("SHOP", "COPY"):
        monkeypatch.setenv(f"{name}_URL", f"postgresql://tailrace@db.example/{name.lower()}")
        monkeypatch.setenv(f"{name}_PASSWORD", "sesame82")
    monkeypatch.setenv("SHOP_DB", str(tmp_path / "shop.db"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_files_load(file: Path) -> None:
    spec = load(str(file))
    assert spec.writes
    assert "sesame82" not in repr(spec)


def test_the_file_and_python_say_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(EXAMPLES)  # relative paths start at the file, in Python at the working directory
    declared = runpy.run_path(str(EXAMPLES / "orders.py"))["orders"].spec()
    assert declared == load(str(EXAMPLES / "orders.yml"))


@pytest.mark.long
def test_the_one_in_python_runs(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "shop.db")) as shop, shop:
        shop.execute("CREATE TABLE orders(id INTEGER PRIMARY KEY, email TEXT, total REAL)")
        shop.execute("INSERT INTO orders VALUES (1, 'a@example.org', 0), (2, 'b@example.org', 2.5)")
    subprocess.run([sys.executable, str(EXAMPLES / "orders.py")], cwd=tmp_path, check=True, capture_output=True)
    with closing(sqlite3.connect(tmp_path / "copy.db")) as copy:
        assert copy.execute("SELECT id FROM orders ORDER BY id").fetchall() == [(1,), (2,)]
    assert pq.read_table(tmp_path / "lake" / "main.orders" / "current").to_pylist() == [{"id": 2, "total": 2.5}]


@pytest.mark.parametrize("file", sorted((EXAMPLES / "nodes").glob("*.yml")), ids=lambda file: file.name)
def test_nodes_load(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TOKEN_BERLIN", "TOKEN_PARIS", "OPERATOR"):
        monkeypatch.setenv(name, f"sesame82 {name}")
    spec = load_any(str(file))
    assert isinstance(spec, ReplicaSpec) or spec.store is not None
    assert "sesame82" not in repr(spec)


@pytest.mark.parametrize("central", ["sqlite", "postgres"])
def test_laptops_and_a_central_database(central: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    command = [sys.executable, str(EXAMPLES / "sync" / "two_laptops.py")]
    password = ""
    if central == "postgres":
        address: str = request.getfixturevalue("database")
        password = PASSWORD
        command.append(address.replace(f":{PASSWORD}@", "@"))
    environment = {**os.environ, "PGPASSWORD": password}
    done = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True, env=environment)
    last = {"[x] mend the fence", "[ ] call grandma"}  # made within one second, so either may be first
    for who in ("anna", "ben"):
        assert last <= set(done.stdout.rpartition(f"{who}: ")[2].splitlines()[0].split(", "))
    assert "sync.unreachable" in done.stdout
    assert done.stdout.endswith("All three have the same.\n")


def test_the_to_do_list_is_short_and_keeps_what_it_is_told(tmp_path: Path) -> None:
    program = EXAMPLES / "sync" / "todo.py"
    assert len(program.read_text().splitlines()) <= 60

    def todo(*words: str) -> str:
        command = [sys.executable, str(program), str(tmp_path / "anna.db"), *words]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    todo("add", "buy milk")
    todo("add", "call grandma")
    assert todo("done", "buy milk") == "[x] buy milk\n[ ] call grandma\n"
    assert todo("remove", "buy milk") == todo() == "[ ] call grandma\n"


def test_all_are_listed() -> None:
    text = (EXAMPLES / "README.md").read_text()
    there = [path.relative_to(EXAMPLES).as_posix() for path in EXAMPLES.rglob("*") if path.suffix in (".py", ".yml")]
    assert [name for name in there if f"({name})" not in text] == []
