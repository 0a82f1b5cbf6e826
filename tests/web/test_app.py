"""The page and its API over real HTTP."""

from __future__ import annotations

import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from html.parser import HTMLParser
from pathlib import Path

import httpx
import pytest

from tailrace.deliver.retrying import Retrying
from tailrace.limits import WEB_PAGES_MAX
from tailrace.log import audit
from tailrace.log.commitlog import CommitLog
from tailrace.log.compaction import compact
from tailrace.log.consumers import Consumers
from tailrace.log.frame import encode_plain
from tailrace.message import Message, Mode, Op, now
from tailrace.pipeline.spec import PipelineSpec
from tailrace.serving.server import HttpServer
from tailrace.web import browsing
from tests.web.shops import HOSTILE, TOKEN, browser, make_shop, program, served

CLOSED = (
    "/",
    "/log",
    "/log/4",
    "/audit",
    "/stuck/office",
    "/events",
    "/api/overview",
    "/api/log",
    "/api/log/4",
    "/api/audit",
    "/metrics",
)
OPEN = ("/healthz", "/readyz", "/static/style.css", "/static/live.js", "/static/icon.svg")


@pytest.fixture
def spec(tmp_path: Path) -> PipelineSpec:
    return make_shop(tmp_path)


@pytest.fixture
def server(spec: PipelineSpec) -> Iterator[HttpServer]:
    with served(spec) as server:
        yield server


@pytest.fixture
def client(server: HttpServer) -> Iterator[httpx.Client]:
    with program(server) as client:
        yield client


@pytest.fixture
def page(server: HttpServer) -> Iterator[httpx.Client]:
    with closing(browser(server)) as client:
        yield client


