"""What somebody may have meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def did_you_mean(written: str, known: Iterable[str]) -> str:
    """`; did you mean X?` when something known looks like what was written, otherwise nothing."""
    by_folded = {name.casefold(): name for name in known}
    close = difflib.get_close_matches(written.casefold(), by_folded, n=1)
    return f"; did you mean {by_folded[close[0]]}?" if close else ""
