"""Gaps: fields that a query asks for and a namespace lacks. They are NULL there."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from pyspark.errors import AnalysisException
    from pyspark.sql import DataFrame

MARK: Final = "tailrace.gap"
"""Metadata of a column in Spark: it is there only because a query asks for it."""
_NAMES: Final = re.compile(r"`((?:[^`]|``)+)`|(\w+)")


class Gap(NamedTuple):
    """A path to a field within others, and which of its names leads nowhere."""

    path: tuple[str, ...]
    at: int

    def __str__(self) -> str:
        return ".".join(self.path[: self.at + 1])


def gap_of(error: AnalysisException, relations: Collection[str]) -> Gap | None:
    """The field that is missing, if that is what the error is about; `relations` are names of the view itself."""
    contexts = error.getQueryContext()
    if not contexts:
        return None
    path = _names(contexts[0].fragment())
    if len(path) > 1 and path[0].lower() in relations:
        path = path[1:]
    condition = error.getCondition() or ""
    if condition.startswith("UNRESOLVED_COLUMN"):
        return Gap(path, 0)
    if condition == "FIELD_NOT_FOUND":
        (name,) = _names((error.getMessageParameters() or {})["fieldName"])
        return Gap(path, path.index(name, 1)) if name in path[1:] else None
    return None


def filled(view: DataFrame, gap: Gap) -> DataFrame:
    """The view with NULL where the gap was."""
    from pyspark.sql import functions as F  # noqa: N812  as Spark's own documentation calls it

    nothing = F.lit(None).cast(_type(gap.path[gap.at + 1 :]))
    first = gap.path[0]
    if gap.at == 0:
        return view.select("*", nothing.alias(first, metadata={MARK: True}))
    inner = ".".join(map(_quoted, gap.path[1 : gap.at + 1]))
    return view.withColumn(first, F.col(_quoted(first)).withField(inner, nothing))


def gaps_in(result: DataFrame) -> set[int]:
    """Which columns of a result are nothing but gaps, by place."""
    fields: list[Any] = result.schema.fields
    return {at for at, field in enumerate(fields) if MARK in field.metadata}


def _names(text: str) -> tuple[str, ...]:
    return tuple(found[1].replace("``", "`") if found[1] else found[2] for found in _NAMES.finditer(text))


def _type(path: tuple[str, ...]) -> str:
    """The type of something that has a field at the end of a path."""
    return f"struct<{_quoted(path[0])}: {_type(path[1:])}>" if path else "string"


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
