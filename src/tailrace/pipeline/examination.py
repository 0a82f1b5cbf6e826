"""Probing everything that a pipeline needs, without changing anything."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from contextlib import closing
from importlib import import_module
from typing import TYPE_CHECKING, Final

from tailrace.adaptor.options import Check
from tailrace.errors import TailraceError
from tailrace.log.lock import WRITER_LOCK_NAME, holder_of
from tailrace.log.reader import LogReader
from tailrace.masking import masked
from tailrace.source.bookmark import load_progress
from tailrace.source.contract import check_position
from tailrace.units import show_bytes

if TYPE_CHECKING:
    from tailrace.adaptor.options import End, ReaderOptions
    from tailrace.pipeline.spec import PipelineSpec

JAVA_VERSIONS: Final = (17, 21)
_JAVA_S: Final = 30.0


def probe_environment() -> list[Check]:
    """What every pipeline needs: Java and Spark."""
    return [probe_java(), probe_spark()]


def probe_pipeline(spec: PipelineSpec) -> list[Check]:
    """What this pipeline needs: its log, its source and its destinations."""
    checks = [*probe_log(spec.log), probe_space(spec.log, spec.segment_bytes)]
    source = _probe_end(f"source {spec.read.adaptor}", spec.read.options)
    if all(check.ok for check in source):
        source += probe_position(f"source {spec.read.adaptor}", spec.read.options, spec.log)
    checks += source
    for write in spec.writes:
        checks += _probe_end(f"writer {write.name}", write.options)
    return checks


def probe_java() -> Check:
    wanted = " or ".join(map(str, JAVA_VERSIONS))
    cure = f"install Java {wanted} and put it on PATH, or set JAVA_HOME"
    home = os.environ.get("JAVA_HOME")
    program = os.path.join(home, "bin", "java") if home else shutil.which("java")
    if program is None:
        return Check(what="Java", ok=False, found="there is no java on PATH", cure=cure)
    try:
        done = subprocess.run(
            [program, "-version"],
            capture_output=True,
            text=True,
            timeout=_JAVA_S,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return Check(what="Java", ok=False, found=f"{program} does not run: {type(error).__name__}", cure=cure)
    version = re.search(r'version "(?:1\.)?(\d+)[^"]*"', done.stdout + done.stderr)
    if version is None:
        return Check(what="Java", ok=False, found=f"{program} does not tell its version", cure=cure)
    ok = int(version[1]) in JAVA_VERSIONS
    return Check(what="Java", ok=ok, found=f"version {version[1]} at {program}", cure="" if ok else cure)


def probe_spark() -> Check:
    try:
        version = str(import_module("pyspark").__version__)
    except ImportError:
        return Check(what="Spark", ok=False, found="not installed", cure="pip install 'tailrace[spark]'")
    ok = tuple(map(int, re.findall(r"\d+", version)[:2])) >= (4, 3)
    return Check(what="Spark", ok=ok, found=f"PySpark {version}", cure="" if ok else "pip install 'pyspark>=4.3,<5'")


def probe_log(directory: str) -> list[Check]:
    """Whether the log can be written, and is not being written by somebody else."""
    there = _nearest(directory)
    if not os.path.isdir(there):
        found, cure = f"{there} is no directory", "name another directory at `log:`"
        return [Check(what="log", ok=False, found=found, cure=cure)]
    ok = os.access(there, os.W_OK | os.X_OK)
    state = "can be written" if there == directory else "will be made"
    found = f"{directory} {state}" if ok else f"{there} cannot be written"
    checks = [Check(what="log", ok=ok, found=found, cure="" if ok else f"give yourself the right to write in {there}")]
    holder = holder_of(os.path.join(directory, WRITER_LOCK_NAME)) if there == directory else None
    if holder is not None:
        cure = "the pipeline runs already; stop that process before you start another"
        checks.append(Check(what="log lock", ok=False, found=f"held by {holder}", cure=cure))
    return checks


def probe_space(directory: str, segment_bytes: int) -> Check:
    """Whether at least one more segment fits."""
    try:
        free = shutil.disk_usage(_nearest(directory)).free
    except OSError as error:
        found, cure = f"nobody knows: {error.strerror}", f"look at {_nearest(directory)}"
        return Check(what="disk space", ok=False, found=found, cure=cure)
    ok = free >= segment_bytes
    cure = "" if ok else f"make room for a segment of {show_bytes(segment_bytes)}, or set a smaller segment_bytes"
    return Check(what="disk space", ok=ok, found=f"{show_bytes(free)} free for the log", cure=cure)


def probe_position(name: str, options: ReaderOptions, log: str) -> list[Check]:
    """Whether the source still has what comes after that which the log has."""
    what = f"{name}: changes go on where the log ends"
    if not os.path.isdir(log):
        return []
    try:
        position = load_progress(LogReader(log)).position
        if position is None:
            return []
        with closing(options.open()) as reader:
            check_position(reader, position)
    except TailraceError as error:
        is_new = error.code == "log.not_found"
        return [] if is_new else [Check(what=what, ok=False, found=error.what, cure=error.hint)]
    return [Check(what=what, ok=True, found="yes")]


def _nearest(path: str) -> str:
    """The path, or the first directory above it that is there."""
    while not os.path.lexists(path):
        path = os.path.dirname(path)
    return path


def _probe_end(name: str, end: End) -> list[Check]:
    try:
        checks = end.probe() or [Check(what="configured", ok=True, found=end.where())]
    except TailraceError as error:
        checks = [Check(what="reachable", ok=False, found=error.what, cure=error.hint)]
    except OSError as error:
        checks = [Check(what="reachable", ok=False, found=f"{error.strerror or error}", cure=f"look at {end.where()}")]
    except Exception as error:  # noqa: BLE001  adaptors are anybody's, and the other lines are wanted too
        found = masked(f"{type(error).__name__}: {error}")
        checks = [Check(what="reachable", ok=False, found=found, cure=f"look at {end.where()}")]
    return [check.model_copy(update={"what": f"{name}: {check.what}"}) for check in checks]
