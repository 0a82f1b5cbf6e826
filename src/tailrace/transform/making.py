"""Functions as they are written in Python: `omit("email", "address.zip")`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeVar

from pydantic import ValidationError

from tailrace.errors import TailraceError
from tailrace.transform.comparison import Match
from tailrace.transform.omit import Omit
from tailrace.transform.opfilter import Opfilter
from tailrace.transform.options import FunctionOptions, Missing
from tailrace.transform.pick import Pick
from tailrace.transform.pretty import Pretty
from tailrace.transform.python import Python, PythonFrame
from tailrace.transform.remap import Remap
from tailrace.transform.rename import Rename
from tailrace.transform.skip import Skip
from tailrace.transform.sql import Sql

Made = TypeVar("Made", bound=FunctionOptions)


def omit(*fields: str, missing: Missing = "ignore", namespace: str = "") -> Omit:
    """Leave fields out."""
    return _made(Omit, fields=fields, missing=missing, namespace=namespace)


def pick(*fields: str, missing: Missing = "ignore", namespace: str = "") -> Pick:
    """Keep only these fields."""
    return _made(Pick, fields=fields, missing=missing, namespace=namespace)


def rename(
    fields: Mapping[str, str] | None = None, /, *, missing: Missing = "ignore", namespace: str = "", **more: str
) -> Rename:
    """Give fields other names: `rename(a="b")`, or `rename({"address.city": "town"})`."""
    return _made(Rename, fields={**(fields or {}), **more}, missing=missing, namespace=namespace)


def remap(namespaces: Mapping[str, str], *, namespace: str = "") -> Remap:
    """Give namespaces other names."""
    return _made(Remap, namespaces=dict(namespaces), namespace=namespace)


def skip(
    field: str,
    operator: str,
    match: Match | Sequence[Match],
    *,
    missing: Literal["ignore", "drop", "error"] = "ignore",
    namespace: str = "",
) -> Skip:
    """Keep messages for which a condition holds, skip the others."""
    return _made(Skip, field=field, operator=operator, match=match, missing=missing, namespace=namespace)


def opfilter(*whitelist: str, blacklist: Sequence[str] = (), namespace: str = "") -> Opfilter:
    """Keep messages with these ops; or all but those of the blacklist."""
    return _made(Opfilter, whitelist=whitelist, blacklist=tuple(blacklist), namespace=namespace)


def pretty(spaces: int = 2, *, namespace: str = "") -> Pretty:
    """Log messages as they pass."""
    return _made(Pretty, spaces=spaces, namespace=namespace)


def sql(query: str, *, missing: Missing = "ignore", namespace: str = "") -> Sql:
    """Select from the view `messages`."""
    return _made(Sql, query=query, missing=missing, namespace=namespace)


def python(
    function: str | Callable[..., Any] | None = None,
    *,
    file: str | None = None,
    name: str = "transform",
    frame: bool = False,
    namespace: str = "",
) -> Python | PythonFrame:
    """Call a function with every message, or with `frame=True` once with a DataFrame."""
    if frame:
        return _made(PythonFrame, frame=function, namespace=namespace)
    return _made(Python, function=function, file=file, name=name, namespace=namespace)


def _made(kind: type[Made], **options: Any) -> Made:
    try:
        return kind(**options)
    except ValidationError as error:
        found = error.errors(include_url=False, include_context=False, include_input=False)[0]
        option = ".".join(str(part) for part in found["loc"])
        why = found["msg"].removeprefix("Value error, ").replace("Input should be", "should be")
        what = f"{kind.kind}{f', option {option}' if option else ''}: {why}"
        raise TailraceError("config.invalid", what, hint="correct the options") from error
