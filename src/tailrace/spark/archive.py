"""The class-data archive: what the JVM would load and check anew at every start, kept ready in one file.

`python -m tailrace.spark.archive` makes it (`make setup` does so); without it everything works, only slower to start.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

_MAKING: Final = "TAILRACE_MAKE_ARCHIVE"
"""While an archive is made this names it."""


def archive_path() -> Path:
    """Where the archive for this Spark and this environment is."""
    return Path(sys.prefix) / "share" / "tailrace" / f"spark-{version('pyspark')}.jsa"


def java_options() -> str:
    """What the JVM is told about the archive. One that does not fit it is passed over without a word."""
    making = os.environ.get(_MAKING)
    if making:
        return f" -XX:ArchiveClassesAtExit={making}"
    try:
        path = archive_path()
    except PackageNotFoundError:
        return ""
    return f" -XX:SharedArchiveFile={path} -Xshare:auto -Xlog:disable -Xlog:all=off" if path.exists() else ""


def make() -> Path:
    """Make the archive, from the classes that a short run of every kind uses."""
    path = archive_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(".draft")
    environment = {**os.environ, _MAKING: str(draft)}
    subprocess.run([sys.executable, "-m", "tailrace.spark.archive", "--run"], env=environment, check=True)
    draft.replace(path)
    return path


def _run() -> None:
    """Use Spark as pipelines do. The archive is written when the JVM ends."""
    from pyspark import SparkContext

    from tailrace.spark.session import SparkConfig, start
    from tailrace.spark.tasks import run_tasks
    from tailrace.spark.turns import Turns

    with tempfile.TemporaryDirectory() as directory:
        session = start(SparkConfig(directory))
        turns = Turns(
            lambda: session, "warm", lambda: bool(run_tasks(session, "warm", _nothing, [1]).failures), directory
        )
        turns.start()
        turns.ended.wait()
        turns.stop()
        session.range(10).write.parquet(os.path.join(directory, "rows"))
        session.read.parquet(os.path.join(directory, "rows")).collect()
        gateway = SparkContext._gateway
        session.stop()
        if gateway is not None:
            process = gateway.proc
            gateway.shutdown()
            process.stdin.close()
            process.wait()


def _nothing(item: int) -> dict[str, int]:
    return {"item": item}


if __name__ == "__main__":
    if "--run" in sys.argv:
        _run()
    else:
        sys.stdout.write(f"setup: class-data archive {make()}\n")
