"""Paper: what travels between nodes beside rows, as JSON. Everything unknown or too long is refused (I10)."""

from __future__ import annotations

from typing import Annotated, Any, Final, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, ValidationError

from tailrace.limits import MIB, U64_MAX
from tailrace.relay.refusal import malformed
from tailrace.relay.vclock import Vclock, decode_vclock

BYTES_MAX: Final = 4 * MIB


def _vclock(told: Any) -> Vclock:
    return told if isinstance(told, Vclock) else decode_vclock(told)


def _node(told: Any) -> int:
    if isinstance(told, str) and told.isascii() and told.isdigit() and len(told) <= len(str(U64_MAX)):
        told = int(told)
    if isinstance(told, bool) or not isinstance(told, int) or not 0 <= told <= U64_MAX:
        raise ValueError("this is no node id")
    return told


Clock = Annotated[Vclock, BeforeValidator(_vclock), PlainSerializer(Vclock.encode)]
Node = Annotated[int, BeforeValidator(_node), PlainSerializer(str)]
"""A node id; as text, because many JSON readers round numbers of 64 bits."""
ClusterId = Annotated[str, Field(pattern=r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")]

SessionName = Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")]


class Paper(BaseModel):
    """What travels."""

    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True)

    def packed(self) -> bytes:
        return self.model_dump_json(exclude_none=True).encode()

    @classmethod
    def read(cls, raw: bytes) -> Self:
        """What a peer sent."""
        if len(raw) > BYTES_MAX:
            raise malformed(f"{cls.__name__.lower()} cannot be read: it has {len(raw)} bytes, {BYTES_MAX} are allowed")
        try:
            return cls.model_validate_json(raw)
        except ValidationError as error:
            first = error.errors(include_url=False, include_context=False, include_input=False)[0]
            place = ".".join(str(part)[:40] for part in first["loc"])
            raise malformed(f"{cls.__name__.lower()} cannot be read: {place}: {first['msg']}"[:300]) from error
