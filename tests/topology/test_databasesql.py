"""A registry's database: one registry at a time has it, what is kept survives, and its password is not told."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import create_engine, inspect

from tailrace.errors import TailraceError
from tailrace.topology.databasesql import DatabaseStorage
from tailrace.topology.member import Report, State
from tailrace.topology.site import Site
from tailrace.topology.storage import Record
from tests.servers.postgres import PASSWORD, PostgresServer
from tests.topology.places import ROOT, site

SEED = {
    "comdb2_physreps": {"dbname", "host", "file", "offset", "last_keepalive", "state"},
    "comdb2_physrep_connections": {"dbname", "host", "source_dbname", "source_host"},
    "comdb2_physrep_sources": {"dbname", "host", "source_dbname", "source_host"},
}


def record(node: Site, source: Site | None = None, reserved: Site | None = None) -> Record:
    report = Report(1, 2, 3, 4, 5, 0.5)
    return Record(node, State.ACTIVE, source is None, False, report, 1_700_000_000.25, source, reserved)


def test_the_tables_are_those_of_comdb2(address: str) -> None:
    DatabaseStorage(address).close()
    url = f"sqlite:///{address}" if "://" not in address else address.replace("postgresql:", "postgresql+psycopg:")
    engine = create_engine(url)
    found = inspect(engine)
    for table, columns in SEED.items():
        assert columns <= {column["name"] for column in found.get_columns(table)}
    engine.dispose()


def test_what_is_kept_is_found_again(address: str) -> None:
    records = [record(ROOT), record(site(0), ROOT), record(site(1), site(0), ROOT)]
    with_storage = DatabaseStorage(address)
    with_storage.save(records, [])
    with_storage.add_rule(site(0), ROOT)
    with_storage.add_rule(site(0), ROOT)
    with_storage.add_rule(site(1), ROOT)
    with_storage.remove_rule(site(1), ROOT)
    with_storage.set_tunable("physrep_fanout", "3")
    with_storage.set_fanout("orders", 4)
    with_storage.set_fanout("bills", 4)
    with_storage.set_fanout("bills", None)
    with_storage.close()
    again = DatabaseStorage(address)
    kept = again.load()
    assert sorted(kept.records, key=lambda found: found.site) == sorted(records, key=lambda found: found.site)
    assert kept.rules == ((site(0), ROOT),)
    assert (kept.tunables, kept.fanouts) == ({"physrep_fanout": "3"}, {"orders": 4})
    again.save([record(site(1), ROOT)], [site(0)])
    assert {found.site: found.source for found in again.load().records} == {ROOT: None, site(1): ROOT}
    again.close()


def test_reports_leave_the_links_alone(address: str) -> None:
    storage = DatabaseStorage(address)
    storage.save([record(ROOT), record(site(0), ROOT)], [])
    storage.save_reports([record(site(0))])
    assert {found.site: found.source for found in storage.load().records} == {ROOT: None, site(0): ROOT}
    storage.close()


def test_one_registry_at_a_time(address: str) -> None:
    first = DatabaseStorage(address)
    with pytest.raises(TailraceError) as refused:
        DatabaseStorage(address)
    assert refused.value.code == "topology.registry_taken"
    first.close()
    DatabaseStorage(address).close()


def test_names_are_no_sql(address: str) -> None:
    node = Site("or'; DROP TABLE comdb2_physreps; --", '"%s:1')
    storage = DatabaseStorage(address)
    storage.save([record(node)], [])
    assert [found.site for found in storage.load().records] == [node]
    storage.close()


def test_a_lost_connection_is_made_again(postgres: PostgresServer, postgres_address: str) -> None:
    storage = DatabaseStorage(postgres_address)
    _cut(postgres, postgres_address)
    with pytest.raises(TailraceError) as refused:
        storage.save([record(ROOT)], [])
    assert refused.value.code == "topology.registry_failed"
    storage.save([record(ROOT)], [])
    assert len(storage.load().records) == 1
    storage.close()


def test_whoever_lost_its_connection_does_not_write_over_another(
    postgres: PostgresServer, postgres_address: str
) -> None:
    first = DatabaseStorage(postgres_address)
    _cut(postgres, postgres_address)
    second = DatabaseStorage(postgres_address)
    codes = []
    for _ in range(2):
        with pytest.raises(TailraceError) as refused:
            first.save([record(ROOT)], [])
        codes.append(refused.value.code)
    second.close()
    with pytest.raises(TailraceError) as refused:
        first.save([record(ROOT)], [])
    assert [*codes, refused.value.code] == ["topology.registry_failed", *["topology.registry_taken"] * 2]
    first.close()


def test_a_password_is_not_told(postgres_address: str) -> None:
    with pytest.raises(TailraceError) as refused:
        DatabaseStorage(postgres_address.replace("registry_", "nowhere_"))
    assert refused.value.code == "topology.registry_failed"
    assert PASSWORD not in str(refused.value)


@pytest.mark.parametrize("address", ["mysql://a/b", "sqlite://", "sqlite:///:memory:", "://"])
def test_an_address_that_is_none(address: str) -> None:
    with pytest.raises(TailraceError, match=r"input\.invalid"):
        DatabaseStorage(address)


def test_a_directory_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(TailraceError, match=r"topology\.registry_failed"):
        DatabaseStorage(str(tmp_path / "none" / "registry.db"))


def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    (tmp_path / "registry.db").write_bytes(b"something else" * 100)
    with pytest.raises(TailraceError, match=r"topology\.registry_failed"):
        DatabaseStorage(str(tmp_path / "registry.db"))


def _cut(postgres: PostgresServer, address: str) -> None:
    name = address.rpartition("/")[2]
    with postgres.connect() as connection:
        connection.execute("SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = %s", (name,))
