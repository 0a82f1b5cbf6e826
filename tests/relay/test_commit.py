"""Transactions that happen at enough nodes or not at all, and nodes that lead one after the other."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from tailrace.errors import TailraceError
from tailrace.log.batch import Batch, batches_of, with_key
from tailrace.message import Message, Op, now
from tailrace.relay.commit import Committer
from tailrace.relay.limbo import Control, Kind
from tailrace.relay.request import Ack, Elect, Elected, Join, Meta, Subscribe
from tests.node.shops import Shop, settle
from tests.relay.nodes import wait_for

CLUSTER = str(uuid.UUID(int=12))
Three = list[Shop]


@pytest.fixture
def shops(tmp_path: Path) -> Iterator[Three]:
    """Three nodes that all follow each other; the first leads."""
    with ExitStack() as stack:
        nodes = [stack.enter_context(Shop(tmp_path / name, CLUSTER)) for name in "abc"]
        for node in nodes:
            for other in nodes:
                if other is not node:
                    node.follow(other)
        committer(nodes[0]).promote(CLUSTER, asking(nodes[1:]))
        settle(nodes)
        yield nodes


def committer(shop: Shop, acks: int = 1, timeout_s: float = 20) -> Committer:
    return Committer(shop.service, acks=acks, timeout_s=timeout_s)


def asking(shops: Three) -> Callable[[Elect], list[Elected]]:
    return lambda request: [shop.service.elect(request) for shop in shops]


def change(number: int, word: str = "synchronous") -> list[Batch]:
    rows = [Message(Op.INSERT, now(), "main.t", {"id": number, "word": word})]
    return [Batch(batch.namespace, with_key(batch.rows, ["id"])) for batch in batches_of(rows)]


def cut(shop: Shop) -> None:
    """Nobody hears from it any more, and it from nobody."""
    for applier in shop.appliers:
        applier.stop()
    shop.appliers.clear()
    shop.server.stop()


def test_it_happens_everywhere_when_enough_have_it(shops: Three) -> None:
    assert committer(shops[0], acks=2).commit(change(1)) > 0
    settle(shops)
    assert [shop.rows() for shop in shops] == [[(1, "synchronous")]] * 3
    assert not any(shop.journal.limbo.pending for shop in shops)


def test_it_happens_nowhere_when_not_enough_have_it(shops: Three) -> None:
    with pytest.raises(TailraceError) as caught:
        committer(shops[0]).commit(change(1), acks=3, timeout_s=0.3)
    assert caught.value.code == "relay.rolled_back"
    settle(shops)
    assert [shop.rows() for shop in shops] == [[]] * 3
    assert committer(shops[0]).commit(change(2)) > 0
    settle(shops)
    assert [shop.rows() for shop in shops] == [[(2, "synchronous")]] * 3


def test_a_rollback_that_the_next_leader_did_not_hear_of(shops: Three) -> None:
    """It takes the transaction up, and who had rolled it back does as well."""
    a, b, c = shops
    begin = [*batches_of([Control(kind=Kind.BEGIN, term=1).message()])]
    a.journal.append_local([*begin, *change(1)])
    wait_for(lambda: a.journal.vclock <= b.journal.vclock and a.journal.vclock <= c.journal.vclock)
    for node in (b, c):
        for applier in [each for each in node.appliers if each.source.location == a.location]:
            applier.stop()
            node.appliers.remove(applier)  # nobody hears what comes next
    undecided = a.journal.limbo.undecided
    with pytest.raises(TailraceError) as caught:
        committer(a)._decide(undecided[0].lsn, 3, 0.2)
    assert caught.value.code == "relay.undecided"
    a.turn()
    assert a.rows() == []
    with pytest.raises(TailraceError) as caught:
        a.store.view(str(a.directory))
    assert caught.value.code == "relay.loading", "nobody joins before that is known to others"
    assert committer(b).promote(CLUSTER, asking([c])) == 2
    settle([b, c])
    for node in (b, c):
        node.follow(a)
    settle(shops)
    assert [shop.rows() for shop in shops] == [[(1, "synchronous")]] * 3


def test_who_only_says_what_it_has_does_not_vouch_for_it(shops: Three) -> None:
    """A peer that comes back may have promised a successor meanwhile; only what it acknowledges counts."""
    a = shops[0]
    here = a.journal.vclock
    a.service.keep_for(77, here)
    request = Subscribe(node=77, cluster=CLUSTER, vclock=here)
    before = 2
    wait_for(lambda: a.service.count_having(a.id, here[a.id]) == before)  # the others have said so
    with a.service.subscribe(request) as (answer, _):
        assert a.service.count_having(a.id, here[a.id]) == before
        a.service.acknowledge(Ack(node=77, session=answer.session, vclock=here))
        assert a.service.count_having(a.id, here[a.id]) == before + 1
    with a.service.subscribe(Subscribe(node=77, cluster=CLUSTER, vclock=here, term=5)):
        assert not committer(a).is_leading


def test_who_promises_somebody_else_meanwhile_does_not_lead(shops: Three) -> None:
    """Two that were both agreed with would decide about the same transactions."""
    a, b, c = shops

    def overtaken(request: Elect) -> list[Elected]:
        granted = asking([a, c])(request)
        later = Elect(node=c.id, cluster=CLUSTER, term=request.term + 1, vclock=c.journal.vclock)
        assert b.service.elect(later).is_granted
        return granted

    with pytest.raises(TailraceError) as caught:
        committer(b).promote(CLUSTER, overtaken)
    assert caught.value.code == "relay.fenced"
    assert b.journal.limbo.leader == a.id


def test_no_store_has_it_before_it_is_decided(shops: Three) -> None:
    a, *others = shops
    begin = [*batches_of([Control(kind=Kind.BEGIN, term=a.journal.limbo.term).message()])]
    a.journal.append_local([*begin, *change(1)])
    a.run("INSERT INTO t VALUES (7, 'beside')")
    settle(shops)
    assert [shop.rows() for shop in shops] == [[(7, "beside")]] * 3
    with pytest.raises(TailraceError) as caught:
        a.store.view(str(a.directory))
    assert caught.value.code == "relay.loading", "nobody joins meanwhile"
    others[0].store.close()
    others[0].open_store()  # its process ended and came back
    committer(a).resume()
    settle(shops)
    assert [shop.rows() for shop in shops] == [[(1, "synchronous"), (7, "beside")]] * 3


def test_many_at_once(shops: Three) -> None:
    leader = committer(shops[0])
    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(lambda number: leader.commit(change(number)), range(40)))) == 40
    settle(shops)
    assert [len(shop.rows()) for shop in shops] == [40] * 3


def test_only_the_leader_commits(shops: Three) -> None:
    with pytest.raises(TailraceError, match="leads, since term 1") as caught:
        committer(shops[1]).commit(change(1))
    assert caught.value.code == "relay.not_leader"


def test_a_new_leader_confirms_what_enough_may_have(shops: Three) -> None:
    a, b, c = shops
    begin = [*batches_of([Control(kind=Kind.BEGIN, term=1).message()])]
    a.journal.append_local([*begin, *change(1)])
    wait_for(lambda: a.journal.vclock <= b.journal.vclock and a.journal.vclock <= c.journal.vclock)
    cut(a)
    assert committer(b).promote(CLUSTER, asking([c])) == 2
    settle([b, c])
    assert b.rows() == c.rows() == [(1, "synchronous")]
    assert committer(b).commit(change(2)) > 0
    settle([b, c])
    assert len(b.rows()) == len(c.rows()) == 2


def test_who_led_before_is_fenced(shops: Three) -> None:
    """It does not know of its successor, and its peers tell it that there is one instead of letting it commit."""
    a, b, c = shops
    for applier in a.appliers:
        applier.stop()
    a.appliers.clear()  # it hears nothing, and others hear it
    assert committer(b).promote(CLUSTER, asking([c])) == 2
    with pytest.raises(TailraceError) as caught:
        committer(a, acks=2).commit(change(1))
    assert caught.value.code == "relay.fenced"
    a.follow(b)
    a.follow(c)
    settle(shops)
    assert [shop.rows() for shop in shops] == [[]] * 3
    assert [(shop.journal.limbo.term, shop.journal.limbo.leader) for shop in shops] == [(2, b.id)] * 3


def test_who_lacks_something_does_not_lead(shops: Three) -> None:
    a, b, c = shops
    cut(c)
    committer(a).commit(change(1))
    with pytest.raises(TailraceError, match="0 other nodes agree, 1 are needed") as caught:
        committer(c).promote(CLUSTER, asking([b]))
    assert caught.value.code == "relay.no_quorum"


def test_of_two_who_want_to_lead_at_once_one_does(shops: Three) -> None:
    _, b, c = shops
    term = b.journal.term + 1
    asked = [Elect(node=each.id, cluster=CLUSTER, term=term, vclock=each.journal.vclock) for each in (b, c)]
    together = threading.Barrier(2)

    def ask(request: Elect) -> bool:
        together.wait()
        return shops[0].service.elect(request).is_granted

    with ThreadPoolExecutor(2) as pool:
        assert sorted(pool.map(ask, asked)) == [False, True]


def test_what_a_node_has_promised_it_keeps(shops: Three) -> None:
    b = shops[1]
    b.journal.hear_of(9)
    assert b.journal.promise(9, shops[0].id), "who only hears of a term has promised nothing"
    assert b.journal.promise(9, shops[0].id)
    again = type(b.journal)(b.log, b.id)
    assert again.term == 9
    assert not again.promise(9, shops[2].id)
    assert again.promise(10, shops[2].id)


def test_a_newcomer_is_told_who_leads_if_it_understands(shops: Three) -> None:
    a = shops[0]
    assert a.service.join(Join(node=77)).meta == Meta(term=1, leader=a.id)
    assert a.service.join(Join(node=78, version=1)).meta is None
    assert "meta" not in a.service.join(Join(node=79, version=1)).packed().decode()


def test_a_term_that_nobody_can_have_come_to(shops: Three) -> None:
    a = shops[0]
    for say in (a.journal.hear_of, lambda term: a.journal.promise(term, a.id)):
        with pytest.raises(TailraceError) as caught:
            say((1 << 63) - 1)
        assert caught.value.code == "relay.malformed"
    assert committer(a).commit(change(1)) > 0


def test_who_leads_survives_a_restart(shops: Three) -> None:
    a = shops[0]
    again = type(a.journal)(a.log, a.id)
    assert (again.limbo.term, again.limbo.leader) == (1, a.id)
