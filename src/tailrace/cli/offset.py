"""`tailrace offset …`: look at the consumers of a log and move them."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from tailrace.cli.options import ConsumerArgument, JsonOption, LogOption, ReasonOption, YesOption, confirm
from tailrace.errors import TailraceError

if TYPE_CHECKING:
    from tailrace.log.consumers import Consumers
    from tailrace.log.operator import Move

app = typer.Typer(help="Look at the consumers of a log and move them.", no_args_is_help=True)

ExactNamespaceOption = Annotated[
    str, typer.Option("--namespace", "-n", metavar="NAME", help="Only this namespace; the whole log when left out.")
]


@app.command("list")
def list_(log: LogOption, as_json: JsonOption = False) -> None:
    """Print every consumer: its offset, lag in messages, bytes and time, state and hold policy."""
    from tailrace.log.stat import consumer_stats

    stats = consumer_stats(_consumers(log))
    if as_json:
        print(json.dumps([asdict(stat) for stat in stats]))
        return
    from tailrace.cli.stat import consumer_table, table_console

    table_console().print(consumer_table(stats))


@app.command()
def show(log: LogOption, consumer: ConsumerArgument, as_json: JsonOption = False) -> None:
    """Print a consumer's offset in every namespace, and what was agreed with it."""
    consumers = _consumers(log)
    found = consumers.get(consumer)
    position = consumers.position(found)
    namespaces = {name: found.positions.of(name) for name in sorted(consumers.view.last_offsets())}
    if as_json:
        described = {
            "name": consumer,
            "position": position,
            "namespaces": namespaces,
            "acknowledged_ahead": sorted(found.positions.acknowledged),
            "state": found.state,
            "agreement": asdict(found.agreement),
        }
        print(json.dumps(described))
        return
    from rich.markup import escape
    from rich.table import Table

    from tailrace.cli.show import printable
    from tailrace.cli.stat import table_console

    table = Table("NAMESPACE", "OFFSET")
    for name, offset in namespaces.items():
        table.add_row(escape(printable(name)), str(offset))
    table_console().print(table)
    print(f"everything up to {position} is acknowledged; {found.state}, hold policy {found.agreement.hold.policy}")
    if found.positions.acknowledged:
        print(f"acknowledged ahead: {', '.join(map(str, sorted(found.positions.acknowledged)))}")
    if found.agreement.invalidated:
        print(f"invalidated: {found.agreement.invalidated}")


@app.command()
def register(
    log: LogOption,
    consumer: ConsumerArgument,
    start: Annotated[str, typer.Option("--from", metavar="oldest|newest|OFFSET", help="Where it begins.")] = "oldest",
    hold: Annotated[
        str, typer.Option(metavar="hold|cap|none", help="Whether it keeps the log from being removed.")
    ] = "hold",
    cap_bytes: Annotated[
        str | None, typer.Option(metavar="SIZE", help="With cap: the most it may hold back.", show_default=False)
    ] = None,
    cap_age: Annotated[
        str | None, typer.Option(metavar="TIME", help="With cap: the oldest message it may hold.", show_default=False)
    ] = None,
    ttl: Annotated[
        str | None, typer.Option(metavar="TIME", help="It expires when not seen for so long.", show_default=False)
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Make a consumer that holds the log from now on."""
    from tailrace.log.agreement import Hold, Policy
    from tailrace.units import parse_bytes, parse_seconds

    if hold not in list(Policy):
        raise TailraceError("input.invalid", f"--hold {hold} is unknown", hint="use hold, cap or none")
    consumers = _consumers(log)
    agreed = Hold(
        Policy(hold),
        None if cap_bytes is None else parse_bytes(cap_bytes),
        None if cap_age is None else parse_seconds(cap_age),
    )
    first = _offset(consumers, start)
    consumers.register(consumer, start=first, hold=agreed, ttl_s=None if ttl is None else parse_seconds(ttl))
    print(json.dumps({"name": consumer, "start": first}) if as_json else f"{consumer} begins at offset {first}")


@app.command()
def mark(
    log: LogOption,
    consumer: ConsumerArgument,
    offset: Annotated[int, typer.Argument(help="The last offset that counts as delivered.", show_default=False)],
    namespace: ExactNamespaceOption = "",
    reason: ReasonOption = "",
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Count everything up to OFFSET as delivered. It will not be sent."""
    from tailrace.log.operator import Operator

    consumers = _consumers(log)
    skipped = offset - consumers.position(consumers.get(consumer))
    if skipped > 0:
        scope = f" of {namespace}" if namespace else ""
        confirm(f"Consumer {consumer} will not get up to {skipped} messages{scope}. Go on?", yes=yes)
    _print_move(Operator(consumers).mark(consumer, offset, namespace=namespace, reason=reason), as_json)


@app.command()
def ack(
    log: LogOption,
    consumer: ConsumerArgument,
    offset: Annotated[int, typer.Argument(help="The message.", show_default=False)],
    reason: ReasonOption,
    as_json: JsonOption = False,
) -> None:
    """Count one message as acknowledged without sending it. The reason is kept in the audit trail."""
    from tailrace.log.operator import Operator

    if not reason.strip():
        raise TailraceError("input.invalid", "an acknowledgement needs a reason", hint='--reason "why"')
    _print_move(Operator(_consumers(log)).acknowledge(consumer, offset, reason=reason), as_json)


@app.command()
def rewind(
    log: LogOption,
    consumer: ConsumerArgument,
    offset: Annotated[str, typer.Argument(metavar="OFFSET|oldest", help="Sent again from here.", show_default=False)],
    namespace: ExactNamespaceOption = "",
    reason: ReasonOption = "",
    as_json: JsonOption = False,
) -> None:
    """Have messages from OFFSET on delivered again."""
    from tailrace.log.operator import Operator

    consumers = _consumers(log)
    target = _offset(consumers, offset)
    _print_move(Operator(consumers).rewind(consumer, target, namespace=namespace, reason=reason), as_json)


@app.command()
def delete(
    log: LogOption,
    consumer: ConsumerArgument,
    reason: ReasonOption = "",
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Forget a consumer. What only it held may be removed from then on."""
    consumers = _consumers(log)
    position = consumers.known_position(consumer)
    where = "whose offsets cannot be read" if position is None else f"which is at offset {position}"
    confirm(f"Forget consumer {consumer}, {where}?", yes=yes)
    consumers.delete(consumer, reason)
    print(json.dumps({"deleted": consumer, "position": position}) if as_json else f"{consumer} is forgotten")


@app.command()
def audit(log: LogOption, as_json: JsonOption = False) -> None:
    """Print what operators did to the consumers, oldest first."""
    from tailrace.cli.show import printable
    from tailrace.log import audit as trail

    for line in trail.read(_consumers(log).directory):
        if as_json:
            print(json.dumps(line))
        else:
            details = " ".join(f"{key}={value}" for key, value in line.items() if key not in ("time", "action"))
            print(printable(f"{line['time']} {line['action']} {details}"))


def _consumers(log: str) -> Consumers:
    from tailrace.log.consumers import Consumers

    consumers = Consumers(log)
    consumers.view.bases()
    return consumers


def _offset(consumers: Consumers, text: str) -> int:
    if text == "oldest":
        return consumers.view.bases()[0]
    if text == "newest":
        return consumers.view.head().next_offset
    if not text.isdecimal():
        raise TailraceError("input.invalid", f"{text!r} is no offset", hint="use a number, oldest or newest")
    return int(text)


def _print_move(move: Move, as_json: bool) -> None:
    print(json.dumps(asdict(move)) if as_json else f"{move.consumer} went from {move.before} to {move.after}")
