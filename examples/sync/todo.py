"""A to-do list that works without a network, and is the same everywhere once there is one.

python todo.py anna.db add "buy milk"
python todo.py anna.db done "buy milk"
TODO_ENROL=… python todo.py anna.db sync http://127.0.0.1:8087
python todo.py anna.db
"""

import os
import sqlite3
import sys
from contextlib import closing

from tailrace.sync.client import SyncNode
from tailrace.sync.entity import Entity
from tailrace.sync.round import Progress

TODO = Entity("todo", table_id=42, version="changed", generate_key=True)
TABLE = """CREATE TABLE IF NOT EXISTS todo(
    id INTEGER PRIMARY KEY, title TEXT NOT NULL, done INTEGER NOT NULL DEFAULT 0, changed INTEGER)"""


class TodoList:
    """One list in one file. It is an ordinary table: whatever writes to it is noticed."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._run(TABLE)
        self.node = SyncNode(path, [TODO])

    def add(self, title: str) -> None:
        self._run("INSERT INTO todo(id, title) VALUES (0, ?)", title)  # 0: a key that no other node makes

    def done(self, title: str) -> None:
        self._run("UPDATE todo SET done = 1 WHERE title = ?", title)

    def remove(self, title: str) -> None:
        self._run("DELETE FROM todo WHERE title = ?", title)

    def items(self) -> list[str]:
        return [
            f"[{'x' if done else ' '}] {title}" for title, done in self._run("SELECT title, done FROM todo ORDER BY id")
        ]

    def sync(self, url: str, enrol: str | None = None) -> Progress:
        return self.node.sync_with(url, name="central", enrol=enrol)  # by this name, wherever it listens

    def _run(self, statement: str, *values: str) -> list[tuple[str, int]]:
        with closing(sqlite3.connect(self.path)) as connection, connection:
            return connection.execute(statement, values).fetchall()


if __name__ == "__main__":
    todo = TodoList(sys.argv[1])
    match sys.argv[2:]:
        case ["sync", url]:
            print(todo.sync(url, os.environ.get("TODO_ENROL")))
        case [("add" | "done" | "remove") as what, title]:
            getattr(todo, what)(title)
    print(*todo.items(), sep="\n")
