"""Acquaintances: under whose name each node or pipeline was let in. A token is for one peer, not for all of them."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Collection
from typing import Final

from tailrace.errors import Place, TailraceError
from tailrace.limits import MIB, NODES_PER_TOKEN_MAX
from tailrace.log.disk import Disk, disk_errors

NAME: Final = "peers.json"
READERS: Final = "readers.json"
"""The pipelines that read a node."""
_KNOWN_MAX: Final = 100_000


class Acquaintances:
    """The first name under which somebody comes is its name, for good or until it is forgotten."""

    def __init__(
        self,
        directory: str,
        file: str = NAME,
        *,
        each_max: int = NODES_PER_TOKEN_MAX,
        is_held: Callable[[str], bool] = lambda _: True,
    ) -> None:
        """`each_max` may have one name; `is_held` says whether the log is kept for somebody."""
        self._path = os.path.join(directory, file)
        self._each_max = each_max
        self._is_held = is_held
        self._lock = threading.Lock()
        self._names = self._read()

    def check(self, who: str | int, name: str) -> None:
        """Refuse one that speaks for somebody who came under another name, or for too many."""
        with self._lock:
            known = self._names.get(str(who))
            if known == name:
                return
            if known is not None:
                raise self._refused(f"{name} speaks for {who}, which came under another name")
            self._make_room(name)
            self._names[str(who)] = name
            self._keep()

    def forget(self, who: str | int) -> None:
        """Somebody will not come back; another may have the name."""
        with self._lock:
            if self._names.pop(str(who), None) is not None:
                self._keep()

    def forget_all_but(self, held: Collection[str]) -> None:
        """Those for whom nothing is kept may come under other names."""
        with self._lock:
            gone = [who for who in self._names if who not in held]
            for who in gone:
                del self._names[who]
            if gone:
                self._keep()

    def _make_room(self, name: str) -> None:
        """Those for whom nothing is kept any more go first."""
        for limit, known in (
            (self._each_max, [who for who, whose in self._names.items() if whose == name]),
            (_KNOWN_MAX, list(self._names)),
        ):
            if len(known) < limit:
                continue
            gone = [who for who in known if not self._is_held(who)]
            for who in gone:
                self._names.pop(who, None)
            if len(known) - len(gone) >= limit:
                what = f"{name} speaks for {len(known)} already, so many may have one token"
                raise TailraceError("relay.busy", what, hint="give others a token of their own")

    def _refused(self, what: str) -> TailraceError:
        file = os.path.basename(self._path)
        hint = f"give each peer a token of its own; after a change of names remove the entry in {file}"
        return TailraceError("relay.no_rights", what, hint=hint)

    def _keep(self) -> None:
        with disk_errors("keeping the names of peers", self._path):
            Disk().replace_file(self._path, json.dumps(self._names).encode())

    def _read(self) -> dict[str, str]:
        with disk_errors("reading the names of peers", self._path):
            try:
                with open(self._path, "rb") as stream:
                    said = json.loads(stream.read(64 * MIB))
                return {str(who): str(name) for who, name in said.items()}
            except FileNotFoundError:
                return {}
            except (ValueError, AttributeError) as error:
                what = f"the names of peers cannot be read: {error}"
                raise TailraceError("log.corrupt", what, place=Place(self._path), hint="mend the file") from error
