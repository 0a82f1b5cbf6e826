"""Encrypted connections."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pymysql
import pytest

from tailrace.adaptor.mysql.options import MysqlReaderOptions
from tailrace.errors import TailraceError
from tests.adaptor.contract import messages
from tests.servers import certificate as certificates
from tests.servers import mariadb as servers
from tests.servers.certificate import Certificate, certificate
from tests.servers.mariadb import PASSWORD, MariaDbServer


@pytest.fixture(scope="module")
def own_certificate() -> Iterator[Certificate]:
    if why := certificates.missing() or servers.missing():
        pytest.skip(why)
    with certificate() as made:
        yield made


@pytest.fixture(scope="module")
def server(own_certificate: Certificate) -> Iterator[MariaDbServer]:
    """To a user of it nobody can talk in the clear."""
    files = {"ssl_cert": str(own_certificate.path), "ssl_key": str(own_certificate.key)}
    made = MariaDbServer(files)
    made.start()
    made.run(
        f"CREATE USER careful@'127.0.0.1' IDENTIFIED BY '{PASSWORD}' REQUIRE SSL",
        "GRANT ALL ON *.* TO careful@'127.0.0.1'",
        "CREATE DATABASE shop",
        "CREATE TABLE shop.t(id int PRIMARY KEY)",
        "INSERT INTO shop.t VALUES (1)",
    )
    yield made
    made.remove()


def rows(server: MariaDbServer, **options: str) -> list[object]:
    """A copy and the change after it."""
    url = server.url("shop", user="careful")
    with closing(MysqlReaderOptions(url=url, **options).open()) as reader:  # type: ignore[arg-type]
        (table,) = reader.tables()
        start = reader.position()
        batches = [b for piece in reader.plan_copy(table) for b in reader.read_copy(table.namespace, piece)]
        server.run("INSERT INTO shop.t VALUES (2)", "DELETE FROM shop.t WHERE id = 2")
        batches += [b for piece in reader.plan_changes(start, reader.position()) for b in reader.read_changes(piece)]
    return [message.data for message in messages(batches)]


@pytest.mark.parametrize("tls", ["prefer", "require", "verify"])
def test_connections_are_encrypted(server: MariaDbServer, own_certificate: Certificate, tls: str) -> None:
    with pytest.raises(pymysql.err.OperationalError, match="Access denied"):
        server.connect(user="careful")
    assert rows(server, tls=tls, ca=str(own_certificate.path)) == [{"id": 1}, {"id": 2}, {"id": 2}]


def test_in_the_clear(server: MariaDbServer) -> None:
    with pytest.raises(TailraceError, match="Access denied") as caught:
        rows(server, tls="off")
    assert caught.value.code == "source.unreachable"


def test_a_certificate_that_nobody_knows(server: MariaDbServer) -> None:
    """The error does not tell the password."""
    with certificate() as other, pytest.raises(TailraceError, match="certificate verify failed") as caught:
        rows(server, tls="verify", ca=str(other.path))
    assert caught.value.code == "source.unreachable"
    assert PASSWORD not in str(caught.value)
