"""`tailrace doctor`: probe everything that a pipeline needs, each line with its cure."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from tailrace.cli.options import JsonOption
from tailrace.errors import Exit


def doctor(
    file: Annotated[
        str | None, typer.Argument(metavar="[PIPELINE.yml]", help="The pipeline file; without it only Java and Spark.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Probe Java, Spark, the log, the source and every destination; exit status 1 when something is bad."""
    from tailrace.cli.show import printable
    from tailrace.pipeline.examination import probe_environment, probe_pipeline
    from tailrace.pipeline.load import load

    spec = load(file) if file is not None else None
    checks = [*probe_environment(), *(probe_pipeline(spec) if spec else [])]
    ok = all(check.ok for check in checks)
    if as_json:
        print(json.dumps({"ok": ok, "checks": [check.model_dump() for check in checks]}))
    else:
        width = max(len(check.what) for check in checks)
        for check in checks:
            cure = f"; cure: {check.cure}" if check.cure and not check.ok else ""
            advice = f" ({check.cure})" if check.cure and check.ok else ""
            print(printable(f"{'ok ' if check.ok else 'bad'}  {check.what:<{width}}  {check.found}{cure}{advice}"))
    if not ok:
        raise typer.Exit(Exit.RUNTIME)
