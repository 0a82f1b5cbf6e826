"""Whose changes a source notes: one pipeline's, for what that has read the source forgets."""

from __future__ import annotations

from tailrace.errors import TailraceError


def refuse_other(place: str, owner: str | None, pipeline: str) -> None:
    """Refuse a pipeline for which changes are not noted: it would miss some, or make the other one miss them."""
    if not owner or not pipeline or owner == pipeline:
        return
    what = f"changes of {place} are noted for pipeline {owner}, not for {pipeline}"
    hint = f"add a writer to {owner}, or, if it is no longer run, tailrace uninstall its file first"
    raise TailraceError("source.unsupported", what, hint=hint)
