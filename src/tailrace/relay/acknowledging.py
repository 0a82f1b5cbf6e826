"""Acknowledging: a source hears what this node has of what it sent, in a thread of its own.

Soon after there is news, and regularly when there is none: a node that is busy with a large transaction is not gone.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Self

from tailrace.errors import TailraceError
from tailrace.relay.refusal import unexpected

if TYPE_CHECKING:
    from tailrace.relay.vclock import Vclock

_GATHER_S: Final = 0.05
"""While much comes it is acknowledged so often."""


class Acknowledging:
    """`with Acknowledging(send, vclock, every_s, failed) as acks`; `failed` is called when the source refuses one."""

    def __init__(
        self, send: Callable[[Vclock], object], vclock: Vclock, every_s: float, failed: Callable[[], None]
    ) -> None:
        self.failure: TailraceError | None = None
        """Why nothing is acknowledged any more."""
        self._send = send
        self._vclock = vclock
        self._every_s = every_s
        self._failed = failed
        self._news = threading.Event()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tailrace-acks", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._news.set()
        self._thread.join()

    def has(self, vclock: Vclock) -> None:
        """The node has this, durably, at the end of a transaction."""
        self._vclock = vclock
        self._news.set()

    def _run(self) -> None:
        while not self._is_over.wait(_GATHER_S):
            self._news.wait(self._every_s)
            self._news.clear()
            if self._is_over.is_set():
                return
            try:
                self._send(self._vclock)
            except Exception as error:  # noqa: BLE001  a thread that ends without a word would be taken for one that works
                self.failure = error if isinstance(error, TailraceError) else unexpected(error)
                self._failed()
                return
