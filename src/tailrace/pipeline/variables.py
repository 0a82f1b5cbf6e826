"""`${NAME}` and `${NAME:-default}` in values, from the environment; `$$` is one dollar."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

_REFERENCE: Final = re.compile(r"\$(?:(\$)|\{([A-Za-z_][A-Za-z0-9_]*)(:-[^}]*)?\}|(\{[^}]*\}?))")


class VariableProblem(Exception):
    """A value that refers to something that is not there; the text names no value."""


def substitute(text: str, environment: Mapping[str, str]) -> str:
    """The text with its references replaced once: what a variable holds is never looked at again."""

    def replace(match: re.Match[str]) -> str:
        dollar, name, default, malformed = match.groups()
        if dollar:
            return "$"
        if malformed:
            raise VariableProblem(f"${malformed} is no reference; write ${{NAME}}, or $$ for a dollar")
        value = environment.get(name)
        if default is not None:
            return value or default.removeprefix(":-")
        if value is None:
            raise VariableProblem(f"the environment variable {name} is not set")
        return value

    return _REFERENCE.sub(replace, text)
