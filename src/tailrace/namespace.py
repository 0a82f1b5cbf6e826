"""What things are called. Names come from outside, so they are checked before they name anything."""

from __future__ import annotations

import re
from typing import Final

from tailrace.errors import TailraceError
from tailrace.limits import NAME_BYTES_MAX

RESERVED: Final = "_tailrace."
"""Namespaces with this beginning are our own: bookmarks and dead letters. No writer gets them."""

_FILE_SAFE: Final = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.@ -]*[A-Za-z0-9_.@-])?")
_REPEATED_GROUP: Final = re.compile(r"\)[*+{]")
_REPEATS: Final = re.compile(r"[*+{]")
_REPEATS_MAX: Final = 2


def check_name(name: str, what: str) -> str:
    """Refuse a namespace or destination that is empty, too long, or could be mistaken for a path."""
    size = len(name.encode("utf-8", "surrogatepass"))
    if not name:
        raise _invalid(name, what, "it is empty")
    if size > NAME_BYTES_MAX:
        raise _invalid(name, what, f"it has {size} bytes, {NAME_BYTES_MAX} are allowed")
    if "/" in name or "\\" in name or name in (".", ".."):
        raise _invalid(name, what, "it looks like a path")
    if not name.isprintable():
        raise _invalid(name, what, "it has a character that cannot be printed")
    return name


def check_file_name(name: str, what: str) -> str:
    """Refuse a consumer name or batch id that is not safe as the name of a file on every system."""
    check_name(name, what)
    if not _FILE_SAFE.fullmatch(name):
        allowed = "only letters, digits, spaces and _ . @ - are allowed, and it must start with a letter, a digit or _"
        raise _invalid(name, what, allowed)
    return name


def namespace_pattern(text: str | None) -> re.Pattern[str] | None:
    """A namespace filter; slashes around it are dropped, as in Transporter."""
    if text is None:
        return None
    trimmed = text.removeprefix("/").removesuffix("/")
    if len(trimmed) > NAME_BYTES_MAX:
        raise TailraceError(
            "input.invalid",
            f"a namespace pattern has {len(trimmed)} characters, {NAME_BYTES_MAX} are allowed",
            hint="shorten the pattern",
        )
    try:
        return re.compile(trimmed)
    except re.error as error:
        raise TailraceError(
            "input.invalid", f"{text!r} is not a regular expression: {error}", hint="correct the pattern"
        ) from error


def strangers_pattern(text: str | None) -> re.Pattern[str] | None:
    """A namespace filter that somebody else gives: one that is found out in no time, whatever the namespace."""
    if text is not None and (_REPEATED_GROUP.search(text) or len(_REPEATS.findall(text)) > _REPEATS_MAX):
        raise TailraceError(
            "input.invalid",
            f"a namespace pattern repeats too much: no groups, and at most {_REPEATS_MAX} times",
            hint="write a simpler pattern, such as shop.orders|shop.items",
        )
    return namespace_pattern(text)


def _invalid(name: str, what: str, why: str) -> TailraceError:
    shown = name if len(name) <= 40 else name[:40] + "…"
    return TailraceError("name.invalid", f"{what} {shown!r} is not a usable name: {why}", hint="choose another name")
