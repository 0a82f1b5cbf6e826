"""The greeting: what a Tarantool says first, and the proof of a password that fits it."""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from dataclasses import dataclass
from typing import Final

GREETING_BYTES: Final = 128
_LINE_BYTES: Final = 64
_SALT_BYTES: Final = 20
"""More is sent, and not used."""
_FIRST_WORD: Final = b"Tarantool "
_FIRST_LINE: Final = re.compile(r"Tarantool (\d+)\.(\d+)\.(\d+)\S* \(Binary\) ([0-9a-f-]{36}) *\n")


@dataclass(frozen=True, slots=True)
class Greeting:
    """Who answers."""

    version: tuple[int, int, int]
    instance: str
    """The uuid of the instance."""
    salt: bytes

    @property
    def version_text(self) -> str:
        return ".".join(map(str, self.version))


def read_greeting(said: bytes) -> Greeting:
    """Raises `ValueError` when these are not the words of a Tarantool."""
    found = _FIRST_LINE.fullmatch(said[:_LINE_BYTES].decode("latin-1"))
    if found is None or len(said) != GREETING_BYTES:
        raise ValueError("it does not greet as a Tarantool does")
    try:
        salt = base64.b64decode(said[_LINE_BYTES:].strip(), validate=True)
    except binascii.Error:
        raise ValueError("its greeting has no salt") from None
    if len(salt) < _SALT_BYTES:
        raise ValueError("its greeting has too short a salt")
    major, minor, patch, instance = found.groups()
    return Greeting((int(major), int(minor), int(patch)), instance, salt[:_SALT_BYTES])


def may_become_greeting(said: bytes) -> bool:
    """Whether these are the first words of a Tarantool that was cut short, as when it ends or a way to it does."""
    return len(said) < GREETING_BYTES and said[: len(_FIRST_WORD)] == _FIRST_WORD[: len(said)]


def greet(version: tuple[int, int, int], instance: str, salt: bytes) -> bytes:
    """The inverse of `read_greeting`, for those who answer as a Tarantool does."""
    first = f"Tarantool {'.'.join(map(str, version))} (Binary) {instance}".ljust(_LINE_BYTES - 1) + "\n"
    second = base64.b64encode(salt).decode().ljust(_LINE_BYTES - 1) + "\n"
    return (first + second).encode()


def scramble(password: str, salt: bytes) -> bytes:
    """Proof of a password, good for one greeting (chap-sha1)."""
    once = _sha1(password.encode())
    return bytes(a ^ b for a, b in zip(once, _sha1(salt + _sha1(once)), strict=True))


def _sha1(data: bytes) -> bytes:
    return hashlib.sha1(data, usedforsecurity=False).digest()
