"""`tailrace verify`: whether destinations hold what the source has."""

from __future__ import annotations

import json
import shlex
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from tailrace.cli.check import PipelineArgument
from tailrace.cli.options import JsonOption, MasterOption, NamespaceOption

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tailrace.verify.report import NamespaceReport, Report
    from tailrace.verify.verify import Scope

WritersArgument = Annotated[
    list[str] | None, typer.Argument(metavar="[WRITER]...", help="Only these writers.", show_default=False)
]


def verify(
    file: PipelineArgument,
    writers: WritersArgument = None,
    repair: Annotated[
        bool, typer.Option("--repair", help="Send what differs again; the pipeline must not run.")
    ] = False,
    as_json: JsonOption = False,
    namespace: NamespaceOption = None,
    master: MasterOption = None,
) -> None:
    """Compare source and destinations row by row and print the keys that differ; exit status 1 when there are any."""
    from tailrace.namespace import namespace_pattern
    from tailrace.pipeline.load import load

    spec = load(file)
    if master is not None:
        spec = replace(spec, master=master)

    from tailrace.verify.verify import Scope

    report = _verified(Scope(spec, writers or (), namespace_pattern(namespace)), repairs=repair)
    if as_json:
        print(json.dumps(report.encode()))
    else:
        print("\n".join(_lines(report)))
    hint = f"tailrace verify {shlex.quote(file)}{'' if repair else ' --repair'}"
    if (error := report.error(hint)) is not None:
        raise error


def _verified(scope: Scope, *, repairs: bool) -> Report:
    """Nothing is started for what will be refused."""
    from tailrace.spark.beside import session_beside
    from tailrace.verify.repair import check_repairable, repair
    from tailrace.verify.verify import check_ready, verify

    check_ready(scope)
    if repairs:
        check_repairable(scope)
    with session_beside(scope.spec.log, scope.spec.master, scope.spec.spark) as session:
        report = verify(scope, session, _say)
        if repairs and report.differing:
            done = repair(scope, report, session, _say)
            _say(f"{done.sent} rows were sent again and {done.deleted} deletes; verifying again")
            if done.beyond:
                _say(f"{done.beyond} keys could not be traced back to the source; remove their rows by hand")
            report = verify(scope, session, _say)
    return report


def _say(text: str) -> None:
    from tailrace.cli.show import printable

    print(printable(text), file=sys.stderr)


def _lines(report: Report) -> Iterator[str]:
    from tailrace.cli.show import printable

    for writer in report.writers:
        if writer.incomparable is not None:
            yield printable(f"{writer.name}: cannot be compared, {writer.incomparable}")
        for note in writer.notes:
            yield printable(f"{writer.name}: {note}")
        for each in writer.namespaces:
            yield printable(f"{writer.name}: {each.namespace} {_verdict(each)}")
            yield from (printable(line) for line in _keys(each))


def _verdict(each: NamespaceReport) -> str:
    found = each.differences
    moving = f"; {each.moving} keys change too fast to tell" if each.moving else ""
    if not found.total:
        return f"is equal, {found.stored_rows} rows{moving}"
    counts = ", ".join(f"{count} {kind}" for kind, count in found.counts.items())
    return f"differs: {counts} ({found.expected_rows} rows in the source, {found.stored_rows} here){moving}"


def _keys(each: NamespaceReport) -> Iterator[str]:
    from tailrace.verify.report import SHOWN

    for key in each.differences.keys[:SHOWN]:
        yield f"  {key.kind:<9}  {key.text}"
    if each.differences.total > SHOWN:
        yield f"  and {each.differences.total - SHOWN} more"
