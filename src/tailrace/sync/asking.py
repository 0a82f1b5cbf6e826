"""What a request asks for: the parameters behind its address, and the headers that say how it is to be answered."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from starlette.requests import Request

from tailrace.limits import SYNC_ROWS_MAX
from tailrace.sync.counts import HEADER, read_count
from tailrace.sync.entity import TABLE_ID_MAX
from tailrace.sync.exchange import Key, Part
from tailrace.sync.pagesize import PageSize
from tailrace.sync.store import SyncStore
from tailrace.sync.wire import Wire, malformed

LONGS: Final = "door-longs"
_DIGITS_MAX: Final = 18


def wire_of(request: Request, store: SyncStore, also: Collection[str] = ()) -> Wire:
    """The table that a request is about. Raises when it has parameters other than `tableId` and those named."""
    given = parameters(request, ("tableId", *also))
    table_id = _number(given, "tableId", TABLE_ID_MAX)
    if table_id is None:
        raise malformed("the parameter tableId is missing")
    return Wire(store.shape(table_id), longs_as_text(request))


def page_of(request: Request, wire: Wire) -> tuple[Key | None, int]:
    """Where to go on, and how many rows are wanted."""
    limit = _number(request.query_params, "limit", SYNC_ROWS_MAX)
    after = request.query_params.get("after")
    return None if after is None else wire.read_key(after), limit or PageSize(wire.shape).rows


def part_of(request: Request) -> Part:
    """Whether only rows are wanted, or only deletions."""
    told = request.query_params.get("only")
    if told is None:
        return Part.ALL
    if told not in (Part.ROWS, Part.DELETIONS):
        raise malformed(f"the parameter only is neither {Part.ROWS} nor {Part.DELETIONS}")
    return Part(told)


def longs_as_text(request: Request) -> bool:
    told = request.headers.get(LONGS, "number").strip().lower()
    if told not in ("number", "string"):
        raise malformed(f"the header {LONGS} is neither number nor string")
    return told == "string"


def count_of(request: Request) -> int | None:
    """How often the caller has exchanged something with this node, if it says so."""
    told = request.headers.get(HEADER)
    count = read_count(told)
    if told is not None and count is None:
        raise malformed(f"the header {HEADER} is no count")
    return count


def parameters(request: Request, known: Collection[str] = ()) -> Mapping[str, str]:
    """What stands behind the address. What is unknown is refused (I10); values are not told, they may be secrets."""
    names = [name for name, _ in request.query_params.multi_items()]
    for name in names:
        if name not in known:
            raise malformed(f"there is no parameter {name[:40]!r}, only {', '.join(known) or 'none'}")
    if len(set(names)) != len(names):
        raise malformed("a parameter is there twice")
    return request.query_params


def _number(given: Mapping[str, str], name: str, most: int) -> int | None:
    text = given.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX and 0 < int(text) <= most):
        raise malformed(f"the parameter {name} is no number from 1 to {most}")
    return int(text)
