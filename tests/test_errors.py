"""Errors: every code is raised somewhere and known everywhere, and every error says where, and what to type next."""

from __future__ import annotations

import ast
import pickle
import re
from functools import cache
from pathlib import Path
from typing import Final

import pytest
import typer.main

from tailrace.cli.main import app
from tailrace.errors import CODES, Exit, Place, TailraceError

SOURCE: Final = Path(__file__).parents[1] / "src" / "tailrace"
COMMAND: Final = re.compile(r"\btailrace((?: [a-z][a-z-]*)+)")


@cache
def raised() -> list[tuple[str, ast.Call]]:
    """Every place in the source where an error is made."""
    return [
        (f"{path.relative_to(SOURCE)}:{node.lineno}", node)
        for path in sorted(SOURCE.rglob("*.py"))
        for node in ast.walk(parse(path))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "TailraceError"
    ]


def code_of(call: ast.Call) -> str | None:
    first = call.args[0] if call.args else None
    return first.value if isinstance(first, ast.Constant) and isinstance(first.value, str) else None


def handed_on() -> set[str]:
    """Codes that a function is called with, or has as a default, and then raises."""
    texts = (node for path in SOURCE.rglob("*.py") if path.name != "errors.py" for node in ast.walk(parse(path)))
    return {node.value for node in texts if isinstance(node, ast.Constant) and node.value in CODES}


def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def hint_of(call: ast.Call) -> ast.expr | None:
    return next((keyword.value for keyword in call.keywords if keyword.arg == "hint"), None)


def text_of(expression: ast.expr) -> str:
    """The parts of a text that are known without running it."""
    return "".join(
        node.value for node in ast.walk(expression) if isinstance(node, ast.Constant) and isinstance(node.value, str)
    )


def test_source_is_looked_at() -> None:
    assert len(raised()) > 50


def test_every_error_names_its_code() -> None:
    """With a literal, or the code of another error, or one that it was given."""
    given = [(place, call.args[0]) for place, call in raised() if code_of(call) is None]
    assert [place for place, code in given if ast.unparse(code) not in ("error.code", "code", "self.unreachable")] == []


def test_every_code_that_is_raised_is_known() -> None:
    unknown = {code: place for place, call in raised() if (code := code_of(call)) is not None and code not in CODES}
    assert unknown == {}


def test_every_code_that_is_known_is_raised() -> None:
    assert set(CODES) - handed_on() == set()


def test_every_error_says_what_to_do_next() -> None:
    silent = [place for place, call in raised() if (hint := hint_of(call)) is None or ast.unparse(hint) == "''"]
    assert silent == []


def test_every_command_in_a_hint_exists() -> None:
    """`tailrace log verify` must be something one can type."""
    groups = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    known = {f"{group} {name}" for group, found in groups.items() for name in getattr(found, "commands", {})}
    known |= {name for name, found in groups.items() if not hasattr(found, "commands")}
    told = {
        (place, words[1:])
        for place, call in raised()
        if (hint := hint_of(call)) is not None
        for words in COMMAND.findall(text_of(hint))
    }
    assert len(told) > 10
    assert [(place, words) for place, words in told if not any(words.startswith(name) for name in known)] == []


@pytest.mark.parametrize("code", CODES)
def test_code_is_two_words_and_has_an_exit_status(code: str) -> None:
    assert re.fullmatch(r"[a-z]+\.[a-z_]+", code)
    assert TailraceError(code, "it broke").exit_status is CODES[code]
    assert CODES[code] in (Exit.RUNTIME, Exit.INPUT, Exit.ENVIRONMENT)


def test_message_has_code_place_and_next_command() -> None:
    error = TailraceError(
        "log.corrupt",
        "the checksum differs",
        place=Place("00000000000000000007.log", 120, 9),
        hint="tailrace log verify",
    )
    assert str(error) == (
        "log.corrupt: the checksum differs (00000000000000000007.log, byte 120, offset 9). Next: tailrace log verify"
    )
    assert (error.code, error.what, error.hint) == ("log.corrupt", "the checksum differs", "tailrace log verify")


@pytest.mark.parametrize(
    ("place", "shown"),
    [
        (Place("a.log"), "a.log"),
        (Place("a.log", 0), "a.log, byte 0"),
        (Place("a.log", offset=0), "a.log, offset 0"),
        (Place("a.log", 1, 2), "a.log, byte 1, offset 2"),
    ],
)
def test_place_shows_what_is_known(place: Place, shown: str) -> None:
    assert str(place) == shown


def test_message_without_a_place_or_a_hint_is_whole() -> None:
    assert str(TailraceError("log.io", "it broke")) == "log.io: it broke"


def test_unknown_code_is_a_mistake_of_the_program() -> None:
    with pytest.raises(KeyError):
        TailraceError("log.unheard_of", "it broke")


def test_error_travels_between_processes() -> None:
    error = TailraceError("log.corrupt", "damaged", place=Place("a.log", 7, 9), hint="look")
    copy = pickle.loads(pickle.dumps(error))
    assert (copy.code, copy.what, copy.place, copy.hint) == (error.code, error.what, error.place, error.hint)
