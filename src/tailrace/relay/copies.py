"""Copies for pipelines: a plan that is kept, and a view of the store from which its chunks are read.

Chunks are ranges of keys, of which every row has one, whenever it is read. So a view that is lost, in a restart or
because nobody asked for long, is replaced by one of that moment: the pipeline follows from the oldest view on.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import threading
import time
from collections.abc import Collection, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

from tailrace.errors import TailraceError
from tailrace.limits import COPIES_MAX, COPIES_PER_READER_MAX, COPIES_PER_TOKEN_MAX
from tailrace.log.disk import Disk, disk_errors
from tailrace.relay.inquiry import Copy
from tailrace.relay.join import KEEP_S, frames_of, join_lost, pieces_of, rows_of
from tailrace.relay.refusal import malformed
from tailrace.relay.room import Room

if TYPE_CHECKING:
    from tailrace.node.store import Store, View
    from tailrace.relay.outgoing import Frame
    from tailrace.relay.vclock import Vclock

_PLAN: Final = "plan.json"
_VIEW: Final = "view"


@dataclass(slots=True)
class _Copy:
    """One copy for one pipeline."""

    name: str
    consumer: str
    pieces: list[tuple[str, Any]]
    view: View | None = None
    seen_s: float = field(default_factory=time.monotonic)
    turn: threading.Lock = field(default_factory=threading.Lock)
    caller: str = ""
    """Whose token asked for it."""

    def drop_view(self) -> None:
        view, self.view = self.view, None
        if view is not None:
            view.close()


class Copies:
    """The copies that pipelines take of one node's store, each in a directory of its own."""

    def __init__(self, store: Store, directory: str) -> None:
        self._store = store
        self._directory = directory
        self._lock = threading.Lock()
        self._room = Room("copies", each_max=COPIES_PER_TOKEN_MAX, all_max=COPIES_MAX)
        os.makedirs(directory, exist_ok=True)
        self._copies = {found.name: found for name in os.listdir(directory) if (found := self._known(name))}
        for copy in self._copies.values():
            self._room.take(copy.caller, is_known=True)

    def begin(self, consumer: str, caller: str = "") -> Copy:
        """Take a view, and say in which chunks its rows come. What a pipeline asked for before goes on, unless it is
        too much: then what it has not looked at for longest ends."""
        self._end_oldest(consumer)
        self._room.take(caller)
        try:
            copy = self._taken(consumer, caller)
        except BaseException:
            self._room.leave(caller)
            raise
        with self._lock:
            self._copies[copy.name] = copy
        return Copy(session=copy.name, tables=_spans(copy.pieces))

    def _taken(self, consumer: str, caller: str) -> _Copy:
        name = secrets.token_hex(8)
        directory = os.path.join(self._directory, name)
        os.makedirs(directory)
        with ExitStack() as opening:
            opening.callback(shutil.rmtree, directory, ignore_errors=True)
            view = self._take_view(name)
            opening.callback(view.close)
            copy = _Copy(name, consumer, pieces_of(self._store, view), view, caller=caller)
            path = os.path.join(directory, _PLAN)
            told = {"consumer": consumer, "pieces": copy.pieces, "caller": caller}
            with disk_errors("keeping the plan of a copy", path):
                Disk().replace_file(path, json.dumps(told).encode())
            opening.pop_all()
        return copy

    def _end_oldest(self, consumer: str) -> None:
        with self._lock:
            own = [copy for copy in self._copies.values() if copy.consumer == consumer]
        own.sort(key=lambda copy: copy.seen_s)
        self._end([copy.name for copy in own[: max(0, len(own) - COPIES_PER_READER_MAX + 1)]])

    def has(self, name: str) -> bool:
        return name in self._copies

    def chunk(self, name: str, number: int) -> Iterator[list[Frame]]:
        """The rows of one chunk."""
        copy = self._copies.get(name)
        if copy is None:
            raise join_lost()
        if not 0 <= number < len(copy.pieces):
            raise malformed(f"there is no chunk {number}, only {len(copy.pieces)}")
        with copy.turn:
            copy.seen_s = time.monotonic()
            if copy.view is None:
                copy.view = self._take_view(name)
            view = copy.view
        try:
            for frame in frames_of(rows_of(view, *copy.pieces[number])):
                copy.seen_s = time.monotonic()
                yield [frame]
        except TailraceError as error:
            if error.code == "relay.join_lost":  # who asks again gets a view of that moment
                copy.drop_view()
            raise

    def close(self) -> None:
        """Plans stay for the next process."""
        for copy in list(self._copies.values()):
            copy.drop_view()

    def consumer_of(self, name: str) -> str:
        copy = self._copies.get(name)
        return "" if copy is None else copy.consumer

    def views_of(self, consumer: str) -> list[Vclock]:
        """The clocks of the views from which a pipeline copies now."""
        with self._lock:
            views = [copy.view for copy in self._copies.values() if copy.consumer == consumer]
        return [view.vclock for view in views if view is not None]

    def end(self, consumer: str) -> None:
        """A pipeline has copied everything."""
        with self._lock:
            names = [name for name, copy in self._copies.items() if copy.consumer == consumer]
        self._end(names)

    def _end(self, names: Collection[str]) -> None:
        with self._lock:
            ended = [self._copies.pop(name) for name in names if name in self._copies]
        for copy in ended:
            copy.drop_view()
            self._room.leave(copy.caller)
            shutil.rmtree(os.path.join(self._directory, copy.name), ignore_errors=True)

    def forget_old(self, held: Collection[str]) -> None:
        """Views that nobody looked through for long go; plans, when the log is not kept for their pipeline any more."""
        with self._lock:
            copies = list(self._copies.values())
        for copy in copies:
            if copy.consumer not in held:
                self.end(copy.consumer)
            elif copy.view is not None and time.monotonic() - copy.seen_s > KEEP_S:
                copy.drop_view()
                shutil.rmtree(os.path.join(self._directory, copy.name, _VIEW), ignore_errors=True)

    def _take_view(self, name: str) -> View:
        directory = os.path.join(self._directory, name, _VIEW)
        shutil.rmtree(directory, ignore_errors=True)
        os.makedirs(directory)
        return self._store.view(directory)

    def _known(self, name: str) -> _Copy | None:
        """A copy of an earlier process; what is none goes."""
        path = os.path.join(self._directory, name)
        with suppress(OSError, ValueError, KeyError, TypeError):
            with open(os.path.join(path, _PLAN), encoding="utf-8") as stream:
                told = json.load(stream)
            shutil.rmtree(os.path.join(path, _VIEW), ignore_errors=True)
            pieces = [(namespace, piece) for namespace, piece in told["pieces"]]
            return _Copy(name, told["consumer"], pieces, caller=told.get("caller", ""))
        shutil.rmtree(path, ignore_errors=True)
        return None


def _spans(pieces: list[tuple[str, Any]]) -> dict[str, tuple[int, int]]:
    numbered = groupby(enumerate(pieces), key=lambda each: each[1][0])
    spans: dict[str, tuple[int, int]] = {}
    for namespace, run in numbered:
        numbers = [number for number, _ in run]
        spans[namespace] = (numbers[0], numbers[-1] + 1)
    return spans
