"""The terminal."""

from __future__ import annotations

from tailrace.adaptor.console.options import ConsoleWriterOptions
from tailrace.adaptor.endpoint import endpoint
from tailrace.adaptor.registry import Adaptor

ADAPTOR = Adaptor(name="console", summary="prints messages to standard output", writer=ConsoleWriterOptions)
console = endpoint("console", first="format")
