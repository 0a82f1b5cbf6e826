"""A subscription to another node: it says at once when it has something (server-sent events)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator

from tailrace.errors import TailraceError
from tailrace.limits import SYNC_EVENT_BYTES_MAX
from tailrace.sync.failing import unexpected
from tailrace.sync.httplink import HttpLink


class Subscription:
    """`with Subscription(link, node_id, wake)`: until the end of the block `wake` is called when there is something.
    With the block the link ends, too."""

    def __init__(self, link: HttpLink, node_id: int, wake: Callable[[], None]) -> None:
        self._link = link
        self._node_id = node_id
        self._wake = wake
        self.error: TailraceError | None = None
        """Why it has ended, once it has."""
        self._thread = threading.Thread(target=self._run, name=f"tailrace-sync-{link.address.name}", daemon=True)

    def __enter__(self) -> Subscription:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._link.cut()
        self._thread.join()

    def _run(self) -> None:
        try:
            with self._link.listening("/replication/subscribe") as response:
                for event, said in events(response.iter_raw(), self._link):
                    self._hear(event, said)
            raise self._link.bad_answer("ended the subscription")
        except Exception as error:  # noqa: BLE001  whatever it is, the peer's own thread is told
            self.error = unexpected(error)
        finally:
            self._wake()

    def _hear(self, event: str, said: str) -> None:
        if event == "INIT" and said != str(self._node_id):
            raise self._link.bad_answer(f"is node {said[:20]} by now, and was {self._node_id}")
        if event == "INVALIDATE" and said:
            self._wake()


def events(parts: Iterable[bytes], link: HttpLink) -> Iterator[tuple[str, str]]:
    """The events in a stream, each with its data."""
    event, said, size = "", [], 0
    for line in _lines(parts, link):
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        size += len(line) + 1
        if size > SYNC_EVENT_BYTES_MAX:
            raise _too_long(link)
        if name == "event":
            event = value
        elif name == "data":
            said.append(value)
        elif not line:
            if event or said:
                yield event, "\n".join(said)
            event, said, size = "", [], 0


def _lines(parts: Iterable[bytes], link: HttpLink) -> Iterator[str]:
    rest = bytearray()
    for part in parts:
        *whole, last = part.split(b"\n")
        for line in whole:
            yield (rest + line).removesuffix(b"\r").decode(errors="replace")
            rest.clear()
        rest += last
        if len(rest) > SYNC_EVENT_BYTES_MAX:
            raise _too_long(link)


def _too_long(link: HttpLink) -> TailraceError:
    return link.bad_answer(f"told an event of more than {SYNC_EVENT_BYTES_MAX} bytes")
