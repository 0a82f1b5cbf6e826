"""The examples are right, and the two that say the same mean the same."""

from __future__ import annotations

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


def test_all_are_listed() -> None:
    text = (EXAMPLES / "README.md").read_text()
    there = [path.relative_to(EXAMPLES).as_posix() for path in EXAMPLES.rglob("*") if path.suffix in (".py", ".yml")]
    assert [name for name in there if f"({name})" not in text] == []
