"""`tailrace sync`: tables that several nodes write, exchanged whenever they can reach each other."""

from __future__ import annotations

import json
import sys
from contextlib import closing
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tailrace.cli import syncnode, syncquarantine
from tailrace.cli.options import JsonOption, YesOption, confirm

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tailrace.errors import TailraceError
    from tailrace.sync.form import SyncForm
    from tailrace.sync.round import Progress

SyncArgument = Annotated[
    str, typer.Argument(metavar="FILE.yml", help="A file with the key `sync`.", show_default=False)
]
_CLOSING_S = 30.0

app = typer.Typer(help="Sync tables with other nodes, which may be away for long.", no_args_is_help=True)
app.add_typer(syncnode.app, name="node")
app.add_typer(syncquarantine.app, name="quarantine")


@app.command()
def install(file: SyncArgument, as_json: JsonOption = False) -> None:
    """Make in the database what sync needs: tables beside yours, triggers, receive views. Your rows stay."""
    from tailrace.cli.show import printable
    from tailrace.observe.syncs import not_declared
    from tailrace.sync import install as installing
    from tailrace.sync.database import open_database
    from tailrace.sync.load import load_sync
    from tailrace.sync.store import SyncStore

    form = load_sync(file)
    with closing(open_database(form.database.address, must_exist=True)) as database:
        found = database.write(lambda link: installing.install(link, form.declared, database.dialect))
        store = SyncStore(database, form.declared)
        tables = [shape.entity.table for shape in store.by_batch()]
        place, node = database.place, str(store.node_id)
        left = store.not_declared()
    unnoticed = [line for each in found for line in each.told()]
    if as_json:
        told = {"database": place, "node": node, "tables": tables, "not_declared": left, "unnoticed": unnoticed}
        print(json.dumps(told))
    else:
        print(f"{place} is node {node}; synced are: {', '.join(tables)}")
        for line in unnoticed:
            print(printable(line))
        for table in left:
            wrong = not_declared(file, table)
            print(f"{wrong.what}: {wrong.cure}")


