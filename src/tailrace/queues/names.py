"""The names of queues and tags, as they stand in the log."""

from __future__ import annotations

import re
from typing import Final

from tailrace.errors import TailraceError
from tailrace.namespace import RESERVED

LOG_ENTRIES: Final = "LRQ_Send_LogEntries"
"""The queue of all entries that are to be sent."""
SNAPSHOTS: Final = "LRQ_Send_SnapSync"
"""The queue of all snapshots that are to be sent."""
_RECEIVED: Final = "LRQ_Recv_"
_ENTRY_TAG: Final = "lrq_logentry_"
_SNAPSHOT_TAG: Final = "lrq_snapsync_"
_CLIENT_TAG: Final = "lrq_client_"
_NAME: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,58}[A-Za-z0-9])?")


def check_site(name: str) -> str:
    """Refuse what cannot be the name of a site."""
    return _checked(name, "site")


def check_client(name: str) -> str:
    """Refuse what cannot be the name of a client."""
    return _checked(name, "client")


def check_listener(name: str) -> str:
    """Refuse what cannot be the name of a listener."""
    return _checked(name, "listener")


def entry_tag(site: str) -> str:
    """What entries for a site are tagged with."""
    return _ENTRY_TAG + site


def snapshot_tag(site: str) -> str:
    """What snapshots for a site are tagged with."""
    return _SNAPSHOT_TAG + site


def client_tag(client: str) -> str:
    """What all messages of a client are tagged with besides, so that others need not decode them."""
    return _CLIENT_TAG + client


def sites_of(tags: tuple[str, ...]) -> list[str]:
    """The sites for which something with these tags is."""
    return [
        tag.removeprefix(prefix) for prefix in (_ENTRY_TAG, _SNAPSHOT_TAG) for tag in tags if tag.startswith(prefix)
    ]


def receive_queue(client: str, source: str) -> str:
    """The queue of what has come for a client from a site. An underscore in the client's name is doubled, so that it is
    always known where that ends."""
    return f"{_RECEIVED}{client.replace('_', '__')}_{source}"


def parse_receive_queue(namespace: str) -> tuple[str, str] | None:
    """The client and the source of such a queue; None for all other namespaces."""
    if not namespace.startswith(_RECEIVED):
        return None
    client, is_separated, source = _split(namespace.removeprefix(_RECEIVED))
    return (client, source) if is_separated and client and source else None


def progress_namespace(client: str, source: str) -> str:
    """Where a sink notes how far it has come with a source, in the same groups as what has come."""
    return f"{RESERVED}queue.{receive_queue(client, source)}"


def _split(text: str) -> tuple[str, bool, str]:
    found = re.match(r"((?:[^_]|__)*)_(?!_)(.*)\Z", text, re.DOTALL)
    if found is None:
        return "", False, ""
    return found[1].replace("__", "_"), True, found[2]


def _checked(name: str, what: str) -> str:
    if _NAME.fullmatch(name) is None:
        problem = f"{name[:80]!r} is no name of a {what}"
        hint = "letters, digits, and _ . - between them, at most 60"
        raise TailraceError("name.invalid", problem, hint=hint)
    return name
