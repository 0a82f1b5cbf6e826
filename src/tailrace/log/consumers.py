"""Consumers: the named readers of a log, how far each has come, and what each holds back.

Each has a directory `__consumer_offsets-NAME`, as in Transporter, with its offset log and what was agreed with it.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import islice
from typing import Any, Final

from tailrace.errors import Place, TailraceError
from tailrace.log import audit, removed
from tailrace.log.agreement import Agreement, Hold, Policy, decode_agreement, encode_agreement
from tailrace.log.disk import Disk, disk_errors
from tailrace.log.lock import Lock, LockHeld, holder_of, short_lock
from tailrace.log.offsets import WHOLE_LOG, Kind, OffsetLog, Positions, Record, position_of, read_positions
from tailrace.log.segment import segment_name
from tailrace.log.view import LogView
from tailrace.message import Offset
from tailrace.namespace import check_file_name

PREFIX: Final = "__consumer_offsets-"
AGREEMENT_NAME: Final = "consumer.json"
LOCK_NAME: Final = "consumer.lock"
REGISTRY_LOCK_NAME: Final = "consumers.lock"
DRAFT_NAME: Final = "consumer.draft"
"""A consumer that is not registered yet, or no more; whoever holds the registry's lock may clear it away."""

_WALK_FRAMES_MAX: Final = 10_000
"""So far a position is followed through namespaces that are ahead of others; beyond, it is a little behind."""

Clock = Callable[[], float]


class State(StrEnum):
    """Whether a consumer can go on."""

    LIVE = "live"
    EXPIRED = "expired"
    """It has not been seen for its time to live; it holds nothing, and is live again when it returns in time."""
    DAMAGED = "damaged"
    """Its offsets cannot be read; it holds everything until it is deleted, and stands in nobody's way."""
    INVALIDATED = "invalidated"
    """What it needs next may be gone; it must take a new snapshot."""


@dataclass(frozen=True, slots=True)
class Consumer:
    """A consumer as it stands on disk."""

    name: str
    positions: Positions
    agreement: Agreement
    state: State
    seen_s: float
    """When it last showed life."""

    @property
    def holds(self) -> bool:
        return self.state in (State.LIVE, State.DAMAGED) and self.agreement.hold.policy is not Policy.NONE

    def needs(self, namespace: str, upto: int) -> bool:
        """Whether any message of a namespace up to an offset must be kept for this consumer (I6)."""
        return self.holds and self.positions.through(namespace) < upto


