"""From what was said to what will run: plain keys and values become a `PipelineSpec`, or a list of problems."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from tailrace.pipeline.form import TOP_KEYS, ReadForm, SettingsForm, WriteForm
from tailrace.pipeline.names import WriterNames, name_problem
from tailrace.pipeline.parts import Parts
from tailrace.pipeline.problem import Path, Problem, unknown_key
from tailrace.pipeline.spec import PipelineSpec, ReadSpec, WriteSpec

LOG_DIRECTORY: Final = ".tailrace"
"""Where the logs are of pipelines that do not say."""


def assemble(said: Any, base: str) -> tuple[PipelineSpec | None, list[Problem]]:
    """The pipeline, None when there are problems. Relative paths start at `base`."""
    problems: list[Problem] = []
    spec = _Assembly(Parts(base, problems)).pipeline(said)
    return (None if problems else spec), problems


@dataclass(frozen=True, slots=True)
class _Assembly:
    """Goes on after a problem, to find the others."""

    parts: Parts
    names: WriterNames = field(default_factory=WriterNames)

    def pipeline(self, said: Any) -> PipelineSpec | None:
        if not isinstance(said, Mapping):
            self.parts.add((), "should be a mapping with the keys pipeline, read and write")
            return None
        self.parts.problems.extend(unknown_key((key,), list(TOP_KEYS)) for key in said if key not in TOP_KEYS)
        for key in ("pipeline", "read", "write"):
            if said.get(key) is None:
                self.parts.add((key,), "this key is missing")
        name = self._name(said.get("pipeline"))
        log = self._log(said.get("log"), name)
        settings: SettingsForm | None = self.parts.options(SettingsForm, said.get("settings"), ("settings",))
        read = self._read(said.get("read"))
        writes = self._writes(said.get("write"))
        if read is not None and writes:
            self._check_places(read, writes, isinstance(said["write"], Mapping))
        if name is None or log is None or settings is None or read is None or not writes:
            return None
        return PipelineSpec(
            name=name,
            log=log,
            read=_of_pipeline(read, name, log),
            writes=writes,
            segment_bytes=settings.segment_bytes,
            sync_every_s=settings.sync_every,
            keep_bytes=settings.keep_bytes,
            keep_s=settings.keep_age,
            shutdown_s=settings.shutdown,
            patience_s=settings.patience,
            poll_s=settings.poll,
            spark=settings.spark,
            master=settings.master,
        )

    def _name(self, said: Any) -> str | None:
        if said is None:
            return None
        why = name_problem(said, "pipeline") if isinstance(said, str) else "should be text; put it in quotes"
        if why is not None:
            self.parts.add(("pipeline",), why)
        return None if why else said

    def _log(self, said: Any, name: str | None) -> str | None:
        base = self.parts.base
        if said is None:
            return os.path.join(base, LOG_DIRECTORY, name) if name else None
        if not isinstance(said, str) or not said or "\0" in said or "://" in said:
            self.parts.add(("log",), "should be the path of a directory on this machine")
            return None
        return os.path.normpath(os.path.join(base, os.path.expanduser(said)))

    def _read(self, said: Any) -> ReadSpec | None:
        path: Path = ("read",)
        if said is None or not self._is_end(said, path):
            return None
        form: ReadForm | None = self.parts.options(ReadForm, _own(said, ReadForm), path)
        adaptor = self.parts.adaptor(said, path, list(ReadForm.model_fields))
        if adaptor is None:
            return None
        at = (*path, adaptor.name)
        if adaptor.reader is None:
            self.parts.add(at, f"the adaptor {adaptor.name} cannot be read from", is_about_key=True)
            return None
        options = self.parts.options(adaptor.reader, said[adaptor.name], at)
        if form is None or options is None:
            return None
        return ReadSpec(adaptor.name, options, form.namespace, form.parallel)

    def _writes(self, said: Any) -> tuple[WriteSpec, ...] | None:
        if said is None:
            return None
        if isinstance(said, Mapping):
            found = [self._write(said, ("write",))]
        elif isinstance(said, list | tuple) and said:
            found = [self._write(each, ("write", at)) for at, each in enumerate(said)]
        else:
            self.parts.add(("write",), "should be a writer or a list of writers")
            return None
        writes = [each for each in found if each is not None]
        if len(writes) < len(found):
            return None
        return tuple(each if each.name else replace(each, name=self.names.free(each.adaptor)) for each in writes)

    def _write(self, said: Any, path: Path) -> WriteSpec | None:
        """A writer; its name is empty when none was given."""
        if not self._is_end(said, path):
            return None
        form: WriteForm | None = self.parts.options(WriteForm, _own(said, WriteForm), path)
        if form is not None and form.name is not None and (why := self.names.claim(form.name)):
            self.parts.add((*path, "name"), why)
        through = self.parts.functions(said.get("through"), (*path, "through"))
        adaptor = self.parts.adaptor(said, path, list(WriteForm.model_fields))
        if adaptor is None:
            return None
        at = (*path, adaptor.name)
        if adaptor.writer is None:
            self.parts.add(at, f"the adaptor {adaptor.name} cannot be written to", is_about_key=True)
            return None
        options = self.parts.options(adaptor.writer, said[adaptor.name], at)
        if form is None or options is None or through is None:
            return None
        return WriteSpec(
            name=form.name or "",
            adaptor=adaptor.name,
            options=options,
            namespace=form.namespace,
            through=through,
            on_error=form.on_error,
            on_schema_change=form.on_schema_change,
            batch_bytes=form.batch_bytes,
            every_s=form.every,
            hold=form.hold.hold(),
        )

    def _check_places(self, read: ReadSpec, writes: tuple[WriteSpec, ...], is_single: bool) -> None:
        """Nobody may write where the pipeline reads, or where another writer does."""
        source = read.options.place()
        taken: dict[str, str] = {}
        for at, write in enumerate(writes):
            place = write.options.place()
            if place is None:
                continue
            path: Path = ("write", write.adaptor) if is_single else ("write", at, write.adaptor)
            other = taken.setdefault(place, write.name)
            if place == source:
                self.parts.add(path, "the pipeline reads from here, so it would feed itself; write to another place")
            elif other != write.name:
                why = f"writer {other!r} writes here, too, and neither would know what the other does"
                self.parts.add(path, f"{why}; give each a place of its own, or make them one writer")

    def _is_end(self, said: Any, path: Path) -> bool:
        if not isinstance(said, Mapping):
            self.parts.add(path, "should be a mapping with an adaptor in it, such as `sqlite: {path: shop.db}`")
            return False
        return True


def _of_pipeline(read: ReadSpec, name: str, log: str) -> ReadSpec:
    """What is read, with the pipeline's name and log where the adaptor keeps something under it, or in it."""
    known = {"pipeline": name, "log": log}
    wanted = {field: value for field, value in known.items() if field in type(read.options).model_fields}
    return replace(read, options=read.options.model_copy(update=wanted)) if wanted else read


def _own(said: Mapping[str, Any], form: type[ReadForm | WriteForm]) -> dict[str, Any]:
    """What is said beside the adaptor's options."""
    return {key: value for key, value in said.items() if key in form.model_fields}
