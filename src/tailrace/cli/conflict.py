"""`tailrace conflict`: what two nodes wrote at the same time, and which of it stays."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from tailrace.cli.options import JsonOption
from tailrace.cli.serve import NodeArgument
from tailrace.node.conflict import Conflict, Keep

if TYPE_CHECKING:
    from tailrace.node.contract import NodeStorage
    from tailrace.node.form import NodeSpec

app = typer.Typer(help="See and decide conflicts in a node's store.", no_args_is_help=True)


@app.command(name="list")
def list_(
    file: NodeArgument,
    *,
    everything: Annotated[bool, typer.Option("--all", help="Those that are decided, too.")] = False,
    as_json: JsonOption = False,
) -> None:
    """List the conflicts about which nobody has decided, each with both rows."""
    from tailrace.cli.show import printable

    found = [each for each in _storage(file).conflicts() if everything or each.keep is None]
    if as_json:
        print(json.dumps({"conflicts": [asdict(each) for each in found]}))
        return
    for each in found:
        for line in _lines(each):
            print(printable(line))
    if not found:
        print("no conflicts" if everything else "no conflicts to decide about")


@app.command()
def resolve(
    file: NodeArgument,
    number: Annotated[int, typer.Argument(metavar="NUMBER", help="Of the conflict, as `list` shows it.")],
    *,
    keep: Annotated[Keep, typer.Option("--keep", help="The row that is here, or the one that came.")],
    again: Annotated[bool, typer.Option("--again", help="Also if it is decided already.")] = False,
) -> None:
    """Decide a conflict: the row that stays becomes the newest, and goes to all other nodes."""
    from tailrace.errors import TailraceError

    storage = _storage(file)
    found = next((each for each in storage.conflicts() if each.id == number), None)
    if found is None:
        what = f"there is no conflict {number}"
        raise TailraceError("input.invalid", what, hint=f"tailrace conflict list {file} --all")
    if found.keep is not None and not again:
        what = f"conflict {number} is decided: {found.keep} stayed"
        raise TailraceError("input.invalid", what, hint="say --again to decide otherwise")
    storage.resolve(found, keep)
    print(f"conflict {number}: {keep} stays")


def _storage(file: str) -> NodeStorage:
    from tailrace.node.load import load_node

    return storage_of(load_node(file))


def storage_of(spec: NodeSpec) -> NodeStorage:
    """The store of a node."""
    from tailrace.errors import TailraceError
    from tailrace.node.contract import StoreOptions

    store = spec.store
    if store is None or not isinstance(store.writing, StoreOptions):
        what = "this node has no store"
        raise TailraceError("input.invalid", what, hint="name the file of a node with a `store`")
    looking: StoreOptions = store.writing.model_copy(update={"create": False})  # what is not there is not made
    return looking.open_storage(store.reading)


def _lines(conflict: Conflict) -> list[str]:
    decided = "open" if conflict.keep is None else f"{conflict.keep} stayed"
    rival = f", rival {conflict.rival}" if conflict.rival else ""
    return [
        f"{conflict.id}  {conflict.namespace} {conflict.key}{rival}  policy {conflict.policy}, {decided}",
        f"    ours    {conflict.ours or 'deleted'}",
        f"    theirs  {conflict.theirs or 'deleted'}  (message {conflict.lsn} of node {conflict.origin})",
    ]
