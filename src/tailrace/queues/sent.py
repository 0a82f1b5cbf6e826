"""What became of a call that sends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tailrace.log.group import OffsetRange


@dataclass(frozen=True, slots=True)
class Sent:
    """A transaction, as far as it goes."""

    left_out: tuple[str, ...] = ()
    """Destinations that were full, and by their policy do not get everything that was for them."""
    offsets: OffsetRange | None = None
    """Where the messages are in the site's log, if they went straight there and somebody gets them."""
