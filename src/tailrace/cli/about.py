"""`tailrace about`: what adaptors and functions there are, and what can be said about them."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tailrace.cli.options import JsonOption
from tailrace.errors import TailraceError

if TYPE_CHECKING:
    from tailrace.pipeline.catalog import Described


def about(
    name: Annotated[
        str | None, typer.Argument(metavar="[ADAPTOR|FUNCTION]", help="Only this one, with all options.")
    ] = None,
    schema: Annotated[bool, typer.Option("--schema", help="Print the JSON schema of pipeline files.")] = False,
    as_json: JsonOption = False,
) -> None:
    """List the adaptors and functions, or tell everything about one."""
    if schema:
        from tailrace.pipeline.schema import pipeline_schema

        print(json.dumps(pipeline_schema(), indent=None if as_json else 2))
    elif name is None:
        _print_all(as_json)
    else:
        _print_one(name, as_json)


def _print_all(as_json: bool) -> None:
    from tailrace.pipeline.catalog import catalog

    adaptors, functions = catalog()
    if as_json:
        print(
            json.dumps(
                {"adaptors": [_plain(each) for each in adaptors], "functions": [_plain(each) for each in functions]}
            )
        )
        return
    print("Adaptors")
    for each in adaptors:
        ways = " and ".join(way for way in ("read", "write") if way in each.options) or "not usable here"
        print(f"  {each.name:<12}{ways:<18}{each.summary}")
    print("\nFunctions")
    for each in functions:
        print(f"  {each.name:<12}{each.summary}")
    print("\n`tailrace about NAME` tells more about one.")


def _print_one(name: str, as_json: bool) -> None:
    from tailrace.adaptor import registry as adaptors
    from tailrace.pipeline.catalog import describe_adaptor, describe_function
    from tailrace.pipeline.suggest import did_you_mean
    from tailrace.transform import registry as functions

    found = []
    if name in adaptors.names():
        found.append(describe_adaptor(name))
    if name in functions.names():
        found.append(describe_function(name))
    if not found:
        known = [*adaptors.names(), *functions.names()]
        what = f"there is no adaptor or function {name!r}{did_you_mean(name, known)}"
        raise TailraceError("input.invalid", what, hint="tailrace about")
    if as_json:
        print(json.dumps(_plain(found[0])))
        return
    print("\n".join(_page(each) for each in found), end="")


def _page(each: Described) -> str:
    from tailrace.pipeline.sample import sample_of

    lines = [f"{each.name}: {each.summary}" if each.summary else each.name]
    for way, options in each.options.items():
        lines += ["", f"Options to {way}" if way != "through" else "Options"]
        for option in options:
            default = "required" if option.is_required else f"default {json.dumps(option.default)}"
            lines.append(f"  {option.name:<17} {option.kind}, {default}")
            if option.summary:
                lines.append(f"  {'':<18}{option.summary}")
        if not options:
            lines.append("  none")
    lines += ["", "For example", ""]
    lines += [f"  {line}".rstrip() for line in sample_of(each).splitlines()]
    return "\n".join(lines) + "\n"


def _plain(each: Described) -> dict[str, Any]:
    return asdict(each)
