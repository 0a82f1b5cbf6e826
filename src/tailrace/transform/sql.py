"""sql: a SELECT over the message's fields."""

from __future__ import annotations

import logging
from functools import cache
from typing import TYPE_CHECKING, Annotated, ClassVar, Final

from pydantic import Field, field_validator

from tailrace.message import Op
from tailrace.transform.gaps import Gap, filled, gap_of, gaps_in
from tailrace.transform.options import FunctionOptions, Missing
from tailrace.transform.select import VIEW, Select, read_select

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

MESSAGE: Final = "__tailrace_message"
"""The column that ties a row of the result to its message."""
LOGGER: Final = logging.getLogger("tailrace.sql")
_DATA: Final = "data"
_HAS_DATA: Final = "has_data"


class Sql(FunctionOptions):
    """Selects from the view `messages`; the columns of the result become the fields of `data`.

    The view has the fields of `data`, and `_op` (text), `_timestamp`, `_offset` and `_namespace`. A row that WHERE
    leaves out is a message dropped. `before` stays as it was.
    """

    kind: ClassVar[str] = "sql"
    summary: ClassVar[str] = "a SELECT over the fields of each message"
    short: ClassVar[str] = "query"
    keeps_keys: ClassVar[bool] = False

    query: Annotated[str, Field(min_length=1)]
    """SELECT … FROM messages [WHERE …], in Spark's SQL."""
    missing: Missing = "ignore"
    """What happens when a namespace lacks a field: `ignore` takes it for NULL and says so once, `error` stops."""

    @field_validator("query")
    @classmethod
    def _check_query(cls, query: str) -> str:
        read_select(query)
        return query

    def apply_frame(self, frame: DataFrame, namespace: str) -> DataFrame:
        select = read_select(self.query)
        extras = _extras(frame)
        result = self._selected(_view(frame, extras), select, namespace)
        return self._rebuilt(frame, result, select, set(extras), namespace)

    def _selected(self, view: DataFrame, select: Select, namespace: str, gaps: tuple[Gap, ...] = ()) -> DataFrame:
        """What the query gives, with NULL for what the namespace lacks."""
        from pyspark.errors import AnalysisException

        try:
            if gaps:
                view = filled(view, gaps[-1])
            view.createOrReplaceTempView(VIEW)
            return view.sparkSession.sql(select.with_column(MESSAGE))
        except AnalysisException as error:
            gap = gap_of(error, select.relations) if self.missing == "ignore" else None
            if gap is None or gap in gaps:
                reason = str(error).strip().splitlines()[0]
                raise self.failed(namespace, f"{reason} (in {self.query!r})", "correct the query") from error
        _tell(namespace, str(gap), self.query)
        return self._selected(view, select, namespace, (*gaps, gap))

    def _rebuilt(
        self, frame: DataFrame, result: DataFrame, select: Select, extras: set[str], namespace: str
    ) -> DataFrame:
        """The result as messages again: what was not data comes from the column that ties. What is nothing but a gap is
        left out, so that an update without the field leaves it as it is."""
        from pyspark.sql import functions as F  # noqa: N812  as Spark's own documentation calls it

        hidden = {MESSAGE} | (extras if select.has_star else set())
        asked = {at: name for at, name in enumerate(result.columns) if at and name not in hidden}
        gaps = gaps_in(result)
        names = {at: name for at, name in asked.items() if at not in gaps} or asked
        if len({name.lower() for name in names.values()}) < len(names):
            why = f"two columns of {self.query!r} have the same name"
            raise self.failed(namespace, why, "name one of them with AS")
        if not names:
            raise self.failed(namespace, f"{self.query!r} selects no field", "select at least one")
        numbered = result.toDF(*(f"c{at}" for at in range(len(result.columns))))
        fields = F.struct(*(F.col(f"c{at}").alias(name) for at, name in names.items()))
        data = F.when(F.col(f"c0.{_HAS_DATA}"), fields).alias(_DATA)
        return numbered.select(*(data if name == _DATA else F.col(f"c0.{name}") for name in frame.columns))


@cache
def _tell(namespace: str, field: str, query: str) -> None:
    """Once in a process."""
    LOGGER.warning("sql: %s has no field %s, which is taken for NULL in %r", namespace, field, query)


def _extras(frame: DataFrame) -> dict[str, Column]:
    """What the view has beside the fields; a field of the same name comes first."""
    from pyspark.sql import functions as F  # noqa: N812  as Spark's own documentation calls it
    from pyspark.sql.types import StringType

    op = F.col("op")
    if not isinstance(frame.schema["op"].dataType, StringType):
        names = F.array(*(F.lit(name.name.lower()) for name in Op))
        op = F.element_at(names, op.cast("int") + 1)
    extras = {"_op": op, "_timestamp": F.col("timestamp"), "_offset": F.col("offset"), "_namespace": F.col("namespace")}
    taken = {name.lower() for name in frame.select(f"{_DATA}.*").columns}
    return {name: column for name, column in extras.items() if name not in taken}


def _view(frame: DataFrame, extras: dict[str, Column]) -> DataFrame:
    from pyspark.sql import functions as F  # noqa: N812  as Spark's own documentation calls it

    kept = [F.col(name) for name in frame.columns if name != _DATA]
    message = F.struct(*kept, F.col(_DATA).isNotNull().alias(_HAS_DATA)).alias(MESSAGE)
    return frame.select(message, f"{_DATA}.*", *(column.alias(name) for name, column in extras.items()))
