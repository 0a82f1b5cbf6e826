"""Backfill: a table that was ignored comes back into a replica's store, from the log.

Which of its messages still matter is found by Spark, in a process of its own; these are written after the rows that
were put aside.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing, suppress
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.deliver.messages import Messages, messages_of
from tailrace.errors import TailraceError
from tailrace.log.cursor import Cursor
from tailrace.log.selection import Selection, exactly
from tailrace.log.view import LogView
from tailrace.message import Offset
from tailrace.topology.thinning import Thinning

_ENDING_S: Final = 30.0


class Backfill:
    """Of one table. The process that looks for its messages runs from the beginning on."""

    def __init__(self, work: Thinning) -> None:
        """The directory `work.to` is made by Spark; what the process says goes beside it."""
        self.namespace = work.namespace
        self._work = work
        os.makedirs(os.path.dirname(work.to), exist_ok=True)
        shutil.rmtree(work.to, ignore_errors=True)
        self._said = f"{work.to}.said"
        with open(self._said, "wb") as said:
            command = [sys.executable, "-m", "tailrace.topology.thinning"]
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=said)
        stdin: Any = self._process.stdin
        with suppress(BrokenPipeError):
            stdin.write(work.encode().encode() + b"\n")
            stdin.flush()  # it stays open: when it is closed, by whatever ends this process, the other one ends

    @property
    def is_done(self) -> bool:
        return self._process.poll() is not None

    def chosen(self) -> pa.Array[Any]:
        """The offsets of the messages that matter; raises what the process has told."""
        if self._process.returncode:
            raise self._error()
        import pyarrow.parquet as pq

        found = pq.read_table(self._work.to).column("offset").combine_chunks()
        return found

    def stream(self, end: Offset, undone: Sequence[range]) -> Iterator[Messages]:
        """The messages to write, in log order: those that matter, and all that have come since they were looked for, up
        to an offset. What is `undone` by now has not happened."""
        chosen = self.chosen()
        work = self._work
        selection = Selection(namespace=exactly(work.namespace))
        with closing(Cursor(LogView(work.log), Offset(work.start), selection)) as cursor:
            for frame in cursor.advance(end):
                messages = messages_of(frame)
                offsets = messages.offsets()
                matters = pc.or_(
                    pc.is_in(offsets, value_set=chosen), pc.greater_equal(offsets, pa.scalar(work.end, pa.int64()))
                )
                wanted = messages.filter(matters)
                if len(wanted):
                    yield _happened(wanted, undone)

    def end(self) -> None:
        """Let go of everything."""
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(_ENDING_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        if self._process.stdin is not None:
            with suppress(BrokenPipeError):
                self._process.stdin.close()
        shutil.rmtree(self._work.to, ignore_errors=True)
        with suppress(FileNotFoundError):
            os.remove(self._said)

    def _error(self) -> TailraceError:
        with open(self._said, encoding="utf-8", errors="replace") as said:
            lines = said.read().strip().splitlines()
        with suppress(ValueError, KeyError, TypeError, IndexError):
            return TailraceError.decode(json.loads(lines[-1]))
        what = f"the messages of {self.namespace} were not looked through: {lines[-1] if lines else 'nothing was said'}"
        return TailraceError("spark.failed", what, hint="it is tried again; tailrace doctor looks for Java")


def _happened(messages: Messages, undone: Collection[range]) -> Messages:
    if not undone:
        return messages
    offsets: list[Any] = messages.offsets().to_pylist()
    return messages.filter(pa.array([not any(at in each for each in undone) for at in offsets], pa.bool_()))
