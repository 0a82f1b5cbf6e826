"""A server begins and ends cleanly, and is not reached in the clear by others."""

from __future__ import annotations

import socket
import ssl
import threading
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from tailrace.errors import TailraceError
from tailrace.sync.database import open_database
from tailrace.sync.serving import SyncServer, Tls
from tailrace.sync.store import SyncStore
from tests.servers import certificate
from tests.sync.served import ALICE, ENTITIES, TABLES, Serve, Served, door_node, serve, served

__all__ = ["serve", "served"]  # fixtures


@pytest.fixture
def store(tmp_path: Path) -> SyncStore:
    database = open_database(str(tmp_path / "node.db"))
    database.write(lambda link: [link.run(table) for table in TABLES])
    return SyncStore.install(database, ENTITIES)


def code_of(store: SyncStore, listen: str, tls: Tls | None = None) -> str:
    with pytest.raises(TailraceError) as caught:
        SyncServer(store, listen, tls=tls).start()
    return caught.value.code


@pytest.mark.parametrize(
    "listen", ["0.0.0.0:0", "[::]:0", "192.0.2.1:80", "example.org:80", "127.0.0.1", ":80", "x", "127.0.0.1:99999"]
)
def test_addresses_that_are_refused(store: SyncStore, listen: str) -> None:
    assert code_of(store, listen) == "config.invalid"


def test_an_address_that_is_taken(store: SyncStore) -> None:
    with SyncServer(store) as server:
        assert code_of(store, server.url.removeprefix("http://")) == "config.invalid"


def test_answers_do_not_wait_to_be_confirmed(store: SyncStore) -> None:
    with SyncServer(store) as server:
        assert server._server is not None
        (listener,) = server._server.servers[0].sockets
        assert listener.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_it_begins_and_ends_again_and_again(store: SyncStore) -> None:
    before = threading.active_count()
    server = SyncServer(store, "[::1]:0")
    for _ in range(3):
        with server:
            assert server.url.startswith("http://[::1]:")
            assert httpx.get(f"{server.url}/healthz").status_code == 200
        server.stop()
    assert threading.active_count() == before


@pytest.mark.skipif(bool(certificate.missing()), reason=certificate.missing())
def test_encrypted(store: SyncStore, tmp_path: Path) -> None:
    with certificate.certificate() as made:
        tls = Tls(str(made.path), str(made.key))
        with SyncServer(store, "0.0.0.0:0", tls=tls) as server:
            port = urlsplit(server.url).port
            url = f"https://127.0.0.1:{port}/healthz"
            trusted = ssl.create_default_context(cafile=str(made.path))
            assert httpx.get(url, verify=trusted).status_code == 200
            with pytest.raises(httpx.ConnectError):
                httpx.get(url)
            old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            old.load_verify_locations(str(made.path))
            with pytest.warns(DeprecationWarning):
                old.maximum_version = ssl.TLSVersion.TLSv1_1
            with pytest.raises(httpx.ConnectError):
                httpx.get(url, verify=old)
        readable = tmp_path / "key.pem"
        readable.write_bytes(made.key.read_bytes())
        readable.chmod(0o644)
        assert code_of(store, "127.0.0.1:0", Tls(str(made.path), str(readable))) == "config.invalid"
        assert code_of(store, "127.0.0.1:0", Tls(str(made.path), str(tmp_path / "none"))) == "config.invalid"
        readable.write_text("no key")
        readable.chmod(0o600)
        assert code_of(store, "127.0.0.1:0", Tls(str(made.path), str(readable))) == "config.invalid"


@pytest.mark.parametrize("said", [b"", b"GET /replic", b"GET /healthz HTTP/1.1\r\nX: y\r\n"])
def test_who_says_nothing_is_cut_off(store: SyncStore, said: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tailrace.sync.serving.SYNC_HEAD_S", 0.2)
    with SyncServer(store) as server:
        parts = urlsplit(server.url)
        with socket.create_connection((parts.hostname or "", parts.port or 0), timeout=60) as link:
            link.sendall(said)
            assert link.recv(1) == b""
        with socket.create_connection((parts.hostname or "", parts.port or 0), timeout=60) as link:
            link.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
            found = b""
            while not found.endswith(b"}"):
                found += link.recv(65536)
            assert found.startswith(b"HTTP/1.1 200")
            link.sendall(said or b"G")
            assert link.recv(1) == b""


def test_a_database_that_does_not_answer(served: Served) -> None:
    """Nothing of it is told that the caller should not know."""
    client = served.client()
    assert client.get("pending").status_code == 200
    served.run("ALTER TABLE todoReplicate RENAME TO elsewhere")
    answer = client.get("pending")
    assert answer.status_code == 503
    assert answer.json()["error"]["code"] == "sync.unreachable"
    served.run("ALTER TABLE elsewhere RENAME TO todoReplicate")
    assert client.get("pending").status_code == 200
    assert httpx.get(f"{served.server.url}/replication/node", headers=door_node(ALICE)).status_code == 200


def test_numbers_are_told_with_options(serve: Serve) -> None:
    assert serve(threads=1).client().get("node").status_code == 200