class Consumers:
    """The registry of a log's consumers."""

    def __init__(
        self, directory: str | os.PathLike[str], *, disk: Disk | None = None, clock: Clock = time.time
    ) -> None:
        self.directory = os.path.abspath(directory)
        self.view = LogView(self.directory)
        self.clock = clock
        self._disk = disk or Disk()

    def names(self) -> list[str]:
        """All consumers, by name. What only looks like one is somebody else's."""
        found = os.listdir(self.directory) if os.path.isdir(self.directory) else []
        names = sorted(name.removeprefix(PREFIX) for name in found if name.startswith(PREFIX))
        return [name for name in names if _is_usable(name) and os.path.isdir(self._path(name))]

    def all(self) -> list[Consumer]:
        found = []
        for name in self.names():
            try:
                found.append(self.get(name))
            except TailraceError as error:
                if error.code == "log.corrupt":
                    found.append(Consumer(name, Positions(), Agreement(), State.DAMAGED, 0.0))
                elif error.code != "consumer.unknown":  # deleted since we looked
                    raise
        return found

    def get(self, name: str) -> Consumer:
        """A consumer; raises when there is none of that name."""
        path = self._existing(name)
        positions = read_positions(path)
        agreement = self._read_agreement(path)
        seen_s = _seen_s(path)
        state = self._state(agreement, positions, seen_s)
        if state is State.EXPIRED and self.is_in_use(name):
            state = State.LIVE
        return Consumer(name, positions, agreement, state, seen_s)

    def register(
        self,
        name: str,
        *,
        start: int | None = None,
        hold: Hold | None = None,
        ttl_s: float | None = None,
        exist_ok: bool = False,
    ) -> Consumer:
        """Make a consumer that begins at `start` (by default at the oldest message). It holds the log from now on."""
        path = self._path(name)
        with disk_errors("registering a consumer", path), self.changing():
            if os.path.lexists(path):
                if exist_ok:
                    self._disk.sync_directory(self.directory)  # who registered it may have died before it was durable
                    return self.get(name)
                raise TailraceError(
                    "consumer.exists", f"there is a consumer {name} already", hint=f"tailrace offset show {name}"
                )
            oldest, end = self.view.bases()[0], self.view.head().next_offset
            first = oldest if start is None else start
            if not oldest <= first <= end:
                raise outside_log(first, oldest, end)
            draft = os.path.join(self.directory, DRAFT_NAME)
            shutil.rmtree(draft, ignore_errors=True)
            self._disk.make_directory(draft)
            self._disk.replace_file(
                os.path.join(draft, AGREEMENT_NAME), encode_agreement(Agreement(hold or Hold(), ttl_s))
            )
            offsets = OffsetLog(draft, self._disk)
            if first > 0:
                offsets.append([Record(Kind.COMMIT, WHOLE_LOG, first - 1)], int(self.clock()))
            offsets.close()
            self._disk.rename(draft, path)
            self._disk.sync_directory(self.directory)
        return self.get(name)

    def delete(self, name: str, reason: str) -> None:
        """Forget a consumer. What only it held back may be removed from then on."""
        with self.owning(name) as path, disk_errors("deleting a consumer", path), self.changing():
            before = self.known_position(name)
            draft = os.path.join(self.directory, DRAFT_NAME)
            shutil.rmtree(draft, ignore_errors=True)
            self._disk.rename(path, draft)
            self._disk.sync_directory(self.directory)
            shutil.rmtree(draft)
            audit.record(self._disk, self.directory, "delete", name, position=before, reason=reason)

    def show_life(self, name: str) -> None:
        """The consumer was heard of just now; one that had expired holds the log again."""
        path = os.path.join(self._existing(name), segment_name(0))
        with disk_errors("showing that a consumer is alive", path):
            os.utime(path)

    def agree_on(self, name: str, ttl_s: float | None) -> None:
        """The consumer has another time to live from now on."""
        if self._read_agreement(self._existing(name)).ttl_s != ttl_s:
            self._change_agreement(name, ttl_s=ttl_s)

    def invalidate(self, name: str, why: str) -> None:
        """A consumer went past its cap: it holds nothing any more, and cannot go on before a new snapshot."""
        self._change_agreement(name, invalidated=why)
        audit.record(self._disk, self.directory, "invalidate", name, reason=why)

    def revalidate(self, name: str) -> None:
        """The consumer has taken a new snapshot, or an operator has decided where it goes on."""
        if self._read_agreement(self._existing(name)).invalidated is not None:
            self._change_agreement(name, invalidated=None)

    def agree_on_hold(self, name: str, hold: Hold) -> None:
        """From now on a consumer may hold back so much, whatever was agreed before."""
        if self._read_agreement(self._existing(name)).hold != hold:
            self._change_agreement(name, hold=hold)

    def compact_offsets(self) -> None:
        """Keep the last word on each namespace in the offset logs that nobody uses; the others do it by themselves."""
        for name in self.names():
            with suppress(LockHeld), _unless_damaged(), self._locked(name) as path, disk_errors("compacting", path):
                seen_s = _seen_s(path)
                offsets = OffsetLog(path, self._disk)
                try:
                    offsets.compact(int(self.clock()))
                finally:
                    offsets.close()
                os.utime(os.path.join(path, segment_name(0)), (seen_s, seen_s))  # this is no sign of life

    def take_back(self, end: Offset) -> list[str]:
        """No consumer may be ahead of the log. After a power cut or a repair offsets are given once more, and the new
        messages that get them were not delivered. Returns who was ahead."""
        taken = []
        for name in self.names():
            try:
                is_ahead = read_positions(os.path.join(self.directory, PREFIX + name)).furthest >= end
            except TailraceError:  # damaged: whoever wants to use it is told
                continue
            if is_ahead:
                with self.owning(name) as path, self.changing(), disk_errors("taking a consumer back", path):
                    why = "the log ends here; what the consumer had beyond was lost"
                    audit.record(self._disk, self.directory, "rewind", name, offset=end, reason=why)
                    offsets = OffsetLog(path, self._disk)
                    try:
                        offsets.append([Record(Kind.REWIND, WHOLE_LOG, end)], int(self.clock()))
                    finally:
                        offsets.close()
                taken.append(name)
        return taken

    def sync_offsets(self) -> None:
        """Whatever positions were read before are on disk when this returns: only now may go what they allow (I6)."""
        for name in self.names():
            path = os.path.join(self._path(name), segment_name(0))
            if os.path.lexists(path):
                fd = self._disk.open(path)
                try:
                    self._disk.sync(fd)
                finally:
                    self._disk.close(fd)

    def position(self, consumer: Consumer) -> int:
        """The offset up to which a consumer has acknowledged everything."""
        return self.position_of(consumer.positions)

    def position_of(self, positions: Positions) -> int:
        """Like `position`. The end is looked up first, so that what is appended meanwhile does not count (I3)."""
        end = self.view.head().next_offset
        position = position_of(positions, self.view.last_offsets(), end)
        for head in islice(self.view.heads(Offset(max(position + 1, self.view.bases()[0]))), _WALK_FRAMES_MAX):
            position = max(position, head.offset - 1)
            if not head.is_hole:
                position = positions.within(head.namespace, position, head.end)
            if position < head.end - 1 and not head.is_hole:
                break
            position = head.end - 1
        return min(position, end - 1)

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Consumers do not come and go while this is held, so what nobody needs can be removed."""
        with short_lock(os.path.join(self.directory, REGISTRY_LOCK_NAME)):
            yield

    @contextmanager
    def owning(self, name: str) -> Iterator[str]:
        """Nobody else moves this consumer while this is held. Gives its directory."""
        with ExitStack() as stack:
            try:
                path = stack.enter_context(self._locked(name))
            except LockHeld as held:
                what = f"consumer {name} is in use by {held}"
                raise TailraceError(
                    "consumer.locked", what, place=Place(self._path(name)), hint="stop it first"
                ) from None
            yield path

    @contextmanager
    def _locked(self, name: str) -> Iterator[str]:
        path = self._existing(name)
        lock = Lock(os.path.join(path, LOCK_NAME))
        with disk_errors("taking up a consumer", path):
            lock.acquire()
        try:
            yield path
        finally:
            lock.release()

    def is_in_use(self, name: str) -> bool:
        """Whether some process moves this consumer right now."""
        return holder_of(os.path.join(self._path(name), LOCK_NAME)) is not None

    def _path(self, name: str) -> str:
        check_file_name(name, "consumer")
        return os.path.join(self.directory, check_file_name(PREFIX + name, "consumer"))

    def _existing(self, name: str) -> str:
        path = self._path(name)
        if not os.path.isdir(path):
            names = ", ".join(self.names()) or "none"
            raise TailraceError(
                "consumer.unknown", f"there is no consumer {name}; there are: {names}", hint="tailrace offset list"
            )
        return path

    def _read_agreement(self, path: str) -> Agreement:
        file = os.path.join(path, AGREEMENT_NAME)
        try:
            with open(file, "rb") as stream:
                return decode_agreement(stream.read())
        except FileNotFoundError:
            return Agreement()  # a consumer of Transporter's agreed to nothing
        except (ValueError, TypeError, KeyError, TailraceError) as error:
            what = f"a consumer's agreement cannot be read: {error}"
            raise TailraceError("log.corrupt", what, place=Place(file), hint="mend the file") from error

    def _change_agreement(self, name: str, **changes: Any) -> None:
        path = self._existing(name)
        agreement = replace(self._read_agreement(path), **changes)
        with disk_errors("changing a consumer", path):
            self._disk.replace_file(os.path.join(path, AGREEMENT_NAME), encode_agreement(agreement))

    def _state(self, agreement: Agreement, positions: Positions, seen_s: float) -> State:
        if agreement.invalidated is not None or self._has_lost_messages(positions):
            return State.INVALIDATED
        if agreement.ttl_s is not None and self.clock() - seen_s > agreement.ttl_s:
            return State.EXPIRED
        return State.LIVE

    def known_position(self, name: str) -> int | None:
        """A consumer's position, None when its offset log is damaged."""
        try:
            return self.position(self.get(name))
        except TailraceError:
            return None

    def _has_lost_messages(self, positions: Positions) -> bool:
        """Whether messages that the consumer never acknowledged were removed from the log's beginning."""
        oldest = self.view.bases()[0]
        gone = removed.read(self.directory)
        if gone.end >= oldest:
            return any(positions.through(name) < last < oldest for name, last in gone.last_offsets.items())
        lowest = min((positions.of(name) for name in positions.by_namespace), default=positions.of(WHOLE_LOG))
        return lowest + 1 < oldest


@contextmanager
def _unless_damaged() -> Iterator[None]:
    """A consumer whose offsets are damaged is left as it is; whoever uses it is told."""
    try:
        yield
    except TailraceError as error:
        if error.code != "log.corrupt":
            raise


def _is_usable(name: str) -> bool:
    try:
        check_file_name(PREFIX + name, "consumer")
    except TailraceError:
        return False
    return True


def outside_log(offset: int, oldest: Offset, end: Offset) -> TailraceError:
    return TailraceError(
        "offset.outside_log",
        f"offset {offset} is outside the log, which reaches from {oldest} to {end - 1}",
        hint="tailrace log stat",
    )


def _seen_s(path: str) -> float:
    files = (os.path.join(path, name) for name in (segment_name(0), AGREEMENT_NAME))
    return max((os.stat(file).st_mtime for file in files if os.path.exists(file)), default=os.stat(path).st_mtime)
