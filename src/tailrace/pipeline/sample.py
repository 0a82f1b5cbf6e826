"""Pipeline files to begin with: every option with its default, what must be said with a sample value."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from textwrap import wrap
from typing import Any, Final

from tailrace.pipeline.catalog import Described, Use
from tailrace.pipeline.describe import PATH_SAMPLE, Option, options_of
from tailrace.pipeline.form import ReadForm, SettingsForm, WriteForm

_PLAIN: Final = re.compile(r"[A-Za-z_./][A-Za-z0-9_./-]*|[0-9]+(ms|s|[KMG]iB)")
_WORDS: Final = ("true", "false", "null")
_WIDTH: Final = 100
_EXAMPLES: Final[dict[str, Any]] = {
    "omit": ["email", "address.zip"],
    "opfilter": ["insert", "update"],
    "pick": ["id", "total"],
    "pretty": {"spaces": 2},
    "python": "package.module:function",
    "remap": {"main.orders": "public.orders"},
    "rename": {"total": "amount"},
    "skip": {"field": "total", "operator": ">", "match": 10},
    "sql": "SELECT id, total * 2 AS total FROM messages",
}
"""What a generated sample would not make clear."""
_PATHS: Final = {"read": "./source", "write": "./destination"}
"""So that a pipeline to begin with does not read what it writes."""


def sample_of(found: Described) -> str:
    """The shortest configuration of an adaptor or a function."""
    lines = []
    for use, options in found.options.items():
        required = _EXAMPLES.get(found.name) or {each.name: each.sample for each in options if each.is_required}
        if use == "through":
            lines += ["through:", f"  - {found.name}: {written(required)}"]
        else:
            lines += [f"{use}:", f"  {found.name}: {written(required)}"]
    return "\n".join(lines)


def sample_file(name: str, source: Described, sink: Described, schema: str | None = None) -> str:
    """A whole pipeline file with comments. `schema` names a JSON schema for editors."""
    lines = [f"# yaml-language-server: $schema={schema}"] if schema else []
    lines += [
        f"# A pipeline from {source.name} to {sink.name}. What is commented out has the value that it shows.",
        "# ${NAME} stands for an environment variable, ${NAME:-default} for one that may be missing, $$ for a dollar.",
        "",
        f"pipeline: {written(name)}",
        "",
        "# The directory of the log; relative paths start where this file is.",
        f"# log: {written(f'.tailrace/{name}')}",
        "",
        "read:",
        *_indented(2, _end(source, "read", options_of(ReadForm))),
        "",
        "# As many writers as you like, each with a name of its own.",
        "write:",
        "  -",
        *_indented(4, _end(sink, "write", options_of(WriteForm))),
        "",
        "# settings:",
        *_indented(2, _lines(options_of(SettingsForm))),
    ]
    return "\n".join(lines).replace("  -\n    ", "  - ", 1) + "\n"


def written(value: Any) -> str:
    """A value as YAML in one line; `omit: [email]` rather than JSON where that is the same."""
    if isinstance(value, str):
        return value if _PLAIN.fullmatch(value) and value not in _WORDS else json.dumps(value, ensure_ascii=False)
    if isinstance(value, list):
        return f"[{', '.join(written(each) for each in value)}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{written(key)}: {written(each)}" for key, each in value.items()) + "}"
    return json.dumps(value, default=str)


def _end(found: Described, use: Use, ours: Iterable[Option]) -> Iterator[str]:
    samples = (replace(each, sample=_PATHS[use]) if each.sample == PATH_SAMPLE else each for each in found.options[use])
    yield f"{found.name}:"
    yield from _indented(2, _lines(samples))
    yield from _lines(ours)


def _lines(options: Iterable[Option]) -> Iterator[str]:
    for option in options:
        about = f"{option.summary} ({option.kind})" if option.summary else f"({option.kind})"
        yield from (f"# {line}" for line in wrap(about, _WIDTH, break_long_words=False))
        value = option.sample if option.is_required else option.default
        yield f"{'' if option.is_required else '# '}{option.name}: {written(value)}"


def _indented(by: int, lines: Iterable[str]) -> Iterator[str]:
    return (" " * by + line if line else line for line in lines)
