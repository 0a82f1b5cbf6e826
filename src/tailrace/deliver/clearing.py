"""Clearing: a table that was emptied in its source is emptied in the destination, too.

The log says so with a command. Everything before it is written first; what comes after it, afterwards. A destination
that only ever grows keeps what it has, and so does a table that several namespaces share: that is told.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tailrace.deliver.contract import Clearing, ClearingFrames
from tailrace.deliver.task import open_writer
from tailrace.message import Offset, Op

if TYPE_CHECKING:
    from tailrace.adaptor.options import WriterOptions
    from tailrace.log.selection import SelectedFrame
    from tailrace.spark.tasks import Receipt
    from tailrace.transform.chain import Chain

COMMAND: Final = {"command": "truncate"}
"""What a message of op COMMAND says when a table was emptied."""


@dataclass(frozen=True, slots=True)
class Clear:
    """Where in the log a namespace was emptied."""

    offset: Offset
    namespace: str


def is_clearing(frame: SelectedFrame) -> bool:
    """Whether a frame says that its namespace was emptied."""
    if frame.head.op is not Op.COMMAND:
        return False
    data: Any = frame.rows().column("data")
    return any(row == COMMAND for row in data.to_pylist())


def kept_by(chain: Chain, namespace: str) -> list[str] | None:
    """When the functions keep a table from being emptied, what people should know of it; None when they do not."""
    if not chain.keeps_namespaces:
        return [f"{namespace} was emptied in the source; tables that functions rename stay as they are"]
    return None if chain.keeps_deletes else []


def stays(namespace: str) -> str:
    return f"{namespace} was emptied in the source; this destination keeps what it has of it"


@dataclass(frozen=True, slots=True)
class ClearTable:
    """Empties a table of a destination that is written in tasks."""

    options: WriterOptions
    rewound: int

    def __call__(self, clear: Clear) -> Receipt:
        writer = open_writer(self.options)
        try:
            if is_done(writer.applied(clear.namespace), clear, self.rewound):
                return {"news": []}
            if not isinstance(writer, Clearing):
                return {"news": [stays(clear.namespace)]}
            writer.clear(clear.namespace)
            writer.commit(clear.offset)
        finally:
            writer.close()
        return {"news": []}


def clear_frames(options: WriterOptions, clear: Clear, rewound: int) -> list[str]:
    """Empty a table of a destination that Spark writes; gives what people should know."""
    writer: Any = options.open()
    try:
        if is_done(writer.applied(clear.namespace), clear, rewound):
            return []
        is_cleared = isinstance(writer, ClearingFrames) and writer.clear(clear.namespace, clear.offset)
        return [] if is_cleared else [stays(clear.namespace)]
    finally:
        writer.close()


def is_done(applied: Offset | None, clear: Clear, rewound: int) -> bool:
    """Whether the destination has this already, and rows that came after it."""
    return applied is not None and applied >= clear.offset > rewound
