"""pretty: log messages as they pass."""

from __future__ import annotations

import base64
import json
import logging
from typing import Annotated, Any, ClassVar, Final

from pydantic import Field

from tailrace.deliver.messages import Messages
from tailrace.transform.options import FunctionOptions
from tailrace.transform.rows import rows_of

LOGGER: Final = logging.getLogger("tailrace.pretty")


class Pretty(FunctionOptions):
    """Logs every message as JSON (logger `tailrace.pretty`, level INFO) and passes it on."""

    kind: ClassVar[str] = "pretty"
    summary: ClassVar[str] = "log messages as they pass"
    short: ClassVar[str] = "spaces"
    logs: ClassVar[bool] = True

    spaces: Annotated[int, Field(ge=0, le=16)] = 2
    """How far to indent; 0 puts a message on one line."""

    def apply(self, messages: Messages) -> Messages:
        if LOGGER.isEnabledFor(logging.INFO):
            for row in rows_of(messages):
                shown = row if row["before"] is not None else {name: row[name] for name in row if name != "before"}
                LOGGER.info(json.dumps(shown, indent=self.spaces or None, ensure_ascii=False, default=_plain))
        return messages


def _plain(value: Any) -> str:
    """What JSON has no form for."""
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)
