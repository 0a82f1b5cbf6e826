"""Verifying a pipeline: every destination that can be read against the source, namespace by namespace."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from tailrace.errors import TailraceError
from tailrace.log.reader import LogReader
from tailrace.namespace import RESERVED
from tailrace.pipeline.suggest import did_you_mean
from tailrace.verify.contract import Readable, ReadBack
from tailrace.verify.differences import Differences
from tailrace.verify.match import Match, tables_of
from tailrace.verify.pace import Pace
from tailrace.verify.report import NamespaceReport, Report, WriterReport
from tailrace.verify.settling import settled

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tailrace.pipeline.spec import PipelineSpec, WriteSpec

Say = Callable[[str], None]
BY_OP: Final = "opfilter"
"""What this function lets through depends on what happened, not on what is there."""


@dataclass(frozen=True, slots=True)
class Scope:
    """What of a pipeline is verified."""

    spec: PipelineSpec
    writers: Sequence[str] = ()
    """By name; none for all."""
    namespace: re.Pattern[str] | None = None

    def chosen(self) -> list[WriteSpec]:
        """The writers; refuses a name that none of them has."""
        names = [write.name for write in self.spec.writes]
        for name in self.writers:
            if name not in names:
                what = f"pipeline {self.spec.name} has no writer {name!r}{did_you_mean(name, names)}"
                raise TailraceError("input.invalid", what, hint=f"name one of {', '.join(names)}, or none for all")
        return [write for write in self.spec.writes if not self.writers or write.name in self.writers]

    def matches(self, write: WriteSpec, back: ReadBack) -> Iterator[Match]:
        """The namespaces that a writer gets."""
        for name, table in tables_of(self.spec.read.options).items():
            patterns = (self.spec.read.namespace, write.namespace, self.namespace)
            if not name.startswith(RESERVED) and all(each is None or each.search(name) for each in patterns):
                yield Match(self.spec.log, self.spec.read.options, table, write, back)


def verify(scope: Scope, session: Callable[[], SparkSession], say: Say) -> Report:
    """Compare source and destinations. Nothing is changed; it works beside a running pipeline."""
    return Report(scope.spec.name, [_writer(scope, write, session, say) for write in scope.chosen()])


def check_ready(scope: Scope) -> None:
    """Refuse writers that there are not, and a pipeline that never ran."""
    scope.chosen()
    LogReader(scope.spec.log).view.bases()


def read_back(write: WriteSpec) -> ReadBack | str:
    """What reads a writer's destination, or why it cannot be compared."""
    if any(function.kind == BY_OP for function in write.through):
        return f"{BY_OP} decides by what happened, so the source's rows do not tell what should be there"
    if not isinstance(write.options, Readable):
        return f"a destination of the adaptor {write.adaptor} cannot be read back"
    return write.options.read_back()


def _writer(scope: Scope, write: WriteSpec, session: Callable[[], SparkSession], say: Say) -> WriterReport:
    report = WriterReport(write.name)
    back = read_back(write)
    if isinstance(back, str):
        report.incomparable = back
        return report
    pace = Pace(scope.spec.log, scope.spec.read.options, write.name)
    is_running = pace.runs() is not None
    if not is_running:
        report.notes = _lags(pace)
    matches = list(scope.matches(write, back))
    shared = Counter(match.namespace for match in matches)
    for match in matches:
        if shared[match.namespace] > 1:
            report.notes.append(f"{match.table.namespace} is not compared: {match.namespace} holds others, too")
            continue
        say(f"{write.name}: comparing {match.table.namespace}")
        found = settled(partial(_differences, match, session), pace.wait if is_running else None)
        report.namespaces.append(NamespaceReport(match.table.namespace, found.differences, found.moving))
    return report


def _differences(match: Match, session: Callable[[], SparkSession]) -> Differences:
    return match.differences(session())


def _lags(pace: Pace) -> list[str]:
    """Why an equal state cannot be expected while nothing runs."""
    notes = []
    if behind := pace.behind():
        notes.append(f"writer {pace.writer} is {behind} messages behind the log; run the pipeline first")
    if pace.is_source_ahead():
        notes.append("the source has changes that the log lacks; run the pipeline first")
    return notes
