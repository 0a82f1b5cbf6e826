"""Expecting an error of ours: its code, and that it says what to do next."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tailrace.errors import TailraceError


@contextmanager
def refused(*codes: str, saying: str = "") -> Iterator[pytest.ExceptionInfo[TailraceError]]:
    """What happens within is refused with one of the codes, and with these words in the message."""
    with pytest.raises(TailraceError) as refusal:
        yield refusal
    assert refusal.value.code in codes, refusal.value
    assert saying in str(refusal.value)
    assert refusal.value.hint, refusal.value
