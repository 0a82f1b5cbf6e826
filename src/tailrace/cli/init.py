"""`tailrace init`: a pipeline file to begin with."""

from __future__ import annotations

import json
import os
import shlex
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from tailrace.errors import TailraceError

if TYPE_CHECKING:
    from tailrace.pipeline.catalog import Described, Use


def init(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="The adaptor to read from.", show_default=False)],
    sink: Annotated[str, typer.Argument(metavar="SINK", help="The adaptor to write to.", show_default=False)],
    file: Annotated[str, typer.Option("--file", "-f", metavar="FILE", help="The file to write.")] = "pipeline.yml",
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file if it is there.")] = False,
    schema: Annotated[
        bool, typer.Option("--schema", help="Write a JSON schema beside it, for completion in editors.")
    ] = False,
) -> None:
    """Write a pipeline file with every option of two adaptors, its meaning and its default."""
    from tailrace.pipeline.sample import sample_file
    from tailrace.pipeline.schema import pipeline_schema

    reader, writer = _adaptor(source, "read"), _adaptor(sink, "write")
    stem = os.path.splitext(file)[0]
    schema_file = f"{stem}.schema.json" if schema else None
    text = sample_file(_name(stem), reader, writer, os.path.basename(schema_file) if schema_file else None)
    _write(file, text, force)
    if schema_file:
        _write(schema_file, json.dumps(pipeline_schema(), indent=2) + "\n", force)
    print(f"{file} is written. Next: edit it, then tailrace check {shlex.quote(file)}", file=sys.stderr)


def _adaptor(name: str, use: Use) -> Described:
    from tailrace.pipeline.catalog import describe_adaptor

    found = describe_adaptor(name)
    if use not in found.options:
        what = f"the adaptor {name} cannot be {'read from' if use == 'read' else 'written to'}"
        raise TailraceError("input.invalid", what, hint="tailrace about")
    return found


def _name(stem: str) -> str:
    """The pipeline is called like its file, when that is a name."""
    from tailrace.namespace import check_file_name

    try:
        return check_file_name(os.path.basename(stem), "pipeline")
    except TailraceError:
        return "pipeline"


def _write(file: str, text: str, force: bool) -> None:
    if os.path.lexists(file) and not force:
        if not sys.stdin.isatty():
            what = f"{file} is there already and stays as it is"
            raise TailraceError("input.invalid", what, hint="the same command with --force, or with another --file")
        typer.confirm(f"{file} is there already. Overwrite it?", abort=True, err=True)
    try:
        with open(file, "w", encoding="utf-8") as stream:
            stream.write(text)
    except OSError as error:
        what = f"{file} cannot be written: {error.strerror}"
        raise TailraceError("input.invalid", what, hint="the same command with another --file") from None
