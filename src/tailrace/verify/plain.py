"""Values in the one plain form in which they are compared and shown."""

from __future__ import annotations

import json
import math
from base64 import b64encode
from collections.abc import Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any


def plain(value: Any) -> Any:
    """A value as JSON has it: numbers that are equal look alike, moments are in UTC."""
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, float | Decimal):
        return _number(value)
    if isinstance(value, bytes):
        return {"$binary": b64encode(value).decode("ascii")}
    if isinstance(value, datetime):
        return (value if value.tzinfo is None else value.astimezone(UTC).replace(tzinfo=None)).isoformat()
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, timedelta):
        return str(value)
    if isinstance(value, Mapping):
        return {str(name): plain(part) for name, part in sorted(value.items(), key=lambda item: str(item[0]))}
    return [plain(part) for part in value] if isinstance(value, list | tuple) else value


def plain_json(value: Any) -> str:
    """A value in its plain form, as one line of JSON."""
    return json.dumps(plain(value), ensure_ascii=False, separators=(",", ":"), default=str)


def _number(value: float | Decimal) -> Any:
    if not math.isfinite(value):
        return str(value)
    if value == int(value):
        return int(value)
    return value if isinstance(value, float) else str(value)
