"""Whole pages, readable without scripts."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote, urlencode

from tailrace.errors import TailraceError
from tailrace.message import Entry, moment
from tailrace.observe.model import Overview, Part
from tailrace.web.browsing import Found, Wanted, differences, shown
from tailrace.web.html import Child, Markup, join, table, tag

_SHOWN_LETTERS = 120


def page(title: str, *body: Child, is_live: bool = False, is_in: bool = True) -> Markup:
    """A page around something."""
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("title", f"{title} · Tailrace"),
        tag("link", rel="stylesheet", href="/static/style.css"),
        tag("link", rel="icon", href="/static/icon.svg", type="image/svg+xml"),
        tag("script", src="/static/live.js", defer=True) if is_live else "",
    )
    links = [("Now", "/"), ("Log", "/log"), ("Audit", "/audit")] if is_in else []
    out = tag("form", tag("button", "Leave", type="submit"), method="post", action="/leave") if is_in else ""
    bar = tag("header", tag("nav", *(tag("a", name, href=href) for name, href in links), out, aria_label="Pages"))
    skip = tag("a", "To the content", href="#main", class_="skip")
    content = tag("main", *body, id="main", tabindex=-1)
    return Markup("<!doctype html>" + tag("html", head, tag("body", skip, bar, content), lang="en"))


def now_page(overview: Overview, sections: Mapping[str, Markup]) -> Markup:
    stale = tag("p", "The connection is lost; what is shown is old.", id="stale", role="alert", hidden=True)
    body = [tag("section", inner, id=f"s-{name}") for name, inner in sections.items()]
    return page(overview.name, stale, *body, is_live=True)


def login_page(problem: str = "") -> Markup:
    form = tag(
        "form",
        tag(
            "label",
            "Token ",
            tag("input", type="password", name="token", required=True, autocomplete="off", id="token"),
            for_="token",
        ),
        tag("button", "Enter", type="submit"),
        method="post",
        action="/enter",
    )
    told = tag("p", problem, role="alert") if problem else ""
    hint = tag("p", "The program that serves this page says where its token is kept.")
    return page("Enter", tag("h1", "Tailrace"), told, form, hint, is_in=False)


def error_page(error: TailraceError) -> Markup:
    cure = tag("pre", error.hint) if error.hint else ""
    return page("Error", tag("h1", "That did not work"), tag("p", error.what), tag("code", error.code), cure)


def log_page(wanted: Wanted, found: Found, problem: TailraceError | None = None) -> Markup:
    fields = {
        "offset": "From offset",
        "namespace": "Namespace",
        "since": "Since",
        "origin": "Origin",
        "destination": "Destination",
    }
    said = {name: value for name in fields if (value := getattr(wanted, name)) is not None}
    inputs = [
        tag("label", f"{label} ", tag("input", name=name, id=name, value=str(said.get(name, ""))), for_=name)
        for name, label in fields.items()
    ]
    form = tag("form", *inputs, tag("button", "Show", type="submit"), method="get", action="/log", class_="filter")
    rows: list[list[Child]] = [_entry_row(entry) for entry in found.entries]
    headings = ["Offset", "Time", "Namespace", "Op", "Origin", "Destinations", "Data"]
    more: Child = ""
    if found.next_offset is not None:
        query = urlencode({**{name: str(value) for name, value in said.items()}, "offset": found.next_offset})
        more = tag("p", tag("a", "Further messages", href=f"/log?{query}"))
    told = tag("p", problem.what, role="alert") if problem is not None else ""
    return page("Log", tag("h1", "Log"), told, form, table("Messages", headings, rows, "none found"), more)


def message_page(entry: Entry) -> Markup:
    message = entry.message
    facts: list[tuple[str, Child]] = [
        ("Offset", str(entry.offset)),
        ("Time", moment(message.timestamp).isoformat()),
        ("Namespace", message.namespace),
        ("Operation", message.op.name.lower()),
        ("Phase", entry.mode.name.lower()),
        ("Origin", f"{message.origin}, number {message.lsn}"),
        ("Transaction", message.tx or "none"),
        ("Destinations", ", ".join(message.destinations) or "all"),
    ]
    listed = tag("dl", *(join(tag("dt", name), tag("dd", value)) for name, value in facts))
    steps = [
        tag("a", "The one before", href=f"/log/{entry.offset - 1}") if entry.offset else "",
        " ",
        tag("a", "The next one", href=f"/log/{entry.offset + 1}"),
    ]
    return page(f"Message {entry.offset}", tag("h1", f"Message {entry.offset}"), listed, _difference(entry), *steps)


def stuck_page(part: Part, form: str, problem: str = "") -> Markup:
    """What can be done about a writer that has stopped."""
    stuck = part.stuck
    told = tag("p", problem, role="alert") if problem else ""
    if stuck is None:
        state = tag("p", f"It is {part.state}; no message is stuck.")
        again = _action(part.name, "retry", form, None) if part.health != "good" else ""
        return page(f"Writer {part.name}", tag("h1", f"Writer {part.name}"), told, state, again)
    which = f"message {stuck.first}" if stuck.is_single else f"messages {stuck.first} to {stuck.last}"
    acknowledge = (
        _action(part.name, "acknowledge", form, stuck.first)
        if stuck.is_single
        else tag("p", "Which of them is at fault is found out by a retry; then it can be acknowledged.")
    )
    return page(
        f"Writer {part.name}",
        tag("h1", f"Writer {part.name}"),
        told,
        tag("p", f"It could not write {which}: {stuck.what}"),
        tag("p", tag("a", "Look at it", href=f"/log/{stuck.first}")),
        _action(part.name, "retry", form, None),
        acknowledge,
    )


def audit_page(lines: list[dict[str, object]]) -> Markup:
    rows: list[list[Child]] = [
        [
            str(line.get("time", "")),
            str(line.get("user", "")),
            str(line.get("action", "")),
            str(line.get("consumer", "")),
            str(line.get("offset", "")),
            str(line.get("reason", "")),
        ]
        for line in lines
    ]
    headings = ["Time", "User", "Action", "Consumer", "Offset", "Reason"]
    return page("Audit", tag("h1", "What operators did"), table("Audit trail", headings, rows, "nothing yet"))


def _action(writer: str, action: str, form: str, offset: int | None) -> Markup:
    says = {
        "retry": ("Retry", "Deliver it again, now.", "The writer goes on where it stopped."),
        "acknowledge": (
            "Acknowledge",
            "Count the message as delivered without writing it, and go on.",
            "The destination will never have this message.",
        ),
    }[action]
    button, does, means = says
    sure = f"{action}-sure"
    reason = f"{action}-reason"
    return tag(
        "form",
        tag("h2", button),
        tag("p", does),
        tag("input", type="hidden", name="form", value=form),
        tag("input", type="hidden", name="offset", value=offset) if offset is not None else "",
        tag("label", "Why ", tag("input", name="reason", required=True, maxlength=500, id=reason), for_=reason),
        tag(
            "label",
            tag("input", type="checkbox", name="sure", value="yes", required=True, id=sure),
            f" {means}",
            for_=sure,
        ),
        tag("button", button, type="submit"),
        method="post",
        action=f"/stuck/{quote(writer, safe='')}/{action}",
        class_="action",
    )


def _entry_row(entry: Entry) -> list[Child]:
    message = entry.message
    data = shown(dict(message.data) if message.data is not None else None)
    return [
        tag("a", str(entry.offset), href=f"/log/{entry.offset}"),
        moment(message.timestamp).isoformat(timespec="milliseconds"),
        message.namespace,
        message.op.name.lower(),
        str(message.origin) if message.origin else "",
        ", ".join(message.destinations),
        tag("code", data if len(data) <= _SHOWN_LETTERS else f"{data[:_SHOWN_LETTERS]}…"),
    ]


def _difference(entry: Entry) -> Markup:
    message = entry.message
    rows: list[list[Child]] = []
    has_before = message.before is not None
    for name, before, after in differences(message):
        if not has_before:
            rows.append([name, tag("code", after)])
            continue
        is_same = before == after
        rows.append(
            [
                name,
                "" if is_same else "changed",
                tag("code", before) if is_same else tag("del", tag("code", before or "")) if before is not None else "",
                tag("code", after) if is_same else tag("ins", tag("code", after or "")) if after is not None else "",
            ]
        )
    headings = ["Field", "", "Before", "After"] if has_before else ["Field", "Value"]
    return table("What it says", headings, rows, "nothing")
