"""What only Debian's server has: encrypted connections, hstore and XML."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from itertools import chain
from typing import Any

import psycopg
import pytest

from tailrace.adaptor.postgres.options import PostgresReaderOptions
from tailrace.errors import TailraceError
from tests.adaptor.contract import messages
from tests.adaptor.postgres.databases import ask, run
from tests.adaptor.postgres.test_types import write_to
from tests.servers import certificate as certificates
from tests.servers.certificate import Certificate, certificate
from tests.servers.postgres import PASSWORD, PostgresServer, installations

DEBIAN = [version for version in installations() if version not in ("18", "16")]


@pytest.fixture(scope="module")
def own_certificate() -> Iterator[Certificate]:
    if why := certificates.missing():
        pytest.skip(why)
    with certificate() as made:
        yield made


@pytest.fixture(scope="module")
def postgres(own_certificate: Certificate) -> Iterator[PostgresServer]:
    """A server to which nobody can talk in the clear."""
    if not DEBIAN:
        pytest.skip("no Debian PostgreSQL: install the package postgresql")
    files = {"ssl_cert_file": str(own_certificate.path), "ssl_key_file": str(own_certificate.key)}
    server = PostgresServer(DEBIAN[0], {"ssl": "on", **files})
    access = server.data / "pg_hba.conf"
    access.write_text(re.sub(r"(?m)^host\b", "hostssl", access.read_text()))
    server.start()
    yield server
    server.remove()


def everything(url: str, **options: Any) -> list[Any]:
    """A copy, and what comes after it."""
    slot = f"s_{url.partition('?')[0].rpartition('/')[2]}"
    with closing(PostgresReaderOptions(url=url, slot=slot, **options).open()) as reader:  # type: ignore[arg-type]
        tables = reader.tables()
        reader.install(tables)
        start = reader.position()
        copied = [reader.read_copy(table.namespace, piece) for table in tables for piece in reader.plan_copy(table)]
        batches = list(chain.from_iterable(copied))
        reader.copied()
        run(url, "UPDATE t SET word = 'changed' WHERE id = 1")
        for piece in reader.plan_changes(start, reader.position()):
            batches += reader.read_changes(piece)
        reader.uninstall()
    return batches


def test_connections_are_encrypted(database: str, own_certificate: Certificate) -> None:
    with pytest.raises(psycopg.OperationalError, match="no encryption"):
        run(f"{database}?sslmode=disable", "SELECT 1")
    url = f"{database}?sslmode=verify-full&sslrootcert={own_certificate.path}"
    run(url, "CREATE TABLE t(id int PRIMARY KEY, word text)", "INSERT INTO t VALUES (1, 'first'), (2, 'second')")
    found = everything(url)
    assert [message.data for message in messages(found)] == [
        *({"id": 1, "word": "first"}, {"id": 2, "word": "second"}, {"id": 1, "word": "changed"}),
    ]
    write_to(url, "copy", found)
    assert ask(url, "SELECT id, word FROM copy ORDER BY id") == [(1, "changed"), (2, "second")]


def test_a_certificate_that_nobody_knows(database: str) -> None:
    """Neither is anything sent, nor does the error tell the password."""
    with certificate() as other, pytest.raises(TailraceError, match="certificate verify failed") as caught:
        everything(f"{database}?sslmode=verify-full&sslrootcert={other.path}")
    assert caught.value.code == "source.unreachable"
    assert PASSWORD not in str(caught.value)


def test_hstore_and_xml(database: str) -> None:
    run(
        database,
        "CREATE EXTENSION hstore",
        "CREATE TABLE t(id int PRIMARY KEY, word text, pairs hstore, page xml)",
        """INSERT INTO t VALUES (1, '', 'a=>1, "b c"=>NULL, "ä\\"" => "=>"', '<a b="c">d &amp; ü</a>')""",
        "INSERT INTO t(id) VALUES (2)",
    )
    write_to(database, "copy", everything(database))
    rows = "SELECT id, word, pairs::text, page::text FROM {} ORDER BY id"
    assert ask(database, rows.format("copy")) == ask(database, rows.format("t"))
    types = "SELECT pg_typeof(pairs)::text, pg_typeof(page)::text FROM copy WHERE id = 1"
    assert ask(database, types) == [("hstore", "xml")]
