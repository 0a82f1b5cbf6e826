"""`tailrace queue`: look at the queues of a site, and decide about messages that nobody could take."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tailrace.cli.options import JsonOption, YesOption, confirm
from tailrace.cli.queuestatus import resync, status
from tailrace.errors import Place, TailraceError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tailrace.queues.entries import Received
    from tailrace.queues.parked import Parked

app = typer.Typer(help="Look at routing queues, and at messages that nobody could take.", no_args_is_help=True)

app.command()(status)
app.command()(resync)

_SHOWN_CHARACTERS = 200
DataArgument = Annotated[str, typer.Argument(metavar="DATA", help="The site's data directory.", show_default=False)]
QueueArgument = Annotated[str, typer.Argument(metavar="QUEUE", help="As `list` shows it.", show_default=False)]
NumbersArgument = Annotated[
    list[int], typer.Argument(metavar="ID…", help="As `parked` shows them.", show_default=False)
]


@app.command(name="list")
def list_(data: DataArgument, as_json: JsonOption = False) -> None:
    """List what has come for whom and how much of it waits for each listener, and what is to be sent."""
    from tailrace.queues.census import take_census

    census = take_census(_log(data))
    if as_json:
        print(json.dumps(asdict(census)))
        return
    from rich.table import Table

    from tailrace.cli.stat import table_console
    from tailrace.units import show_seconds

    received = Table("QUEUE", "CLIENT", "SOURCE", "MESSAGES", "LISTENER", "WAITING", "OLDEST")
    for queue in census.received:
        row = (queue.name, queue.client, queue.source, str(queue.messages))
        for each in queue.waiting:
            received.add_row(*row, each.listener, str(each.messages), show_seconds(each.oldest_age_s))
        if not queue.waiting:
            received.add_row(*row, "nobody listens", "", "")
    sending = Table("QUEUE", "MESSAGES", "DESTINATION", "FOR IT")
    for send_queue in census.sending:
        for site, count in send_queue.by_destination.items():
            sending.add_row(send_queue.name, str(send_queue.messages), site, str(count))
    console = table_console()
    for table in (received, sending):
        if table.row_count:
            console.print(table)
    if not (received.row_count or sending.row_count):
        print("no queues")


@app.command()
def show(
    data: DataArgument,
    queue: QueueArgument,
    *,
    offset: Annotated[int | None, typer.Option(help="Begin here; with the oldest unless said.")] = None,
    limit: Annotated[int, typer.Option(help="So many messages.", min=1)] = 10,
    as_json: JsonOption = False,
) -> None:
    """Print messages of a queue, with their payloads as text, or as hexadecimal numbers when they are none."""
    from itertools import islice

    from tailrace.log.reader import LogReader

    reader = LogReader(_log(data))
    known = reader.view.last_offsets()
    if queue not in known:
        what = f"there is no queue {queue!r}"
        raise TailraceError("input.invalid", what, place=Place(reader.directory), hint=f"tailrace queue list {data}")
    found = list(islice(_messages(reader.directory, queue, offset), limit))
    if as_json:
        print(json.dumps({"queue": queue, "messages": found}))
        return
    from tailrace.cli.show import printable

    for message in found:
        shown = ", ".join(f"{name} {value}" for name, value in message.items() if name not in ("payload", "bytes"))
        print(printable(shown))
        print(f"    {message['bytes']} bytes: {_cut(message['payload'])}")
    if not found:
        print("no messages")


@app.command()
def park(
    data: DataArgument,
    queue: QueueArgument,
    offset: Annotated[int, typer.Argument(help="The message.", show_default=False)],
    *,
    listener: Annotated[str, typer.Option(help="Whose message it is.")] = "main",
    reason: Annotated[str, typer.Option(help="Why; kept with it.")],
    as_json: JsonOption = False,
) -> None:
    """Put a message aside that a listener has not answered yet; a running one goes on without it at once."""
    from tailrace.log import audit
    from tailrace.log.consumers import Consumers
    from tailrace.log.disk import Disk
    from tailrace.queues.discovery import listener_consumer
    from tailrace.queues.names import parse_receive_queue
    from tailrace.queues.parked import ParkingLot

    directory = _log(data)
    parsed = parse_receive_queue(queue)
    if parsed is None:
        what = f"{queue!r} is no queue in which something comes"
        raise TailraceError("input.invalid", what, hint=f"tailrace queue list {data}")
    client, source = parsed
    consumer = Consumers(directory).get(listener_consumer(client, listener))
    if consumer.positions.covers(queue, offset):
        what = f"listener {listener} is done with message {offset} already"
        raise TailraceError("offset.direction", what, hint=f"tailrace queue show {data} {queue}")
    message = _received(directory, queue, offset)
    audit.record(Disk(), directory, "park", consumer.name, namespace=queue, offset=offset, reason=reason)
    with ParkingLot(directory) as lot:
        number = lot.park(client, listener, source, message, 0, reason)
    print(json.dumps({"id": number}) if as_json else f"message {offset} is parked as {number}")


@app.command()
def parked(data: DataArgument, as_json: JsonOption = False) -> None:
    """List the messages that were put aside, with the reason, what they carry and who could not take them."""
    from tailrace.cli.show import printable
    from tailrace.message import moment
    from tailrace.queues.parked import ParkingLot

    with ParkingLot(_log(data)) as lot:
        found = lot.all()
    if as_json:
        print(json.dumps({"parked": [_described(each) for each in found]}))
        return
    for each in found:
        who = f"from {each.source} for {each.client}, listener {each.listener}"
        told = f"{each.id}  {who}, offset {each.message.offset}, {each.message.kind.name}, {each.state}"
        print(printable(f"{told}, after {each.attempts} attempts, {moment(each.at):%Y-%m-%d %H:%M:%SZ}"))
        print(printable(f"    {each.reason}"))
        print(f"    {len(each.message.payload)} bytes: {_cut(_text(each.message.payload))}")
    if not found:
        print("no message is parked")


@app.command()
def replay(data: DataArgument, numbers: NumbersArgument, as_json: JsonOption = False) -> None:
    """Deliver parked messages again, each before the next new message of its source."""
    from tailrace.queues.parked import ParkingLot

    with ParkingLot(_log(data)) as lot:
        found = lot.replay(numbers)
    told = [each.id for each in found]
    print(json.dumps({"replayed": told}) if as_json else f"delivered again: {', '.join(map(str, told))}")


@app.command()
def discard(data: DataArgument, numbers: NumbersArgument, yes: YesOption = False, as_json: JsonOption = False) -> None:
    """Throw parked messages away. They cannot be had back."""
    from tailrace.queues.parked import ParkingLot

    directory = _log(data)
    confirm(f"Throw away {len(numbers)} parked messages of {data}?", yes=yes)
    with ParkingLot(directory) as lot:
        told = [each.id for each in lot.discard(numbers)]
    print(json.dumps({"discarded": told}) if as_json else f"thrown away: {', '.join(map(str, told))}")


def _log(data: str) -> str:
    """The log of a site."""
    from tailrace.log.view import LogView

    directory = os.path.abspath(os.path.join(data, "queues"))
    try:
        LogView(directory).bases()
    except TailraceError as error:
        what = "there are no queues here"
        hint = "name the data directory of a site with queues"
        raise TailraceError("log.not_found", what, place=Place(directory), hint=hint) from error
    return directory


def _messages(directory: str, queue: str, offset: int | None) -> Iterator[dict[str, Any]]:
    from tailrace.log.reader import LogReader
    from tailrace.log.selection import Selection, exactly
    from tailrace.message import moment
    from tailrace.queues.entries import Kind
    from tailrace.queues.names import sites_of

    for entry in LogReader(directory).entries(offset, None, Selection(namespace=exactly(queue))):
        message, row = entry.message, dict(entry.message.data or {})
        payload = row.pop("payload", None) or b""
        told: dict[str, Any] = {"offset": entry.offset, "at": moment(message.timestamp).isoformat()}
        if "kind" in row:
            told["kind"] = Kind(row.pop("kind")).name.lower()
        told |= {"source_id": message.lsn, "transaction": message.tx} | {
            name: value for name, value in row.items() if value
        }
        if message.destinations:
            told["destinations"] = sites_of(message.destinations)
        yield {**told, "bytes": len(payload), "payload": _text(payload)}


def _received(directory: str, queue: str, offset: int) -> Received:
    """One message of a receive queue."""
    from tailrace.log.reader import LogReader
    from tailrace.log.selection import Selection, exactly
    from tailrace.queues.incoming import messages_of

    frames = LogReader(directory).frames(offset, offset + 1, Selection(namespace=exactly(queue)))
    found = next((message for frame in frames for message in messages_of(frame)), None)
    if found is None:
        what = f"message {offset} is none of {queue}"
        raise TailraceError("input.invalid", what, place=Place(directory), hint=f"tailrace queue show DATA {queue}")
    return found


def _described(each: Parked) -> dict[str, Any]:
    from tailrace.message import moment

    message = each.message
    return {
        "id": each.id,
        "client": each.client,
        "listener": each.listener,
        "source": each.source,
        "offset": message.offset,
        "kind": message.kind.name.lower(),
        "request": message.request,
        "source_id": message.source_id,
        "transaction": message.transaction,
        "state": each.state,
        "attempts": each.attempts,
        "reason": each.reason,
        "parked_at": moment(each.at).isoformat(),
        "bytes": len(message.payload),
        "payload": _text(message.payload),
    }


def _text(payload: bytes) -> str:
    try:
        text = payload.decode()
    except UnicodeDecodeError:
        return payload.hex()
    return text if all(char.isprintable() or char in "\n\t" for char in text) else payload.hex()


def _cut(text: str) -> str:
    from tailrace.cli.show import printable

    return printable(text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "…")
