"""HTML, built so that nothing that comes from outside is ever taken for markup."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Final

_EMPTY: Final = frozenset({"br", "hr", "input", "link", "meta"})


_NUMBERS: Final = frozenset({"Position", "Lag", "Messages", "Last offset"})
"""Columns whose cells are numbers, which are set below their heading."""


class Markup(str):
    """Text that is markup already."""

    __slots__ = ()


Child = str | int | float | None
Attribute = str | int | float | bool | None


def tag(element: str, /, *children: Child, **attributes: Attribute) -> Markup:
    """An element. `class_` is `class`, `data_x` is `data-x`; None and False leave an attribute out."""
    parts = [f"<{element}"]
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        said = key.rstrip("_").replace("_", "-")
        parts.append(f" {said}" if value is True else f' {said}="{escape(str(value))}"')
    parts.append(">")
    if element not in _EMPTY:
        parts += [text(child) for child in children]
        parts.append(f"</{element}>")
    return Markup("".join(parts))


def text(child: Child) -> str:
    """Something as markup: what is none is escaped."""
    if child is None:
        return ""
    return child if isinstance(child, Markup) else escape(str(child))


def join(*children: Child) -> Markup:
    return Markup("".join(map(text, children)))


def table(caption: str, headings: list[str], rows: list[Markup], empty: str = "none") -> Markup:
    """A table that can be read aloud: it has a caption, and the first cell of a row is its heading."""
    if not rows:
        return tag("p", f"{caption}: {empty}", class_="none")
    head = tag(
        "tr", *(tag("th", name, scope="col", class_="number" if name in _NUMBERS else None) for name in headings)
    )
    inner = tag("table", tag("caption", caption), tag("thead", head), tag("tbody", *rows))
    return tag("div", inner, class_="scroll", tabindex=0, role="region", aria_label=caption)


def row(cells: Sequence[Child]) -> Markup:
    """One row of a table."""
    return tag("tr", tag("th", cells[0], scope="row"), *(_cell(cell) for cell in cells[1:]))


def tiles(*facts: tuple[str, Child]) -> Markup:
    """Some facts side by side."""
    return tag("dl", *(tag("div", tag("dt", name), tag("dd", value)) for name, value in facts), class_="tiles")


def _cell(cell: Child) -> Markup:
    is_number = isinstance(cell, int | float) and not isinstance(cell, bool)
    shown = f"{cell:,}" if is_number else cell
    return tag("td", shown, class_="number" if is_number else None)
