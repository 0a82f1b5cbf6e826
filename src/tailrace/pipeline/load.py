"""Reading a pipeline file."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from tailrace.pipeline.assemble import assemble
from tailrace.pipeline.declaration import Examined, examine_file
from tailrace.pipeline.spec import PipelineSpec


def load(file: str, environment: Mapping[str, str] | None = None) -> PipelineSpec:
    """The pipeline that a file declares."""
    hint = f"mend the file, then: tailrace check {shlex.quote(file)}"
    return examine(file, environment).checked(file, hint)


def examine(file: str, environment: Mapping[str, str] | None = None) -> Examined[PipelineSpec]:
    """Look at a file without touching anything that it names."""
    return examine_file(file, assemble, environment, begin=f"tailrace init SOURCE SINK --file {shlex.quote(file)}")