@app.command()
def uninstall(
    file: SyncArgument,
    *,
    only: Annotated[
        list[str] | None, typer.Option("--table", help="Only this table, though the file need not name it any more.")
    ] = None,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Remove everything that sync has made for the file's tables. The tables and their rows stay."""
    from tailrace.errors import TailraceError
    from tailrace.sync import install as installing
    from tailrace.sync.database import open_database
    from tailrace.sync.load import load_sync

    form = load_sync(file)
    entities = form.declared
    with closing(open_database(form.database.address, must_exist=True)) as database:
        found = database.read(lambda link: installing.installed(link, database.dialect))
        mine = {entity.table_id: found[entity.table_id][0] for entity in entities if entity.table_id in found}
        if only:
            mine = {table_id: table for table_id, (table, *_) in found.items() if table in only}
            if lacking := sorted({*only} - {*mine.values()}):
                what = f"not synced in {database.place}: {', '.join(lacking)}"
                raise TailraceError("input.invalid", what, hint=f"tailrace sync status {file}")
        if mine:
            lost = _what_is_lost(form, database)
            confirm(f"Remove sync of {', '.join(mine.values())} from {database.place}? {lost}", yes=yes)
        gone = database.write(lambda link: installing.uninstall_tables(link, mine, database.dialect))
        place = database.place
    if as_json:
        print(json.dumps({"database": place, "removed": gone}))
    else:
        print(f"sync is removed from {place}: {', '.join(gone)}" if gone else f"nothing is installed in {place}")


@app.command()
def status(file: SyncArgument, as_json: JsonOption = False) -> None:
    """Show what is synced, what waits for which node, when each was heard of, and what is in quarantine."""
    from tailrace.cli.overview import print_overview
    from tailrace.observe.looking import look_at_sync

    print_overview(look_at_sync(file)(), as_json=as_json)


@app.command()
def resync(
    file: SyncArgument,
    *,
    node: Annotated[
        int | None, typer.Option("--node", help="Only with this node; with all unless said.", min=1, show_default=False)
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Compare everything with other nodes again, as after a database was set back to an older copy. What one of them
    lacks travels with the next round; rows that both have do not."""
    from tailrace.errors import TailraceError
    from tailrace.sync.load import load_sync
    from tailrace.sync.opening import opened

    with opened(load_sync(file)) as store:
        if node is not None and node not in store.nodes():
            what = f"node {node} is unknown"
            raise TailraceError("input.invalid", what, hint=f"tailrace sync node list {file}")
        found = store.resync(node)
    if as_json:
        print(json.dumps({"nodes": [str(each) for each in found]}))
    else:
        print(f"everything is compared again with: {', '.join(map(str, found)) or 'nobody, no other node is known'}")


@app.command()
def run(
    file: SyncArgument,
    *,
    once: Annotated[bool, typer.Option("--once", help="Exchange everything with each peer once, then end.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Exchange rows with all peers as they change, and let other nodes in (`listen`), until it is stopped."""
    from tailrace.sync.load import load_sync_to_run

    form = load_sync_to_run(file)
    if not form.peers and (once or form.listen is None):
        from tailrace.errors import TailraceError

        what = f"{file} names no peers{'' if once else ', and no address to listen at'}"
        raise TailraceError("config.invalid", what, hint="add `peers`" if once else "add `peers` or `listen`")
    if once:
        _run_once(form, as_json=as_json)
    else:
        _run(file, form, as_json=as_json)


def _run_once(form: SyncForm, *, as_json: bool) -> None:
    from tailrace.cli.syncprogress import sync_progress
    from tailrace.errors import TailraceError
    from tailrace.sync.client import SyncNode
    from tailrace.sync.garbage import collect_seldom
    from tailrace.sync.opening import opened

    collect_seldom()
    with opened(form) as store, sync_progress() as shown:
        node = SyncNode.over(store, clock=form.clock.rule, warn=shown.tell)
        done = node.sync_with_all([peer.address for peer in form.peers], shown.moved)
    _print_done(done, as_json=as_json)
    failed = [each for each in done.values() if isinstance(each, TailraceError)]
    if failed:
        raise typer.Exit(max(error.exit_status for error in failed))


def _run(file: str, form: SyncForm, *, as_json: bool) -> None:
    from tailrace.cli.syncprogress import sync_progress
    from tailrace.observe.syncruns import TELL_S, SyncTelling, state_directory
    from tailrace.pipeline.shutdown import Shutdown
    from tailrace.sync.site import SyncSite

    shutdown = Shutdown()
    with sync_progress() as shown:
        with shutdown.listening(shown.tell, _CLOSING_S), SyncSite(form, shown.tell, shown.changed) as site:
            shown.tell(site.described())
            with SyncTelling(state_directory(file, form.state), site.node, site.status, shown.tell) as telling:
                while not shutdown.asked.wait(TELL_S):
                    telling.tell()
            told = site.status()
        shown.tell("sync has ended")
    if as_json:
        print(json.dumps(told))


def _print_done(done: Mapping[str, Progress | TailraceError], *, as_json: bool) -> None:
    from tailrace.cli.report import report_lines, report_object
    from tailrace.cli.show import printable
    from tailrace.errors import TailraceError

    if as_json:
        told = {
            name: {"error": report_object(each)} if isinstance(each, TailraceError) else asdict(each)
            for name, each in done.items()
        }
        print(json.dumps({"peers": told}))
        return
    for name, each in done.items():
        if isinstance(each, TailraceError):
            print(*(printable(line) for line in report_lines(each)), sep="\n", file=sys.stderr)
        else:
            from tailrace.cli.syncprogress import shown_progress

            print(printable(f"{name}: {shown_progress(each)}"))
            for warning in each.warnings:
                print(printable(f"{name}: {warning}"), file=sys.stderr)


def _what_is_lost(form: SyncForm, database: Any) -> str:
    """What nobody will know any more."""
    from tailrace.errors import TailraceError
    from tailrace.sync.store import SyncStore

    try:
        found = SyncStore(database, form.declared).status()
    except TailraceError:
        return "Which node has which version is forgotten."
    pending = sum(count for entity in found.entities for count in entity.pending.values())
    rows = sum(entity.rows for entity in found.entities)
    kept = sum(found.quarantine.values())
    return (
        f"Of {rows} rows it is forgotten which of {len(found.nodes)} nodes has which version; {pending} that wait"
        f" for nodes, {found.changes} changes not looked at and {kept} rows in quarantine are lost."
    )
