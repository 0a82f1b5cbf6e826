"""The keys of a pipeline declaration, but for those that belong to adaptors and functions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict
from typing import Annotated, Any, Final

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from tailrace.adaptor.options import Bytes, Options, Seconds
from tailrace.errors import TailraceError
from tailrace.limits import SEGMENT_BYTES_DEFAULT
from tailrace.log.agreement import Hold, Policy
from tailrace.namespace import namespace_pattern
from tailrace.pipeline.spec import (
    BATCH_BYTES_DEFAULT,
    EVERYTHING,
    PATIENCE_S_DEFAULT,
    POLL_S_DEFAULT,
    SHUTDOWN_S_DEFAULT,
    OnError,
    SchemaPolicy,
)

TOP_KEYS: Final = ("pipeline", "log", "read", "write", "settings")


def _compiled(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return namespace_pattern(value)
    except TailraceError as error:
        raise ValueError(error.what) from None


def _setting(value: Any) -> Any:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else value


NamespacePattern = Annotated[
    re.Pattern[str], BeforeValidator(_compiled), WithJsonSchema({"type": "string", "format": "regex"})
]
"""A regular expression that is searched in namespaces; slashes around it are dropped, as in Transporter."""
SparkSetting = Annotated[str, BeforeValidator(_setting, json_schema_input_type=str | float | bool)]


class ReadForm(Options):
    """What can be said about a source beside its adaptor's options."""

    namespace: NamespacePattern = EVERYTHING
    """Read the namespaces in which this regular expression is found."""
    parallel: Annotated[int, Field(ge=1)] | None = None
    """How many tasks read at the same time; by default as many as there are cores."""


class HoldForm(Options):
    """How much of the log a writer may hold back. A bare word is the policy."""

    policy: Policy | None = None
    """hold: all it needs; cap: at most so much; none: nothing. By default cap when a cap is given, otherwise hold."""
    cap_bytes: Bytes | None = None
    """Past so many bytes the writer is invalidated and must take a new snapshot."""
    cap_age: Seconds | None = None
    """Past this age the writer is invalidated and must take a new snapshot."""

    @model_validator(mode="before")
    @classmethod
    def _short(cls, value: Any) -> Any:
        if isinstance(value, Hold):
            said = asdict(value)
            return {"policy": said["policy"], "cap_bytes": said["cap_bytes"], "cap_age": said["cap_age_s"]}
        return {"policy": value} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _makes_sense(self) -> HoldForm:
        try:
            self.hold()
        except TailraceError as error:
            raise ValueError(error.hint) from None
        return self

    def hold(self) -> Hold:
        has_cap = self.cap_bytes is not None or self.cap_age is not None
        policy = self.policy or (Policy.CAP if has_cap else Policy.HOLD)
        return Hold(policy, self.cap_bytes, self.cap_age)


class WriteForm(Options):
    """What can be said about a destination beside its adaptor's options."""

    name: str | None = None
    """The writer's name, also that of its consumer in the log; by default the adaptor's."""
    namespace: NamespacePattern = EVERYTHING
    """Write the namespaces in which this regular expression is found."""
    through: tuple[Any, ...] = ()
    """Functions that the messages go through, in order."""
    on_error: OnError = OnError.STOP
    """What happens to a message that the destination refuses: stop the writer, put the message aside, or skip it."""
    on_schema_change: SchemaPolicy = SchemaPolicy.EVOLVE
    """What happens when fields change: the destination follows, the writer stops, or what is new is left out."""
    batch_bytes: Bytes = BATCH_BYTES_DEFAULT
    """How much of the log is written at once, at most."""
    every: Seconds | None = None
    """How long to gather messages before they are written; by default what suits the adaptor."""
    hold: HoldForm = HoldForm()
    """How much of the log this writer may hold back."""

    @model_validator(mode="before")
    @classmethod
    def _without_nothing(cls, value: Any) -> Any:
        """`through:` with nothing behind it is no function."""
        if isinstance(value, Mapping) and value.get("through", ()) is None:
            return {key: said for key, said in value.items() if key != "through"}
        return value


class SettingsForm(Options):
    """What can be said about the pipeline as a whole."""

    segment_bytes: Bytes = SEGMENT_BYTES_DEFAULT
    """The size at which a file of the log is sealed and a new one begun."""
    sync_every: Seconds = 0.0
    """How long commit groups may wait for the disk together; 0 syncs each at once."""
    keep_bytes: Bytes | None = None
    """Keep so much of the log although no writer needs it."""
    keep_age: Seconds | None = None
    """Keep messages of this age although no writer needs them."""
    shutdown: Seconds = SHUTDOWN_S_DEFAULT
    """How long a clean shutdown may take."""
    patience: Seconds = PATIENCE_S_DEFAULT
    """How long to wait for a source or a destination that no longer answers, before the run or the writer ends."""
    poll: Seconds = POLL_S_DEFAULT
    """How often to look for changes."""
    master: str | None = None
    """Spark's master; by default all cores of this machine."""
    spark: dict[str, SparkSetting] = Field(default_factory=dict)
    """Further settings of the Spark session."""
