"""`tailrace check`: whether a pipeline file is right, without touching anything that it names."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tailrace.cli.options import JsonOption
from tailrace.errors import Exit

if TYPE_CHECKING:
    from tailrace.pipeline.spec import PipelineSpec, WriteSpec

PipelineArgument = Annotated[str, typer.Argument(metavar="PIPELINE.yml", help="The pipeline file.", show_default=False)]


def check(file: PipelineArgument, as_json: JsonOption = False) -> None:
    """Check a pipeline file and print the way of the data; every problem is listed with its line."""
    from tailrace.cli.show import printable
    from tailrace.pipeline.load import examine

    examined = examine(file)
    if as_json:
        print(json.dumps(_described(examined.spec, [_problem(each) for each in examined.problems])))
    elif examined.spec is not None:
        print("\n".join(map(printable, flow(examined.spec))))
    else:
        for problem in examined.problems:
            print(problem, file=sys.stderr)
    if examined.spec is None:
        raise typer.Exit(Exit.INPUT)


def flow(spec: PipelineSpec) -> list[str]:
    """The way of the data, one line per stage."""
    lines = [
        f"pipeline {spec.name}",
        f"  read   {spec.read.adaptor} {spec.read.options.where()}, namespaces {_pattern(spec.read.namespace.pattern)}",
        f"  log    {spec.log}",
    ]
    for write in spec.writes:
        lines.append(f"  write  {write.name}: namespaces {_pattern(write.namespace.pattern)}")
        lines += [f"         -> {name}" for name in _functions(write)]
        lines.append(f"         -> {write.adaptor} {write.options.where()}")
    return lines


def _functions(write: WriteSpec) -> list[str]:
    return [function.kind for function in write.through]


def _pattern(pattern: str) -> str:
    return "all" if pattern == ".*" else f"/{pattern}/"


def _problem(problem: Any) -> dict[str, Any]:
    return {"file": problem.file, "line": problem.line, "column": problem.column, "message": problem.text}


def _described(spec: PipelineSpec | None, problems: list[dict[str, Any]]) -> dict[str, Any]:
    if spec is None:
        return {"ok": False, "problems": problems}
    return {
        "ok": True,
        "problems": [],
        "pipeline": spec.name,
        "log": spec.log,
        "read": {
            "adaptor": spec.read.adaptor,
            "where": spec.read.options.where(),
            "namespace": spec.read.namespace.pattern,
        },
        "write": [
            {
                "name": write.name,
                "adaptor": write.adaptor,
                "where": write.options.where(),
                "namespace": write.namespace.pattern,
                "through": _functions(write),
                "on_error": write.on_error,
                "on_schema_change": write.on_schema_change,
            }
            for write in spec.writes
        ],
    }
