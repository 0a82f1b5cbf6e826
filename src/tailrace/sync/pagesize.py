"""The size of a page: how many rows travel at a time. Few at first, and more as long as that is quick."""

from __future__ import annotations

from typing import Final

from tailrace.sync.shape import Shape

FIRST_ROWS: Final = 1_000
_FEW_ROWS: Final = 100
_VALUES_MAX: Final = 500_000
"""Tables with very many columns would have larger pages than a request may be."""
_QUICK_S: Final = 0.25
_SLOW_S: Final = 1.0
"""On a link on which a page takes longer it is likelier to be cut, and then to be sent again."""


class PageSize:
    """The size of the next page of a table."""

    def __init__(self, shape: Shape) -> None:
        self._most = min(shape.entity.batch_rows, _VALUES_MAX // len(shape.columns))
        self.rows = min(FIRST_ROWS, self._most)

    def was_too_large(self, rows: int) -> None:
        """So many were refused together: that many are not tried again."""
        self._most = max(1, min(self._most, rows // 2))
        self.rows = min(self.rows, self._most)

    def took(self, seconds: float) -> None:
        """A page was asked for and taken."""
        if seconds < _QUICK_S:
            self.rows = min(2 * self.rows, self._most)
        elif seconds > _SLOW_S:
            self.rows = max(self.rows // 2, min(_FEW_ROWS, self._most))
