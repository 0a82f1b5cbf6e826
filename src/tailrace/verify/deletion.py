"""Deletion: messages that remove rows which only a destination has.

Such a row is known by its key in the destination's terms. Functions may have renamed the key, so its parts are put back
by their place in it; a message that does not lead to the same key is not sent.
"""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tailrace.errors import TailraceError
from tailrace.log.batch import Batch, batch_of
from tailrace.message import Op, now
from tailrace.verify.contract import ReadBack
from tailrace.verify.differences import DifferingKey
from tailrace.verify.digest import Digest
from tailrace.verify.sides import numbered, stored_rows, without_rows

if TYPE_CHECKING:
    from tailrace.source.contract import Table
    from tailrace.transform.chain import Chain


def deletions(table: Table, chain: Chain, digest: Digest, back: ReadBack, keys: Sequence[DifferingKey]) -> list[Batch]:
    """Deletes of these keys in the source's terms, as far as there are any."""
    made = [_deletion(table, chain, digest, key) for key in keys]
    return [
        batch for key, batch in zip(keys, made, strict=True) if batch and _leads_to(batch, chain, digest, back, key)
    ]


def _deletion(table: Table, chain: Chain, digest: Digest, key: DifferingKey) -> Batch | None:
    after = chain.apply(without_rows(table)).key
    names = dict(zip(after, table.key, strict=True)) if len(after) == len(table.key) else {}
    parts = {names.get(name, name): part for name, part in zip(digest.key, json.loads(key.text), strict=True)}
    if not set(parts) <= set(table.schema.names):
        return None
    try:
        columns = [_column(field, parts.get(field.name)) for field in table.schema]
    except (pa.ArrowException, OverflowError):
        return None
    data = pa.StructArray.from_arrays(columns, fields=list(table.schema))
    return batch_of(table.namespace, data, op=Op.DELETE, timestamp=now(), key=table.key)


def _column(field: pa.Field[Any], part: Any) -> pa.Array[Any]:
    """A column of one value, which is plain JSON."""
    if isinstance(part, dict) and "$binary" in part:
        part = b64decode(part["$binary"])
    column: pa.Array[Any] = pa.array([part]).cast(field.type)
    return column


def _leads_to(batch: Batch, chain: Chain, digest: Digest, back: ReadBack, key: DifferingKey) -> bool:
    try:
        messages = chain.apply(numbered(batch))
    except TailraceError:
        return False
    if not len(messages):
        return False
    return bool((digest.of(stored_rows(messages.data, back)).keys.view(np.int64) == key.hash).all())
