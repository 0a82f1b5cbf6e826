"""A SELECT over messages, looked at without a database: is it one row in, at most one row out?"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

VIEW: Final = "messages"

_TOKEN: Final = re.compile(
    r"""
    (?P<space>\s+|--[^\n]*|/\*(?!\+).*?\*/)
  | (?P<hint>/\*\+.*?\*/)
  | (?P<quoted>'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*"|`(?:[^`]|``)*`)
  | (?P<word>[^\W\d]\w*)
  | (?P<other>\d[\w.]*|.)
    """,
    re.VERBOSE | re.DOTALL,
)
_REFUSED: Final = {
    "DISTINCT": "DISTINCT",
    "GROUP": "GROUP BY",
    "HAVING": "HAVING",
    "UNION": "UNION",
    "INTERSECT": "INTERSECT",
    "MINUS": "MINUS",
    "EXCEPT": "EXCEPT",
    "ORDER": "ORDER BY",
    "SORT": "SORT BY",
    "CLUSTER": "CLUSTER BY",
    "DISTRIBUTE": "DISTRIBUTE BY",
    "LIMIT": "LIMIT",
    "WINDOW": "WINDOW",
}
_TWO_WORDS: Final = {"GROUP", "ORDER", "SORT", "CLUSTER", "DISTRIBUTE"}
"""Words that are only refused before BY: alone they may name a column."""
_AGGREGATES: Final = re.compile(
    "any_value|approx_count_distinct|avg|bool_and|bool_or|collect_list|collect_set|count|count_if|every|first|"
    "first_value|last|last_value|max|max_by|mean|median|min|min_by|mode|percentile|stddev|sum|var_pop|variance",
    re.IGNORECASE,
)


class NotPerMessage(ValueError):
    """A query that is not a SELECT of one message at a time."""


@dataclass(frozen=True, slots=True)
class _Token:
    text: str
    kind: str
    end: int
    depth: int

    @property
    def word(self) -> str:
        return self.text.upper() if self.kind == "word" else ""


@dataclass(frozen=True, slots=True)
class Select:
    """A query of the form `SELECT … FROM messages …`."""

    text: str
    insert_at: int
    """Where the list of columns begins."""
    has_star: bool
    """Whether `*` is among the columns."""
    relations: frozenset[str] = frozenset({VIEW})
    """What the view is called, in small letters: its name, and the word that follows it."""

    def with_column(self, name: str) -> str:
        """The query with one more column, before the others."""
        return f"{self.text[: self.insert_at]} `{name}`, {self.text[self.insert_at :]}"


def read_select(query: str) -> Select:
    """Look a query over; raises NotPerMessage with the reason."""
    text = query.strip().rstrip(";").rstrip()
    tokens = _tokens(text)
    if not tokens or tokens[0].word != "SELECT":
        raise NotPerMessage("it must begin with SELECT")
    _refuse_more_than_rows(tokens)
    start = 1
    while start < len(tokens) and (tokens[start].kind == "hint" or tokens[start].word == "ALL"):
        start += 1
    froms = [at for at, token in enumerate(tokens) if _is_from(token, tokens[at - 1])]
    if not froms or not any(_names_view(token) for token in tokens[froms[0] :]):
        raise NotPerMessage(f"it must select FROM {VIEW}")
    if froms[0] == start:
        raise NotPerMessage("it selects no column")
    return Select(text, tokens[start - 1].end, _has_star(tokens[start : froms[0]]), _relations(tokens[froms[0] :]))


def _tokens(text: str) -> list[_Token]:
    """The words and signs of a query, each with how many brackets are around it."""
    tokens: list[_Token] = []
    depth = 0
    for found in _TOKEN.finditer(text):
        kind = found.lastgroup or ""
        if kind == "space":
            continue
        sign = found.group()
        if sign in ("'", '"', "`"):
            raise NotPerMessage(f"a quote {sign} is not closed")
        if sign == ";":
            raise NotPerMessage("only one statement is possible")
        depth -= sign == ")"
        if depth < 0:
            raise NotPerMessage("a bracket is closed that was not opened")
        tokens.append(_Token(sign, kind, found.end(), depth))
        depth += sign == "("
    if depth:
        raise NotPerMessage("a bracket is not closed")
    return tokens


def _refuse_more_than_rows(tokens: list[_Token]) -> None:
    """Refuse what looks at more than one message. Subqueries may, for they read something else."""
    is_single = sum(token.word == "SELECT" for token in tokens) == 1
    for at, token in enumerate(tokens):
        before, after = tokens[at - 1], tokens[at + 1] if at + 1 < len(tokens) else None
        follows = after.word if after else ""
        if before.text == ".":
            continue
        if token.depth == 0 and token.word in _REFUSED and _is_keyword(token.word, before, follows):
            raise NotPerMessage(f"{_REFUSED[token.word]} is not possible: a function sees one message at a time")
        opens = after is not None and after.text == "("
        if opens and token.word == "OVER":
            raise NotPerMessage("windows (OVER) are not possible: a function sees one message at a time")
        if opens and is_single and token.kind == "word" and _AGGREGATES.fullmatch(token.text):
            raise NotPerMessage(f"the aggregate {token.text} is not possible: a function sees one message at a time")


def _is_keyword(word: str, before: _Token, follows: str) -> bool:
    if word in _TWO_WORDS:
        return follows == "BY"
    if word == "EXCEPT":
        return before.text != "*"  # `* EXCEPT (a)` leaves columns out
    if word == "DISTINCT":
        return follows != "FROM"
    return word != "WINDOW" or follows not in ("", "FROM", "AS")


def _is_from(token: _Token, before: _Token) -> bool:
    return token.depth == 0 and token.word == "FROM" and before.word != "DISTINCT"  # `a IS DISTINCT FROM b` compares


def _names_view(token: _Token) -> bool:
    return token.kind in ("word", "quoted") and token.text.strip("`").lower() == VIEW


def _relations(tokens: list[_Token]) -> frozenset[str]:
    words = [token for token in tokens if token.word != "AS"]
    after = next(at for at, token in enumerate(words) if _names_view(token)) + 1
    return frozenset({VIEW} | {token.text.strip("`").lower() for token in words[after : after + 1]})


def _has_star(columns: list[_Token]) -> bool:
    """A star that begins a column, or ends the name of a relation; one between two values multiplies."""
    return any(
        token.text == "*" and token.depth == 0 and (at == 0 or columns[at - 1].text in (",", "."))
        for at, token in enumerate(columns)
    )
