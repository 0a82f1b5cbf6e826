"""The image: the rows of a Tarantool as of one place in its changes, in a file beside the log.

An update in Tarantool's log says what to do to a row, not what becomes of it; so the row must be known. The image is
made of the snapshot, and every stretch of changes moves it on, in one transaction. It can go back by one stretch, for a
stretch is read again when it did not get into the log.
"""

from __future__ import annotations

import json
import os
import secrets
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final, Self

from tailrace.adaptor.tarantool import frames, imagesql
from tailrace.adaptor.tarantool.catalog import INDEXES, SPACES, Part, Space, read_spaces
from tailrace.adaptor.tarantool.iproto import packed, unpacked
from tailrace.adaptor.tarantool.keys import ImageKey, key_of_tuple
from tailrace.adaptor.tarantool.vclock import Vclock, plain, read_vclock
from tailrace.errors import Place, TailraceError

FILE: Final = "tarantool.image"
FORMAT: Final = "1"
GONE: Final = -1
"""Under this number the names stand of spaces that were dropped."""
CATALOG_PARTS: Final = {
    SPACES: (Part(0, "unsigned"),),
    INDEXES: (Part(0, "unsigned"), Part(1, "unsigned")),
}
_BUSY_S: Final = 60.0
_FRESH_MAX: Final = 100_000
"""So many rows are held before they are written."""


_Place = tuple[int, ImageKey]


@dataclass(slots=True)
class _Fresh:
    """A row as it was, and as it is now."""

    before: bytes | None
    row: list[Any] | None
    is_changed: bool = False

    def change(self, row: list[Any] | None) -> None:
        self.row, self.is_changed = row, True


