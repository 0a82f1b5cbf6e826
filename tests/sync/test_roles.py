"""What roles of PostgreSQL need, as docs/guides/sync.md says it."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest

from tailrace.sync.auth import Accept
from tailrace.sync.client import SyncNode
from tailrace.sync.server import ServerOptions
from tailrace.sync.serving import SyncServer
from tests.servers.postgres import PASSWORD, PostgresServer
from tests.sync.conftest import Places
from tests.sync.places import PostgresPlace
from tests.sync.todo import CREATE, node, put, todo, whats

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "sync.md"


def statements() -> list[list[str]]:
    """The SQL of the guide: for the role that syncs, and for that of the application."""
    (block,) = re.findall(r"```sql\n-- the role(.*?)```", GUIDE.read_text(), re.DOTALL)
    parts = re.split(r"\n-- the application.*", block.partition("\n")[2])
    return [[each.strip() for each in part.split(";") if each.strip()] for part in parts]


def as_role(place: PostgresPlace, role: str) -> PostgresPlace:
    parts = urlsplit(place.address)
    netloc = f"{role}:{PASSWORD}@{parts.hostname}:{parts.port}"
    return PostgresPlace(parts._replace(netloc=netloc).geturl())


def test_two_roles_with_no_more_than_they_need(places: Places, postgres: PostgresServer) -> None:
    office, laptop = places("postgres"), places("sqlite")
    assert isinstance(office, PostgresPlace)
    roles = ("tailrace_sync", "application")
    office.run(*(f"CREATE ROLE {role} LOGIN PASSWORD '{PASSWORD}'" for role in roles))
    syncing, application = (as_role(office, role) for role in roles)
    try:
        office.run(CREATE, "GRANT SELECT, INSERT, UPDATE, DELETE ON todo TO application")
        for_install, for_application = statements()
        office.run(*for_install)
        store = syncing.install(todo())
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            put(application, 1, "without rights")
        office.run(*for_application)
        put(application, 1, "of the application")
        put(application, 1, "changed")
        put(application, 2, "to be deleted")
        application.run("DELETE FROM todo WHERE id = 2")
        one = node(laptop)
        put(laptop, 3, "of the laptop")
        with SyncServer(store, options=ServerOptions(Accept.ANYONE)) as server:
            SyncNode.over(one).sync_with(server.url)
        assert whats(laptop) == whats(office) == {1: "changed", 3: "of the laptop"}
    finally:
        syncing.close()
        application.close()
        office.run(*(f"DROP OWNED BY {role} CASCADE" for role in roles), *(f"DROP ROLE {role}" for role in roles))
