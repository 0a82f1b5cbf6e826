"""Global transaction ids: which transactions were read, and what each is called."""

from __future__ import annotations

import uuid
from collections.abc import Mapping

from tailrace.adaptor.mysql import binlog
from tailrace.adaptor.mysql.binlog import Event


class Gtids:
    """What was read: of MariaDB the last id of each domain, of MySQL the last number of each source."""

    def __init__(self, known: Mapping[str, str]) -> None:
        self._known = dict(known)
        self._open: tuple[str, str] | None = None

    def begin(self, event: Event) -> str:
        """A transaction begins; gives its name."""
        body = event.body
        if event.kind == binlog.MARIADB_GTID:
            number, domain = int.from_bytes(body[:8], "little"), int.from_bytes(body[8:12], "little")
            name = f"{domain}-{event.server_id}-{number}"
            self._open = (str(domain), name)
            return name
        if event.kind == binlog.GTID:
            source, number = str(uuid.UUID(bytes=body[1:17])), int.from_bytes(body[17:25], "little")
            self._open = (source, str(number))
            return f"{source}:{number}"
        self._open = None
        return f"{event.file}:{event.end}"

    def end(self) -> None:
        """The transaction that began last was read."""
        if self._open is not None:
            self._known[self._open[0]] = self._open[1]
            self._open = None

    @property
    def is_open(self) -> bool:
        """Whether a transaction has begun and not ended."""
        return self._open is not None

    def told(self) -> dict[str, str]:
        return dict(self._known)
