"""Rows aside: those of tables that a replica ignores, in files, until somebody wants the tables again."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator

import pyarrow as pa

from tailrace.errors import Place, TailraceError
from tailrace.log.batch import Batch, decode_body, encode_body
from tailrace.log.disk import Disk, disk_errors
from tailrace.log.frame import Codec
from tailrace.message import Mode


class Aside:
    """A directory with one more for each table."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._counts: dict[str, int] = {}

    def begin(self, namespace: str) -> None:
        """What was put aside of a table before does not count."""
        path = self._path(namespace)
        with disk_errors("putting rows aside", path):
            shutil.rmtree(path, ignore_errors=True)
            os.makedirs(path)
        self._counts[namespace] = 0

    def put(self, batch: Batch) -> None:
        """Durably, behind what was put there since `begin`."""
        number = self._counts[batch.namespace]
        self._counts[batch.namespace] = number + 1
        path = os.path.join(self._path(batch.namespace), f"{number:09d}.arrow")
        with disk_errors("putting rows aside", path):
            Disk().replace_file(path, encode_body(batch.rows, Codec.LZ4)[0].to_pybytes())

    def batches(self, namespace: str) -> Iterator[Batch]:
        """In the order in which they were put there."""
        path = self._path(namespace)
        with disk_errors("reading rows that were put aside", path):
            for name in sorted(each for each in os.listdir(path) if each.endswith(".arrow")):
                with open(os.path.join(path, name), "rb") as stream:
                    raw = stream.read()
                try:
                    yield Batch(namespace, decode_body(raw), Mode.COPY)
                except pa.ArrowException as error:
                    what = f"the rows of {namespace} that were put aside cannot be read: {error}"
                    raise TailraceError("topology.store", what, place=Place(path), hint=_HINT) from error

    def has(self, namespace: str) -> bool:
        """Whether rows of a table are here."""
        path = self._path(namespace)
        return os.path.isdir(path) and any(name.endswith(".arrow") for name in os.listdir(path))

    def forget(self, namespace: str) -> None:
        """They are in the store again."""
        shutil.rmtree(self._path(namespace), ignore_errors=True)

    def _path(self, namespace: str) -> str:
        """A name from outside is no path."""
        return os.path.join(self._directory, hashlib.sha256(namespace.encode()).hexdigest()[:32])


_HINT = "give the replica an empty database, which is then filled anew"
