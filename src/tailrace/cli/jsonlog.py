"""What is said, for programs: one JSON object a line, with the moment, how serious it is, about what, and the text."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from enum import StrEnum
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from tailrace.masking import masked

if TYPE_CHECKING:
    from tailrace.errors import TailraceError

OPTION: Final = "--log-format"


class LogFormat(StrEnum):
    """How what goes on is told."""

    TEXT = "text"
    JSON = "json"


def is_wanted(arguments: Sequence[str]) -> bool:
    """Whether a command was asked to speak JSON, also one that fails before it has understood its arguments."""
    return f"{OPTION}={LogFormat.JSON}" in arguments or any(
        (option, value) == (OPTION, LogFormat.JSON) for option, value in pairwise(arguments)
    )


def log_line(text: str, *, level: str = "info", part: str = "tailrace", **more: Any) -> str:
    """One line; secrets are not in it, whoever worded the text. It is the same in every encoding of a terminal."""
    at = datetime.now(UTC).isoformat(timespec="milliseconds")
    return json.dumps({"time": at, "level": level, "part": part, "text": masked(text), **more})


def error_line(error: TailraceError, part: str = "tailrace") -> str:
    """An error, with its code and what to do."""
    return log_line(error.what, level="error", part=part, code=error.code, next=masked(error.hint) or None)


class JsonHandler(logging.Handler):
    """Log records as lines of their own, each with all that is known of how something failed."""

    def emit(self, record: logging.LogRecord) -> None:
        line = log_line(self.format(record), level=record.levelname.lower(), part=record.name)
        print(line, file=sys.stderr, flush=True)