class TestAccess:
    @pytest.mark.parametrize("header", [{}, {"authorization": "Bearer wrong"}, {"cookie": "tailrace_session=guess"}])
    def test_nothing_is_shown_without_the_token(self, server: HttpServer, header: dict[str, str]) -> None:
        for path in CLOSED:
            answer = httpx.get(f"{server.url}{path}", headers=header, trust_env=False)
            assert answer.status_code in (401, 429), path  # ten wrong ones are enough
            assert "office" not in answer.text

    def test_what_says_nothing_is_open(self, server: HttpServer) -> None:
        for path in OPEN:
            assert httpx.get(f"{server.url}{path}", trust_env=False).status_code in (200, 503), path

    def test_every_route_is_one_of_these(self) -> None:
        from tailrace.web.access import Access
        from tailrace.web.app import Panel, application
        from tailrace.web.live import Live

        panel = Panel(Live(lambda: pytest.fail("nobody looks")), Access(TOKEN, frozenset()), None)
        known = {getattr(route, "path", "") for route in application(panel).routes}
        named = {
            "/stuck/{writer}/{action}",
            "/enter",
            "/leave",
            "/static/{name}",
            "/log/{offset}",
            "/api/log/{offset}",
            "/stuck/{writer}",
        }
        assert known == {*CLOSED, *OPEN, *named} - {"/log/4", "/api/log/4", "/stuck/office", *OPEN[2:]}

    def test_a_name_that_is_not_ours_is_refused(self, server: HttpServer, client: httpx.Client) -> None:
        assert client.get("/", headers={"host": "evil.example"}).status_code == 400

    @pytest.mark.parametrize(
        "host", ["localhost:/healthz?", "localhost:1/healthz?x=", "localhost/healthz", "[::1]x", "", "a@localhost"]
    )
    def test_a_host_that_is_more_than_a_name_is_refused(self, server: HttpServer, host: str) -> None:
        """Some take the path of a request from it, and `/healthz` wants no token."""
        assert httpx.get(f"{server.url}/api/overview", headers={"host": host}, trust_env=False).status_code == 400

    def test_an_authorization_that_is_no_token_does_not_stand_for_a_form(
        self, page: httpx.Client, spec: PipelineSpec
    ) -> None:
        """A page of somebody else can have a browser send one, with `http://user:password@…`."""
        said = {"sure": "yes", "reason": "x"}
        answer = page.post("/stuck/office/retry", data=said, headers={"authorization": "Basic eDp5"})
        assert answer.status_code == 403
        assert not Retrying(spec.log, "office").take()

    def test_two_pages_of_one_machine_do_not_end_each_other(self, server: HttpServer, spec: PipelineSpec) -> None:
        """A browser sends the cookies of a host to all its ports."""
        with served(spec) as other, closing(browser(server)) as client:
            entered = client.post(f"{other.url}/enter", data={"token": TOKEN})
            assert entered.status_code == 303
            assert client.get("/").status_code == 200
            assert client.get(f"{other.url}/").status_code == 200

    def test_after_the_token_one_is_where_one_wanted_to_be(self, server: HttpServer) -> None:
        asked = httpx.get(f"{server.url}/log?namespace=a%26b", headers={"accept": "text/html"}, trust_env=False)
        assert 'name="to" value="/log?namespace=a%26b"' in asked.text

        def sent_to(to: str) -> str:
            answer = httpx.post(f"{server.url}/enter", data={"token": TOKEN, "to": to}, trust_env=False)
            return answer.headers["location"]

        assert sent_to("/log?namespace=a%26b") == "/log?namespace=a%26b"
        for elsewhere in ("//evil.example", "/\\evil.example", "https://evil.example", "", "/\n//evil.example"):
            assert sent_to(elsewhere) == "/"

    def test_a_form_that_does_not_come_is_not_waited_for(
        self, server: HttpServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("tailrace.web.app.WEB_FORM_S", 0.2)
        with socket.create_connection(("127.0.0.1", server.port), timeout=60) as link:
            link.sendall(b"POST /enter HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\ntoken=")
            assert link.recv(12) == b"HTTP/1.1 408"

    def test_a_page_of_others_cannot_change_anything(self, page: httpx.Client, spec: PipelineSpec) -> None:
        said = {"sure": "yes", "reason": "x", "form": _form(page.get("/stuck/office").text)}
        answer = page.post("/stuck/office/retry", data=said, headers={"origin": "http://evil.example"})
        assert answer.status_code == 403
        assert not Retrying(spec.log, "office").take()

    def test_a_form_of_another_session_is_refused(self, page: httpx.Client, spec: PipelineSpec) -> None:
        answer = page.post("/stuck/office/retry", data={"sure": "yes", "reason": "x", "form": "other"})
        assert answer.status_code == 403
        assert not Retrying(spec.log, "office").take()

    def test_guessing_ends_soon(self, server: HttpServer) -> None:
        answers = [
            httpx.post(f"{server.url}/enter", data={"token": f"guess {number}"}, trust_env=False).status_code
            for number in range(12)
        ]
        assert answers[:10] == [401] * 10
        assert answers[10:] == [429] * 2
        assert httpx.post(f"{server.url}/enter", data={"token": TOKEN}, trust_env=False).status_code == 429

    def test_one_who_guesses_locks_nobody_else_out(self, server: HttpServer) -> None:
        elsewhere = httpx.HTTPTransport(local_address="127.0.0.2")
        with httpx.Client(base_url=server.url, transport=elsewhere) as guesser:
            while guesser.get("/metrics", headers={"authorization": "Bearer guess"}).status_code != 429:
                pass
            assert guesser.get("/metrics", headers={"authorization": f"Bearer {TOKEN}"}).status_code == 429
        with program(server) as client:
            assert client.get("/metrics").status_code == 200

    def test_leaving_ends_the_session(self, page: httpx.Client) -> None:
        assert page.get("/").status_code == 200
        page.post("/leave")
        assert page.get("/").status_code == 401

    def test_a_session_has_an_end(self, server: HttpServer, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("tailrace.web.access.SESSION_S", 0.0)
        with closing(browser(server)) as client:
            assert client.get("/").status_code == 401

    def test_no_script_but_our_own(self, page: httpx.Client) -> None:
        for path in ("/", "/log", "/log/4", "/audit", "/stuck/office"):
            answer = page.get(path)
            policy = answer.headers["content-security-policy"]
            assert "script-src 'self'" in policy
            assert "unsafe" not in policy
            assert not re.search(r"<script(?! src=\"/static/)", answer.text)
            assert " style=" not in answer.text
            assert not re.search(r"\son\w+=", re.sub(r"&[a-z0-9#]+;", "", _tags(answer.text)))

    def test_a_huge_form_is_not_read(self, server: HttpServer) -> None:
        answer = httpx.post(f"{server.url}/enter", content=b"token=" + b"x" * 100_000, trust_env=False)
        assert answer.status_code == 413


class TestPage:
    def test_says_what_runs_and_what_is_wrong(self, page: httpx.Client) -> None:
        text = page.get("/").text
        assert "pipeline shop" in text
        assert "writer office could not write message 4" in text
        assert "4 · 8 behind" in text, "so many have passed, and so many are to come"
        assert "omit" in text

    def test_hostile_names_are_text(self, page: httpx.Client) -> None:
        for path in ("/", "/log", "/log/11"):
            text = page.get(path).text
            assert '<script>"' not in text
            assert "main.&lt;script&gt;" in text
        assert "<b onclick" not in page.get("/log/11").text
        assert "<i>" not in page.get("/log/11").text

    def test_what_changed_is_marked(self, page: httpx.Client) -> None:
        text = page.get("/log/9").text
        assert "<del><code>old</code></del>" in text
        assert "<ins><code>new</code></ins>" in text

    def test_a_message_that_is_not_there(self, page: httpx.Client) -> None:
        answer = page.get("/log/99")
        assert answer.status_code == 404
        assert "log.past_end" in answer.text

    def test_a_message_that_was_compacted_away_is_no_dead_end(
        self, page: httpx.Client, client: httpx.Client, spec: PipelineSpec
    ) -> None:
        with CommitLog.open(spec.log) as log:
            log.roll()
        compact(spec.log)  # of what both writers have had
        answer = page.get("/log/2")
        assert answer.status_code == 410
        assert "log.compacted" in answer.text
        assert 'href="/log/4"' in answer.text
        assert page.get("/log/4").status_code == 200
        told = client.get("/api/log/2")
        assert told.status_code == 410
        error = told.json()["error"]
        assert (error["code"], error["before"], error["after"]) == ("log.compacted", None, 4)

    def test_the_browser_filters(self, client: httpx.Client) -> None:
        def offsets(**query: object) -> list[int]:
            found = client.get("/api/log", params={key: str(value) for key, value in query.items()}).json()
            return [message["offset"] for message in found["messages"]]

        assert offsets() == list(range(12))
        assert offsets(offset=5, limit=2) == [5, 6]
        assert offsets(namespace=HOSTILE) == [10, 11]
        assert offsets(origin=1) == [1, 3, 5, 7]
        assert offsets(destination="<i>") == [11]
        assert offsets(since="2999-01-01T00:00:00Z") == []
        assert offsets(since="2020-01-01T00:00:00Z") == list(range(12))

    def test_pages_of_the_browser_join(self, client: httpx.Client) -> None:
        first = client.get("/api/log", params={"limit": "7"}).json()
        second = client.get("/api/log", params={"limit": "7", "offset": str(first["next_offset"])}).json()
        assert [message["offset"] for message in first["messages"] + second["messages"]] == list(range(12))
        assert second["next_offset"] is None

    def test_looking_for_what_is_not_there_has_an_end(
        self, spec: PipelineSpec, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Also where nothing is found the page ends in time, and says where the next one begins."""
        monkeypatch.setattr(browsing, "STRETCH", 5)
        monkeypatch.setattr(browsing, "LOOKED_S", -1.0)
        found = browsing.browse(spec.log, browsing.Wanted(namespace="nobody"))
        assert (found.entries, found.next_offset) == ([], 5)
        assert browsing.browse(spec.log, browsing.Wanted(namespace="nobody", offset=10)).next_offset is None

    def test_nothing_in_a_message_keeps_it_from_being_shown(self, page: httpx.Client, spec: PipelineSpec) -> None:
        with CommitLog.open(spec.log) as log:
            first = log.next_offset
        data = b'{"half": "\\ud800", "deep": [[[null]]]}'
        plain = encode_plain(offset=first, timestamp_s=0, mode=Mode.SYNC, op=Op.INSERT, key=b"main.odd", data=data)
        with open(Path(spec.log) / "00000000000000000000.log", "ab") as segment:
            segment.write(plain)
        (Path(spec.log) / "head").unlink(missing_ok=True)
        assert "\\ud800" in page.get(f"/log/{first}").text
        assert page.get("/log?namespace=main.odd").status_code == 200
        assert page.get("/api/log?namespace=main.odd").status_code == 200

    def test_a_page_of_large_messages_ends_sooner(self, spec: PipelineSpec, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(browsing, "PAGE_BYTES_MAX", 30)
        found = browsing.browse(spec.log, browsing.Wanted())
        assert len(found.entries) < 5
        assert found.next_offset == len(found.entries)

    def test_a_message_of_many_fields(self, page: httpx.Client, spec: PipelineSpec) -> None:
        with CommitLog.open(spec.log) as log:
            log.append_messages([Message(Op.INSERT, now(), "wide", {f"f{number}": 1 for number in range(2000)})])
        text = page.get("/log/12").text
        assert text.count("<tr>") == browsing.FIELDS_MAX + 1
        assert "tailrace log show 12" in text

    def test_what_is_before_the_damage_is_shown(self, page: httpx.Client, spec: PipelineSpec) -> None:
        segment = Path(spec.log) / "00000000000000000000.log"
        raw = bytearray(segment.read_bytes())
        raw[-5] ^= 0xFF
        segment.write_bytes(raw)
        answer = page.get("/log")
        assert "thing 3" in answer.text
        assert "log.corrupt" in answer.text
        assert f"{segment.name}, byte " in answer.text
        assert page.get("/log/11").status_code == 500
        assert page.get("/log/3").status_code == 200

    def test_what_was_asked_for_stays_in_the_form(self, page: httpx.Client) -> None:
        assert 'value="yesterday"' in page.get("/log?since=yesterday").text

    @pytest.mark.parametrize("offset", ["x", "-1", "9" * 5000, "1e3"])
    def test_an_offset_that_is_none(self, page: httpx.Client, offset: str) -> None:
        assert page.get(f"/log/{offset}").status_code == 400

    def test_an_address_where_nothing_is(self, page: httpx.Client) -> None:
        answer = page.get("/nowhere")
        assert answer.status_code == 404
        assert "content-security-policy" in answer.headers

    @pytest.mark.parametrize(
        "query", [{"offset": "x"}, {"offset": "-1"}, {"since": "yesterday"}, {"origin": "9" * 50}, {"nonsense": "1"}]
    )
    def test_nonsense_is_refused(self, client: httpx.Client, query: dict[str, str]) -> None:
        answer = client.get("/api/log", params=query)
        assert answer.status_code == 400
        assert answer.json()["error"]["code"] == "input.invalid"


def test_open_pages_end_with_the_server(spec: PipelineSpec) -> None:
    lines: list[str] = []
    is_open = threading.Event()

    def listen(client: httpx.Client) -> None:
        with suppress(httpx.HTTPError), client.stream("GET", "/events", timeout=60) as answer:
            for line in answer.iter_lines():
                lines.append(line)
                is_open.set()

    with ExitStack() as clients:
        with served(spec) as server:
            client = clients.enter_context(program(server))
            listening = threading.Thread(target=listen, args=(client,))
            listening.start()
            assert is_open.wait(60)
        listening.join(60)
        assert not listening.is_alive()
    assert lines.count(": still here") < 5


def test_news_end_with_the_session(server: HttpServer, page: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    with page.stream("GET", "/events", timeout=60) as answer:
        lines = answer.iter_lines()
        assert next(lines).startswith("retry:")
        with closing(httpx.Client(base_url=server.url, cookies=page.cookies, trust_env=False)) as elsewhere:
            elsewhere.post("/leave")
        for _ in lines:
            pass


def test_who_wants_only_to_know_whether_there_are_news_gets_none(client: httpx.Client) -> None:
    assert client.head("/events").status_code == 200


def test_who_leaves_in_the_middle_of_a_form_makes_no_noise(
    server: HttpServer, client: httpx.Client, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as link:
        link.sendall(b"POST /enter HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\ntoken=")
    assert client.get("/api/overview").status_code == 200  # it was noticed by now
    assert not caplog.records


def test_only_so_many_pages_get_news(server: HttpServer, client: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tailrace.web.live.WEB_PAGES_MAX", 2)
    with client.stream("GET", "/events"), client.stream("GET", "/events") as last:
        assert client.get("/events").json()["error"]["code"] == "web.busy"
        assert client.get("/metrics").status_code == 200
        last.close()
        over_s = time.monotonic() + 60
        while True:
            with client.stream("GET", "/events") as answer:
                if answer.status_code == 200:
                    break
            assert time.monotonic() < over_s


def test_many_open_pages_keep_nobody_waiting(server: HttpServer, client: httpx.Client) -> None:
    """They wait without a thread each: there are only so many of these."""
    with ExitStack() as opened:
        limits = httpx.Limits(max_connections=100)
        many = opened.enter_context(
            httpx.Client(base_url=server.url, headers=client.headers, limits=limits, trust_env=False)
        )
        before = threading.active_count()
        for _ in range(WEB_PAGES_MAX):
            assert opened.enter_context(many.stream("GET", "/events")).status_code == 200
        assert threading.active_count() <= before + 5
        assert client.get("/metrics").status_code == 200


class TestActions:
    def test_acknowledging_by_the_form(self, page: httpx.Client, spec: PipelineSpec) -> None:
        said = {"sure": "yes", "reason": "a test order", "offset": "4", "form": _form(page.get("/stuck/office").text)}
        assert page.post("/stuck/office/acknowledge", data=said).status_code == 303
        assert Consumers(spec.log).get("office").positions.covers("main.orders", 4)
        assert Retrying(spec.log, "office").take()
        trail = [(line["action"], line["consumer"], line["reason"], line["via"]) for line in audit.read(spec.log)]
        via = "page from 127.0.0.1"
        assert trail == [("ack", "office", "a test order", via), ("retry", "office", "a test order", via)]
        assert "a test order" in page.get("/audit").text

    @pytest.mark.parametrize("missing", ["sure", "reason"])
    def test_nothing_is_done_without_a_word(self, client: httpx.Client, spec: PipelineSpec, missing: str) -> None:
        said = {"sure": "yes", "reason": "why", "offset": "4"}
        del said[missing]
        assert client.post("/stuck/office/acknowledge", data=said).status_code == 400
        assert list(audit.read(spec.log)) == []

    def test_only_the_message_at_fault_can_be_acknowledged(self, client: httpx.Client, spec: PipelineSpec) -> None:
        said = {"sure": "yes", "reason": "why", "offset": "5"}
        assert client.post("/stuck/office/acknowledge", data=said).status_code == 409
        assert list(audit.read(spec.log)) == []

    def test_a_writer_that_goes_on_is_not_retried(
        self, client: httpx.Client, page: httpx.Client, spec: PipelineSpec
    ) -> None:
        """The wish would be kept until it fails, and then be granted though nobody has seen why it failed."""
        said = {"sure": "yes", "reason": "a page that was open since yesterday"}
        with Consumers(spec.log).owning("lake"):
            answer = client.post("/stuck/lake/retry", data=said)
            assert "Retry" not in page.get("/stuck/lake").text
        assert (answer.status_code, answer.json()["error"]["code"]) == (409, "consumer.locked")
        assert not Retrying(spec.log, "lake").take()
        assert list(audit.read(spec.log)) == []

    def test_nothing_is_changed_by_looking(self, client: httpx.Client) -> None:
        assert client.get("/stuck/office/retry").status_code == 405

    def test_unknown_writers_and_actions(self, client: httpx.Client) -> None:
        said = {"sure": "yes", "reason": "why"}
        assert client.post("/stuck/nobody/retry", data=said).status_code == 404
        assert client.post("/stuck/office/delete", data=said).status_code == 400


class TestNumbers:
    def test_page_api_metrics_and_status_agree(
        self, page: httpx.Client, client: httpx.Client, spec: PipelineSpec, capsys: pytest.CaptureFixture[str]
    ) -> None:
        import json

        from tailrace.cli.status import status

        status(str(Path(spec.log).parent / "shop.yml"), as_json=True)
        told = json.loads(capsys.readouterr().out)
        overview = client.get("/api/overview").json()
        metrics = _metrics(client.get("/metrics").text)
        shown = _rows(page.get("/").text)
        assert overview["log"]["next_offset"] == told["log"]["next_offset"] == metrics["tailrace_log_next_offset"] == 12
        writers = [part for part in told["parts"] if part["kind"] == "writer"]
        assert writers
        for writer in writers:
            name = writer["name"]
            part = next(each for each in overview["parts"] if each["name"] == name)
            label = f'{{kind="writer",name="{name}"}}'
            assert part["state"] == writer["state"] == shown[name][2].partition("dead")[0].strip()
            assert part["position"] == writer["position"] == metrics[f"tailrace_position{label}"] == int(shown[name][3])
            lag = writer["lag"]["messages"]
            assert part["lag"]["messages"] == lag == metrics[f"tailrace_lag_messages{label}"] == int(shown[name][4])
            assert part["lag"]["bytes"] == writer["lag"]["bytes"] == metrics[f"tailrace_lag_bytes{label}"]

    def test_ready_when_it_runs_and_can_be_seen(
        self, server: HttpServer, client: httpx.Client, spec: PipelineSpec
    ) -> None:
        def ready() -> int:
            assert client.get("/api/overview").status_code == 200  # a look
            return httpx.get(f"{server.url}/readyz", trust_env=False).status_code

        assert ready() == 503, "nobody runs it"
        with CommitLog.open(spec.log):
            assert ready() == 200


def _form(text: str) -> str:
    found = re.search(r'name="form" value="([^"]+)"', text)
    assert found is not None
    return found[1]


def _tags(text: str) -> str:
    return " ".join(re.findall(r"<[^>]*>", text))


def _metrics(text: str) -> dict[str, float]:
    lines = [line.rpartition(" ") for line in text.splitlines() if line and not line.startswith("#")]
    return {name: float(value) for name, _, value in lines}


class _Cells(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.rows: list[list[str]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th") and self.rows:
            self.rows[-1].append("")

    def handle_data(self, data: str) -> None:
        if self.rows and self.rows[-1]:
            self.rows[-1][-1] += data


def _rows(text: str) -> dict[str, list[str]]:
    """By the name of a part: the cells of its row."""
    parser = _Cells()
    parser.feed(text)
    found = {}
    for row in parser.rows:
        if len(row) == 11:
            name = next((each for each in ("lake", "office") if row[0].startswith(each)), row[0])
            found[name] = row
    return found


class TestTree:
    def test_branches_fold_and_trouble_is_seen(self) -> None:
        from tailrace.observe.history import History
        from tailrace.observe.model import Health, Overview, TreeNode
        from tailrace.web.sections import Sections

        def shown(*nodes: TreeNode) -> str:
            return Sections().of(Overview("n", "node", 0.0, True, tree=nodes), History())["tree"]

        def node(name: str, below: str | None, tier: int, health: Health = Health.GOOD) -> TreeNode:
            return TreeNode(name, below, "shop", tier, "Active", health, "")

        chain = [node(str(number), str(number - 1) if number else None, number) for number in range(1000)]
        text = shown(*chain)  # as deep as can be
        assert text.count("<strong>") == 1000
        assert text.count("<details open>") == 2
        bad = shown(*chain[:5], node("bad", "4", 5, Health.BAD))
        assert bad.count("<details open>") == 3
