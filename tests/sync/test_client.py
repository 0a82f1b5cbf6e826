"""A node that calls another one over HTTP: both directions, cuts at every request, order, several nodes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

import httpx
import pytest

from tailrace.errors import TailraceError
from tailrace.sync.address import PeerAddress
from tailrace.sync.auth import Accept, hashed, secret_for
from tailrace.sync.client import SyncNode
from tailrace.sync.entity import Entity
from tailrace.sync.httplink import HttpLink
from tailrace.sync.httppeer import HttpPeer
from tailrace.sync.round import Progress, sync_round
from tailrace.sync.server import ServerOptions
from tailrace.sync.serving import SyncServer, Tls
from tailrace.sync.store import SyncStore
from tests.servers import certificate as certificates
from tests.servers.certificate import certificate
from tests.sync.conftest import Places
from tests.sync.cutting import Cut, CuttingProxy
from tests.sync.places import Place
from tests.sync.todo import CREATE, node, put, remove, todo, whats

ANYONE = ServerOptions(Accept.ANYONE)
PAIRS = [("sqlite", "sqlite"), ("sqlite", "postgres"), ("postgres", "sqlite")]
WORD = "canary-enrol-50c1d2"


@contextmanager
def served(store: SyncStore) -> Iterator[str]:
    with SyncServer(store, options=ANYONE) as server:
        yield server.url


@pytest.mark.parametrize(("caller", "called"), PAIRS)
def test_rows_and_deletions_go_both_ways(places: Places, caller: str, called: str) -> None:
    laptop, central = places(caller), places(called)
    one, other = node(laptop, batch_rows=3), node(central, batch_rows=3)
    for number in range(10):
        put(laptop, number, f"of the laptop {number}")
        put(central, 100 + number, f"of central {number}")
    calling = SyncNode.over(one)
    with served(other) as url:
        assert calling.sync_with(url) == Progress(fetched=10, sent=10)
        assert whats(laptop) == whats(central) and len(whats(laptop)) == 20
        remove(laptop, 100)
        remove(central, 3)
        put(central, 4, "changed")
        assert calling.sync_with(url) == Progress(fetched=2, sent=1)
        assert calling.sync_with(url) == Progress()
    assert whats(laptop) == whats(central) and len(whats(laptop)) == 18
    assert whats(laptop)[4] == "changed"


def test_an_idle_round_is_one_request(places: Places) -> None:
    one, other = node(places("sqlite")), node(places("sqlite"))
    with served(other) as url, CuttingProxy(url) as proxy:
        calling = SyncNode.over(one)
        calling.sync_with(proxy.url)
        with calling.meeting(PeerAddress.of(proxy.url)) as (peer, _):
            proxy.seen.clear()
            calling.round(peer)
            assert [seen.path for seen in proxy.seen] == ["/replication/pending"]


@pytest.mark.parametrize("how", Cut)
def test_a_round_is_cut_at_every_request_and_goes_on(places: Places, how: Cut, dialect: str) -> None:
    laptop, central = places("sqlite"), places(dialect)
    one, other = node(laptop, batch_rows=2), node(central, batch_rows=2)
    calling = SyncNode.over(one)
    with served(other) as url, CuttingProxy(url) as proxy:
        at = 0
        while True:
            for place, first in ((laptop, 1), (central, 1001)):
                for number in range(3):
                    put(place, first + number, f"{place.address} {at}")  # an update, from the second time on
                put(place, first + 10 + at, "new")
                remove(place, first + 10 + at - 1)
            proxy.cut(at, how)
            try:
                calling.sync_with(proxy.url, name="central")
            except TailraceError as error:
                assert error.code == "sync.unreachable"
                calling.sync_with(url, name="central")
            else:
                break
            assert whats(laptop) == whats(central), f"cut at request {at}"
            assert calling.sync_with(url, name="central") == Progress(), (
                f"something was left after a cut at request {at}"
            )
            at += 1
    assert at > 12
    assert whats(laptop) == whats(central)
    assert [each.why for store in (one, other) for each in store.quarantined()] == []


def folders(**more: Any) -> Entity:
    return Entity("folder", 7, "changed", batch=1, **more)


def two_tables(place: Place, **more: Any) -> SyncStore:
    place.run(CREATE, "CREATE TABLE folder(id bigint PRIMARY KEY, changed bigint, name text)")
    return place.install(todo(batch=2, batch_rows=2), folders(batch_rows=2, **more))


@pytest.mark.parametrize("how", Cut)
def test_no_batch_begins_before_the_lower_one_is_done_in_both_directions(places: Places, how: Cut) -> None:
    laptop, central = places("sqlite"), places("sqlite")
    one, other = two_tables(laptop), two_tables(central)
    for place, first in ((laptop, 0), (central, 100)):
        for number in range(first, first + 5):
            put(place, number, "x")
            place.run(f"INSERT INTO folder(id, name) VALUES ({number}, 'x')")
    with served(other) as url, CuttingProxy(url) as proxy:
        proxy.cut(6, how)
        with pytest.raises(TailraceError, match="cannot be reached"):
            SyncNode.over(one).sync_with(proxy.url)
        assert {seen.table for seen in proxy.seen} == {None, 7}, "table 42 had begun before table 7 was done"
        proxy.cut(-1, how)
        SyncNode.over(one).sync_with(proxy.url)
        tables = [seen.table for seen in proxy.seen if seen.table is not None]
    assert tables == sorted(tables)
    assert set(tables) == {7, 42}
    assert laptop.ask("SELECT * FROM folder ORDER BY id") == central.ask("SELECT * FROM folder ORDER BY id")
    assert whats(laptop) == whats(central)


@pytest.mark.parametrize("lacking", ["laptop", "central"])
def test_a_table_that_only_one_node_has_holds_up_no_other(places: Places, lacking: str) -> None:
    """Folders come before things to do, and one of the nodes has none: nobody waits for them, and both are told."""
    laptop, central = places("sqlite"), places("sqlite")
    one = node(laptop, batch=2) if lacking == "laptop" else two_tables(laptop)
    other = node(central, batch=2) if lacking == "central" else two_tables(central)
    having = central if lacking == "laptop" else laptop
    having.run("INSERT INTO folder(id, name) VALUES (1, 'x')")
    put(laptop, 1, "of the laptop")
    put(central, 2, "of central")
    told: list[tuple[str, Progress]] = []
    with served(other) as url:
        calling = SyncNode.over(one)
        done = calling.sync_with(url, report=lambda table, progress: told.append((table, progress)))
        assert (done.fetched, done.sent) == (1, 1)
        side = "here, so its rows wait there" if lacking == "laptop" else "at the other node, so its rows wait here"
        (warning,) = done.warnings
        assert f"table folder (7) is not synced {side}" in warning
        assert {table for table, _ in told} == {"todo"}
        assert whats(laptop) == whats(central) and len(whats(laptop)) == 2
        again = calling.sync_with(url)
        assert (again.fetched, again.sent, again.warnings) == (0, 0, done.warnings)
    store = one if lacking == "central" else other
    assert next(entity.pending for entity in store.status().entities if entity.table == "folder"), "it still waits"


def test_a_table_that_both_have_by_now_is_exchanged(places: Places) -> None:
    laptop, central = places("sqlite"), places("sqlite")
    one, other = two_tables(laptop), node(central, batch=2)
    laptop.run("INSERT INTO folder(id, name) VALUES (1, 'x')")
    with served(other) as url:
        assert SyncNode.over(one).sync_with(url, name="central").warnings
    central.run("CREATE TABLE folder(id bigint PRIMARY KEY, changed bigint, name text)")
    with served(central.install(todo(batch=2), folders())) as url:
        assert SyncNode.over(one).sync_with(url, name="central") == Progress(sent=1)
    assert central.ask("SELECT id, name FROM folder") == [(1, "x")]


def test_nodes_switch_between_a_peer_and_the_central_one(places: Places) -> None:
    """What came another way is not sent again, and nothing has to be handed over."""
    places_of = [places("sqlite"), places("sqlite"), places("postgres")]
    anna, ben, central = (node(place) for place in places_of)
    for number in range(5):
        put(places_of[0], number, "of Anna")
        put(places_of[2], 100 + number, "of the office")
    with served(central) as office, served(anna) as at_anna:
        SyncNode.over(anna).sync_with(office)
        assert SyncNode.over(ben).sync_with(at_anna).fetched == 10
        put(places_of[1], 200, "of Ben, offline")
        put(places_of[1], 0, "changed by Ben")
        assert SyncNode.over(ben).sync_with(office) == Progress(fetched=1, sent=2, older=1)  # the one that he changed
        assert SyncNode.over(anna).sync_with(office) == Progress(fetched=2)
        assert SyncNode.over(ben).sync_with(at_anna) == Progress()
    assert whats(places_of[0]) == whats(places_of[1]) == whats(places_of[2])
    assert whats(places_of[0])[0] == "changed by Ben" and len(whats(places_of[0])) == 11


def test_three_nodes_are_called_at_once_and_one_that_is_away_holds_up_nobody(places: Places) -> None:
    mine = places("sqlite")
    one = node(mine, batch_rows=10)
    theirs = [places(kind) for kind in ("sqlite", "postgres", "sqlite")]
    for number in range(50):
        put(mine, number, "mine")
    with ExitStack() as opened:
        peers = [PeerAddress("away", "http://127.0.0.1:1")]
        for number, place in enumerate(theirs):
            store = node(place)
            put(place, 1000 + number, "theirs")
            peers.append(PeerAddress(f"peer{number}", opened.enter_context(served(store))))
        calling = SyncNode.over(one)
        done = calling.sync_with_all(peers)
        away = done["away"]
        assert isinstance(away, TailraceError) and away.code == "sync.unreachable"
        assert [done[f"peer{number}"].sent >= 50 for number in range(3)] == [True] * 3  # type: ignore[union-attr]
        calling.sync_with_all(peers[1:])
    assert whats(mine) == whats(theirs[0]) == whats(theirs[1]) == whats(theirs[2])
    assert len(whats(mine)) == 53


@pytest.mark.parametrize("packs", [False, True])
@pytest.mark.parametrize("has_arrow", [False, True])
def test_json_and_arrow_packed_and_plain_carry_the_same(places: Places, packs: bool, has_arrow: bool) -> None:
    columns = "id bigint PRIMARY KEY, changed bigint, amount double precision, name text, is_on boolean"
    laptop, central = places("sqlite"), places("postgres")
    stores = []
    for place, blob in ((laptop, "BLOB"), (central, "bytea")):
        place.run(f"CREATE TABLE thing({columns}, photo {blob})")
        stores.append(place.install(Entity("thing", 9, "changed")))
    insert = "INSERT INTO thing(id, amount, name, is_on, photo) VALUES (?, ?, ?, ?, ?)"
    for number in range(60):
        row = (number, number / 8, None if number % 3 else "ä" * number, bool(number % 2), bytes([number, 0]))
        laptop.ask(insert, row)
        central.ask(insert, (number + 100, *row[1:]))
    with served(stores[1]) as url, CuttingProxy(url) as proxy:
        address = PeerAddress.of(proxy.url)
        with HttpLink(address, stores[0].node_id, stores[0].secret, packs=packs) as link:
            peer = HttpPeer.greet(link, stores[0].shape)
            peer._has_arrow = has_arrow
            stores[0].meet(peer.node_id, 1)
            assert sync_round(stores[0], peer) == Progress(fetched=60, sent=60)
        kinds = {seen.headers.get("content-type") for seen in proxy.seen if seen.path.endswith("/receive")}
        packed = {seen.headers.get("content-encoding") for seen in proxy.seen if seen.path.endswith("/receive")}
    assert kinds == {"application/vnd.apache.arrow.stream" if has_arrow else "application/json"}
    assert packed == {"gzip" if packs else None}
    query = "SELECT id, changed, amount, name, is_on, photo FROM thing ORDER BY id"
    assert [(*row[:4], bool(row[4]), row[5]) for row in laptop.ask(query)] == central.ask(query)


def test_a_newcomer_enrols_once_and_its_secret_is_in_no_address(places: Places) -> None:
    one, other = node(places("sqlite")), node(places("sqlite"))
    with SyncServer(other, options=ServerOptions(Accept.KNOWN, WORD)) as server, CuttingProxy(server.url) as proxy:
        calling = SyncNode.over(one)
        with pytest.raises(TailraceError) as refused:
            calling.sync_with(proxy.url)
        assert refused.value.code == "sync.not_admitted" and "word" not in refused.value.what
        with pytest.raises(TailraceError) as wrong:
            calling.sync_with(proxy.url, enrol="canary-wrong-word-1")
        assert wrong.value.code == "sync.not_admitted" and "the word that it said" in wrong.value.what
        assert wrong.value.hint.startswith("at the caller: correct `enrol`")
        assert not any(word in str(wrong.value) for word in (WORD, "canary-wrong"))
        calling.sync_with(proxy.url, enrol=WORD)
        proxy.seen.clear()
        calling.sync_with(proxy.url, enrol=WORD)
        assert all("door-enrol" not in seen.headers for seen in proxy.seen), "it is known already"
        secret = secret_for(one.secret, PeerAddress.of(proxy.url).name)
        assert {seen.headers["door-node"] for seen in proxy.seen} == {f"{one.node_id}/{secret}"}
        assert not any(secret in seen.path or WORD in seen.path for seen in proxy.seen)


def heard(proxy: CuttingProxy) -> dict[str, str]:
    """What a node that was called could say elsewhere."""
    return {"door-node": proxy.seen[-1].headers["door-node"]}


def test_what_a_node_hears_lets_it_be_nobody_at_another_one(places: Places) -> None:
    one, evil, other = node(places("sqlite")), node(places("sqlite")), node(places("sqlite"))
    calling = SyncNode.over(one)
    with ExitStack() as opened:
        proxies = [opened.enter_context(CuttingProxy(opened.enter_context(served(each)))) for each in (evil, other)]
        for proxy in proxies:
            calling.sync_with(proxy.url)
        by_evil, by_other = map(heard, proxies)
        assert one.secret not in str([seen.headers for proxy in proxies for seen in proxy.seen])
        pending = f"{proxies[1].url}/replication/pending"
        assert httpx.get(pending, headers=by_evil).status_code == 401
        assert httpx.get(pending, headers=by_other).status_code == 200


def test_a_node_that_moves_is_known_by_its_name(places: Places) -> None:
    laptop, central = places("sqlite"), places("sqlite")
    one, other = node(laptop), node(central)
    calling = SyncNode.over(one)
    for number in range(2):
        put(laptop, number, "x")
        with served(other) as url:
            assert calling.sync_with(url, name="office").sent == 1
    with served(other) as url:
        with pytest.raises(TailraceError) as refused:
            calling.sync_with(url, name="elsewhere")
        assert refused.value.code == "sync.no_rights"
        assert calling.sync_at(PeerAddress("elsewhere", url, known_as="office")) == Progress()


def pretending(store: SyncStore, node_id: int) -> SyncStore:
    """A node that says that it is another one."""
    store.node_id = node_id
    return store


@pytest.mark.parametrize("known", ["called", "calling", "pinned", "moved"])
def test_who_is_called_cannot_be_another_node(places: Places, known: str) -> None:
    """It would get what is meant for that one, which then counts as received."""
    laptop = places("sqlite")
    one, central, evil = node(laptop), node(places("sqlite")), node(places("sqlite"))
    calling = SyncNode.over(one)
    if known in ("called", "moved"):
        with served(central) as url:
            calling.sync_with(url, name="central")
    elif known == "calling":
        one.register(central.node_id, hashed("a-secret-of-the-office"))
    put(laptop, 1, "for central")
    address = PeerAddress("evil", "", node=central.node_id if known == "pinned" else None)
    if known == "moved":
        address = PeerAddress("central", "")
    claimed = evil.node_id if known in ("pinned", "moved") else central.node_id
    with served(pretending(evil, claimed)) as url:
        with pytest.raises(TailraceError) as refused:
            calling.sync_at(replace(address, url=url))
        assert refused.value.code == "sync.bad_node"
    assert evil.status().entities[0].rows == 0
    one.process_changes()
    assert one.nodes_with_pending() == ({} if known == "pinned" else {central.node_id: [42]})


def test_two_nodes_that_call_each_other(places: Places) -> None:
    """Each has to be told who the other one is: the word of `enrol` makes nobody a node that is called."""
    places_of = places("sqlite"), places("sqlite")
    anna, ben = (node(place) for place in places_of)
    options = ServerOptions(Accept.KNOWN, WORD)
    with SyncServer(anna, options=options) as at_anna, SyncServer(ben, options=options) as at_ben:
        SyncNode.over(anna).sync_with(at_ben.url, name="ben", enrol=WORD)
        with pytest.raises(TailraceError) as refused:
            SyncNode.over(ben).sync_with(at_anna.url, name="anna", enrol=WORD)
        assert refused.value.code == "sync.not_admitted" and "node add" in (refused.value.hint or "")
        anna.register(ben.node_id, hashed(secret_for(ben.secret, "anna")))
        with pytest.raises(TailraceError) as refused:
            SyncNode.over(ben).sync_with(at_anna.url, name="anna")
        assert refused.value.code == "sync.bad_node" and f"node: {anna.node_id}" in (refused.value.hint or "")
        put(places_of[1], 1, "from Ben")
        assert SyncNode.over(ben).sync_with(at_anna.url, name="anna", node=anna.node_id).sent == 1
        assert SyncNode.over(anna).sync_with(at_ben.url, name="ben") == Progress()


def test_a_node_that_was_added_may_call(places: Places) -> None:
    one, other = node(places("sqlite")), node(places("sqlite"))
    other.register(one.node_id, hashed(secret_for(one.secret, "central")))
    with SyncServer(other) as server:
        assert SyncNode.over(one).sync_with(server.url, name="central") == Progress()


@pytest.mark.skipif(bool(certificates.missing()), reason=certificates.missing())
def test_connections_are_encrypted_and_the_certificate_is_checked(places: Places) -> None:
    laptop, central = places("sqlite"), places("sqlite")
    one, other = node(laptop), node(central)
    put(central, 1, "through TLS")
    with certificate() as made, SyncServer(other, options=ANYONE, tls=Tls(str(made.path), str(made.key))) as server:
        with pytest.raises(TailraceError) as unknown:
            SyncNode.over(one).sync_with(server.url)
        assert unknown.value.code == "sync.unreachable" and "certificate" in unknown.value.what.lower()
        assert SyncNode.over(one).sync_with(server.url, ca=str(made.path)).fetched == 1
    assert whats(laptop) == {1: "through TLS"}


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://10.1.2.3:8087", "https://"),
        ("https://anna:canary-pass@host", "no password"),
        ("https://host/?token=canary-pass", "nothing behind"),
        ("ftp://host", "begins with https://"),
        ("https://host:port", "no address"),
    ],
)
def test_addresses_that_would_tell_secrets_are_refused(places: Places, url: str, why: str) -> None:
    calling = SyncNode.over(node(places("sqlite")))
    with pytest.raises(TailraceError, match=why) as refused:
        calling.sync_with(url)
    assert refused.value.code == "config.invalid" and "canary" not in str(refused.value)


def test_the_first_node_that_is_called_gives_the_number_for_keys(places: Places) -> None:
    mine = places("sqlite")
    one, other, third = node(mine), node(places("sqlite")), node(places("sqlite"))
    calling = SyncNode.over(one)
    with served(other) as url, served(third) as third_url:
        calling.sync_with(url)
        given = other.key_node_of(one.node_id)
        assert mine.ask("SELECT keyNode FROM DoorSelf") == [(given,)]
        calling.sync_with(third_url)
        assert mine.ask("SELECT keyNode FROM DoorSelf") == [(given,)]


def test_somebody_else_at_the_address_is_told_as_such(places: Places) -> None:
    from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
    from threading import Thread

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(302 if self.path.startswith("/moved") else 200)
            self.send_header("location", "http://127.0.0.1:1/")
            self.end_headers()
            self.wfile.write(b"<html>")

        def log_message(self, *_: Any) -> None:
            return

    with ThreadingHTTPServer(("127.0.0.1", 0), Page) as page:
        thread = Thread(target=page.serve_forever)
        thread.start()
        url = f"http://127.0.0.1:{page.server_address[1]}"
        calling = SyncNode.over(node(places("sqlite")))
        for each in (url, f"{url}/moved"):  # a redirection would carry the secret to anywhere
            with pytest.raises(TailraceError) as refused:
                calling.sync_with(each)
            assert refused.value.code == "sync.bad_answer"
        page.shutdown()
        thread.join()
