"""Acquaintances: under whose name each node was let in. A token is for one peer, not for all of them."""

from __future__ import annotations

import json
import os
import threading
from typing import Final

from tailrace.errors import Place, TailraceError
from tailrace.limits import MIB
from tailrace.log.disk import Disk, disk_errors

NAME: Final = "peers.json"
_KNOWN_MAX: Final = 100_000


class Acquaintances:
    """The first name under which a node comes is its name, for good."""

    def __init__(self, directory: str) -> None:
        self._path = os.path.join(directory, NAME)
        self._lock = threading.Lock()
        self._names = self._read()

    def check(self, node: int, name: str) -> None:
        """Refuse one that speaks for a node which came under another name."""
        with self._lock:
            known = self._names.get(str(node))
            if known == name:
                return
            if known is not None or len(self._names) >= _KNOWN_MAX:
                what = f"{name} speaks for node {node}, which came under another name, or too many have come"
                hint = f"give each peer a token of its own; after a change of names remove the entry in {NAME}"
                raise TailraceError("relay.no_rights", what, hint=hint)
            self._names[str(node)] = name
            with disk_errors("keeping the names of peers", self._path):
                Disk().replace_file(self._path, json.dumps(self._names).encode())

    def _read(self) -> dict[str, str]:
        with disk_errors("reading the names of peers", self._path):
            try:
                with open(self._path, "rb") as stream:
                    said = json.loads(stream.read(64 * MIB))
                return {str(node): str(name) for node, name in said.items()}
            except FileNotFoundError:
                return {}
            except (ValueError, AttributeError) as error:
                what = f"the names of peers cannot be read: {error}"
                raise TailraceError("log.corrupt", what, place=Place(self._path), hint="mend the file") from error
