"""The copy of a space: its rows from the image, or, where there is none, from the server as they are now."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any, Final

from tailrace.adaptor.tarantool import tuples
from tailrace.adaptor.tarantool.catalog import INDEXES, SPACES, Space, read_spaces
from tailrace.adaptor.tarantool.connection import Connection
from tailrace.adaptor.tarantool.image import Image, open_image
from tailrace.adaptor.tarantool.iproto import packed
from tailrace.adaptor.tarantool.server import Server
from tailrace.adaptor.tarantool.types import Numbers
from tailrace.log.batch import Batch
from tailrace.source.contract import Piece
from tailrace.source.rows import inserted

CHUNK_ROWS: Final = 50_000
_PAGE_BYTES: Final = 4 << 20
_FIRST_ROWS: Final = 100
_AFTER: Final = 6
"""The iterator that goes on behind a key."""


def plan(image: Image, space: Space, piece_rows: int) -> list[Piece]:
    """Pieces of about so many rows, as the image has them."""
    head = {"image": image.id, "space": space.id}
    found = image.chunks(space.id)
    if not found:
        return [{**head, "chunks": None}]
    pieces: list[list[int]] = [[]]
    rows = 0
    for number, count in found:
        if rows and rows + count > piece_rows:
            pieces.append([])
            rows = 0
        pieces[-1].append(number)
        rows += count
    return [{**head, "chunks": numbers} for numbers in pieces]


def plan_live(namespace: str) -> list[Piece]:
    """One piece: the server gives a space page by page, in the order of its key."""
    return [{"image": None, "space": namespace}]


def read(server: Server, directory: str, numbers: Numbers, piece: Piece) -> Iterator[Batch]:
    """The rows of a piece."""
    if piece["image"] is None:
        yield from _read_live(server, numbers, piece["space"])
        return
    image = open_image(directory)
    if image is None or image.id != piece["image"]:
        raise server.lost(f"the image of its rows in {directory} is gone")
    with image:
        space = image.catalog()[piece["space"]]
        if piece["chunks"] is None:
            rows = image.rows(space.id)
            while part := list(islice(rows, CHUNK_ROWS)):
                yield inserted(space.namespace, tuples.of_rows(space, numbers, part), space.key)
            return
        for number in piece["chunks"]:
            data = tuples.of_frames(space, numbers, image.chunk(space.id, number))
            yield inserted(space.namespace, data, space.key)


def live_spaces(connection: Connection) -> dict[int, Space]:
    """The users' spaces as they are now."""
    return read_spaces(connection.select(SPACES, []), connection.select(INDEXES, []))


def _read_live(server: Server, numbers: Numbers, namespace: str) -> Iterator[Batch]:
    with Connection(server) as connection:
        found = [space for space in live_spaces(connection).values() if space.namespace == namespace]
        if not found or found[0].why_unusable:
            return
        space, last, limit = found[0], list[Any](), _FIRST_ROWS
        while rows := connection.select(space.id, last, iterator=_AFTER if last else 2, limit=limit):
            yield inserted(namespace, tuples.of_rows(space, numbers, rows), space.key)
            last = [rows[-1][part.field] for part in space.parts]
            size = len(packed(rows[-1])) + 1
            limit = max(1, min(CHUNK_ROWS, _PAGE_BYTES // size, limit * 8))
