"""Standard output that says so when it cannot be written: such an error names no file, and could be of any."""

from __future__ import annotations

import io
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import Buffer

from tailrace.errors import TailraceError


class OutputRefused(OSError):
    """What was to be printed was not taken, as by a disk that is full."""

    def told(self) -> TailraceError:
        what = f"the output cannot be written: {self.strerror}"
        return TailraceError("output.refused", what, hint="look at where it goes, then run the command again")


class _Output(io.FileIO):
    """The file that standard output is. That nobody reads it any more is no refusal."""

    def write(self, data: Buffer, /) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise OutputRefused(error.errno, error.strerror) from error


def watch_output() -> None:
    """From now on printing raises `OutputRefused`, at the latest with `finish_output`."""
    stream = sys.stdout
    if type(stream) is not io.TextIOWrapper:  # somebody has put something else there, or nothing
        return
    stream.flush()
    raw = _Output(stream.fileno(), "w", closefd=False)
    sys.stdout = io.TextIOWrapper(
        raw if stream.write_through else io.BufferedWriter(raw),
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )


def finish_output() -> None:
    """Everything that was printed is written, or it raises. Python would tell it later, in its own words."""
    if sys.stdout is not None and not sys.stdout.closed:
        sys.stdout.flush()


def drop_output() -> None:
    """What was refused is not tried again when the process ends."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
