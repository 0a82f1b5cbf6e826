"""`tailrace status`: how a pipeline, a node or a replica is."""

from __future__ import annotations

from tailrace.cli.options import JsonOption, LookedAtArgument


def status(file: LookedAtArgument, as_json: JsonOption = False) -> None:
    """Print whether it runs, how far everything is and what is wrong; it works whether it runs or not."""
    from tailrace.cli.overview import print_overview
    from tailrace.observe.looking import look_at

    print_overview(look_at(file)(), as_json=as_json)
