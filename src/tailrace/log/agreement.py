"""What is agreed with a consumer: how much of the log it may hold back, and for how long."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from tailrace.errors import TailraceError


class Policy(StrEnum):
    """Whether a consumer keeps the log from being removed."""

    HOLD = "hold"
    CAP = "cap"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Hold:
    """How much of the log a consumer may hold back."""

    policy: Policy = Policy.HOLD
    cap_bytes: int | None = None
    cap_age_s: float | None = None

    def __post_init__(self) -> None:
        has_cap = self.cap_bytes is not None or self.cap_age_s is not None
        if has_cap != (self.policy is Policy.CAP) or min(self.cap_bytes or 0, self.cap_age_s or 0) < 0:
            raise TailraceError(
                "input.invalid",
                f"policy {self.policy} with cap_bytes {self.cap_bytes} and cap_age_s {self.cap_age_s} makes no sense",
                hint="give a cap of bytes, of age or both with policy cap, and none with hold and none",
            )


@dataclass(frozen=True, slots=True)
class Agreement:
    """What was agreed when a consumer was registered, and whether it still holds."""

    hold: Hold = Hold()
    ttl_s: float | None = None
    invalidated: str | None = None
    """Why the consumer cannot go on, None while it can."""

    def __post_init__(self) -> None:
        if self.ttl_s is not None and self.ttl_s <= 0:
            raise TailraceError(
                "input.invalid", f"a time to live of {self.ttl_s} seconds makes no sense", hint="make it longer"
            )


def encode_agreement(agreement: Agreement) -> bytes:
    """As JSON."""
    return json.dumps(asdict(agreement), indent=2).encode() + b"\n"


def decode_agreement(raw: bytes) -> Agreement:
    """The inverse of `encode_agreement`."""
    found: dict[str, Any] = json.loads(raw)
    hold = dict(found.pop("hold"))
    return Agreement(hold=Hold(policy=Policy(hold.pop("policy")), **hold), **found)
