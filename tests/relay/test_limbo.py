"""What leaders say about synchronous transactions, and what every node makes of it."""

from __future__ import annotations

import pytest

from tailrace.errors import TailraceError
from tailrace.log.batch import batches_of, encode_frame
from tailrace.log.frame import Codec
from tailrace.message import Lsn, Message, NodeId, Offset, Op, now
from tailrace.relay.limbo import Control, Kind, Limbo, Pending, control_of, decode_limbo, encode_limbo
from tailrace.relay.outgoing import Frame

A, B = NodeId(11), NodeId(22)


def told(limbo: Limbo, kind: Kind, term: int, lsn: int, *, by: NodeId = A, at: int = 0) -> tuple[Limbo, list[int]]:
    """What is undecided after a message whose group ends with `at`, and what was confirmed."""
    control = Control(kind=kind, term=term, lsn=lsn, predecessor=limbo.leader)
    after, confirmed = limbo.after(control, by, Lsn(at), Offset(at * 10))
    return after, [each.lsn for each in confirmed]


@pytest.fixture
def limbo() -> Limbo:
    """Node A leads since term 1, and three of its transactions are undecided."""
    made, _ = told(Limbo(), Kind.PROMOTE, 1, 0)
    for lsn in (5, 7, 9):
        made, _ = told(made, Kind.BEGIN, 1, 0, at=lsn)
    return made


def undecided(limbo: Limbo) -> list[int]:
    return [each.lsn for each in limbo.undecided]


def test_what_waits(limbo: Limbo) -> None:
    assert undecided(limbo) == [5, 7, 9]
    assert limbo.pending[0] == Pending(A, Lsn(5), 1, Offset(50))


def test_a_confirmation_is_for_all_before(limbo: Limbo) -> None:
    after, confirmed = told(limbo, Kind.CONFIRM, 1, 7)
    assert (undecided(after), confirmed) == ([9], [5, 7])


def test_a_rollback_is_for_all_behind(limbo: Limbo) -> None:
    after, confirmed = told(limbo, Kind.ROLLBACK, 1, 7, at=10)
    assert (undecided(after), confirmed) == ([5], [])
    assert [each.rolled_back for each in after.pending] == [0, 10, 10]


def test_a_rollback_that_enough_nodes_know_is_for_good(limbo: Limbo) -> None:
    after, _ = told(limbo, Kind.ROLLBACK, 1, 7, at=10)
    after, confirmed = told(after, Kind.CONFIRM, 1, 10, at=11)
    assert (after.pending, confirmed) == ((), [5])


def test_a_rollback_of_which_the_next_leader_did_not_hear_is_none(limbo: Limbo) -> None:
    """All nodes do the same, whether they have heard of it or not."""
    after, _ = told(limbo, Kind.ROLLBACK, 1, 7, at=10)
    for known in (limbo, after):
        later, confirmed = told(known, Kind.PROMOTE, 2, 9, by=B)
        assert (later, confirmed) == (Limbo(2, B), [5, 7, 9])
    assert told(after, Kind.PROMOTE, 2, 10, by=B) == (Limbo(2, B), [5])


def test_a_new_leader_says_what_of_its_predecessor_happened(limbo: Limbo) -> None:
    after, confirmed = told(limbo, Kind.PROMOTE, 2, 7, by=B)
    assert confirmed == [5, 7]
    assert after == Limbo(2, B)


@pytest.mark.parametrize("kind", [Kind.BEGIN, Kind.CONFIRM, Kind.ROLLBACK])
def test_who_led_before_has_nothing_to_say(limbo: Limbo, kind: Kind) -> None:
    later, _ = told(limbo, Kind.PROMOTE, 2, 0, by=B)
    later, _ = told(later, Kind.BEGIN, 2, 0, by=B, at=3)
    assert told(later, kind, 1, 9, by=A, at=11) == (later, [])
    assert told(later, kind, 2, 9, by=A, at=11) == (later, []), "not even with the new term"


@pytest.mark.parametrize("term", [1, 0])
def test_a_term_that_is_not_later_is_none(limbo: Limbo, term: int) -> None:
    assert told(limbo, Kind.PROMOTE, term, 9, by=B) == (limbo, [])


def test_what_is_read_again_counts_once(limbo: Limbo) -> None:
    again, _ = told(limbo, Kind.BEGIN, 1, 0, at=7)
    assert again == limbo


def test_it_is_kept_as_text(limbo: Limbo) -> None:
    assert decode_limbo(encode_limbo(limbo)) == limbo
    assert decode_limbo(None) == Limbo()


def frames(*messages: Message) -> list[Frame]:
    return [encode_frame(batch, Codec.NONE) for batch in batches_of(messages)]


def row() -> Message:
    return Message(Op.INSERT, now(), "main.t", {"id": 1})


def test_what_stands_at_the_head_of_a_group() -> None:
    said = Control(kind=Kind.BEGIN, term=3)
    assert control_of(frames(said.message(), row())) == said
    assert control_of(frames(row())) is None


@pytest.mark.parametrize(
    "group",
    [
        pytest.param(frames(row(), Control(kind=Kind.BEGIN, term=1).message()), id="not at the head"),
        pytest.param(frames(*[Control(kind=Kind.BEGIN, term=1).message()] * 2), id="twice"),
        pytest.param(frames(Message(Op.COMMAND, now(), "_tailrace.synchro", {"json": '{"kind": "x"}'})), id="unknown"),
        pytest.param(frames(Message(Op.COMMAND, now(), "_tailrace.synchro", {"text": "x"})), id="no JSON"),
    ],
)
def test_what_no_leader_says(group: list[Frame]) -> None:
    with pytest.raises(TailraceError) as caught:
        control_of(group)
    assert caught.value.code == "relay.malformed"
