"""A subscription to another node: it says at once when it has something (server-sent events)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Final

from tailrace.errors import TailraceError
from tailrace.sync.httplink import HttpLink

_LINE_BYTES_MAX: Final = 1 << 20


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
        except TailraceError as error:
            self.error = error
        finally:
            self._wake()

    def _hear(self, event: str, said: str) -> None:
        if event == "INIT" and said != str(self._node_id):
            raise self._link.bad_answer(f"is node {said[:20]} by now, and was {self._node_id}")
        if event == "INVALIDATE" and said:
            self._wake()


def events(parts: Iterator[bytes], link: HttpLink) -> Iterator[tuple[str, str]]:
    """The events in a stream, each with its data."""
    event, said = "", []
    for line in _lines(parts, link):
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "event":
            event = value
        elif name == "data":
            said.append(value)
        elif not line:
            if event or said:
                yield event, "\n".join(said)
            event, said = "", []


def _lines(parts: Iterator[bytes], link: HttpLink) -> Iterator[str]:
    rest = b""
    for part in parts:
        *whole, rest = (rest + part).replace(b"\r\n", b"\n").split(b"\n")
        if len(rest) > _LINE_BYTES_MAX:
            raise link.bad_answer(f"told an event of more than {_LINE_BYTES_MAX} bytes")
        for line in whole:
            yield line.decode(errors="replace")
