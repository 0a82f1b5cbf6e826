"""Push: connected nodes are told at once of what there is for them.

A thread looks into the ChangeLog about every 100 ms, says in the trackers who gets what, and tells the channels. A node
is told of a table once, until it asks for something of it, or hears that there is nothing: then what comes afterwards
is worth telling again. So nothing is missed, also if another process works off the ChangeLog.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from typing import Final

from tailrace.errors import TailraceError
from tailrace.limits import SYNC_CHANNELS_MAX, SYNC_CHANNELS_PER_NODE_MAX
from tailrace.sync.auth import Gate
from tailrace.sync.failing import unexpected
from tailrace.sync.seen import Seen
from tailrace.sync.store import SyncStore

LOOK_S: Final = 0.1
SWEEP_S: Final = 2.0
"""How often nodes are told of what another process has found."""
HEARTBEAT_S: Final = 15.0
_AGAIN_S: Final = 2.0
_log: Final = logging.getLogger(__name__)


class Processing:
    """Works off the ChangeLog. Those who ask while somebody does wait for one more time, all of them for the same."""

    def __init__(self, store: SyncStore) -> None:
        self._store = store
        self._turn = threading.Lock()
        self._begun = self._done = 0
        self.found = 0
        """How often there was anything."""

    def catch_up(self) -> None:
        """All that was committed before is in the trackers."""
        wanted = self._begun + 1
        with self._turn:
            if self._done >= wanted:
                return  # somebody has begun after this was asked, and is done
            self._begun += 1
            if self._store.process_changes():
                self.found += 1
            self._done = self._begun


class Channel:
    """One connection of a node. All but `fresh` is for the loop's own thread."""

    def __init__(self, node: int, loop: asyncio.AbstractEventLoop) -> None:
        self.node = node
        self._loop = loop
        self._lock = threading.Lock()
        self._told: set[int] = set()
        self._waiting: list[int] = []
        self._news = asyncio.Event()
        self._is_closed = False

    def fresh(self, pending: Collection[int]) -> list[int]:
        """Of the tables that have something for the node those which it does not know of; from now on it does."""
        with self._lock:
            found = [table for table in pending if table not in self._told]
            self._told.update(found)
        return found

    def forget(self, table: int) -> None:
        """The node asks for what there is in a table."""
        with self._lock:
            self._told.discard(table)

    def keep(self, pending: Collection[int]) -> None:
        """The node hears which tables have something; it may ask in the midst of a round, and act on none of them. So
        those it was not told of are told even so, and those it does not want are not told again and again."""
        with self._lock:
            self._told.intersection_update(pending)

    def send(self, tables: Collection[int]) -> None:
        """From any thread."""
        self._loop.call_soon_threadsafe(self._put, list(tables))

    def close(self) -> None:
        """From any thread."""
        self._is_closed = True
        self._loop.call_soon_threadsafe(self._news.set)

    async def events(self, oneself: int, is_welcome: Callable[[], Awaitable[bool]]) -> AsyncIterator[str]:
        """What goes over the connection, as server-sent events."""
        yield f"event: INIT\ndata: {oneself}\n\n"
        while not self._is_closed:
            try:
                async with asyncio.timeout(HEARTBEAT_S):
                    await self._news.wait()
            except TimeoutError:
                if not await is_welcome():
                    return
                yield ": still here\n\n"
                continue
            self._news.clear()
            tables, self._waiting = self._waiting, []
            if tables:
                yield f"event: INVALIDATE\ndata: {','.join(map(str, tables))}\n\n"

    def _put(self, tables: list[int]) -> None:
        self._waiting += [table for table in tables if table not in self._waiting]
        self._news.set()


class Channels:
    """All nodes that are connected."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_node: dict[int, list[Channel]] = {}
        self._is_closed = False

    @contextmanager
    def open(self, node: int, loop: asyncio.AbstractEventLoop) -> Iterator[Channel]:
        channel = Channel(node, loop)
        with self._lock:
            mine = self._by_node.setdefault(node, [])
            if len(mine) >= SYNC_CHANNELS_PER_NODE_MAX or sum(map(len, self._by_node.values())) >= SYNC_CHANNELS_MAX:
                what = f"node {node} is connected {len(mine)} times, and too many are in all"
                raise TailraceError("sync.busy", what, hint="end connections that are not needed, then try again")
            mine.append(channel)
            if self._is_closed:
                channel.close()
        try:
            yield channel
        finally:
            with self._lock:
                mine.remove(channel)
                if not mine:
                    self._by_node.pop(node, None)

    def all(self) -> dict[int, list[Channel]]:
        with self._lock:
            return {node: list(channels) for node, channels in self._by_node.items() if channels}

    def forget(self, node: int, table: int) -> None:
        for channel in self.all().get(node, []):
            channel.forget(table)

    def keep(self, node: int, pending: Collection[int]) -> None:
        for channel in self.all().get(node, []):
            channel.keep(pending)

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
        for channels in self.all().values():
            for channel in channels:
                channel.close()


class Dispatcher:
    """The thread."""

    def __init__(self, store: SyncStore, processing: Processing, channels: Channels, gate: Gate) -> None:
        self._store = store
        self._processing = processing
        self._channels = channels
        self._seen = Seen(store, gate)
        self._stop = threading.Event()
        self._swept = time.monotonic()
        self._found = 0
        self._thread = threading.Thread(target=self._run, name="tailrace sync push", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()
        self._channels.close()

    def _run(self) -> None:
        failed = ""
        while not self._stop.wait(_AGAIN_S if failed else LOOK_S):
            try:
                self._look()
            except Exception as reason:  # noqa: BLE001  whatever it is, the thread goes on
                error = unexpected(reason)
                if error.code != failed:
                    _log.warning("changes are not told at the moment, it is tried again: %s", error)
                failed = error.code
            else:
                failed = ""
        with suppress(Exception):  # it is a pity, and no more
            self._seen.note(time.monotonic(), at_once=True)

    def _look(self) -> None:
        now = time.monotonic()
        self._processing.catch_up()
        found = self._processing.found
        if found != self._found or now - self._swept >= SWEEP_S:
            self._found, self._swept = found, now
            for node, channels in self._channels.all().items():
                pending = self._store.pending_tables(node)
                for channel in channels:
                    if tables := channel.fresh(pending):
                        channel.send(tables)
        self._seen.note(now)
