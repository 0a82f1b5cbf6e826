"""Which queues there are for a client: every source has one of its own, and a new one may appear at any time."""

from __future__ import annotations

import re
from typing import Final

from tailrace.log.view import LogView
from tailrace.namespace import check_file_name
from tailrace.queues.names import check_client, check_listener, parse_receive_queue, receive_queue

LISTENER: Final = "main"
"""What a listener is called unless somebody says otherwise."""
_CONSUMER: Final = "listener"


def client_queues(client: str) -> re.Pattern[str]:
    """A pattern that is found in the queues of a client, and in no other namespace."""
    beginning = receive_queue(check_client(client), "")
    return re.compile(rf"\A{re.escape(beginning)}(?!_)")


def sources(view: LogView, client: str) -> list[str]:
    """The sites of which the log has something for a client."""
    parsed = (parse_receive_queue(namespace) for namespace in view.last_offsets())
    return sorted(source for found, source in filter(None, parsed) if found == client)


def listener_consumer(client: str, listener: str) -> str:
    """The consumer under which a listener reads the log."""
    return check_file_name(f"{_CONSUMER}@{check_client(client)}@{check_listener(listener)}", "consumer")


def parse_listener(consumer: str) -> tuple[str, str] | None:
    """The client and the name of a listener; None for all other consumers."""
    what, _, rest = consumer.partition("@")
    client, _, listener = rest.partition("@")
    return (client, listener) if what == _CONSUMER and client and listener else None
