"""The replication origin: what a server writes beside a transaction to say that it came from elsewhere.

A node marks with it what it applies, and its reader leaves that out. Origins are known by name to the whole server, as
slots are, so a node's origin is called what its slot is called. One session at a time may use it.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any, Final

import psycopg
from psycopg import errors as pg_errors

from tailrace.adaptor.postgres import storesql

_BUSY_S: Final = 30.0
"""How long the session of a node that was killed may have it: until the server notices."""
_BUSY_LOOK_S: Final = 0.05


def take_origin(connection: psycopg.Connection[Any], name: str) -> None:
    """What this session writes from now on is of this origin, which is made when there is none."""
    if connection.execute(storesql.ORIGIN, (name,)).fetchone() == (None,):
        with suppress(pg_errors.UniqueViolation, pg_errors.DuplicateObject):
            connection.execute(storesql.CREATE_ORIGIN, (name,))
    give_up_s = time.monotonic() + _BUSY_S
    while True:
        try:
            connection.execute(storesql.TAKE_ORIGIN, (name,))
        except pg_errors.ObjectInUse:
            if time.monotonic() > give_up_s:
                raise
            time.sleep(_BUSY_LOOK_S)
        else:
            return
