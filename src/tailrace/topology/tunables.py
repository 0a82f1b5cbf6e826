"""Tunables: what can be set about a topology while it runs, under the names that Comdb2 gave them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from difflib import get_close_matches
from enum import StrEnum
from typing import Any, Final

from tailrace.errors import TailraceError
from tailrace.units import parse_seconds

Value = bool | int | float | str
_TEXT_CHARS_MAX: Final = 4096
_NUMBER_MAX: Final = 1_000_000_000
_ON: Final = ("on", "true", "yes", "1")
_OFF: Final = ("off", "false", "no", "0")


class Kind(StrEnum):
    """What a tunable can be set to."""

    SWITCH = "switch"
    NUMBER = "number"
    SECONDS = "seconds"
    TEXT = "text"


class By(StrEnum):
    """Who does what a tunable says."""

    REGISTRY = "registry"
    NODES = "nodes"
    """Sources and replicas, as soon as they hear of it."""
    BOTH = "both"
    NOBODY = "nobody"
    """It is kept and told, and changes nothing."""


@dataclass(frozen=True, slots=True)
class Tunable:
    """One of them."""

    name: str
    kind: Kind
    default: Value
    unit: str
    help: str
    at_least: float = 0
    obeyed_by: By = By.NODES
    why_off: str = ""
    """Why a switch cannot be turned on."""

    def read(self, text: str) -> Value:
        """The value that somebody wrote."""
        if len(text) > _TEXT_CHARS_MAX:
            raise self._refused("something longer than any value", f"at most {_TEXT_CHARS_MAX} characters")
        match self.kind:
            case Kind.SWITCH:
                return self._switch(text)
            case Kind.NUMBER:
                return self._number(text)
            case Kind.SECONDS:
                seconds = parse_seconds(text)
                if not self.at_least <= seconds <= _NUMBER_MAX:
                    raise self._refused(repr(text), f"a duration of {self.at_least:g} s or more")
                return seconds
            case Kind.TEXT:
                if not text.isprintable():
                    raise self._refused(repr(text), "printable text")
                return text

    def show(self, value: Value) -> str:
        """A value as one would write it."""
        if self.kind is Kind.SWITCH:
            return "on" if value else "off"
        return f"{value:g}" if isinstance(value, float) else str(value)

    def _switch(self, text: str) -> bool:
        word = text.strip().lower()
        if word not in (*_ON, *_OFF):
            raise self._refused(repr(text), "on or off")
        if word in _ON and self.why_off:
            raise TailraceError("input.invalid", f"{self.name} cannot be on: {self.why_off}", hint="leave it off")
        return word in _ON

    def _number(self, text: str) -> int:
        digits = text.strip()
        wanted = f"a whole number from {self.at_least:g} to {_NUMBER_MAX}"
        if not (digits.isascii() and digits.isdigit() and len(digits) <= len(str(_NUMBER_MAX))):
            raise self._refused(repr(text), wanted)
        if not self.at_least <= int(digits) <= _NUMBER_MAX:
            raise self._refused(repr(text), wanted)
        return int(digits)

    def _refused(self, found: str, wanted: str) -> TailraceError:
        return TailraceError("input.invalid", f"{self.name} cannot be {found}", hint=f"set it to {wanted}")


def _switch(name: str, told: str, by: By = By.NODES, why_off: str = "") -> Tunable:
    return Tunable(name, Kind.SWITCH, default=False, unit="", help=told, obeyed_by=by, why_off=why_off)


def _number(name: str, default: int, unit: str, told: str, at_least: int = 0, by: By = By.NODES) -> Tunable:
    return Tunable(name, Kind.NUMBER, default, unit, told, at_least, by)


def _seconds(name: str, default: float, told: str, at_least: float = 0, by: By = By.NODES) -> Tunable:
    return Tunable(name, Kind.SECONDS, float(default), "s", told, at_least, by)


def _text(name: str, told: str) -> Tunable:
    return Tunable(name, Kind.TEXT, "", "", told, obeyed_by=By.NOBODY)


_NO_COMMANDS: Final = "a reverse connection carries the bytes of a log, and no commands that could be obeyed"
_ALL: Final = (
    _switch("blocking_physrep", "A replica's read of its source's log waits for the next record."),
    _seconds("physrep_check_minlog_freq_sec", 10, "How often a node asks which part of its log replicas need.", 1),
    _switch("physrep_debug", "Tell more about replication."),
    _switch("physrep_exit_on_invalid_logstream", "A replica ends when its source's log does not continue its own."),
    _number("physrep_fanout", 8, "replicas", "How many replicas a node serves at most.", 1, By.BOTH),
    _seconds(
        "physrep_hung_replicant_check_freq_sec", 10, "How often replicas that hang or are slow are looked for.", 1
    ),
    _seconds("physrep_hung_replicant_threshold", 60, "A replica that shows no life for so long is reported.", 1),
    _switch("physrep_i_am_metadb", "Only told: who has `registry` in its node file keeps the registry.", By.NOBODY),
    _seconds("physrep_keepalive_freq_sec", 10, "How often a node tells the registry how far it is.", 0.1, By.BOTH),
    _number("physrep_max_candidates", 6, "nodes", "How many candidates a replica is offered at most.", 1, By.REGISTRY),
    _number(
        "physrep_max_pending_replicants",
        10,
        "replicas",
        "How many replicas may be Pending at one source.",
        1,
        By.REGISTRY,
    ),
    _text("physrep_metadb_host", "Only told: node files say where the registry is."),
    _text("physrep_metadb_name", "Only told: a registry has no name but its address."),
    _seconds(
        "physrep_reconnect_penalty", 5, "How long a replica waits before it tries the same node again.", 0, By.BOTH
    ),
    _seconds("physrep_register_interval", 3600, "How often a replica registers anew.", 1),
    _switch("physrep_shuffle_host_list", "A replica tries its candidates in random order."),
    _text("physrep_source_dbname", "Only told: node files say which log is replicated (`database`)."),
    _text("physrep_source_host", "Only told: node files say where the source is."),
    _switch(
        "revsql_allow_command_execution",
        "Cannot be on: reverse connections carry no commands.",
        By.NOBODY,
        _NO_COMMANDS,
    ),
    _switch("revsql_cdb2_debug", "Tell more about what is asked over reverse connections."),
    _seconds("revsql_connect_freq_sec", 5, "How often a source dials a replica that waits for it.", 0.1),
    _switch("revsql_debug", "Tell more about reverse connections."),
    _seconds("revsql_host_refresh_freq_sec", 5, "How often a source asks whom it has to dial.", 0.1),
    _number("physrep_max_rollback", 0, "segments", "How far a replica may cut its log back to match; 0 is any."),
    _number("physrep_no_source_alarm_threshold", 10, "rounds", "Rounds without a usable source before the alarm.", 1),
    _seconds("physrep_update_registry_interval", 60, "How often a replica confirms its source again.", 1),
    _number("physrep_pollms", 50, "ms", "How long a replica waits when its source has nothing new.", 1),
    _seconds(
        "physrep_pending_lease_sec", 30, "How long a slot is reserved for a replica that registered.", 0.1, By.REGISTRY
    ),
    _number(
        "physrep_active_lease_keepalives",
        3,
        "keepalives",
        "Missed ones after which a node counts as gone.",
        1,
        By.REGISTRY,
    ),
    _seconds(
        "physrep_rebalance_interval", 1, "How often a replica may be asked to move up; one at a time.", 0.1, By.REGISTRY
    ),
    _number(
        "physrep_rebalance_hysteresis",
        1,
        "tiers",
        "A replica moves if it gets shallower by so many tiers.",
        1,
        By.REGISTRY,
    ),
    _seconds(
        "physrep_forget_sec", 86400, "How long a node without replicas is remembered after it was gone.", 1, By.REGISTRY
    ),
)
TUNABLES: Final[Mapping[str, Tunable]] = {tunable.name: tunable for tunable in _ALL}
"""Every tunable by its name. The first are those of Comdb2's documentation, the rest are needed besides."""


