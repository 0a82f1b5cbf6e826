"""`tailrace run`: run a pipeline and show how far it is."""

from __future__ import annotations

import logging
import os
import shlex
import sys
from contextlib import ExitStack
from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from tailrace.cli.check import PipelineArgument
from tailrace.cli.jsonlog import LogFormat
from tailrace.cli.options import LogFormatOption, MasterOption
from tailrace.errors import TailraceError

if TYPE_CHECKING:
    from tailrace.cli.running import Display, Talk
    from tailrace.pipeline.run import Summary
    from tailrace.pipeline.spec import PipelineSpec


class LogLevel(StrEnum):
    """How much is told of what goes on inside."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


def run(
    file: PipelineArgument,
    once: Annotated[bool, typer.Option("--once", help="End when what is in the source now is delivered.")] = False,
    until_caught_up: Annotated[
        bool, typer.Option("--until-caught-up", help="End when nothing is left to read or to deliver.")
    ] = False,
    master: MasterOption = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print errors only.")] = False,
    log_level: Annotated[LogLevel, typer.Option(help="How much is told of what goes on inside.")] = LogLevel.WARNING,
    log_format: LogFormatOption = LogFormat.TEXT,
    ui: Annotated[bool, typer.Option("--ui", help="Serve a status page, on this machine only.")] = False,
    ui_listen: Annotated[str, typer.Option(metavar="HOST:PORT", help="Where; port 0 takes a free one.")] = "",
) -> None:
    """Run a pipeline until it is stopped; Ctrl-C lets it finish what was begun, a second one stops it at once."""
    from tailrace.pipeline.load import load

    if once and until_caught_up:
        raise TailraceError("input.invalid", "--once and --until-caught-up exclude each other", hint="give one of them")
    spec = load(file)
    if master is not None:
        spec = replace(spec, master=master)

    from tailrace.cli.running import Talk, TalkHandler
    from tailrace.pipeline.run import Until
    from tailrace.pipeline.run import run as run_pipeline
    from tailrace.pipeline.shutdown import Shutdown
    from tailrace.transform.pretty import LOGGER as PRETTY

    until = Until.ONCE if once else Until.CAUGHT_UP if until_caught_up else Until.STOPPED
    shutdown = Shutdown()
    again = f"tailrace run {shlex.quote(file)}"
    with Talk(display(log_format), quiet=quiet) as talk:
        logger = logging.getLogger("tailrace")
        logger.setLevel(log_level.upper())
        logger.addHandler(TalkHandler(talk))
        if log_level is LogLevel.WARNING:
            PRETTY.setLevel(logging.INFO)  # somebody asked to see messages
        with ExitStack() as serving:
            if ui or ui_listen:
                _serve_page(spec, ui_listen, talk, serving)
            summary = run_pipeline(
                spec, until, watcher=talk, shutdown=shutdown, retry_hint=again, is_attended=bool(ui or ui_listen)
            )
    if shutdown.asked.is_set() and not summary.drained and not summary.errors:
        what = "not everything was delivered before the end that was asked for; it is delivered next time"
        raise TailraceError("pipeline.stopped", what, hint=again)
    raise typer.Exit(_exit_status(summary))


def _serve_page(spec: PipelineSpec, listen: str, talk: Talk, serving: ExitStack) -> None:
    """The page says where it is; its token is where only the owner of the log can read it."""
    from tailrace.deliver.retrying import Retrying
    from tailrace.log.disk import Disk, disk_errors
    from tailrace.observe.pipelines import look_at_pipeline
    from tailrace.pipeline.run import make_parents
    from tailrace.relay.address import is_loopback
    from tailrace.sync.address import checked_listen
    from tailrace.web.status_page import LISTEN, status_page, token_beside

    address = listen or LISTEN
    try:
        checked_listen(address)
    except ValueError as error:
        what = f"--ui-listen: {address[:80]!r} is no address: {error}"
        raise TailraceError("input.invalid", what, hint=f"write it like {LISTEN}") from None
    if not is_loopback(address):
        what = f"{address} can be reached by others, and the page is not encrypted"
        raise TailraceError("input.invalid", what, hint="serve it on 127.0.0.1, and reach it through a tunnel")
    make_parents(os.path.abspath(spec.log))
    with disk_errors("making a directory for the log", spec.log):
        Disk().make_directory(spec.log)
    token, where = token_beside(spec.log)
    server = serving.enter_context(
        status_page(
            look_at_pipeline(spec),
            listen=address,
            token=token,
            log=spec.log,
            retry=lambda writer, reason, via: Retrying(spec.log, writer).ask(reason, via),
        )
    )
    talk.say(f"the status page is at {server.url}; its token is in {where}")


def display(log_format: LogFormat = LogFormat.TEXT) -> Display:
    """Where a run is shown: bars on a terminal, lines elsewhere, objects for programs."""
    stream = sys.stderr
    if log_format is LogFormat.JSON:
        from tailrace.cli.jsonlines import JsonLines

        return JsonLines(stream)
    if stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb":
        from tailrace.cli.bars import Bars

        return Bars(stream)
    from tailrace.cli.lines import Lines

    return Lines(stream)


def _exit_status(summary: Summary) -> int:
    """Errors have been told when they happened."""
    return int(summary.errors[0].exit_status) if summary.errors else 0
