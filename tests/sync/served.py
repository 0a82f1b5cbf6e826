"""A database with things to do that is served over HTTP, and clients that call."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Final

import httpx
import pytest

from tailrace.sync.auth import Accept, hashed
from tailrace.sync.database import open_database
from tailrace.sync.entity import Entity, VersionKind
from tailrace.sync.server import ServerOptions
from tailrace.sync.serving import SyncServer, Tls
from tailrace.sync.store import SyncStore

TODO: Final = 42
MARK: Final = 43
NOTE: Final = 44
TABLES: Final = (
    "CREATE TABLE todo(id bigint PRIMARY KEY, what text, is_done boolean, weight double precision, changed bigint)",
    "CREATE TABLE mark(person text, place bigint, why text, changed bigint, PRIMARY KEY (person, place))",
    "CREATE TABLE note(id bigint PRIMARY KEY, body text, etag text)",
)
ENTITIES: Final = (
    Entity("todo", TODO, "changed"),
    Entity("mark", MARK, "changed", batch=200),
    Entity("note", NOTE, "etag", version_kind=VersionKind.HASH, batch=300),
)
ALICE: Final = 7_000_000_000_000_000_001
BOB: Final = 7_000_000_000_000_000_002
SECRETS: Final = {ALICE: "alice-has-this-long-secret", BOB: "bob-has-that-long-secret"}


def door_node(node: int, secret: str | None = None) -> dict[str, str]:
    return {"door-node": f"{node}/{secret or SECRETS[node]}"}


@dataclass
class Served:
    """A database that is served."""

    address: str
    store: SyncStore
    server: SyncServer
    opened: ExitStack

    def run(self, statement: str) -> None:
        """The application changes something, through a connection of its own."""
        database = open_database(self.address)
        try:
            database.write(lambda link: link.run(statement))
        finally:
            database.close()

    def ask(self, query: str) -> list[tuple[Any, ...]]:
        return self.store.database.read(lambda link: link.rows(query))

    def client(self, node: int | None = ALICE, secret: str | None = None, **headers: str) -> httpx.Client:
        """Somebody who calls; None: who does not say who it is."""
        told = {**({} if node is None else door_node(node, secret)), **headers}
        client = httpx.Client(base_url=f"{self.server.url}/replication/", headers=told, timeout=60)
        return self.opened.enter_context(client)


Serve = Callable[..., Served]


@pytest.fixture
def serve(address: str) -> Iterator[Serve]:
    """A server for that database, with options."""
    with ExitStack() as opened:

        def start(tls: Tls | None = None, **options: Any) -> Served:
            database = open_database(address)
            opened.callback(database.close)
            database.write(lambda link: [link.run(table) for table in TABLES])
            store = SyncStore.install(database, ENTITIES)
            for node, secret in SECRETS.items():
                store.register(node, hashed(secret))
            server = SyncServer(store, "127.0.0.1:0", ServerOptions(**options), tls)
            opened.enter_context(server)
            return Served(address, store, server, opened)

        yield start


@pytest.fixture
def served(serve: Serve) -> Served:
    """A server that two nodes may call, Alice and Bob."""
    return serve(accept=Accept.KNOWN)
