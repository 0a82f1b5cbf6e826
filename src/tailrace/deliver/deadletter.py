"""Dead letters: messages that a writer could not write, kept in the log itself, with the reason."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from tailrace.message import Message, Op, now
from tailrace.namespace import RESERVED

if TYPE_CHECKING:
    from tailrace.spark.tasks import Receipt


def dead_letter_namespace(writer: str) -> str:
    """Where the dead letters of a writer are: `tailrace log show --namespace` finds them."""
    return f"{RESERVED}dead.{writer}"


def dead_letters(writer: str, refused: Sequence[Receipt]) -> Iterator[Message]:
    """Refused messages as messages of the log."""
    at = now()
    for told in refused:
        message = told["message"]
        letter = {
            "offset": told["offset"],
            "namespace": message.get("namespace"),
            "op": message.get("op"),
            "code": told["error"]["code"],
            "error": told["error"]["what"],
            "data": message.get("data"),
            "before": message.get("before"),
        }
        yield Message(Op.COMMAND, at, dead_letter_namespace(writer), letter)
