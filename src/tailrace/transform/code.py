"""People's own functions: where they are named, how they travel to a task, and what is said when they fail."""

from __future__ import annotations

import ast
import importlib
import linecache
import os
import re
import traceback
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

from tailrace.errors import TailraceError

_REFERENCE: Final = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", re.ASCII)

TEXT_CHARS_MAX: Final = 300
"""What is shown of an exception's text."""


def check_reference(reference: str) -> str:
    """Refuse what is not of the form `package.module:name`."""
    if not _REFERENCE.fullmatch(reference):
        raise ValueError(f"{reference!r} is not of the form package.module:name")
    return reference


def read_code(path: str, name: str) -> str:
    """The text of a file that defines a function; refused when it does not."""
    try:
        with open(path, encoding="utf-8") as file:
            code = file.read()
        tree = ast.parse(code, path)
    except (OSError, UnicodeError) as error:
        raise ValueError(f"{path} cannot be read: {error}") from None
    except SyntaxError as error:
        raise ValueError(f"{path} is not Python: line {error.lineno}: {error.msg}") from None
    if name not in _defined(tree):
        raise ValueError(f"{path} does not define {name}")
    return code


@lru_cache(maxsize=64)
def imported(reference: str) -> Callable[..., Any]:
    """The function that `package.module:name` names."""
    module, _, path = reference.partition(":")
    try:
        found: Any = importlib.import_module(module)
        for name in path.split("."):
            found = getattr(found, name)
    except (ImportError, AttributeError) as error:
        hint = "install the package where the tasks run, or give the function as a file"
        raise TailraceError("config.invalid", f"{reference} cannot be imported: {error}", hint=hint) from error
    if not callable(found):
        raise TailraceError("config.invalid", f"{reference} is not a function", hint="name a function")
    function: Callable[..., Any] = found
    return function


@lru_cache(maxsize=64)
def compiled(code: str, path: str, name: str) -> Callable[..., Any]:
    """The function that a file's text defines, made once in every process."""
    defined: dict[str, Any] = {"__name__": os.path.basename(path).removesuffix(".py"), "__file__": path}
    # A task has the text but not the file, so the lines for its errors come from here.
    linecache.cache[path] = (len(code), None, code.splitlines(keepends=True), path)
    exec(compile(code, path, "exec"), defined)  # noqa: S102  running the user's code is what was asked for
    function: Callable[..., Any] = defined[name]
    return function


def what_failed(error: BaseException, function: Callable[..., Any]) -> str:
    """An exception in somebody's function: its type, its text and the line of theirs, without the rest of the stack."""
    lines = traceback.extract_tb(error.__traceback__)
    own = getattr(getattr(function, "__code__", None), "co_filename", None)
    theirs = [line for line in lines if line.filename == own] or lines[-1:]
    said = str(error).strip().splitlines()
    text = f"{type(error).__name__}: {said[0]:.{TEXT_CHARS_MAX}}" if said else type(error).__name__
    if not theirs:
        return text
    last = theirs[-1]
    return f"{text} ({os.path.basename(last.filename)}, line {last.lineno}: {last.line or '?'})"


def _defined(tree: ast.Module) -> set[str]:
    """The names that a module gives something at its top level."""
    names = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)}
    for node in tree.body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            names |= {alias.asname or alias.name for alias in node.names}
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        names |= {target.id for target in targets if isinstance(target, ast.Name)}
    return names
