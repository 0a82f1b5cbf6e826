"""`tailrace sync quarantine`: rows that were not taken, here or elsewhere, and edits that lost."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated

import typer

from tailrace.cli.options import JsonOption, YesOption, confirm
from tailrace.cli.syncnode import FileArgument

NodeOption = Annotated[
    int | None, typer.Option("--node", help="Only what is there because of this node.", min=1, show_default=False)
]
app = typer.Typer(help="Look at rows that were not taken, and at edits that lost.", no_args_is_help=True)


@app.command(name="list")
def list_(
    file: FileArgument,
    *,
    limit: Annotated[int, typer.Option(help="So many, the newest first.", min=1)] = 100,
    node: NodeOption = None,
    as_json: JsonOption = False,
) -> None:
    """List them with the reason: refused here, rejected by another node, lost against another edit, waiting."""
    from tailrace.cli.show import printable
    from tailrace.message import Micros, moment
    from tailrace.sync.load import load_sync
    from tailrace.sync.opening import opened

    with opened(load_sync(file)) as store:
        found = store.quarantined(limit, node)
        tables = {table_id: shape.entity.table for table_id, shape in store.shapes.items()}
    if as_json:
        told = [
            {
                **asdict(each),
                "node": str(each.node),
                "sender": str(each.sender),
                "table": tables.get(each.table_id),
            }
            for each in found
        ]
        print(json.dumps({"quarantine": told}))
        return
    for each in found:
        table = tables.get(each.table_id, f"table {each.table_id}")
        key = ", ".join(map(str, each.key))
        at = f"{moment(Micros(each.at_ms * 1000)):%Y-%m-%d %H:%M:%SZ}"
        print(printable(f"{each.id}  {each.why.value}  {table} {key}, version {each.version}, node {each.node}, {at}"))
        print(printable(f"    {each.reason}"))
        print(printable(f"    {'deleted' if each.row is None else json.dumps(each.row, ensure_ascii=False)}"))
    if not found:
        print("nothing is in quarantine")


@app.command()
def retry(
    file: FileArgument,
    numbers: Annotated[list[int], typer.Argument(metavar="ID…", help="As `list` shows them.", show_default=False)],
    as_json: JsonOption = False,
) -> None:
    """Send rows once more that another node has rejected, as they are by now: it may want them today."""
    from tailrace.errors import TailraceError
    from tailrace.sync.load import load_sync
    from tailrace.sync.opening import opened

    with opened(load_sync(file)) as store:
        failed = [number for number in numbers if not store.send_again(number)]
    if failed:
        what = f"not rejected by another node: {', '.join(map(str, failed))}"
        raise TailraceError("input.invalid", what, hint="what was refused here is sent again by its sender's side")
    print(json.dumps({"sent_again": numbers}) if as_json else f"sent again: {', '.join(map(str, numbers))}")


@app.command()
def release(
    file: FileArgument,
    numbers: Annotated[
        list[int] | None, typer.Argument(metavar="[ID…]", help="As `list` shows them.", show_default=False)
    ] = None,
    *,
    node: NodeOption = None,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Take rows out of quarantine that somebody has dealt with, or all that one node has sent, except those that wait
    for others. They cannot be had back."""
    from tailrace.errors import TailraceError
    from tailrace.sync.load import load_sync
    from tailrace.sync.opening import opened

    if (node is None) == (not numbers):
        what = "either numbers of rows or --node say what is released"
        raise TailraceError("input.invalid", what, hint=f"tailrace sync quarantine list {file}")
    with opened(load_sync(file)) as store:
        if node is not None:
            confirm(f"Throw away all rows of node {node} of the quarantine in {store.database.place}?", yes=yes)
            count = store.release_all(node)
            print(json.dumps({"released": count}) if as_json else f"released: {count} rows of node {node}")
            return
        numbers = numbers or []
        confirm(f"Throw away {len(numbers)} rows of the quarantine in {store.database.place}?", yes=yes)
        missing = [number for number in numbers if not store.release(number)]
    if missing:
        what = f"not in quarantine: {', '.join(map(str, missing))}"
        raise TailraceError("input.invalid", what, hint=f"tailrace sync quarantine list {file}")
    print(json.dumps({"released": numbers}) if as_json else f"released: {', '.join(map(str, numbers))}")