class Tunables:
    """The values that count now."""

    def __init__(self, kept: Mapping[str, str] | None = None) -> None:
        """With what was set elsewhere, or by another release; what does not exist here is passed over."""
        self._values: dict[str, Value] = {name: tunable.default for name, tunable in TUNABLES.items()}
        for name, text in (kept or {}).items():
            if name in TUNABLES:
                with suppress(TailraceError):
                    self._values[name] = TUNABLES[name].read(text)

    def get(self, name: str) -> Value:
        """The value of one."""
        return self._values[find(name).name]

    def set(self, name: str, text: str) -> Value:
        """Change one, or raise without changing anything."""
        tunable = find(name)
        self._values[name] = value = tunable.read(text)
        return value

    def number(self, name: str) -> int:
        """One that is known to be a number."""
        return int(self._values[name])

    def seconds(self, name: str) -> float:
        """One that is known to be a duration."""
        return float(self._values[name])

    def is_on(self, name: str) -> bool:
        """One that is known to be a switch."""
        return bool(self._values[name])

    def __iter__(self) -> Iterator[tuple[Tunable, Value]]:
        """Every one with its value."""
        return ((tunable, self._values[name]) for name, tunable in TUNABLES.items())


def find(name: str) -> Tunable:
    """The tunable of this name."""
    if name not in TUNABLES:
        near = get_close_matches(name[:_TEXT_CHARS_MAX], TUNABLES, n=3)
        hint = f"did you mean {' or '.join(near)}?" if near else "see `tailrace topology tunables`"
        raise TailraceError("topology.unknown_tunable", f"there is no tunable {name[:200]!r}", hint=hint)
    return TUNABLES[name]


def read_file(said: Any) -> Any:
    """What a node file says about tunables, as values. Only what nodes obey can be said there."""
    if not isinstance(said, Mapping):
        return said
    values: dict[str, Value] = {}
    for name, written in said.items():
        try:
            tunable = find(str(name))
            if tunable.obeyed_by not in (By.NODES, By.BOTH):
                raise ValueError(f"{name} is not for nodes: `tailrace topology tunables --set` sets it at the registry")
            values[tunable.name] = tunable.read(_as_text(written))
        except TailraceError as error:
            raise ValueError(f"{error.what}; {error.hint}") from None
    return values


def _as_text(written: Any) -> str:
    return ("on" if written else "off") if isinstance(written, bool) else str(written)
