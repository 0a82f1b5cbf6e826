"""A replica at work: its copy is kept up, and served to those who copy it."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import Any, Final, Self

from tailrace.errors import TailraceError
from tailrace.log.consumers import Consumers
from tailrace.log.session import ConsumerSession
from tailrace.log.standing import standing_of
from tailrace.message import Offset, now
from tailrace.node.connecting import server_options, source_of
from tailrace.node.retaining import remove_unneeded
from tailrace.relay.holds import REPLICA, Holds
from tailrace.topology.copied import is_begun
from tailrace.topology.form import ReplicaForm
from tailrace.topology.pulling import Pulling
from tailrace.topology.replica import Replica, Settings
from tailrace.topology.serving import GuestServer, LogGuest

_TEND_S: Final = 1.0
_OWN: Final = "_copy"
"""The consumer that says up to where the copy itself is; with it retention knows what nobody needs."""


class ReplicaNode:
    """`with ReplicaNode(form, report) as node`: everything runs until the end of the block."""

    def __init__(self, form: ReplicaForm, report: Callable[[str], None]) -> None:
        self._form = form
        self._report = report
        self._stopping = threading.Event()
        self._closing = ExitStack()
        self._directory = os.path.join(form.data, "log")
        self._told = ""
        self._retained_s = time.monotonic()

    def __enter__(self) -> Self:
        form = self._form
        os.makedirs(form.data, exist_ok=True)
        with ExitStack() as opening:
            sources = [source_of(said) for said in form.replicate_from.sources]
            self.replica = Replica(self._directory, form.node, lambda: sources, _settings(form), self._tell_once)
            self._holds = Holds(Consumers(self._directory), form.hold)
            self.pulling = Pulling(
                self._directory,
                self._holds,
                fanout=lambda: form.fanout,
                beat_s=form.heartbeat,
                hold=None if form.retention is None else form.retention.hold(),
            )
            self.replica.floor = self._floor
            self._server = GuestServer([LogGuest(self.pulling)], **server_options(form.listen, form.tokens, form.tls))
            opening.callback(self._server.stop)
            self._run(self._tend, opening)
            self._run(self.replica.run, opening)
            opening.callback(self.replica.stop)
            self._closing = opening.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._closing.close()

    @property
    def port(self) -> int:
        return int(self._server.port)

    def status(self) -> dict[str, Any]:
        """Everything there is to know, as plain JSON."""
        progress = self.replica.progress
        heard_s = progress.heard_s
        return {
            "at_us": now(),
            "kind": "replica",
            "name": self._form.node,
            "port": self.port,
            "state": progress.state.value,
            "source": progress.source,
            "error": None if progress.error is None else progress.error.encode(),
            "generation": standing_of(self._directory).generation if os.path.isdir(self._directory) else None,
            "next_offset": progress.next_offset,
            "source_offset": progress.source_offset,
            "behind_bytes": progress.behind_bytes,
            "heard_s": None if heard_s is None else time.monotonic() - heard_s,
            "copied_bytes": progress.copied_bytes,
            "thrown_bytes": progress.thrown_bytes,
            "sent_bytes": self.pulling.sent_bytes,
            "copies": self.pulling.copies,
        }

    def _run(self, work: Callable[[], None], opening: ExitStack) -> None:
        worker = threading.Thread(target=work, name=f"tailrace-{work.__name__}", daemon=True)
        worker.start()
        opening.callback(worker.join)
        opening.callback(self._stopping.set)

    def _floor(self) -> Offset | None:
        """The lowest offset that copies of this copy need: what is above must hold for them, too, since they may come
        there when this replica is gone."""
        if not is_begun(self._directory):
            return None
        consumers = Consumers(self._directory)
        held = [each for each in consumers.all() if each.name.startswith(REPLICA) and each.holds]
        return min((Offset(consumers.position(each)) for each in held), default=None)

    def _tend(self) -> None:
        """Let go of what nobody needs any more."""
        while not self._stopping.wait(_TEND_S):
            if not is_begun(self._directory):
                continue
            try:
                self._holds.sweep()
                self._retain()
            except TailraceError as error:
                self._tell_once(f"nothing was removed from the log: {error}")

    def _retain(self) -> None:
        said = self._form.retention
        if said is None or time.monotonic() - self._retained_s < said.every:
            return
        self._retained_s = time.monotonic()
        consumers = Consumers(self._directory)
        consumers.register(_OWN, exist_ok=True)
        reached = self.replica.progress.next_offset
        with suppress(TailraceError), ConsumerSession(consumers, _OWN) as session:
            if reached > session.resume_offset:
                session.commit(reached - 1)
        remove_unneeded(self._directory, said, self._report)

    def _tell_once(self, text: str) -> None:
        if text != self._told:
            self._told = text
            self._report(text)


def _settings(form: ReplicaForm) -> Settings:
    said = form.replicate_from
    return Settings(
        beat_s=form.heartbeat,
        keep_s=said.keepalive,
        waits=said.blocking,
        poll_s=said.poll,
        max_rollback=said.max_rollback,
        alarm_after=said.alarm_after,
        may_recopy=said.resync,
    )
