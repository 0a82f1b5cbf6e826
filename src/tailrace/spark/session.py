"""How Spark is started: quietly, with few features, and with what makes small batches fast."""

from __future__ import annotations

import os
import re
import shutil
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

from tailrace.errors import Place, TailraceError
from tailrace.spark import archive, process
from tailrace.spark.submitting import submitted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOG_NAME: Final = "spark.log"

_CHECKPOINTS: Final = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
_SETTINGS: Final[Mapping[str, str]] = {
    "spark.app.name": "tailrace",
    "spark.driver.memory": "1g",
    "spark.redaction.regex": "(?i)secret|passw|token|credential|key",
    "spark.scheduler.mode": "FAIR",
    "spark.sql.adaptive.enabled": "false",  # small plans: deciding costs more than it saves
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    "spark.sql.legacy.parquet.nanosAsLong": "false",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.session.timeZone": "UTC",
    # Our own offsets are the truth, so that a checkpoint need not survive anything (docs/decisions/006).
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
    "spark.sql.streaming.checkpointFileManagerClass": _CHECKPOINTS,
    "spark.sql.streaming.minBatchesToRetain": "2",
    "spark.sql.streaming.numRecentProgressUpdates": "2",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
_LOCAL_SETTINGS: Final[Mapping[str, str]] = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
}
_CLASSES: Final = re.compile(r"^(?:[a-z]\w*(?:\.[a-z]\w*)*\.\w*(?:Exception|Error): )+")
"""Names of Java's classes, which tell nobody anything."""
_NOISE: Final = ("at ", "File ", "Traceback", "~", "^", "...", "An error occurred while calling")
"""How lines of a stack trace begin."""
_CAUSE: Final = re.compile(r"(?:Caused by: |: )?((?!org\.apache\.spark\.Spark)[\w.$]+(?:Error|Exception): \S.*)")
"""What is thrown somewhere, but for Spark's word that something was."""
_STARTING: Final = threading.Lock()


@dataclass(frozen=True, slots=True)
class SparkConfig:
    """Which Spark to use."""

    directory: str
    """Where Spark may leave files: its log, and checkpoints that live as long as the session."""
    master: str | None = None
    """None: this machine."""
    slots: int = 4
    """How many tasks may run at a time on this machine. More than cores, for tasks often wait for others."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Settings that win over ours."""
    has_own_frames: bool = False
    """Whether functions of the user's own get DataFrames: then Python workers are as Spark makes them."""

    @property
    def is_local(self) -> bool:
        return self.master is None or self.master.startswith("local[") or self.master == "local"

    @property
    def log_path(self) -> str:
        return os.path.join(self.directory, LOG_NAME)


def start(config: SparkConfig) -> SparkSession:
    """A session; the one there is when this process has one already. Spark's own words go to `config.log_path`."""
    _check_java()
    try:
        import pyspark  # noqa: F401
    except ImportError as error:
        what = f"PySpark is not installed: {error}"
        raise TailraceError("spark.unavailable", what, hint="pip install 'tailrace[spark]'") from error
    os.makedirs(config.directory, exist_ok=True)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    if config.is_local:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    with _STARTING:
        try:
            session = _session(config)
        except Exception as error:
            if (failed := process.not_at_work(error)) is not None:
                raise failed from error
            what = f"Spark did not start: {fold(error)}"
            place = Place(config.log_path)
            raise TailraceError("spark.unavailable", what, place=place, hint="look into the file") from error
    if not config.is_local:
        from tailrace.spark.shipping import ship

        ship(session, config.directory)
    return session


def fold(error: BaseException) -> str:
    """An error of Spark's without the stack traces of two languages: its innermost cause, in one line."""
    lines = [line.strip() for line in str(error).splitlines()]
    causes = [found[1] for line in lines if (found := _CAUSE.fullmatch(line))]
    told = [line for line in lines if line and not line.startswith(_NOISE)]
    chosen = causes[-1] if causes else (told[0] if told else type(error).__name__)
    return _CLASSES.sub("", chosen)[:500]


def _session(config: SparkConfig) -> SparkSession:
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    if SparkContext._active_spark_context is None:
        settings = _settings(config)
        conf = SparkConf(loadDefaults=False).setAll(list(settings.items()))
        with open(config.log_path, "ab", opener=_private) as log, submitted(settings) as inherited:
            launch: Any = launch_gateway
            # in a session of its own no signal reaches it that was meant for us; it ends when we do
            options = {"stdout": log, "stderr": log, "start_new_session": True, "pass_fds": inherited}
            gateway = None if SparkContext._gateway else launch(None, options)
        _hush()
        context: Any = SparkContext(conf=conf, gateway=gateway)
        # it prints that nobody calls any more, which is no news when the JVM is gone
        context._accumulatorServer.handle_error = process.unless_ended(context._accumulatorServer.handle_error)
    return SparkSession.builder.getOrCreate()


def _hush() -> None:
    """PySpark prints an error of a query with its stack traces before it raises it; who catches it tells it. So does
    Py4J when the JVM is gone, through Python's root logger; let it use its own."""
    from py4j import java_gateway  # type: ignore[import-untyped]
    from pyspark.logger import PySparkLogger

    for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        PySparkLogger.getLogger(name).disabled = True
    java_gateway.logging = java_gateway.logger


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _settings(config: SparkConfig) -> dict[str, str]:
    # a worker that dies is replaced: local mode would give up at the first failure
    master = config.master or f"local[{config.slots},4]"
    chosen = {**_SETTINGS, "spark.master": master, "spark.sql.shuffle.partitions": str(max(2, os.cpu_count() or 2))}
    if config.is_local:
        chosen |= _LOCAL_SETTINGS
    if config.is_local and not config.has_own_frames:
        chosen["spark.python.daemon.module"] = "tailrace.spark.daemon"
    properties = files("tailrace.spark").joinpath("log4j2.properties")
    chosen["spark.driver.extraJavaOptions"] = (
        f"-Dlog4j2.configurationFile=file:{properties} -Dtailrace.spark.log={config.log_path}"
        f" -XX:+UseParallelGC -XX:-UsePerfData{archive.java_options()}"
    )
    return {**chosen, **config.settings}


def _check_java() -> None:
    home = os.environ.get("JAVA_HOME")
    if not shutil.which(os.path.join(home, "bin", "java") if home else "java"):
        where = f"under JAVA_HOME={home}" if home else "on the PATH"
        what = f"Spark needs Java 17 or 21, and there is none {where}"
        raise TailraceError("spark.unavailable", what, hint="apt-get install openjdk-17-jre-headless")
