"""What benchmarks share that run pipelines in processes of their own, as a user would, and measure what they cost."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ENVIRONMENT = {
    **os.environ,
    "SPARK_LOCAL_IP": "127.0.0.1",
    "AWS_EC2_METADATA_DISABLED": "true",
    "PYSPARK_PYTHON": sys.executable,
}


class Sampler(threading.Thread):
    """The most memory that a process and all below it had at a time, and the CPU time they used."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self._pid = pid
        self._stopped = threading.Event()
        self.peak_mb = 0.0

    def run(self) -> None:
        while not self._stopped.wait(1.0):
            self.peak_mb = max(self.peak_mb, sum(rss_mb(pid) for pid in _family(self._pid)))

    def stop(self) -> None:
        self._stopped.set()
        self.join()


def timed(command: list[str], **options: Any) -> tuple[float, float, float]:
    """Seconds, CPU seconds and peak memory of a command and everything below it."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.monotonic()
    process = subprocess.Popen(command, env=ENVIRONMENT, **options)
    sampler = Sampler(process.pid)
    sampler.start()
    status = process.wait()
    seconds = time.monotonic() - began
    sampler.stop()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if status:
        raise SystemExit(f"{command} ended with {status}")
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return seconds, cpu, sampler.peak_mb


def tailrace_run(place: Path, *options: str) -> tuple[float, float, float]:
    with open(place / "talk", "ab") as talk:
        command = [sys.executable, "-m", "tailrace", "run", str(place / "pipeline.yml"), *options]
        return timed(command, stdout=talk, stderr=talk)


def write_pipeline(place: Path, text: str) -> None:
    place.mkdir(parents=True, exist_ok=True)
    (place / "pipeline.yml").write_text(text)


@contextmanager
def running(place: Path) -> Iterator[subprocess.Popen[bytes]]:
    with open(place / "talk", "ab") as talk:
        command = [sys.executable, "-m", "tailrace", "run", str(place / "pipeline.yml")]
        process = subprocess.Popen(command, stdout=talk, stderr=talk, env=ENVIRONMENT)
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


def _family(pid: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            try:
                parent = int(Path(entry.path, "stat").read_text().rsplit(")", 1)[1].split()[1])
            except OSError:
                continue
            children.setdefault(parent, []).append(int(entry.name))
    found, waiting = [], [pid]
    while waiting:
        found.append(waiting.pop())
        waiting += children.get(found[-1], [])
    return found


def cpu_s(pid: int) -> float:
    """What a process has used so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def rss_mb(pid: int) -> float:
    """Pages that several processes share are counted once."""
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) / 1024
    except OSError:
        pass
    return 0.0
