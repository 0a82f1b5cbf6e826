"""Finding the adaptors and functions that a declaration names, and checking what it says about them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, metadata
from typing import TYPE_CHECKING, Any

from tailrace.adaptor import registry as adaptors
from tailrace.errors import TailraceError
from tailrace.pipeline.problem import Path, Problem, offered, unknown_key, validated
from tailrace.pipeline.suggest import did_you_mean
from tailrace.transform import registry as functions
from tailrace.transform.options import FunctionOptions

if TYPE_CHECKING:
    from tailrace.adaptor.registry import Adaptor


@dataclass(frozen=True, slots=True)
class Parts:
    """What a pipeline is made of. Every method returns None when something is wrong, which is in `problems` then."""

    base: str
    """Where relative paths start."""
    problems: list[Problem]

    def adaptor(self, said: Mapping[str, Any], path: Path, own_keys: list[str]) -> Adaptor | None:
        """The one adaptor that is named beside our own keys."""
        known = adaptors.names()
        theirs = [key for key in said if key not in own_keys]
        chosen = [key for key in theirs if key in known]
        self.problems.extend(unknown_key((*path, key), [*own_keys, *known]) for key in theirs if key not in known)
        if len(chosen) > 1:
            self.add(path, f"only one adaptor is possible, not {' and '.join(chosen)}")
        elif not theirs:
            self.add(path, f"no adaptor is named; there are: {', '.join(known)}")
        if len(chosen) != 1:
            return None
        found: Adaptor | None = self._loaded(lambda: adaptors.find(chosen[0]), (*path, chosen[0]))
        return found

    def options(self, model: Any, value: Any, path: Path) -> Any:
        """The options of an adaptor or a function; nothing said is no option given."""
        theirs = offered(model)
        wrong = [key for key in model.model_fields if key not in theirs and isinstance(value, Mapping) and key in value]
        if wrong:
            self.problems.extend(unknown_key((*path, key), theirs) for key in wrong)
            return None
        return validated(model, {} if value is None else value, path, self.base, self.problems)

    def functions(self, said: Any, path: Path) -> tuple[FunctionOptions, ...] | None:
        """A chain of functions, each by name with its options, or ready made in Python."""
        if not isinstance(said, list | tuple):
            return () if said is None else None  # the form tells that it is no list
        found = [self._function(each, (*path, at)) for at, each in enumerate(said)]
        made = tuple(each for each in found if each is not None)
        return made if len(made) == len(found) else None

    def add(self, path: Path, text: str, *, is_about_key: bool = False) -> None:
        self.problems.append(Problem(path, text, is_about_key))

    def _function(self, said: Any, path: Path) -> FunctionOptions | None:
        if isinstance(said, FunctionOptions):
            return said
        if isinstance(said, str):
            said = {said: None}
        if not isinstance(said, Mapping) or len(said) != 1:
            self.add(path, "should be one function, such as `omit: [email]`; write one entry for each")
            return None
        ((name, value),) = said.items()
        known = functions.names()
        if name not in known:
            text = f"there is no function {name!r}{did_you_mean(str(name), known)}"
            self.add((*path, name), text, is_about_key=True)
            return None
        found = self._loaded(lambda: functions.find(name), (*path, name))
        made: FunctionOptions | None = self.options(found, value, (*path, name)) if found else None
        return made

    def _loaded(self, load: Callable[[], Any], path: Path) -> Any:
        try:
            return load()
        except ImportError as error:
            cure = f"; pip install 'tailrace[{path[-1]}]'" if path[-1] in _extras() else ""
            self.add(path, f"{path[-1]} cannot be loaded here: {error}{cure}", is_about_key=True)
        except TailraceError as error:
            self.add(path, error.what, is_about_key=True)
        return None


def _extras() -> list[str]:
    """What can be installed with the package."""
    try:
        return metadata("tailrace").get_all("Provides-Extra") or []
    except PackageNotFoundError:
        return []
