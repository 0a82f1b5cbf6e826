"""Wishes: snapshots that an operator wants, left in a directory until the site takes them up. Nothing is lost while the
site does not run; only those can leave one who run it."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final

from tailrace.log.disk import Disk, disk_errors
from tailrace.queues.names import check_client, check_site

_DIRECTORY: Final = "wishes"
_SUFFIX: Final = ".json"


def leave(data: str, client: str, site: str) -> None:
    """Ask for a new snapshot of a client's data for a site."""
    directory = os.path.join(data, _DIRECTORY)
    path = os.path.join(directory, f"{secrets.token_hex(8)}{_SUFFIX}")
    with disk_errors("leaving a wish for a site", path):
        os.makedirs(directory, exist_ok=True)
        Disk().replace_file(path, json.dumps([check_client(client), check_site(site)]).encode())


def taken(data: str) -> Iterator[tuple[str, str]]:
    """What was asked for. Each is forgotten when the next one is taken, after whoever took it has kept it."""
    directory = os.path.join(data, _DIRECTORY)
    with suppress(FileNotFoundError):
        for name in sorted(each for each in os.listdir(directory) if each.endswith(_SUFFIX)):
            path = os.path.join(directory, name)
            with open(path, encoding="utf-8") as stream:
                client, site = _read(stream.read())
            yield client, site
            os.remove(path)


def _read(text: str) -> tuple[str, str]:
    found: Any = json.loads(text)
    client, site = found
    return str(client), str(site)
