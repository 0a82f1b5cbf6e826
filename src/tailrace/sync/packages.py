"""The packages that sync needs and the bare program does not have."""

from __future__ import annotations

from importlib.util import find_spec

from tailrace.errors import TailraceError


def check_packages(*names: str, extra: str) -> None:
    """Refuse to begin without some packages, which an extra of this one brings."""
    missing = [name for name in names if find_spec(name) is None]
    if missing:
        what = f"this needs packages that are not installed: {', '.join(missing)}"
        raise TailraceError("config.invalid", what, hint=f"pip install 'tailrace[{extra}]'")
