"""Other processes that work on a log, and tell what a crash may leave of it each time that changes."""

from __future__ import annotations

import contextlib
import ctypes
import os
import random
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, Final, Self

from tailrace.errors import TailraceError
from tailrace.log.commitlog import LogConfig
from tailrace.log.compaction import compact
from tailrace.log.reader import LogReader
from tailrace.log.retention import retain
from tailrace.log.watch import LOOK_EVERY_S, Watch
from tests.crash.ledger import Expected, Seen, seen_at
from tests.crash.recording import Deed, small_pieces
from tests.crash.workload import Work
from tests.forked import FORKED

DEADLINE_S: Final = 60.0
_SET_PTRACER: Final = 0x59616D61
_ANYBODY: Final = -1


class Child:
    """A process that runs a function with a connection to us. Leaving the context kills it if it is still there."""

    def __init__(self, function: Callable[..., None], *arguments: object) -> None:
        ours, theirs = FORKED.Pipe()
        self._connection: Connection[Any, Any] = ours
        self._process = FORKED.Process(target=_run, args=(theirs, function, arguments), daemon=True)
        self._process.start()
        theirs.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self._connection.close()
        self._process.close()

    @property
    def pid(self) -> int:
        pid = self._process.pid
        if pid is None:
            raise AssertionError("the child has no process")
        return pid

    def tell(self, word: object) -> None:
        self._connection.send(word)

    def hear(self) -> Any:
        """The next thing it says; None when it has ended."""
        if not self._connection.poll(DEADLINE_S):
            raise AssertionError(f"the child said nothing for {DEADLINE_S} seconds")
        return self.hear_in_time()

    def hear_in_time(self) -> Any:
        """Like `hear`, however long it takes."""
        try:
            return self._connection.recv()
        except (EOFError, ConnectionResetError):
            return None

    def rest(self) -> list[Any]:
        """All that it says until it ends."""
        words = []
        while (word := self.hear()) is not None:
            words.append(word)
        return words

    def kill(self) -> None:
        if self._process.is_alive():
            with contextlib.suppress(ProcessLookupError):  # it may end just now
                os.kill(self.pid, signal.SIGKILL)
        self._process.join(DEADLINE_S)

    def status(self) -> int | None:
        """How it ended: 0, or minus the signal that ended it."""
        self._process.join(DEADLINE_S)
        return self._process.exitcode


def _run(connection: Connection[Any, Any], function: Callable[..., None], arguments: Sequence[object]) -> None:
    with contextlib.suppress(BrokenPipeError):  # nobody listens any more
        function(connection, *arguments)


def let_trace() -> None:
    """Let a tracer that is not our parent attach, where the system is strict about that."""
    ctypes.CDLL(None).prctl(_SET_PTRACER, ctypes.c_ulong(_ANYBODY & (1 << 64) - 1))


def do_when_told(connection: Connection[Any, Any], directory: str, deeds: Sequence[Deed], config: LogConfig) -> None:
    """Say that we are here, wait for a word, then do everything. Says what a crash may leave, and which error came."""
    _do_when_told(connection, directory, deeds, config, _stop)


def do_again_when_told(
    connection: Connection[Any, Any], directory: str, deeds: Sequence[Deed], config: LogConfig
) -> None:
    """Like `do_when_told`, but what was refused is done once more."""
    _do_when_told(connection, directory, deeds, config, _do_again)


def _do_when_told(
    connection: Connection[Any, Any],
    directory: str,
    deeds: Sequence[Deed],
    config: LogConfig,
    on_error: Callable[[Work, Deed, Callable[[object], None]], bool],
) -> None:
    let_trace()
    connection.send("ready")
    connection.recv()
    work = Work(directory, connection.send, config=config)
    with small_pieces():
        for deed in deeds:
            try:
                work.do(deed.step)
            except TailraceError as error:
                connection.send(Refusal(deed.step.name, error.code))
                if not on_error(work, deed, connection.send):
                    break


