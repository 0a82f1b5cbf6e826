"""Two laptops and a central database, each of them away for a while.

python two_laptops.py                                     # the central one is a SQLite file, too
python two_laptops.py postgresql://todo@localhost/todo    # the password is in PGPASSWORD or in ~/.pgpass
"""

import secrets
import sys
import tempfile
from pathlib import Path

from todo import TABLE, TODO, TodoList

from tailrace.errors import TailraceError
from tailrace.sync.database import open_database
from tailrace.sync.server import ServerOptions
from tailrace.sync.serving import SyncServer
from tailrace.sync.store import SyncStore

ENROL = secrets.token_urlsafe(24)
"""Lets a new laptop in."""


def central_store(address: str) -> SyncStore:
    """The same table in the central database."""
    database = open_database(address)
    table = TABLE.replace("INTEGER", "bigint") if address.startswith("postgres") else TABLE
    database.write(lambda link: link.run(table))
    return SyncStore.install(database, [TODO])


def central_items(store: SyncStore) -> list[str]:
    rows = store.database.read(lambda link: link.rows("SELECT title, done FROM todo ORDER BY id"))
    return [f"[{'x' if done else ' '}] {title}" for title, done in rows]


def tell(what: str, *lists: TodoList) -> None:
    print(f"\n{what}")
    for todo in lists:
        print(f"  {Path(todo.path).stem}: {', '.join(todo.items()) or '-'}")


def main(directory: Path, address: str) -> None:
    store = central_store(address)
    anna, ben = (TodoList(str(directory / f"{name}.db")) for name in ("anna", "ben"))
    anna.add("buy milk")
    ben.add("mend the fence")
    tell("Both begin without a network:", anna, ben)

    with SyncServer(store, options=ServerOptions(enrol=ENROL)) as server:
        for todo in (anna, ben, anna):
            todo.sync(server.url, ENROL)
        tell("They meet at the central one:", anna, ben)

        ben.remove("buy milk")
        ben.add("call grandma")
        tell("Ben is away, and goes on:", anna, ben)
        anna.done("mend the fence")
        anna.sync(server.url)
        ben.sync(server.url)
        anna.sync(server.url)
        tell("Ben is back:", anna, ben)

    anna.add("water the plants")
    try:
        anna.sync(server.url)
    except TailraceError as error:
        print(f"\nNow the central one is away ({error.code}), and nobody has to care.")
    store.database.write(lambda link: link.run("INSERT INTO todo(id, title) VALUES (0, 'pay the rent')"))

    with SyncServer(store, options=ServerOptions(enrol=ENROL)) as server:
        for todo in (anna, ben, anna):
            todo.sync(server.url)
    tell("It is back, and has had an idea of its own:", anna, ben)
    if not anna.items() == ben.items() == central_items(store):
        raise SystemExit("they differ")
    print("\nAll three have the same.")
    for each in (anna.node, ben.node, store):
        each.close()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        main(Path(place), sys.argv[1] if len(sys.argv) > 1 else f"{place}/central.db")
