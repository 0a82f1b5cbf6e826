"""`tailrace plan`: what `tailrace run` would do."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

from tailrace.cli.check import PipelineArgument
from tailrace.cli.options import JsonOption

if TYPE_CHECKING:
    from rich.table import Table

    from tailrace.pipeline.plan import Plan, WriterPlan


def plan(file: PipelineArgument, as_json: JsonOption = False) -> None:
    """Print what a run would copy, and from where each writer would go on; nothing is changed."""
    from tailrace.pipeline.load import load
    from tailrace.pipeline.plan import plan as make

    made = make(load(file))
    if as_json:
        print(json.dumps(asdict(made)))
    else:
        _print(made)


def _print(made: Plan) -> None:
    from rich.markup import escape

    from tailrace.cli.show import printable
    from tailrace.cli.stat import table_console

    console = table_console()
    log = f"ends at offset {made.log_end - 1}" if made.log_exists else "is not there yet and will be made"
    console.print(f"pipeline   {escape(made.pipeline)}", highlight=False)
    console.print(f"log        {escape(made.log)} {log}", highlight=False, soft_wrap=True)
    if made.namespaces:
        console.print(_namespaces(made))
    else:
        console.print("the source has no namespace that the pipeline reads", highlight=False)
    for name, why in made.left_out.items():
        console.print(escape(printable(f"{name}: left out: {why}")), highlight=False, soft_wrap=True)
    console.print(_writers(made))


def _namespaces(made: Plan) -> Table:
    from rich.markup import escape
    from rich.table import Table

    from tailrace.cli.show import printable

    table = Table("NAMESPACE", "PHASE", "ROWS", "PIECES TO COPY", "KEY", "WRITERS")
    for each in made.namespaces:
        table.add_row(
            escape(printable(each.namespace)),
            each.phase,
            "unknown" if each.rows is None else f"about {each.rows}",
            str(each.pieces),
            escape(printable(", ".join(each.key) or "none")),
            escape(", ".join(each.writers) or "none"),
        )
    return table


def _writers(made: Plan) -> Table:
    from rich.markup import escape
    from rich.table import Table

    from tailrace.cli.show import printable

    table = Table("WRITER", "TO", "STATE", "GOES ON", "BEHIND", "NAMESPACES")
    for each in made.writers:
        table.add_row(
            escape(each.name),
            escape(printable(f"{each.adaptor} {each.where}")),
            each.state,
            _resumes(each),
            f"{each.messages_behind} messages",
            escape(printable(", ".join(each.namespaces) or "none")),
        )
    return table


def _resumes(each: WriterPlan) -> str:
    return f"{'begins' if each.is_new else 'resumes'} at offset {each.resumes_at}"
