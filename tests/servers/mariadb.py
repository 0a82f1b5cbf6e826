"""A MariaDB server of one's own, on a port of loopback that nobody else has."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Mapping
from contextlib import closing
from typing import Any, Final

import pymysql

from tests.servers.unprivileged import as_user, own_directory

USER: Final = "tester"
PASSWORD: Final = "canary-5b1d"
_SETTINGS: Final = {
    "bind_address": "127.0.0.1",
    "binlog_format": "ROW",
    "binlog_row_metadata": "FULL",
    "character_set_server": "utf8mb4",
    "default_time_zone": "+05:45",  # nothing may depend on the server's zone
    "innodb_buffer_pool_size": "64M",
    "innodb_flush_log_at_trx_commit": "2",  # what was committed outlives the server, not the machine
    "innodb_log_file_size": "32M",
    "log_bin": "binlog",
    "max_connections": "200",
    "performance_schema": "OFF",
    "server_id": "1",
    "skip_name_resolve": "ON",
    "sync_binlog": "0",
}


def missing() -> str:
    """Why there is no server, empty when there is one."""
    programs = ("mariadbd", "mariadb-install-db", "my_print_defaults")
    absent = [name for name in programs if _program(name) is None]
    return f"no {absent[0]}: install the packages mariadb-server-core and mariadb-client-core" if absent else ""


class MariaDbServer:
    """`start`, then any number of `stop`, `kill` and `start`, then `remove`."""

    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        self.directory = own_directory("tailrace-mariadb-")
        self.data = self.directory / "data"
        self.port = _free_port()
        self._settings = {**_SETTINGS, **(settings or {})}
        self._process: subprocess.Popen[bytes] | None = None
        self._install()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def url(self, database: str = "", user: str = USER, password: str = PASSWORD) -> str:
        return f"mysql://{user}:{password}@127.0.0.1:{self.port}/{database}"

    def connect(self, database: str | None = None, **options: Any) -> pymysql.Connection[Any]:
        """A user's connection that commits each statement."""
        settings: dict[str, Any] = {"autocommit": True, "ssl_disabled": True, "charset": "utf8mb4"}
        address = {"host": "127.0.0.1", "port": self.port, "user": USER, "password": PASSWORD, "database": database}
        zone = {"init_command": "SET time_zone = '+00:00'"}
        return pymysql.connect(**{**settings, **address, **zone, **options})

    def run(self, *statements: str, database: str | None = None) -> None:
        with closing(self.connect(database)) as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)

    def ask(self, query: str, database: str | None = None) -> list[tuple[Any, ...]]:
        with closing(self.connect(database)) as connection, connection.cursor() as cursor:
            cursor.execute(query)
            return list(cursor.fetchall())

    def purge_binary_logs(self, upto: str) -> None:
        """Remove the binary logs before one. Those that somebody reads stay, and the server notices only after a while
        that a reader has gone."""
        give_up_s = time.monotonic() + 60
        while self.ask("SHOW BINARY LOGS")[0][0] != upto:
            assert time.monotonic() < give_up_s, "somebody still reads a binary log"
            self.run(f"PURGE BINARY LOGS TO '{upto}'")
            time.sleep(0.05)

    def start(self) -> None:
        options = [f"--{name}={value}" for name, value in self._settings.items()]
        command = [
            *(_program("mariadbd") or "mariadbd", "--no-defaults", f"--datadir={self.data}", f"--port={self.port}"),
            *(f"--socket={self.directory}/socket", f"--pid-file={self.directory}/pid", *options),
        ]
        with (self.directory / "server.log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, cwd=self.directory, **as_user())
        self._await_ready()

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """As a power cut would end it, though the machine goes on."""
        self._end(signal.SIGKILL)

    def remove(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self.kill()  # nobody needs what it holds
        shutil.rmtree(self.directory, ignore_errors=True)

    def _end(self, how: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(how)
        self._process.wait(timeout=60)
        self._process = None

    def _install(self) -> None:
        subprocess.run(
            [
                *(_program("mariadb-install-db") or "mariadb-install-db", "--no-defaults", f"--datadir={self.data}"),
                *("--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve"),
                "--innodb-log-file-size=32M",
            ],
            check=True,
            capture_output=True,
            cwd=self.directory,
            **as_user(),
        )
        secret = self.directory / "first.sql"
        secret.write_text(
            "SET sql_log_bin = 0;\n"
            f"CREATE USER IF NOT EXISTS tester@'127.0.0.1' IDENTIFIED BY '{PASSWORD}';\n"
            "GRANT ALL ON *.* TO tester@'127.0.0.1' WITH GRANT OPTION;\n"
        )
        secret.chmod(0o644)
        self._settings["init_file"] = str(secret)

    def _await_ready(self) -> None:
        for _ in range(600):
            assert self._process is not None
            try:
                self._process.wait(timeout=0.1)
                break
            except subprocess.TimeoutExpired:
                pass
            try:
                self.connect(connect_timeout=5).close()
                return
            except pymysql.err.OperationalError:
                continue
        log = (self.directory / "server.log").read_text(errors="replace")[-2000:]
        raise RuntimeError(f"the server did not start:\n{log}")


def _program(name: str) -> str | None:
    return shutil.which(name, path=os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"]))


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
