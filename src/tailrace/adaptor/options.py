"""Options: what a user says about one end of a pipeline. Unknown ones are refused (I10)."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    ValidationInfo,
    model_validator,
)
from pydantic.json_schema import SkipJsonSchema

from tailrace.errors import TailraceError
from tailrace.masking import keep_secret
from tailrace.units import parse_bytes, parse_seconds

if TYPE_CHECKING:
    from tailrace.deliver.contract import FrameWriter, Writer
    from tailrace.deliver.messages import Messages
    from tailrace.source.contract import Reader


def _unit(parse: Any) -> BeforeValidator:
    def read(value: Any) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return parse(value)
        except TailraceError as error:
            raise ValueError(error.what) from None

    return BeforeValidator(read, json_schema_input_type=str | float)


Seconds = Annotated[float, Field(ge=0), _unit(parse_seconds)]
"""A duration: `30s`, `5m`, or a number of seconds."""
Bytes = Annotated[int, Field(ge=1), _unit(parse_bytes)]
"""A size: `512MB`, `1GiB`, or a number of bytes."""


def _absolute(path: str, info: ValidationInfo) -> str:
    if not path or "\0" in path:
        raise ValueError("a path must not be empty or have a NUL character")
    if "://" in path and urlsplit(path).password:
        raise ValueError("a path is shown to everybody and must have no password in it")
    if path == "-" or "://" in path:
        return path
    base = (info.context or {}).get("base") or os.getcwd()
    return os.path.normpath(os.path.join(base, os.path.expanduser(path)))


FilePath = Annotated[str, AfterValidator(_absolute)]
"""A file or directory. Relative ones start at the pipeline file's directory (`base` in the validation context), or
where the process is; `-` and addresses such as `s3://…` stay as they are."""


FilledIn = Annotated[SkipJsonSchema[str], Field(exclude=True)]
"""What the pipeline itself fills in: nobody is offered it, and nobody else can give it."""


class Options(BaseModel):
    """Base of everything that can be said in a pipeline file."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    @model_validator(mode="after")
    def _has_been_made(self) -> Self:
        self._keep_secrets()
        return self

    def __setstate__(self, state: Any) -> None:
        """Options travel to tasks, which keep their secrets too."""
        super().__setstate__(state)
        self._keep_secrets()

    def _keep_secrets(self) -> None:
        for value in vars(self).values():
            if isinstance(value, SecretStr):
                keep_secret(value.get_secret_value())


class Check(BaseModel):
    """One line of `tailrace doctor`: what was probed, whether it is well, and the cure if it is not."""

    what: str
    ok: bool
    found: str
    cure: str = ""


class End(Options, ABC):
    """One end of a pipeline."""

    @abstractmethod
    def where(self) -> str:
        """The place, for people; never a secret."""

    def place(self) -> str | None:
        """What ends of one pipeline must not share, None when they may. Here the file or directory `path`."""
        path = getattr(self, "path", None)
        if not isinstance(path, str) or path == "-":
            return None
        return path if "://" in path else os.path.realpath(path)

    def probe(self) -> list[Check]:
        """Look whether the place can be used, without changing it."""
        return []


class ReaderOptions(End):
    """How a source is read."""

    @abstractmethod
    def open(self) -> Reader:
        """A reader of this source."""


class WriterOptions(End):
    """How a destination is written."""

    on_driver: ClassVar[bool] = False
    """Whether `open` gives a `FrameWriter`."""

    @abstractmethod
    def open(self) -> Writer | FrameWriter:
        """A writer to this destination."""

    def examine(self, messages: Messages) -> None:
        """For destinations that Spark writes: refuse messages that `write_frame` would, as far as that can be seen
        without the destination. After a failure it gets them one at a time, inside a task."""

    @property
    def every_s(self) -> float:
        """How long to gather messages before they are written; some destinations dislike many small batches."""
        return 0.0
