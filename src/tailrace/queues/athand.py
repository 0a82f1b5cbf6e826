"""What a listener has at hand: for each queue the message that was handed out last, and how often.

It is written before the application gets the message, so that an attempt counts even if it kills the process. It is not
synced: the kernel has it when the process dies, and after a power cut a few attempts are forgotten.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from struct import Struct
from typing import Final

from tailrace.log.consumers import PREFIX
from tailrace.log.disk import disk_errors
from tailrace.log.frame import crc32

NAME: Final = "at_hand"
_SLOT: Final = Struct(">240sQI")
"""The queue's name · offset · attempts; a CRC-32 follows."""
_CRC: Final = Struct(">I")
_SLOT_BYTES: Final = _SLOT.size + _CRC.size


@dataclass(frozen=True, slots=True)
class _Held:
    slot: int
    offset: int
    attempts: int


class AtHand:
    """The file of one listener. Its owner holds the consumer's lock."""

    def __init__(self, directory: str, consumer: str) -> None:
        self._path = os.path.join(directory, PREFIX + consumer, NAME)
        with disk_errors("opening the attempts of a listener", self._path):
            self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
            self._slots, self._held = _read(self._fd)
        self._left = {(queue, held.offset): held.attempts for queue, held in self._held.items()}
        """What the last process left: those before it may come again first, and take its place in the file."""

    def attempts(self, queue: str, offset: int) -> int:
        """How often a message was handed out."""
        held = self._held.get(queue)
        return held.attempts if held is not None and held.offset == offset else self._left.get((queue, offset), 0)

    def begin(self, queue: str, offset: int) -> int:
        """A message is handed out now; returns for the how manieth time."""
        attempts = self.attempts(queue, offset) + 1
        self._write(queue, offset, attempts)
        return attempts

    def forget(self, queue: str, offset: int) -> None:
        """A message is done with: should it come once more after a crash, its attempts count anew."""
        self._left.pop((queue, offset), None)
        self._write(queue, offset, 0)

    def close(self) -> None:
        os.close(self._fd)

    def _write(self, queue: str, offset: int, attempts: int) -> None:
        held = self._held.get(queue)
        slot = self._slots if held is None else held.slot
        self._slots = max(self._slots, slot + 1)
        self._held[queue] = _Held(slot, offset, attempts)
        raw = _SLOT.pack(queue.encode(), offset, attempts)
        with disk_errors("counting an attempt", self._path):
            os.pwrite(self._fd, raw + _CRC.pack(crc32(raw)), slot * _SLOT_BYTES)


def _read(fd: int) -> tuple[int, dict[str, _Held]]:
    """How many slots there are, and what is in those that are whole."""
    slots = os.fstat(fd).st_size // _SLOT_BYTES
    held: dict[str, _Held] = {}
    for slot in range(slots):
        raw = os.pread(fd, _SLOT_BYTES, slot * _SLOT_BYTES)
        if _CRC.unpack_from(raw, _SLOT.size)[0] == crc32(raw[: _SLOT.size]):
            name, offset, attempts = _SLOT.unpack_from(raw)
            held[name.rstrip(b"\0").decode()] = _Held(slot, offset, attempts)
    return slots, held
