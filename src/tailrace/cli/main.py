"""`tailrace`: the command and its error handling."""

from __future__ import annotations

import io
import json
import sys
import traceback
from typing import Annotated

import typer

from tailrace import __version__
from tailrace.cli import (
    about,
    check,
    conflict,
    demo,
    doctor,
    init,
    log,
    node,
    offset,
    plan,
    queue,
    rebuild,
    replica,
    serve,
    slot,
    status,
    sync,
    top,
    topology,
    uninstall,
    verify,
)
from tailrace.cli import run as run_command
from tailrace.cli.jsonlog import error_line, is_wanted, log_line
from tailrace.cli.output import OutputRefused, drop_output, finish_output, watch_output
from tailrace.cli.report import report_lines, report_object
from tailrace.errors import Exit, TailraceError
from tailrace.log.disk import disk_error
from tailrace.masking import masked

app = typer.Typer(
    name="tailrace",
    help="Take the changes of any source, keep them once in a durable log, carry them to any destination.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(log.app, name="log")
app.add_typer(offset.app, name="offset")
app.add_typer(slot.app, name="slot")
app.add_typer(node.app, name="node")
app.add_typer(conflict.app, name="conflict")
app.add_typer(replica.app, name="replica")
app.add_typer(topology.app, name="topology")
app.add_typer(queue.app, name="queue")
app.add_typer(sync.app, name="sync")
app.command()(init.init)
app.command()(about.about)
app.command()(check.check)
app.command()(doctor.doctor)
app.command()(plan.plan)
app.command()(run_command.run)
app.command()(status.status)
app.command()(top.top)
app.command()(verify.verify)
app.command()(rebuild.rebuild)
app.command()(uninstall.uninstall)
app.command()(serve.serve)
app.command()(demo.demo)


@app.callback(invoke_without_command=True)
def main(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.", is_eager=True)] = False,
) -> None:
    if version:
        typer.echo(__version__)
        raise typer.Exit


def run() -> None:
    """What the installed command calls. Exit status: 0 ok, 1 runtime, 2 your input, 3 the environment, 130 Ctrl-C."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # what was stored is shown, whatever the terminal can print
    watch_output()
    try:
        try:
            app()
        finally:
            finish_output()
    except OutputRefused as refusal:
        drop_output()
        _report(refusal.told())
        sys.exit(Exit.RUNTIME)
    except TailraceError as error:
        _report(error)
        sys.exit(error.exit_status)
    except OSError as error:
        refused = disk_error(error, "reading", str(error.filename or "a file"))
        _report(refused)
        sys.exit(refused.exit_status)
    except Exception:  # noqa: BLE001  a mistake of the program, or of somebody's adaptor, with all that Python knows
        told = masked(traceback.format_exc())
        print(log_line(told, level="critical") if is_wanted(sys.argv) else told.rstrip("\n"), file=sys.stderr)
        sys.exit(Exit.RUNTIME)


def _report(error: TailraceError) -> None:
    """One object for programs, one sentence and the next command for people; always on stderr."""
    if is_wanted(sys.argv):
        print(error_line(error), file=sys.stderr)
    elif "--json" in sys.argv:
        print(json.dumps({"error": report_object(error)}), file=sys.stderr)
    else:
        print(*report_lines(error), sep="\n", file=sys.stderr)
