"""Messages applied in transactions of the application's own, each together with the note that it was applied."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from tailrace.queues.answers import Ack, Answer, Retry, check_answer
from tailrace.queues.desk import Patience, Place
from tailrace.queues.incoming import Incoming
from tailrace.queues.ledger import Ledger
from tailrace.queues.listener import describe

Connection = TypeVar("Connection")
OnError = Callable[[str, Exception], None]


class _TakenBack(Exception):
    """A handler does not want its transaction committed."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer


class Transacting(Generic[Connection]):
    """One application's connection, made anew whenever something was wrong with it."""

    def __init__(
        self,
        connect: Callable[[], Connection],
        handler: Callable[[Connection, str, Incoming], Answer],
        open_ledger: Callable[[Connection], Ledger],
        patience: Patience,
        on_error: OnError | None,
    ) -> None:
        self._connect = connect
        self._handler = handler
        self._open_ledger = open_ledger
        self._patience = patience
        self._on_error = on_error
        self._open: tuple[Connection, Ledger] | None = None

    def places(self) -> dict[str, Place]:
        """How far the application is. It must be connected."""
        return self._opened()[1].places()

    def is_connected(self, stopping: threading.Event) -> bool:
        """Connect if need be, however long it takes; False when somebody said stop."""
        failures = 0
        while self._open is None and not stopping.is_set():
            connection: Any = None
            try:
                connection = self._connect()
                self._open = (connection, self._open_ledger(connection))
            except Exception as error:  # noqa: BLE001  whatever a database raises
                _close(connection)
                failures += 1
                self._tell("", error)
                stopping.wait(self._patience.wait_after_s(failures))
        return self._open is not None

    def apply(self, message: Incoming) -> Answer:
        """Give a message to the handler. After `Ack` it is applied, and it never will be again."""
        connection, ledger = self._opened()
        try:
            with ledger.transaction():
                if not ledger.enter(message):
                    return Ack()
                answer = check_answer(self._handler(connection, message.source, message))
                if not isinstance(answer, Ack):
                    raise _TakenBack(answer)
        except _TakenBack as taken_back:
            return taken_back.answer
        except Exception as error:  # noqa: BLE001  whatever an application or its database raises
            self.close()
            self._tell(message.source, error)
            return Retry(reason=describe(error))
        return answer

    def close(self) -> None:
        if self._open is not None:
            _close(self._open[0])
            self._open = None

    def _opened(self) -> tuple[Connection, Ledger]:
        if self._open is None:
            raise AssertionError("it is not connected")
        return self._open

    def _tell(self, source: str, error: Exception) -> None:
        if self._on_error is not None:
            self._on_error(source, error)


def _close(connection: Any) -> None:
    if connection is not None:
        with contextlib.suppress(Exception):  # it may be broken already
            connection.close()
