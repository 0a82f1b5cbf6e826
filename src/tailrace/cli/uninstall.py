"""`tailrace uninstall`: leave a source as it was."""

from __future__ import annotations

from tailrace.cli.check import PipelineArgument
from tailrace.cli.options import YesOption, confirm


def uninstall(file: PipelineArgument, yes: YesOption = False) -> None:
    """Remove what a pipeline has left in its source to note changes (triggers, tables). The log stays."""
    from tailrace.pipeline.load import load

    spec = load(file)
    where = f"{spec.read.adaptor} {spec.read.options.where()}"
    confirm(f"Remove from {where} what notes its changes? Changes that are not captured yet are lost.", yes=yes)
    reader = spec.read.options.open()
    try:
        reader.uninstall()
    finally:
        reader.close()
    print(f"nothing of pipeline {spec.name} is left in {where}")
