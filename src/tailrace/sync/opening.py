"""The database of a file, open for sync."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager

from tailrace.sync.database import open_database
from tailrace.sync.form import SyncForm
from tailrace.sync.store import SyncStore


@contextmanager
def opened(form: SyncForm) -> Iterator[SyncStore]:
    """The store that a file declares. Raises `sync.not_installed`."""
    with closing(open_database(form.database.address, must_exist=True)) as database:
        yield SyncStore(database, form.declared, form.quarantine.limit, form.clock.ahead_max)
