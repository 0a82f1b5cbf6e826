"""Runs that do not begin leave word of why."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tailrace.adaptor.files import files
from tailrace.errors import TailraceError
from tailrace.pipeline import Pipeline
from tailrace.pipeline.failures import Failures
from tailrace.pipeline.names import READING, RUN
from tailrace.pipeline.run import Until, run
from tailrace.pipeline.spec import PipelineSpec


def spec_of(directory: Path) -> PipelineSpec:
    pipeline = Pipeline("test", log=str(directory / "log")).read(files(str(directory / "in.jsonl")))
    return pipeline.write(files(str(directory / "out"))).spec()


def never() -> None:
    raise AssertionError("Spark is not needed")


def test_a_source_that_is_not_there(tmp_path: Path) -> None:
    spec = spec_of(tmp_path)
    with pytest.raises(TailraceError):
        run(spec, Until.ONCE, session=never)  # type: ignore[arg-type]
    assert [(part, each.error.code) for part, each in Failures(spec.log).read().items()] == [
        (READING, "source.unreachable")
    ]


def test_spark_that_does_not_start(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text('{"n": 1}\n')
    spec = spec_of(tmp_path)
    program = f"from pathlib import Path; from tests.runs.test_failures import *; run(spec_of(Path({str(tmp_path)!r})))"
    environment = {**os.environ, "PATH": "/nowhere", "JAVA_HOME": "", "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment)
    assert "spark.unavailable" in done.stderr
    assert [(part, each.error.code) for part, each in Failures(spec.log).read().items()] == [(RUN, "spark.unavailable")]
