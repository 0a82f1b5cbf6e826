"""Options that several commands have."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from tailrace.cli.jsonlog import LogFormat
from tailrace.errors import TailraceError

LogOption = Annotated[
    str, typer.Option("--log", metavar="DIR", envvar="TAILRACE_LOG", help="The log's directory.", show_default=False)
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
ReasonOption = Annotated[str, typer.Option("--reason", help="Why; kept in the audit trail.")]
NamespaceOption = Annotated[
    str | None,
    typer.Option("--namespace", "-n", metavar="REGEX", help="Only namespaces in which this pattern is found."),
]
MasterOption = Annotated[
    str | None, typer.Option("--master", metavar="URL", help="The Spark master; the pipeline's, or this machine.")
]
DestinationOption = Annotated[str | None, typer.Option("--destination", help="Only messages for this destination.")]
LogFormatOption = Annotated[
    LogFormat, typer.Option("--log-format", help="How what goes on is told on stderr: text, or a JSON object a line.")
]
LookedAtArgument = Annotated[
    str, typer.Argument(metavar="FILE.yml", help="The file of a pipeline, a node or sync.", show_default=False)
]
ConsumerArgument = Annotated[str, typer.Argument(metavar="CONSUMER", help="The consumer's name.", show_default=False)]


def confirm(question: str, *, yes: bool) -> None:
    """Ask before something that cannot be undone; without a terminal there is nobody to ask."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise TailraceError("input.invalid", f"nobody can answer: {question}", hint="the same command with --yes")
    typer.confirm(question, abort=True, err=True)
