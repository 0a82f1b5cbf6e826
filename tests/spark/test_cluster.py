"""The same pipeline on other masters: Spark's cluster in one process, and a real master and worker.

Executors there share neither memory nor a working directory with the driver, and get the package from it.
"""

from __future__ import annotations

import os
import re
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Final

import pyspark
import pytest

PIPELINE: Final = """
pipeline: cluster
log: log
read:
  sqlite: {path: source.db, piece_rows: 300}
write:
  - name: table
    sqlite: {path: table.db}
    through:
      - python: {file: where.py}
  - name: lake
    lake: {path: lake}
"""
WHERE: Final = """
import tailrace

def transform(message):
    message["data"]["place"] = tailrace.__file__
    return message
"""
ENVIRONMENT: Final = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
DEADLINE_S: Final = 120.0


def make_pipeline(directory: Path) -> None:
    (directory / "pipeline.yml").write_text(PIPELINE)
    (directory / "where.py").write_text(WHERE)
    with closing(sqlite3.connect(directory / "source.db")) as source, source:
        source.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, v TEXT)")
        source.executemany("INSERT INTO t VALUES (?, ?)", [(number, f"v{number}") for number in range(1000)])


def run_on(master: str, directory: Path) -> None:
    """`tailrace run --once` there, and what must come of it."""
    make_pipeline(directory)
    command = [sys.executable, "-m", "tailrace", "run", str(directory / "pipeline.yml"), "--once", "--master", master]
    ended = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT, cwd="/", timeout=280)
    assert ended.returncode == 0, ended.stderr
    with closing(sqlite3.connect(directory / "table.db")) as table:
        rows = table.execute("SELECT id, v, place FROM t ORDER BY id").fetchall()
    assert [row[:2] for row in rows] == [(number, f"v{number}") for number in range(1000)]
    assert all("tailrace.zip" in place for _, _, place in rows), rows[0]
    assert list((directory / "lake" / "main.t" / "current").glob("*.parquet"))


@contextmanager
def daemon(log: Path, *arguments: str) -> Iterator[None]:
    """One of Spark's own processes, until the block ends."""
    home = Path(pyspark.__file__).parent
    command = [str(home / "bin" / "spark-class"), *arguments]
    with open(log, "wb") as said:
        process = subprocess.Popen(command, stdout=said, stderr=said, env={**ENVIRONMENT, "SPARK_HOME": str(home)})
    try:
        yield
    finally:
        process.terminate()
        process.wait(30)


def wait_for(log: Path, pattern: str) -> re.Match[str]:
    give_up_s = time.monotonic() + DEADLINE_S
    while (found := re.search(pattern, log.read_text())) is None:
        assert time.monotonic() < give_up_s, log.read_text()[-2000:]
        time.sleep(0.1)
    return found


@pytest.mark.timeout(400)
@pytest.mark.long
def test_cluster_in_one_process(tmp_path: Path) -> None:
    run_on("local-cluster[2,1,1024]", tmp_path)


@pytest.mark.timeout(500)
def test_standalone_master_and_worker(tmp_path: Path) -> None:
    with ExitStack() as stack:
        master_log, worker_log = tmp_path / "master.log", tmp_path / "worker.log"
        master_class = ["org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", "0"]
        stack.enter_context(daemon(master_log, *master_class, "--webui-port", "0"))
        master = wait_for(master_log, r"spark://127\.0\.0\.1:\d+")[0]
        worker_class = ["org.apache.spark.deploy.worker.Worker", "--host", "127.0.0.1", "--cores", "2"]
        work = ["--memory", "1g", "--webui-port", "0", "--work-dir", str(tmp_path / "work")]
        stack.enter_context(daemon(worker_log, *worker_class, *work, master))
        wait_for(worker_log, "Successfully registered with master")
        run_on(master, tmp_path)
