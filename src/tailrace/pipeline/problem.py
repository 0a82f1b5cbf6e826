"""What is wrong with a declaration. All problems are collected, so that they can be mended in one go."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar, get_args, get_origin

from pydantic import BaseModel, SecretStr, ValidationError

from tailrace.errors import TailraceError
from tailrace.pipeline.suggest import did_you_mean

Path = tuple[str | int, ...]
"""The way to a value from the top of a declaration: keys, and numbers in lists."""

Model = TypeVar("Model", bound=BaseModel)

_TYPES: Final = {
    "missing": "this key is missing",
    "model_type": "should be a mapping of options",
    "model_attributes_type": "should be a mapping of options",
    "dict_type": "should be a mapping",
    "list_type": "should be a list",
    "tuple_type": "should be a list",
    "bool_parsing": "should be true or false",
    "bool_type": "should be true or false",
    "int_parsing": "should be a whole number",
    "int_type": "should be a whole number",
    "int_from_float": "should be a whole number",
    "too_short": "should not be empty",
    "string_type": "should be text; put it in quotes",
}


@dataclass(frozen=True, slots=True)
class Problem:
    """Something wrong, and at what."""

    path: Path
    text: str
    is_about_key: bool = False
    """Whether the key itself is wrong, and not its value."""

    def __str__(self) -> str:
        return f"{show_path(self.path)}: {self.text}" if self.path and not self.is_about_key else self.text


def show_path(path: Path) -> str:
    """A path for people: `write[2].lake.path`; lists are counted from 1."""
    shown = ""
    for part in path:
        if isinstance(part, int):
            shown += f"[{part + 1}]"
        else:
            shown += ("." if shown else "") + (part if part.isprintable() else repr(part))
    return shown


def unknown_key(path: Path, known: list[str]) -> Problem:
    """The last part of a path is not a key that is known there."""
    where = f" in {show_path(path[:-1])}" if path[:-1] else ""
    return Problem(path, f"unknown key {str(path[-1])!r}{where}{did_you_mean(str(path[-1]), known)}", is_about_key=True)


def offered(model: type[BaseModel]) -> list[str]:
    """The keys that can be given; the others are filled in by the pipeline."""
    return [name for name, field in model.model_fields.items() if field.exclude is not True]


def validated(model: type[Model], value: Any, path: Path, base: str, problems: list[Problem]) -> Model | None:
    """The model made of a value, None when it cannot be; why not is added to the problems."""
    try:
        return model.model_validate(value, context={"base": base})
    except ValidationError as error:
        for found in error.errors(include_url=False, include_context=False, include_input=False):
            at = (*path, *(part for part in found["loc"] if part != ""))
            problems.append(_problem(model, found, at))
    except TailraceError as error:
        problems.append(Problem(path, error.what))
    return None


def _problem(model: type[BaseModel], found: Mapping[str, Any], path: Path) -> Problem:
    kind, message = str(found["type"]), str(found["msg"])
    if kind == "extra_forbidden":
        inner = _model_at(model, found["loc"][:-1])
        return unknown_key(path, [] if inner is None else offered(inner))
    text = _TYPES.get(kind) or message.removeprefix("Value error, ").replace("Input should be", "should be")
    if kind == "value_error" and _is_secret(model, found["loc"]):
        text = text.partition(":")[0]  # what follows may quote it
    return Problem(path, text)


def _model_at(annotation: Any, place: tuple[str | int, ...]) -> type[BaseModel] | None:
    """The model whose keys stand at a place."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        if not place:
            return annotation
        field = annotation.model_fields.get(str(place[0]))
        return None if field is None else _model_at(field.annotation, place[1:])
    inside = place[1:] if get_origin(annotation) in (tuple, list, dict) else place
    found = (_model_at(each, inside) for each in get_args(annotation))
    return next((each for each in found if each is not None), None)


def _is_secret(model: type[BaseModel], place: tuple[str | int, ...]) -> bool:
    field = model.model_fields.get(str(place[0])) if place else None
    return field is not None and _has_secret(field.annotation)


def _has_secret(annotation: Any) -> bool:
    return annotation is SecretStr or any(map(_has_secret, get_args(annotation)))
