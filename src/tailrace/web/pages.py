"""Whole pages, readable without scripts."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote, urlencode

from tailrace.errors import TailraceError
from tailrace.message import Entry
from tailrace.observe.model import Part
from tailrace.web.browsing import FIELDS_MAX, Compacted, Difference, Found, differences, moment_of, shown
from tailrace.web.html import Child, Markup, join, row, table, tag
from tailrace.web.live import Shown

_SHOWN_LETTERS = 120


_FIELDS = {
    "offset": "From offset",
    "namespace": "Namespace",
    "since": "Since (UTC)",
    "origin": "Origin",
    "destination": "Destination",
}


def page(title: str, *body: Child, at: str = "", known: str = "", is_in: bool = True) -> Markup:
    """A page around something. One that gets news says what it knows."""
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("title", f"{title} · Tailrace"),
        tag("link", rel="stylesheet", href="/static/style.css"),
        tag("link", rel="icon", href="/static/icon.svg", type="image/svg+xml"),
        tag("script", src="/static/live.js", defer=True) if known else "",
    )
    links = [("Now", "/"), ("Log", "/log"), ("Audit", "/audit")] if is_in else []
    named = [tag("a", name, href=href, aria_current="page" if href == at else None) for name, href in links]
    out = tag("form", tag("button", "Leave", type="submit"), method="post", action="/leave") if is_in else ""
    brand = tag("span", "Tailrace", class_="brand")
    bar = tag("header", tag("nav", brand, *named, out, aria_label="Pages"))
    skip = tag("a", "To the content", href="#main", class_="skip")
    content = tag("main", *body, id="main", tabindex=-1, data_known=known or None)
    return Markup("<!doctype html>" + tag("html", head, tag("body", skip, bar, content), lang="en"))


def now_page(shown: Shown) -> Markup:
    stale = tag("p", "The connection is lost; what is shown is old.", id="stale", role="alert", hidden=True)
    body = [tag("section", inner, id=f"s-{name}") for name, inner in shown.sections.items()]
    return page(shown.overview.name, stale, *body, at="/", known=shown.known)


def login_page(problem: str = "", to: str = "/") -> Markup:
    form = tag(
        "form",
        tag("label", "Token", for_="token"),
        tag("input", type="password", name="token", required=True, autocomplete="off", id="token"),
        tag("input", type="hidden", name="to", value=to),
        tag("button", "Enter", type="submit"),
        method="post",
        action="/enter",
        class_="enter",
    )
    told = tag("p", problem, role="alert", class_="problem") if problem else ""
    hint = tag("p", "The program that serves this page says where its token is kept.", class_="none")
    return page("Enter", tag("h1", "Tailrace"), told, form, hint, is_in=False)


def error_page(error: TailraceError) -> Markup:
    steps = _steps(error.before, error.after) if isinstance(error, Compacted) else ""
    return page("Error", tag("h1", "That did not work"), _problem(error), steps)


def log_page(said: Mapping[str, str], found: Found) -> Markup:
    """What was asked for stays in the form, right or wrong."""
    asked = {name: value for name in _FIELDS if (value := said.get(name, "").strip())}
    inputs = [
        tag("label", label, tag("input", name=name, id=name, value=asked.get(name, "")), for_=name)
        for name, label in _FIELDS.items()
    ]
    form = tag("form", *inputs, tag("button", "Show", type="submit"), method="get", action="/log", class_="filter")
    rows = [row(_entry_cells(entry)) for entry in found.entries]
    headings = ["Offset", "Time (UTC)", "Namespace", "Op", "Origin", "Destinations", "Data"]
    more: Child = ""
    if found.next_offset is not None:
        query = urlencode({**asked, "offset": found.next_offset})
        more = tag("p", tag("a", "Further messages", href=f"/log?{query}"))
    problem = _problem(found.problem) if found.problem is not None else ""
    shown = table("Messages", headings, rows, "none found") if rows or found.problem is None else ""
    return page("Log", tag("h1", "Log"), form, shown, problem, more, at="/log")


def message_page(entry: Entry) -> Markup:
    message = entry.message
    facts: list[tuple[str, Child]] = [
        ("Offset", str(entry.offset)),
        ("Time", moment_of(message)),
        ("Namespace", message.namespace),
        ("Operation", message.op.name.lower()),
        ("Phase", entry.mode.name.lower()),
        ("Origin", f"{message.origin}, number {message.lsn}"),
        ("Transaction", message.tx or "none"),
        ("Destinations", ", ".join(message.destinations) or "all"),
    ]
    listed = tag("dl", *(join(tag("dt", name), tag("dd", value)) for name, value in facts))
    steps = _steps(entry.offset - 1 if entry.offset else None, entry.offset + 1)
    title = f"Message {entry.offset}"
    return page(title, tag("h1", title), listed, _difference(entry), steps, at="/log")


def stuck_page(part: Part, form: str) -> Markup:
    """What can be done about a writer that has stopped."""
    stuck = part.stuck
    title = tag("h1", f"Writer {part.name}")
    cure = "" if part.wrong is None or not part.wrong.cure else tag("pre", part.wrong.cure)
    if stuck is None:
        state = tag("p", f"It is {part.state}; no message is stuck.")
        told = "" if part.wrong is None else tag("p", part.wrong.what)
        again = "" if part.goes_on else _action(part.name, "retry", form, None)
        return page(f"Writer {part.name}", title, state, told, cure, again)
    acknowledge = (
        _action(part.name, "acknowledge", form, stuck.first)
        if stuck.is_single
        else tag("p", "Which of them is at fault is found out by a retry; then it can be acknowledged.")
    )
    return page(
        f"Writer {part.name}",
        title,
        tag("p", f"It could not write {stuck.which}: {stuck.what}"),
        cure,
        tag("p", tag("a", "Look at it", href=f"/log/{stuck.first}", class_="button")),
        tag("div", _action(part.name, "retry", form, None), acknowledge, class_="actions"),
    )


def audit_page(lines: list[dict[str, object]]) -> Markup:
    keys = ("time", "user", "via", "action", "consumer", "offset", "reason")
    rows = [row([str(line.get(key, "")) for key in keys]) for line in lines]
    headings = ["Time (UTC)", "User", "Via", "Action", "Consumer", "Offset", "Reason"]
    shown = table("Audit trail", headings, rows, "nothing yet")
    return page("Audit", tag("h1", "What operators did"), shown, at="/audit")


def _steps(before: int | None, after: int | None) -> Markup:
    """Links to messages near one."""
    named = (("The one before", before), ("The next one", after))
    links = [tag("a", name, href=f"/log/{offset}") for name, offset in named if offset is not None]
    return tag("p", *(join(link, " ") for link in links))


def _problem(error: TailraceError) -> Markup:
    """What went wrong, where, and its cure."""
    place = tag("p", str(error.place)) if error.place is not None else ""
    cure = tag("pre", error.hint) if error.hint else ""
    return tag("div", tag("p", error.what, " ", tag("code", error.code)), place, cure, class_="trouble", role="alert")


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


def _entry_cells(entry: Entry) -> list[Child]:
    message = entry.message
    data = shown(dict(message.data) if message.data is not None else None)
    return [
        tag("a", str(entry.offset), href=f"/log/{entry.offset}"),
        moment_of(message).removesuffix("+00:00"),
        message.namespace,
        message.op.name.lower(),
        str(message.origin) if message.origin else "",
        ", ".join(message.destinations),
        tag("code", data if len(data) <= _SHOWN_LETTERS else f"{data[:_SHOWN_LETTERS]}…"),
    ]


def _difference(entry: Entry) -> Markup:
    message = entry.message
    has_before = message.before is not None
    found = list(differences(message))
    rows = [row(_changed(each) if has_before else [each.name, tag("code", each.after)]) for each in found]
    headings = ["Field", "", "Before", "After"] if has_before else ["Field", "Value"]
    more = ""
    if len(found) == FIELDS_MAX:
        more = tag("p", f"These are the first {FIELDS_MAX}; tailrace log show {entry.offset} has all.")
    return join(table("What it says", headings, rows, "nothing"), more)


def _changed(field: Difference) -> list[Child]:
    if not field.is_changed:
        return [field.name, "", tag("code", field.before), tag("code", field.after)]
    was = "" if field.before is None else tag("del", tag("code", field.before))
    now = "" if field.after is None else tag("ins", tag("code", field.after))
    return [field.name, "changed", was, now]