@dataclass(frozen=True, slots=True)
class Refusal:
    """A step that failed."""

    step: str
    code: str


def _stop(work: Work, deed: Deed, say: Callable[[object], None]) -> bool:
    """Try to append, as somebody would who does not look at errors, then give up."""
    if work._log is not None:
        try:
            work.append(1)
        except TailraceError as error:
            say(Refusal("append after it", error.code))
        work.log.close()
    return False


def _do_again(work: Work, deed: Deed, say: Callable[[object], None]) -> bool:
    """A log that stopped is opened again; one that did not goes on."""
    if work._log is not None and work._log._failure is not None:
        work._log.close()
        work._log = None
    if work._log is None:
        work.open()
    else:
        work.take_stock()
    if deed.step.name not in ("open", "close"):
        work.do(deed.step)
    return True


def work_for_ever(
    connection: Connection[Any, Any], directory: str, expected: Expected, seed: int, config: LogConfig
) -> None:
    """Do one thing after the other until killed, saying what a kill may leave."""
    rng = random.Random(seed)
    work = Work(directory, connection.send, config=config, expected=expected)
    with small_pieces():
        work.open()
        work.register("one")
        while True:
            match rng.randint(0, 20):
                case 0:
                    work.commit("one", rng.randint(80, 100))
                    work.compact()
                case 1 | 2:
                    work.commit("one", rng.randint(80, 100))
                    work.retain()
                case 3:
                    work.roll()
                case 4:
                    work.reopen()
                case 5 | 6:
                    batch_id = f"batch{work.expected.next_number}"
                    work.stage(batch_id, tasks=2, rows=2)
                    work.publish(batch_id)
                case 7 | 8 | 9:
                    work.append_soon(groups=rng.randint(2, 5), rows=rng.randint(1, 3))
                case _:
                    work.append(rng.randint(1, 5), rng.choice([0, 0, 300, 1_500]))


def append_for_ever(connection: Connection[Any, Any], directory: str, seed: int, config: LogConfig) -> None:
    """Append and acknowledge, while others compact and remove."""
    rng = random.Random(seed)
    work = Work(directory, connection.send, config=config)
    with small_pieces():
        work.open()
        work.register("one")
        while True:
            work.append(rng.randint(1, 5), rng.choice([0, 0, 300, 1_500]))
            work.commit("one", rng.randint(50, 100))


def maintain_for_ever(connection: Connection[Any, Any], directory: str) -> None:
    """Compact and remove, again and again."""
    with small_pieces():
        while True:
            compact(directory)
            connection.send("compacted")
            retain(directory)
            connection.send("removed")


@dataclass(frozen=True, slots=True)
class Sight:
    """What a reader found between two offsets."""

    start: int
    end: int
    found: list[Seen]


def look_again_and_again(connection: Connection[Any, Any], directory: str) -> None:
    """Read all that is published, as soon as it is. Whom retention has overtaken goes on where the log now begins."""
    reader = LogReader(directory)
    start = reader.oldest
    with Watch(directory) as watch:
        while True:
            end = reader.next_offset
            try:
                found = [seen_at(entry.offset, entry.message) for entry in reader.entries(start, end)]
            except TailraceError as error:
                if error.code != "log.below_oldest":
                    raise
                start = reader.oldest
                continue
            if end > start:
                connection.send(Sight(start, end, found))
            else:
                watch.wait(LOOK_EVERY_S)
            start = end


def tail_for_ever(connection: Connection[Any, Any], directory: str) -> None:
    """The same by the reader's own way to wait for more."""
    reader = LogReader(directory)
    while True:
        try:
            for frame in reader.tail():
                found = [seen_at(entry.offset, entry.message) for entry in frame.entries()]
                connection.send(Sight(frame.head.offset, frame.head.end, found))
        except TailraceError as error:
            if error.code != "log.below_oldest":
                raise
