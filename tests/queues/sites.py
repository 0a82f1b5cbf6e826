"""Sites in this process, each behind a server of its own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from pydantic import SecretStr

from tailrace.log.reader import LogReader
from tailrace.log.selection import Selection, exactly
from tailrace.queues.entries import Kind, Outgoing, Received, received_messages
from tailrace.queues.form import ClientForm, DestinationForm, QueuesForm
from tailrace.queues.guest import QueueGuest
from tailrace.queues.names import receive_queue
from tailrace.queues.site import Site
from tailrace.topology.serving import GuestServer
from tests.relay.nodes import wait_for

TOKEN = "queue-test-token"


def received_in(log: str, source: str, client: str) -> list[Received]:
    """All messages of a receive queue that are in a log."""
    reader = LogReader(log)
    if not reader.next_offset:
        return []
    selection = Selection(namespace=exactly(receive_queue(client, source)))
    return [
        message
        for frame in reader.frames(None, None, selection)
        for message in received_messages(frame.head.offset, frame.rows())
    ]


class TestSite:
    """A site that can be ended and begun again in the same place, at the same port."""

    __test__ = False

    def __init__(self, directory: Path, name: str, port: int = 0, sources: Sequence[str] = ("plant",)) -> None:
        self.directory = directory / name
        self.name = name
        self.port = port
        self.said: list[str] = []
        self._tokens = {source: f"{TOKEN}-{source}" for source in sources}
        self.form = QueuesForm()

    def sends(self, clients: dict[str, dict[str, Any]], *, queues: Any = None, **destinations: int) -> Self:
        """To sites at these ports."""
        self.form = QueuesForm(
            **(queues or {}),
            clients={client: ClientForm(**said) for client, said in clients.items()},
            destinations={
                site: DestinationForm(address=f"127.0.0.1:{port}", token=SecretStr(f"{TOKEN}-{self.name}"))
                for site, port in destinations.items()
            },
        )
        return self

    def __enter__(self) -> Self:
        self.site = Site(self.form, self.name, str(self.directory), self.said.append)
        self.directory.mkdir(exist_ok=True, parents=True)
        self.site.__enter__()
        location = f"grpc://127.0.0.1:{self.port}"
        self.server = GuestServer([QueueGuest(self.site.sink)], location=location, tokens=self._tokens)
        self.port = self.server.port
        return self

    def __exit__(self, *_: object) -> None:
        self.server.stop()
        self.site.__exit__()

    def transmit(self, *payloads: str, to: Sequence[str], client: str = "inventory") -> None:
        """One transaction."""
        self.site.transmit([Outgoing(client, payload.encode(), tuple(to)) for payload in payloads])

    def messages(self, source: str = "plant", client: str = "inventory") -> list[Received]:
        """All that has ever come, as far as it is still in the log."""
        return received_in(self.site.directory, source, client)

    def payloads(self, source: str = "plant", client: str = "inventory") -> list[str]:
        return [
            message.payload.decode() if message.kind is not Kind.SNAPSHOT_END else "END"
            for message in self.messages(source, client)
        ]

    def gets(self, expected: Sequence[str], source: str = "plant", client: str = "inventory") -> None:
        """Waits until exactly that has come."""
        wait_for(lambda: len(self.payloads(source, client)) >= len(expected), 30)
        assert self.payloads(source, client) == list(expected)
