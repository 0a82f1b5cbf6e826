"""`tailrace sync node`: the nodes that a database is synced with, and who may call it."""

from __future__ import annotations

import json
import re
import time
from typing import Annotated, Final

import typer

from tailrace.cli.options import JsonOption, YesOption, confirm

app = typer.Typer(help="Look at the nodes that are known, and say which may call this one.", no_args_is_help=True)

FileArgument = Annotated[
    str, typer.Argument(metavar="FILE.yml", help="A file with the key `sync`.", show_default=False)
]
NodeIdArgument = Annotated[
    int, typer.Argument(metavar="NODE", help="A node's number, as its `node self` shows it.", min=1, show_default=False)
]
_PROOF: Final = re.compile(r"sha256\$[0-9a-f]{32}\$[0-9a-f]{64}")


@app.command(name="self")
def self_(
    file: FileArgument,
    peer: Annotated[
        str | None,
        typer.Argument(metavar="[PEER]", help="The peer that is to know it; unless said the only one."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Print this node's number and its proof, for `node add` at a node that it calls. Neither is a secret."""
    from tailrace.errors import TailraceError
    from tailrace.sync.auth import hashed, secret_for
    from tailrace.sync.load import load_sync
    from tailrace.sync.opening import opened

    form = load_sync(file)
    bonds = {each.name: each.address.bond for each in form.peers}
    if peer is None and len(bonds) == 1:
        (peer,) = bonds
    if peer not in bonds:
        what = f"{file} has several peers, or none" if peer is None else f"{file} has no peer {peer}"
        raise TailraceError("input.invalid", what, hint=f"name one of: {', '.join(bonds) or '(add `peers`)'}")
    with opened(form) as store:
        node, proof = str(store.node_id), hashed(secret_for(store.secret, bonds[peer]))
    print(json.dumps({"node": node, "peer": peer, "proof": proof}) if as_json else f"{node} {proof}")


@app.command()
def add(
    file: FileArgument,
    node: NodeIdArgument,
    proof: Annotated[
        str, typer.Argument(metavar="PROOF", help="What its `node self` shows beside the number.", show_default=False)
    ],
    as_json: JsonOption = False,
) -> None:
    """Let a node call this one. For one that is known already the proof is renewed."""
    from tailrace.errors import TailraceError
    from tailrace.sync.load import load_sync
    from tailrace.sync.opening import opened

    if _PROOF.fullmatch(proof) is None:
        what = "this is no proof, which is sha256$ and hexadecimal digits"
        raise TailraceError("input.invalid", what, hint="at the other node: tailrace sync node self FILE.yml")
    with opened(load_sync(file)) as store:
        is_new = store.register(node, proof)
    if as_json:
        print(json.dumps({"node": str(node), "is_new": is_new}))
    else:
        print(f"node {node} may call from now on{'' if is_new else ', with the new proof'}")


@app.command(name="list")
def list_(file: FileArgument, as_json: JsonOption = False) -> None:
    """List the nodes that are known: who calls whom, when each was heard of, how much waits for it."""
    from tailrace.sync.load import load_sync
    from tailrace.sync.nodes import CALLS_US, WE_CALL
    from tailrace.sync.opening import opened

    with opened(load_sync(file)) as store:
        found = store.status()
        known = {node: store.node(node) for node in found.nodes}
    told = [
        {
            "node": str(node),
            "we_call": each is not None and bool(each.rel & WE_CALL),
            "calls_us": each is not None and bool(each.rel & CALLS_US),
            "last_seen_ms": found.nodes[node] or None,
            "pending": sum(entity.pending.get(node, 0) for entity in found.entities),
        }
        for node, each in known.items()
    ]
    if as_json:
        print(json.dumps({"nodes": told}))
        return
    for one in told:
        ways = [name for name, is_so in (("we call it", one["we_call"]), ("it calls us", one["calls_us"])) if is_so]
        seen = shown_age(int(str(one["last_seen_ms"] or 0)))
        print(f"{one['node']}  {', '.join(ways) or 'never called'}, {seen}, {one['pending']} rows wait for it")
    if not told:
        print("no other node is known")


@app.command()
def remove(file: FileArgument, node: NodeIdArgument, yes: YesOption = False, as_json: JsonOption = False) -> None:
    """Forget a node that is gone for good: it may call no more, and nothing waits for it. Its rows stay."""
    from tailrace.errors import TailraceError
    from tailrace.sync.load import load_sync
    from tailrace.sync.opening import opened

    with opened(load_sync(file)) as store:
        found = store.status()
        if node not in found.nodes:
            what = f"node {node} is unknown"
            raise TailraceError("input.invalid", what, hint=f"tailrace sync node list {file}")
        pending = sum(entity.pending.get(node, 0) for entity in found.entities)
        confirm(f"Forget node {node} in {store.database.place}, for which {pending} rows wait?", yes=yes)
        store.forget(node)
    print(json.dumps({"node": str(node)}) if as_json else f"node {node} is forgotten")


def shown_age(seen_ms: int) -> str:
    """When a node was heard of, for people."""
    from tailrace.units import show_seconds

    return f"heard of {show_seconds(max(0.0, time.time() - seen_ms / 1000))} ago" if seen_ms else "never heard of"
