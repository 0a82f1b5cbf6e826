"""Reading a Tarantool: one snapshot into an image, then the changes of its log."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from tailrace.adaptor.tarantool import copying, snapshot, stream
from tailrace.adaptor.tarantool.catalog import Space
from tailrace.adaptor.tarantool.changes import CHANGES_MAX, ChangeReader
from tailrace.adaptor.tarantool.connection import Connection
from tailrace.adaptor.tarantool.holder import Holder
from tailrace.adaptor.tarantool.image import Image, new_image, open_image
from tailrace.adaptor.tarantool.server import Server
from tailrace.adaptor.tarantool.types import Numbers
from tailrace.adaptor.tarantool.vclock import covers, plain, read_vclock, text
from tailrace.log.batch import Batch
from tailrace.source.contract import Piece, Position, Table


class TarantoolReader:
    """A source. The image is made when it is installed; copies come from it, and changes begin where it ends.

    While something is copied no changes are read: the rows of a copy are older than every change that follows.
    """

    def __init__(
        self, server: Server, directory: str, numbers: Numbers, piece_rows: int, holder: Holder | None = None
    ) -> None:
        self._server = server
        self._directory = directory
        self._numbers = numbers
        self._piece_rows = piece_rows
        self._holder = holder
        self._connection: Connection | None = None
        self._cluster = ""
        self._wanted: list[str] | None = None
        self._is_copying = False
        self._reached: Position | None = None

    def tables(self) -> list[Table]:
        return [space.table(self._numbers) for space in self._spaces() if not space.why_unusable]

    def left_out(self) -> Mapping[str, str]:
        return {space.namespace: space.why_unusable for space in self._spaces() if space.why_unusable}

    def check(self, position: Position) -> None:
        """Look whether the server still has what comes next, and whether the image fits."""
        vclock = read_vclock(position["vclock"])
        if position["cluster"] != self._replica_set():
            raise self._server.lost("it is of another replica set than before")
        with self._image() as image:
            if image.vclock != vclock and covers(image.vclock, vclock) and image.vclock_before != vclock:
                why = f"the image of its rows is as of {text(image.vclock)}, and the log ends at {text(vclock)}"
                raise self._server.lost(why)
        now = self._session().vote()
        if not covers(now, vclock):
            raise self._server.lost(f"it is at {text(now)}, which is before {text(vclock)}; was it restored?")
        if now != vclock:
            with Connection(self._server) as connection:
                stream.subscribe(connection, position["cluster"], vclock)
                with stream.Stream(connection, vclock, vclock) as coming:
                    next(coming.transactions(now), None)

    def install(self, tables: Sequence[Table]) -> None:
        """Make the image, unless there is one."""
        self._wanted = [table.namespace for table in tables]
        found = open_image(self._directory)
        if found is not None:
            found.close()
            return
        cluster, replica = self._replica_set(), self._holder.replica if self._holder else ""
        chunk_rows = min(self._piece_rows, copying.CHUNK_ROWS)
        with Connection(self._server) as connection, new_image(self._directory, cluster) as image:
            image.end(snapshot.fetch(connection, image, chunk_rows, replica))

    def uninstall(self) -> None:
        if self._holder is not None:
            self._holder.unregister()

    def position(self) -> Position:
        return {"vclock": plain(self._session().vote()), "cluster": self._replica_set()}

    def plan_copy(self, table: Table) -> list[Piece]:
        if self._wanted is None:
            return copying.plan_live(table.namespace)
        with self._image() as image:
            found = [space for space in image.catalog().values() if space.namespace == table.namespace]
            # A space that the image does not know is younger than it: all its rows come as changes.
            return copying.plan(image, found[0], self._piece_rows) if found and not found[0].why_unusable else []

    def read_copy(self, namespace: str, piece: Piece) -> Iterator[Batch]:
        yield from copying.read(self._server, self._directory, self._numbers, piece)
        if piece["image"] is not None:
            with self._image() as image:
                self._reached = {"vclock": plain(image.vclock)}

    def copied(self) -> None:
        """The image stays: updates need it."""

    def copying(self, namespaces: Collection[str]) -> None:
        self._is_copying = bool(namespaces)

    def plan_changes(self, start: Position, end: Position) -> list[Piece]:
        begin, upto = read_vclock(start["vclock"]), read_vclock(end["vclock"])
        if self._is_copying or covers(begin, upto):
            return []
        piece = {
            "cluster": start["cluster"],
            "vclock": plain(begin),
            "upto": plain(upto),
            "seq": start.get("seq", 0),
            "namespaces": self._wanted,
            "changes_max": CHANGES_MAX,
        }
        return [piece]

    def read_changes(self, piece: Piece) -> Iterator[Batch]:
        reading = ChangeReader(self._server, self._directory, self._numbers)
        yield from reading.read(piece)
        self._reached = reading.reached

    def reached(self) -> Position | None:
        return self._reached

    def forget(self, upto: Position) -> None:
        if self._holder is not None:
            self._holder.release(self._replica_set(), read_vclock(upto["vclock"]))

    def close(self) -> None:
        if self._holder is not None:
            self._holder.close()
        self._drop_session()

    def _spaces(self) -> list[Space]:
        found = copying.live_spaces(self._session())
        return [found[id_] for id_ in sorted(found)]

    def _image(self) -> Image:
        image = open_image(self._directory)
        if image is None:
            raise self._server.lost(f"the image of its rows in {self._directory} is gone")
        return image

    def _replica_set(self) -> str:
        if not self._cluster:
            self._cluster = self._session().cluster()
        return self._cluster

    def _session(self) -> Connection:
        """One connection for the small questions of the driver."""
        if self._connection is None:
            self._connection = Connection(self._server)
        return self._connection

    def _drop_session(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
