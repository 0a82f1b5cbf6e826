"""The token with which a command is let in: never on the command line, where everybody can read it."""

from __future__ import annotations

import os
from typing import Final

NAME: Final = "TAILRACE_TOKEN"


def said_token() -> str:
    """What the environment says."""
    from tailrace.errors import TailraceError

    token = os.environ.get(NAME, "")
    if not token:
        hint = "set it to a token of the node that is asked, or to its operator's"
        raise TailraceError("input.invalid", f"the environment variable {NAME} is not set", hint=hint)
    return token
