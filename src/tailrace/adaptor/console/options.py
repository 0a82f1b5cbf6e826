"""What a user says about the terminal."""

from __future__ import annotations

from typing import ClassVar, Literal

from tailrace.adaptor.options import WriterOptions
from tailrace.deliver.contract import FrameWriter


class ConsoleWriterOptions(WriterOptions):
    """Print messages to standard output, at least once."""

    on_driver: ClassVar[bool] = True
    """The standard output of tasks is not the user's."""

    format: Literal["text", "json"] = "text"
    """`text` prints op, namespace, offset and the row; `json` prints one object a line."""

    def where(self) -> str:
        return "standard output"

    def open(self) -> FrameWriter:
        from tailrace.adaptor.console.writer import ConsoleWriter

        return ConsoleWriter(self.format)
