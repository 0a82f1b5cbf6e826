"""Links of a simulation: what is cut, what is whole, and who sent how much."""

from __future__ import annotations

from tailrace.topology.links import ROOT, Links


def chain(nodes: int) -> Links:
    """Each replicates from the one before it, from the first second on."""
    links = Links(nodes + 1, write_bytes_s=10)
    for number in range(1, nodes + 1):
        links.arrive(number, 0.0)
        links.connect(number, number - 1)
    return links


def test_depths_and_loads() -> None:
    links = chain(3)
    assert links.depths() == [1, 2, 3]
    assert list(links.loads()) == [1, 1, 1, 0]
    assert links.broken == 0


def test_a_node_that_ends_cuts_off_what_is_below_it() -> None:
    links = chain(4)
    assert links.kill([2], 1.0) == [3]
    assert (links.broken, links.unreached()) == (1, 2)
    links.disconnect(3, 3.0)
    links.connect(3, 1)
    assert (links.broken, links.unreached()) == (0, 0)


def test_neighbours_that_end_together_break_one_link() -> None:
    for order in ([1, 2], [2, 1]):
        links = chain(3)
        assert links.kill(order, 1.0) == [3]
        assert links.broken == 1


def test_bytes_are_sent_once_to_each() -> None:
    links = chain(2)
    links.kill([1], 5.0)
    links.disconnect(2, 7.0)
    assert links.position(2) == 50
    links.connect(2, ROOT)
    assert links.bytes_sent(10.0) == (50 + 50, 50 + 50 + 50)
