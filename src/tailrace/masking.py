"""Masking: secrets are not in what is told, whoever words it; drivers put addresses with passwords into their errors.

Options name their secrets when they are made, in every process that has them; errors and log lines are told without.
"""

from __future__ import annotations

import logging
import traceback
from contextlib import suppress
from functools import cache
from typing import Any, Final
from urllib.parse import unquote, urlsplit

MASK: Final = "***"
_LENGTH_MIN: Final = 4
"""Shorter ones are part of ordinary words."""

_secrets: set[str] = set()


def keep_secret(secret: str) -> None:
    """From now on this is not told, nor the password in it if it is an address."""
    _secrets.update(part for part in (secret, *_passwords(secret)) if len(part) >= _LENGTH_MIN)
    _mask_log_records()


def masked(text: str) -> str:
    """A text without secrets."""
    for secret in sorted(_secrets, key=len, reverse=True):  # an address before the password in it
        for form in (secret, repr(secret)[1:-1]):
            text = text.replace(form, MASK)
    return text


def _passwords(secret: str) -> list[str]:
    if "://" not in secret:
        return []
    try:
        password = urlsplit(secret).password or ""
    except ValueError:
        return []
    return [password, unquote(password)]


@cache
def _mask_log_records() -> None:
    """Whichever handler shows them, be it one of another program."""
    make = logging.getLogRecordFactory()

    def make_masked(*arguments: Any, **named: Any) -> logging.LogRecord:
        record = make(*arguments, **named)
        with suppress(TypeError, ValueError, LookupError):  # whoever shows it tells that its parts do not fit
            told = record.getMessage()
            if (without := masked(told)) != told:
                record.msg, record.args = without, ()
        if record.exc_info and record.exc_info[0] is not None:  # handlers take this instead of making it
            record.exc_text = masked("".join(traceback.format_exception(*record.exc_info)).rstrip("\n"))
        return record

    logging.setLogRecordFactory(make_masked)
