"""Operations: what an update or upsert does to a tuple, to the letter as the server does it.

A field is named by its place, from the first or (negative) from the last, by its name, or by a path that leads into it.
An operation that is impossible stops an update, and is passed over in an upsert.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from decimal import Context, Decimal, Overflow
from typing import Any, Final

from msgpack import ExtType

from tailrace.adaptor.tarantool.paths import Step, steps_of
from tailrace.adaptor.tarantool.values import DECIMAL, decimal_data, decimal_of

_INT_MIN: Final = -(1 << 63)
_UINT_MAX: Final = (1 << 64) - 1
_PLACING: Final = ("=", "!", "#")
"""Operations that do not look at what was there."""
_DECIMALS: Final = Context(prec=38, traps=[Overflow])


class Impossible(ValueError):
    """An operation that the server refuses."""


def updated(row: Sequence[Any], operations: Sequence[Any], base: int, names: Sequence[str]) -> list[Any]:
    """A tuple after an update. Raises `Impossible`."""
    made = _Row(list(row), [False] * len(row))
    for operation in operations:
        _apply(made, operation, base, names)
    return made.fields


def upserted(row: Sequence[Any], operations: Sequence[Any], base: int, names: Sequence[str]) -> list[Any]:
    """A tuple after an upsert that found it."""
    made = _Row(list(row), [False] * len(row))
    for operation in operations:
        tried = _Row(list(made.fields), list(made.is_changed))
        try:
            _apply(tried, operation, base, names)
        except Impossible:
            continue
        made = tried
    return made.fields


@dataclass(slots=True)
class _Row:
    """A tuple on its way."""

    fields: list[Any]
    is_changed: list[bool]
    """Of each field, whether an operation has changed it: a second one cannot calculate with it."""


def _apply(row: _Row, operation: Sequence[Any], base: int, names: Sequence[str]) -> None:
    if not isinstance(operation, list | tuple) or len(operation) < 2 or not isinstance(operation[0], str):
        raise Impossible("this is no operation")
    op, where, *arguments = operation
    steps = _steps(where, base, names)
    if len(steps) == 1 and isinstance(steps[0], int):
        _do_in_row(row, steps[0], op, arguments, base)
        return
    place = _place(steps[0], len(row.fields)) if isinstance(steps[0], int) else 0
    row.fields[place] = deepcopy(row.fields[place])  # others have it, too
    holder: Any = row.fields
    for step in steps[:-1]:
        holder = _inside(holder, step)
    _do(holder, steps[-1], op, arguments, base)


def _do_in_row(row: _Row, step: int, op: str, arguments: list[Any], base: int) -> None:
    count = len(row.fields)
    if op not in _PLACING and row.is_changed[_place(step, count)]:
        raise Impossible("a field is changed twice")
    _do_in_list(row.fields, step, op, arguments, base)
    if op == "!":
        row.is_changed.insert(_place(step, count + 1), False)
    elif op == "#":
        del row.is_changed[_place(step, count) : _place(step, count) + _only(arguments)]
    elif len(row.fields) > count:
        row.is_changed.append(False)
    else:
        row.is_changed[_place(step, count)] = True


def _steps(where: Any, base: int, names: Sequence[str]) -> list[Step]:
    """The way to a field: the place in the tuple first."""
    if isinstance(where, bool):
        raise Impossible("this names no field")
    if isinstance(where, int):
        if where >= 0 and where < base:
            raise Impossible(f"there is no field {where}")
        return [where - base if where >= 0 else where]
    if not isinstance(where, str):
        raise Impossible("this names no field")
    if where in names:
        return [names.index(where)]
    steps = steps_of(where, base)
    if not steps:
        raise Impossible(f"{where} leads nowhere")
    first, *rest = steps
    if isinstance(first, str):
        if first not in names:
            raise Impossible(f"there is no field {first}")
        first = names.index(first)
    return [first, *rest]


def _inside(holder: Any, step: Step) -> Any:
    if isinstance(holder, list) and isinstance(step, int):
        return holder[_place(step, len(holder))]
    if isinstance(holder, dict) and step in holder:
        return holder[step]
    raise Impossible(f"there is no {step}")


def _place(step: int, count: int) -> int:
    """A place among so many."""
    place = step if step >= 0 else step + count
    if not 0 <= place < count:
        raise Impossible(f"there is no place {step}")
    return place


def _do(holder: Any, step: Step, op: str, arguments: list[Any], base: int) -> None:
    if isinstance(holder, list) and isinstance(step, int):
        _do_in_list(holder, step, op, arguments, base)
    elif isinstance(holder, dict):
        _do_in_map(holder, step, op, arguments, base)
    else:
        raise Impossible(f"there is no {step}")


def _do_in_list(holder: list[Any], step: int, op: str, arguments: list[Any], base: int) -> None:
    count = len(holder)
    if op == "=" and step == count:
        holder.append(_only(arguments))
    elif op == "=":
        holder[_place(step, count)] = _only(arguments)
    elif op == "!":
        holder.insert(_place(step, count + 1), _only(arguments))
    elif op == "#":
        first, length = _place(step, count), _only(arguments)
        if isinstance(length, bool) or not isinstance(length, int) or length <= 0:
            raise Impossible("nothing is to be removed")
        del holder[first : first + length]
    else:
        place = _place(step, count)
        holder[place] = _calculated(holder[place], op, arguments, base)


def _do_in_map(holder: dict[Any, Any], step: Step, op: str, arguments: list[Any], base: int) -> None:
    if op == "=":
        holder[step] = _only(arguments)
    elif op == "!":
        if step in holder:
            raise Impossible(f"there is a {step} already")
        holder[step] = _only(arguments)
    elif step not in holder:
        raise Impossible(f"there is no {step}")
    elif op == "#":
        if _only(arguments) != 1:
            raise Impossible("one thing is removed from a map at a time")
        del holder[step]
    else:
        holder[step] = _calculated(holder[step], op, arguments, base)


def _only(arguments: list[Any]) -> Any:
    if len(arguments) != 1:
        raise Impossible("an operation has too many or too few arguments")
    return arguments[0]


def _calculated(value: Any, op: str, arguments: list[Any], base: int) -> Any:
    if op in ("+", "-"):
        return _sum(value, _only(arguments), -1 if op == "-" else 1)
    if op in ("&", "|", "^"):
        return _bits(value, op, _only(arguments))
    if op == ":":
        return _spliced(value, arguments, base)
    raise Impossible(f"there is no operation {op}")


def _sum(value: Any, other: Any, sign: int) -> Any:
    one, two = _number(value), _number(other)
    if isinstance(one, Decimal) or isinstance(two, Decimal):
        added = _decimal(two) if sign > 0 else _decimal(two).copy_negate()
        made = _DECIMALS.add(_decimal(one), added)
        if len(made.as_tuple().digits) > 38 or abs(made.adjusted()) > 38:
            raise Impossible("a decimal is too long")
        return ExtType(DECIMAL, decimal_data(made))
    if isinstance(one, float) or isinstance(two, float):
        return float(one) + sign * float(two)
    whole = one + sign * two
    if not _INT_MIN <= whole <= _UINT_MAX:
        raise Impossible("a number is too large")
    return whole


def _number(value: Any) -> Any:
    if isinstance(value, ExtType) and value.code == DECIMAL:
        return decimal_of(value.data)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Impossible("a number is needed")
    return value


def _decimal(value: Any) -> Decimal:
    """A float counts with the fifteen digits that it surely has."""
    if not isinstance(value, float):
        return Decimal(value)
    made = Decimal(f"{value:.15g}")
    if not made.is_finite():
        raise Impossible("a number is needed")
    return made


def _bits(value: Any, op: str, other: Any) -> int:
    for each in (value, other):
        if isinstance(each, bool) or not isinstance(each, int) or each < 0:
            raise Impossible("a whole number is needed")
    return int(value & other if op == "&" else value | other if op == "|" else value ^ other)


def _spliced(value: Any, arguments: list[Any], base: int) -> str:
    """Bytes of a text are cut out and others put there."""
    if not isinstance(value, str) or len(arguments) != 3 or not isinstance(arguments[2], str):
        raise Impossible("a text is needed")
    offset, cut, paste = (*arguments[:2], str(arguments[2]))
    if any(isinstance(each, bool) or not isinstance(each, int) for each in (offset, cut)):
        raise Impossible("a whole number is needed")
    text = value.encode("utf-8", "surrogateescape")
    size = len(text)
    if offset < 0:
        if -offset > size + 1:
            raise Impossible("this is outside of the text")
        offset += size + 1
    elif offset >= base:
        offset = min(offset - base, size)
    else:
        raise Impossible("this is outside of the text")
    left = size - offset
    cut = min(cut, left) if cut >= 0 else max(cut + left, 0)
    made = text[:offset] + paste.encode("utf-8", "surrogateescape") + text[offset + cut :]
    return made.decode("utf-8", "surrogateescape")
