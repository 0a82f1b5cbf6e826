"""`tailrace slot …`: look at the replication slots of a PostgreSQL source and remove them."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from tailrace.cli.check import PipelineArgument
from tailrace.cli.options import JsonOption, YesOption, confirm
from tailrace.errors import TailraceError

if TYPE_CHECKING:
    from tailrace.adaptor.postgres.slot import Slot

app = typer.Typer(help="Look at the replication slots of a PostgreSQL source, and remove them.", no_args_is_help=True)

SlotOption = Annotated[
    str, typer.Option("--slot", metavar="NAME", help="Another slot of that server; the pipeline's own when left out.")
]


@app.command("list")
def list_(file: PipelineArgument, as_json: JsonOption = False) -> None:
    """Print every slot of the source's server, with the bytes of its log that the slot keeps from being removed."""
    from tailrace.adaptor.postgres.slot import all_slots

    own = _slot(file)
    with own.server.session() as connection:
        slots = all_slots(connection)
    if as_json:
        print(
            json.dumps([{"name": name, "is_own": name == own.name, **asdict(state)} for name, state in slots.items()])
        )
        return
    from rich.markup import escape
    from rich.table import Table

    from tailrace.cli.stat import table_console
    from tailrace.units import show_bytes

    table = Table("slot", "database", "in use", "holds back", "state", box=None)
    for name, state in slots.items():
        mark = " (this pipeline's)" if name == own.name else ""
        held = "" if state.held_bytes is None else show_bytes(state.held_bytes)
        in_use = f"by process {state.pid}" if state.is_active else "no"
        table.add_row(escape(name + mark), escape(state.database or ""), in_use, held, state.wal_status or "")
    table_console().print(table)


@app.command()
def drop(file: PipelineArgument, slot: SlotOption = "", yes: YesOption = False) -> None:
    """Remove a slot and its publications, so that the server need not keep changes for it. The log stays."""
    from tailrace.adaptor.postgres.slot import Slot

    own = _slot(file)
    wanted = Slot(own.server, slot) if slot else own
    confirm(f"Remove slot {wanted.name} of {own.server.place}? Changes not captured yet are lost to it.", yes=yes)
    with own.server.session() as connection:
        was_there = wanted.drop(connection)
    print(f"slot {wanted.name} is removed" if was_there else f"there is no slot {wanted.name}")


def _slot(file: str) -> Slot:
    from tailrace.pipeline.load import load

    spec = load(file)
    if spec.read.adaptor != "postgres":
        what = f"pipeline {spec.name} reads {spec.read.adaptor}, which has no replication slots"
        raise TailraceError("input.invalid", what, hint="name a pipeline that reads postgres")
    from tailrace.adaptor.postgres.options import PostgresReaderOptions
    from tailrace.adaptor.postgres.slot import Slot

    options = spec.read.options
    if not isinstance(options, PostgresReaderOptions):
        raise TailraceError("input.invalid", "another adaptor is called postgres here", hint="tailrace about postgres")
    return Slot(options.server(), options.slot_name)
