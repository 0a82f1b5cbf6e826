"""`tailrace rebuild`: a table as it was, from the log."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from tailrace.cli.options import JsonOption, MasterOption
from tailrace.errors import TailraceError
from tailrace.pipeline.tableformat import TableFormat

if TYPE_CHECKING:
    from tailrace.pipeline.spec import PipelineSpec


def rebuild(
    names: Annotated[
        list[str],
        typer.Argument(metavar="[PIPELINE.yml] NAMESPACE", help="The pipeline file, unless --log is given; the table."),
    ],
    at: Annotated[str, typer.Option(metavar="OFFSET|TIME", help="The last offset that counts, or a time as ISO text.")],
    log: Annotated[
        str | None, typer.Option("--log", metavar="DIR", help="The log's directory; TAILRACE_LOG names it too.")
    ] = None,
    to: Annotated[
        str | None, typer.Option(metavar="DIR", help="A new directory; ./rebuild-NAMESPACE-OFFSET when left out.")
    ] = None,
    form: Annotated[TableFormat, typer.Option("--format", help="As what it is written.")] = TableFormat.PARQUET,
    as_json: JsonOption = False,
    master: MasterOption = None,
) -> None:
    """Write the state that a table had at an offset or a time, told by the log alone."""
    directory, namespace, spec = _where(names, log)

    from tailrace.pipeline.rebuild import find_point
    from tailrace.pipeline.rebuild import rebuild as write
    from tailrace.spark.beside import session_beside

    point = find_point(directory, namespace, at)
    target = os.path.abspath(to) if to is not None else point.default_directory
    point.check_free(target)
    chosen = master or (spec.master if spec else None)
    with session_beside(directory, chosen, spec.spark if spec else None) as session:
        done = write(point, target, session(), form)
    if as_json:
        print(json.dumps(asdict(done)))
    else:
        from tailrace.cli.show import printable

        print(printable(f"{done.rows} rows of {done.namespace} at offset {done.at} in {done.directory}"))


def _where(names: list[str], log: str | None) -> tuple[str, str, PipelineSpec | None]:
    """The log's directory, the namespace and the pipeline, if it was named."""
    directory = log or os.environ.get("TAILRACE_LOG")
    if len(names) == 1 and directory:
        return os.path.abspath(directory), names[0], None
    if len(names) == 2 and log is None:
        from tailrace.pipeline.load import load

        spec = load(names[0])
        return spec.log, names[1], spec
    what = "a pipeline file and a namespace are needed, or --log and a namespace"
    hint = "tailrace rebuild PIPELINE.yml NAMESPACE --at OFFSET, or tailrace rebuild --log DIR NAMESPACE --at OFFSET"
    raise TailraceError("input.invalid", what, hint=hint)
