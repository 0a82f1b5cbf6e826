"""Claims: providers take turns at requests for snapshots, which are rows of `LRQ_Requests`.

Each claim is an attempt with a name of its own, and only rows of the attempt that counts now are used. So a provider
that died, or was thought to have died, spoils nothing, whatever it goes on to write.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tailrace.errors import TailraceError
from tailrace.queues.application import Application
from tailrace.queues.entries import Kind

STAGED: Final = 4
"""The kind of a row that says where messages are."""
_MINE: Final = "request = ? AND attempt = ? AND done_at IS NULL"
_CLAIM: Final = """UPDATE LRQ_Requests SET attempts = attempts + 1,
    attempt = request || '.' || (attempts + 1) || '-' || ?,
    claimed_at = {now}, claimed_by = ?, supplied = 0, total = NULL
    WHERE request = (
        SELECT request FROM LRQ_Requests
        WHERE client = ? AND done_at IS NULL AND retry_at <= {now} AND (attempt IS NULL OR claimed_at < {now} - ?)
        ORDER BY created, request LIMIT 1{alone})
    RETURNING request, attempt, sites, failures"""
_RENEW: Final = "UPDATE LRQ_Requests SET claimed_at = {now}, supplied = ?, total = ? WHERE {mine}"
_DONE: Final = "UPDATE LRQ_Requests SET done_at = {now}, error = NULL WHERE {mine}"
_FAILED: Final = """UPDATE LRQ_Requests SET attempt = NULL, claimed_at = NULL, claimed_by = NULL, error = ?,
    failures = failures + 1, retry_at = {now} + ? WHERE {mine}"""
_GIVEN_BACK: Final = """UPDATE LRQ_Requests SET attempt = NULL, claimed_at = NULL, claimed_by = NULL
    WHERE {mine}"""
_SUPPLY: Final = "INSERT INTO LRQ_Send_SnapSync (client, request, kind, payload) VALUES (?, ?, ?, ?)"


@dataclass(frozen=True, slots=True)
class Claim:
    """One attempt at a request."""

    client: str
    request: str
    attempt: str
    sites: tuple[str, ...]
    failures: int
    """Of attempts before this one."""


class Claims:
    """Of one connection, which nobody else uses; each call is a transaction. One that fails with `queue.claim_lost`
    has written nothing that counts."""

    def __init__(self, application: Application) -> None:
        self._application = application

    def claim(self, client: str, who: str, lease_s: float) -> Claim | None:
        """The oldest request that nobody supplies, or nobody has shown to supply for so long."""
        alone = "" if self._application.is_sqlite else " FOR UPDATE SKIP LOCKED"
        mark = secrets.token_hex(4)  # the database may be made anew, and count from 1 again
        found = self._application.run(_CLAIM.replace("{alone}", alone), (mark, who, client, lease_s)).fetchall()
        self._application.commit()
        for request, attempt, sites, failures in found:
            return Claim(client, request, attempt, tuple(json.loads(sites)), failures)
        return None

    def renew(self, claim: Claim, done: int, of: int | None) -> None:
        """It is still supplied."""
        self._change(_RENEW, (done, of), claim)
        self._application.commit()

    def supply(self, claim: Claim, payloads: Sequence[bytes], done: int, of: int | None) -> None:
        """Some messages of the snapshot."""
        self._change(_RENEW, (done, of), claim)
        self._insert(claim, Kind.SNAPSHOT, payloads)
        self._application.commit()

    def refer(self, claim: Claim, part: bytes, done: int, of: int | None) -> None:
        """Some messages of the snapshot, which are staged beside the log of the site."""
        self._change(_RENEW, (done, of), claim)
        self._insert(claim, STAGED, [part])
        self._application.commit()

    def finish(self, claim: Claim) -> None:
        """The snapshot is whole. The end is written first: if only that were kept, the site would not miss it."""
        self._insert(claim, Kind.SNAPSHOT_END, [b""])
        self._change(_DONE, (), claim)
        self._application.commit()

    def fail(self, claim: Claim, error: str, retry_s: float) -> None:
        """It is tried again, not before some time has passed."""
        self._change(_FAILED, (error, retry_s), claim)
        self._application.commit()

    def give_back(self, claim: Claim) -> None:
        """Others may supply it at once."""
        self._change(_GIVEN_BACK, (), claim)
        self._application.commit()

    def _insert(self, claim: Claim, kind: int, payloads: Sequence[bytes]) -> None:
        self._application.run_many(_SUPPLY, [(claim.client, claim.attempt, int(kind), each) for each in payloads])

    def _change(self, statement: str, values: Sequence[object], claim: Claim) -> None:
        changed = self._application.run(
            statement.replace("{mine}", _MINE), (*values, claim.request, claim.attempt)
        ).rowcount
        if changed != 1:
            self._application.rollback()
            what = f"snapshot {claim.attempt} of {claim.client} is not wanted from here any more"
            hint = "nothing: the request was withdrawn, or another provider has it"
            raise TailraceError("queue.claim_lost", what, hint=hint)