class Image:
    """An open image."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._connection = sqlite3.connect(path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False)
        self._fresh: dict[_Place, _Fresh] = {}
        """Rows that were looked at or changed and are not written yet."""
        self._ready: set[int] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._connection.close()

    @property
    def cluster(self) -> str:
        """The uuid of the replica set that it is an image of."""
        return self._fact("cluster")

    @property
    def id(self) -> str:
        """Made at random, so that an image made anew is not taken for another."""
        return self._fact("id")

    @property
    def vclock(self) -> Vclock:
        """As of where its rows are."""
        return read_vclock(json.loads(self._fact("vclock")))

    @property
    def vclock_before(self) -> Vclock:
        """Where it can go back to."""
        return read_vclock(json.loads(self._fact("before")))

    @contextmanager
    def changing(self) -> Iterator[None]:
        """All or nothing of what is done inside; nobody else changes it meanwhile."""
        with errors(self.path):
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._write()
                self._connection.execute("COMMIT")
            except BaseException:
                self._fresh.clear()
                self._ready.clear()
                with suppress(sqlite3.Error):
                    self._connection.execute("ROLLBACK")
                raise

    def catalog(self) -> dict[int, Space]:
        """The users' spaces as they were there and then."""
        return read_spaces(self.rows(SPACES), self.rows(INDEXES))

    def go_back(self) -> None:
        """Undo the last stretch of changes."""
        for space, key, tuple_ in self._connection.execute(imagesql.UNDO).fetchall():
            if tuple_ is None:
                self._connection.execute(imagesql.REMOVE, (space, key))
            else:
                self._connection.execute(imagesql.PUT, (space, key, tuple_))
        self._set("vclock", plain(self.vclock_before))
        self._connection.execute(imagesql.FORGET_UNDO)

    def begin_stretch(self, start: Vclock) -> None:
        """What comes now can be undone, back to here."""
        self._write()
        self._connection.execute(imagesql.FORGET_UNDO)
        self._set("before", plain(start))

    def moved(self, vclock: Vclock) -> None:
        """Its rows are as of here now."""
        self._set("vclock", plain(vclock))

    def ready(self, space: int, parts: tuple[Part, ...]) -> None:
        """Make the rows of a space ones that can be found by key."""
        if space in self._ready:
            return
        self._ready.add(space)
        if self._connection.execute(imagesql.HAS_CHUNKS, (space,)).fetchone() is None:
            return
        key_of = key_of_tuple(parts)
        for number, _ in self.chunks(space):
            data = self.chunk(space, number)
            starts, ends = frames.tuples_of(data)
            encoded = [data[start:end] for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]
            rows = ((space, key_of(unpacked(each)), each) for each in encoded)
            self._connection.executemany(imagesql.PUT, rows)
        self._connection.execute(imagesql.DROP_CHUNKS, (space,))

    def get(self, space: int, key: ImageKey) -> list[Any] | None:
        return self._at(space, key).row

    def put(self, space: int, key: ImageKey, row: list[Any]) -> None:
        self._at(space, key).change(row)

    def remove(self, space: int, key: ImageKey) -> None:
        self._at(space, key).change(None)

    def clear(self, space: int) -> None:
        """A space has no rows any more. They must be `ready`."""
        self._write()
        self._connection.execute(imagesql.NOTE_ALL, (space,))
        self._connection.execute(imagesql.REMOVE_ALL, (space,))

    def rekey(self, space: int, parts: tuple[Part, ...]) -> None:
        """Another key tells the rows of a space apart now. They must be `ready`."""
        rows = list(self.rows(space))
        self.clear(space)
        key_of = key_of_tuple(parts)
        for row in rows:
            self.put(space, key_of(row), row)

    def rows(self, space: int) -> Iterator[list[Any]]:
        """Every row of a space that is `ready`."""
        self._write()
        for (tuple_,) in self._connection.execute(imagesql.ALL, (space,)):
            yield unpacked(tuple_)

    def chunks(self, space: int) -> list[tuple[int, int]]:
        """The stretches of a space's rows that are as the snapshot brought them: their numbers and lengths."""
        return self._connection.execute(imagesql.CHUNKS, (space,)).fetchall()

    def chunk(self, space: int, number: int) -> bytes:
        (found,) = self._connection.execute(imagesql.CHUNK, (space, number)).fetchone()
        return bytes(found)

    def add_chunk(self, space: int, number: int, rows: int, data: bytes) -> None:
        self._connection.execute(imagesql.ADD_CHUNK, (space, number, rows, data))

    def begin(self, cluster: str) -> None:
        """A new image of nothing."""
        self._connection.execute("PRAGMA synchronous = OFF")  # it gets its name when it is whole and on disk
        self._connection.execute("BEGIN")
        for statement in imagesql.TABLES:
            self._connection.execute(statement)
        for name, value in (("format", FORMAT), ("id", secrets.token_hex(8)), ("cluster", cluster)):
            self._connection.execute(imagesql.SET_FACT, (name, value))

    def end(self, vclock: Vclock) -> None:
        """The new image is whole."""
        for space, parts in CATALOG_PARTS.items():
            self.ready(space, parts)
        self.moved(vclock)
        self._set("before", plain(vclock))
        self._connection.execute("COMMIT")

    def check_format(self) -> None:
        if self._fact("format") != FORMAT:
            what = f"{self.path} was made by another release of tailrace"
            raise TailraceError("source.position_lost", what, hint="copy the source again, into a new log")

    def _at(self, space: int, key: ImageKey) -> _Fresh:
        place = (space, key)
        found = self._fresh.get(place)
        if found is None:
            if len(self._fresh) >= _FRESH_MAX:
                self._write()
            stored = self._connection.execute(imagesql.GET, place).fetchone()
            encoded = None if stored is None else stored[0]
            found = self._fresh[place] = _Fresh(encoded, None if encoded is None else unpacked(encoded))
        return found

    def _write(self) -> None:
        """Write what has changed, and note what was there."""
        changed = [(place, each) for place, each in self._fresh.items() if each.is_changed]
        self._connection.executemany(imagesql.NOTE, ((*place, each.before) for place, each in changed))
        rows = ((*place, packed(each.row)) for place, each in changed if each.row is not None)
        self._connection.executemany(imagesql.PUT, rows)
        self._connection.executemany(imagesql.REMOVE, (place for place, each in changed if each.row is None))
        self._fresh.clear()

    def _fact(self, name: str) -> str:
        found = self._connection.execute(imagesql.FACT, (name,)).fetchone()
        return str(found[0]) if found else ""

    def _set(self, name: str, value: Any) -> None:
        self._connection.execute(imagesql.SET_FACT, (name, json.dumps(value)))


def open_image(directory: str) -> Image | None:
    """The image in a directory, None when there is none."""
    path = os.path.join(directory, FILE)
    if not os.path.exists(path):
        return None
    with errors(path):
        image = Image(path)
        image.check_format()
        return image


@contextmanager
def new_image(directory: str, cluster: str) -> Iterator[Image]:
    """An image that is filled inside, and has its name only when that is done."""
    os.makedirs(directory, exist_ok=True)
    path = os.path.join(directory, FILE)
    beside = f"{path}.{secrets.token_hex(4)}.new"
    try:
        with errors(path), closing(Image(beside)) as image:
            image.begin(cluster)
            yield image
        with open(beside, "rb") as file:
            os.fsync(file.fileno())
        os.replace(beside, path)
    finally:
        with suppress(FileNotFoundError):
            os.remove(beside)
        with suppress(FileNotFoundError):
            os.remove(f"{beside}-journal")


@contextmanager
def errors(path: str) -> Iterator[None]:
    """What SQLite says, as ours."""
    try:
        yield
    except sqlite3.Error as error:
        what = f"the image of the source cannot be used: {error}"
        hint = "see that its directory can be written and has room; if it is damaged, copy the source again"
        raise TailraceError("source.unreachable", what, place=Place(path), hint=hint) from error
