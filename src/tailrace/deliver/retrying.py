"""Retrying: an operator wants a writer that has stopped to go on. Asked by a file beside its offsets, so that it is not
lost while nobody runs the pipeline; whoever runs it looks there."""

from __future__ import annotations

from typing import Final

from tailrace.log import audit
from tailrace.log.disk import Disk
from tailrace.log.note import ConsumerNote

NAME: Final = "retry"


class Retrying:
    """The wish for one writer."""

    def __init__(self, log: str, writer: str) -> None:
        self._log = log
        self._writer = writer
        self._note = ConsumerNote(log, writer, NAME)

    def ask(self, reason: str, via: str | None = None) -> None:
        """Written to the audit trail first, so that nothing happens unseen. `via` says whence it was asked."""
        audit.record(Disk(), self._log, "retry", self._writer, reason=reason, **audit.whence(via))
        self._note.write(b"1")

    def take(self) -> bool:
        """Whether somebody has asked; that is over then."""
        if self._note.read() is None:
            return False
        self._note.clear()
        return True
