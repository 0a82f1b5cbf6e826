"""Continuous sync: all peers at once, each in its own time, and an eye on what changes here."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Final

from tailrace.errors import TailraceError
from tailrace.sync.address import PeerAddress
from tailrace.sync.client import SyncNode
from tailrace.sync.failing import unexpected
from tailrace.sync.peerloop import PeerLoop, PeerStatus, Wait

LOOK_EVERY_S: Final = 0.15
_AGAIN_S: Final = 1.0


def _say_nothing(_status: PeerStatus) -> None:
    return


class Continuous:
    """`with Continuous(node, peers) as running`: rows are exchanged as they change, until the end of the block."""

    def __init__(
        self,
        node: SyncNode,
        peers: Sequence[PeerAddress],
        *,
        changed: Callable[[PeerStatus], None] = _say_nothing,
        wait: Wait = threading.Event.wait,
    ) -> None:
        """`changed` is told when something is new about a peer, by several threads."""
        self._node = node
        self._loops = [PeerLoop(node, address, changed, wait=wait) for address in peers]
        self._stopping = threading.Event()
        self._watcher = threading.Thread(target=self._watch, name="tailrace-sync-changes", daemon=True)
        self.error: TailraceError | None = None
        """Why changes of the own database wait: it cannot be looked at, or a hook fails."""

    def __enter__(self) -> Continuous:
        for loop in self._loops:
            loop.start()
        self._watcher.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        for loop in self._loops:
            loop.ask_to_stop()
        self._watcher.join()
        for loop in self._loops:
            loop.join()

    def status(self) -> list[PeerStatus]:
        return [loop.status for loop in self._loops]

    def _watch(self) -> None:
        """Whoever writes to the database, be it another program, it is noticed within a moment."""
        pause_s = LOOK_EVERY_S
        while not self._stopping.wait(pause_s):
            try:
                has_changed = self._node.store.process_changes()
                for loop in self._loops:
                    loop.look(has_changed=has_changed)
                self.error, pause_s = next(iter(self._node.store.failing.errors()), None), LOOK_EVERY_S
            except Exception as error:  # noqa: BLE001  whatever it is, the thread goes on
                self.error, pause_s = unexpected(error), _AGAIN_S
