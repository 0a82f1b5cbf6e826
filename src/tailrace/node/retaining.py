"""A node's log is let go of as soon as nobody needs it: no peer, and not the node itself after a restart.

The consumer `_clock` holds what the node's clock file does not say yet, `_capture` the last bookmark of its store, and
`_store` what the store does not have. So nothing of that is lost, whoever removes messages (I6).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

from tailrace.errors import TailraceError
from tailrace.log.consumers import Consumers
from tailrace.log.retention import Keep, retain
from tailrace.log.session import ConsumerSession
from tailrace.relay.keeping import peer_of, registered
from tailrace.source.bookmark import BookmarkHold
from tailrace.topology.knobs import Knobs
from tailrace.units import show_bytes

if TYPE_CHECKING:
    from tailrace.node.form import RetentionForm
    from tailrace.relay.journal import Journal

CLOCK: Final = "_clock"
_EVERY: Final = "physrep_check_minlog_freq_sec"
EVERY_S: Final = 60.0
"""How often the clock is kept when nothing is to be removed; an operator may do so by hand."""


def remove_unneeded(directory: str, said: RetentionForm, report: Callable[[str], None]) -> None:
    """Remove what nobody needs, and tell who held too much."""
    done = retain(directory, keep=Keep(said.keep_bytes, said.keep_age))
    for name, why in done.invalidated.items():
        peer = peer_of(name)
        who = f"consumer {name}" if peer is None else f"peer {peer}"
        report(f"ALARM: the log is not kept any more for {who}, which needs a new snapshot: {why}")
    if done.removed:
        first, last = done.removed[0].base, done.removed[-1].end - 1
        report(f"removed offsets {first} to {last} from the log, {show_bytes(done.freed_bytes)}")


class Retaining:
    """Of one node, from its start to `close`."""

    def __init__(
        self,
        journal: Journal,
        said: RetentionForm | None,
        report: Callable[[str], None],
        *,
        has_store: bool,
        knobs: Knobs | None = None,
    ) -> None:
        """`knobs` says how often it is looked at what can be removed; `said` does, without."""
        self._journal = journal
        self._said = said
        self._report = report
        self._knobs = knobs or Knobs({} if said is None else {_EVERY: said.every})
        self._told = ""
        directory = journal.log.directory
        consumers = Consumers(directory)
        with ExitStack() as opening:
            consumers.register(CLOCK, exist_ok=True)
            self._clock = opening.enter_context(ConsumerSession(consumers, CLOCK))
            self._bookmark = BookmarkHold(directory) if has_store else None
            if self._bookmark is not None:
                opening.callback(self._bookmark.close)
            if said is not None:
                for found in registered(consumers).values():
                    consumers.agree_on_hold(found.name, said.hold())
            self._closing = opening.pop_all()

    def close(self) -> None:
        """What is known is kept, so that the next start need not look for it."""
        try:
            self._renew()
        finally:
            self._closing.close()

    def run(self, stopping: threading.Event) -> None:
        """Look at it again and again until the node ends; what fails is told and tried again."""
        while not self._wait(stopping):
            try:
                self.turn()
                self._told = ""
            except TailraceError as error:
                if str(error) != self._told:
                    self._told = str(error)
                    self._report(f"nothing was removed from the log: {error}")

    def turn(self) -> None:
        """Keep what must be known, and remove what nobody needs."""
        self._renew()
        if self._said is None:
            return
        remove_unneeded(self._journal.log.directory, self._said, self._report)

    def _wait(self, stopping: threading.Event) -> bool:
        return stopping.wait(EVERY_S) if self._said is None else self._knobs.pause(_EVERY, stopping)

    def _renew(self) -> None:
        end = self._journal.remember()
        if end > 0:
            self._clock.commit(end - 1)
            self._clock.flush()
        if self._bookmark is not None:
            self._bookmark.renew()
