"""What every graph must be, whatever the number of nodes, the degree, the seed and the round."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from facade.core.topology import Complete, ErdosRenyi, KOut, Regular, Ring, Star, connected, diameter, undirected
from facade.errors import ExperimentError

seeds = st.integers(0, 2**63 - 1)
rounds = st.integers(0, 10_000)


@st.composite
def regular(draw):
    """A number of nodes and a degree for which there is a connected regular graph."""
    n = draw(st.integers(3, 40))
    degree = draw(st.integers(2, n - 1).filter(lambda degree: n * degree % 2 == 0))
    return n, degree


def edges(graph):
    """(receiver, sender) pairs, also of the complete graph."""
    if graph.everyone:
        return {(a, b) for a in range(graph.n) for b in range(graph.n) if a != b}
    return set(zip(graph.receiver.tolist(), graph.sender.tolist(), strict=True))


@given(regular(), seeds, rounds)
def test_a_regular_graph_is_simple_mutual_connected_and_regular(size, seed, round):
    n, degree = size
    Regular(degree).check(n)
    graph = Regular(degree).draw(n, seed, round)
    pairs = edges(graph)
    assert graph.everyone or len(pairs) == len(graph.receiver), "no edge twice"
    assert all(a != b and (b, a) in pairs for a, b in pairs)
    assert graph.degree.tolist() == [degree] * n
    assert connected(graph)


@given(st.integers(3, 40), st.integers(-3, 45))
def test_a_degree_is_refused_exactly_where_there_is_no_such_graph(n, degree):
    possible = 2 <= degree <= n - 1 and n * degree % 2 == 0
    if possible:
        Regular(degree).check(n)
    else:
        with pytest.raises(ExperimentError):
            Regular(degree).check(n)


@given(
    st.sampled_from([Regular(4), Ring(), Star(), ErdosRenyi(4), KOut(4), Complete()]), st.integers(6, 30), seeds, rounds
)
def test_a_graph_is_drawn_alike_by_everybody_and_sorted(topology, n, seed, round):
    graph, again = (topology.draw(n, seed, round) for _ in range(2))
    assert np.array_equal(graph.receiver, again.receiver)
    assert np.array_equal(graph.sender, again.sender)
    order = graph.receiver * n + graph.sender
    assert (np.diff(order) > 0).all()
    assert not (graph.receiver == graph.sender).any()


@given(st.integers(6, 30), seeds, rounds)
def test_every_node_hears_as_many_as_asked_for_where_hearing_is_not_mutual(n, seed, round):
    assert KOut(4).draw(n, seed, round).degree.tolist() == [4] * n


@given(st.integers(2, 25), seeds, rounds, st.data())
def test_the_edges_into_some_nodes_are_those_of_the_whole_graph(n, seed, round, data):
    graph = Ring().draw(n, seed, round)
    nodes = np.array(sorted(data.draw(st.sets(st.integers(0, n - 1), min_size=1))))
    row, sender = graph.into(nodes)
    theirs = {(int(nodes[r]), int(s)) for r, s in zip(row, sender, strict=True)}
    assert theirs == {(a, b) for a, b in edges(graph) if a in nodes}


@given(st.integers(2, 12), st.data())
def test_the_diameter_is_the_longest_shortest_way(n, data):
    pairs = st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)).map(sorted).map(tuple)
    chosen = data.draw(st.sets(pairs.filter(lambda pair: pair[0] != pair[1])))
    graph = undirected(n, chosen)
    far = np.where(np.eye(n, dtype=bool), 0, np.inf)
    for a, b in edges(graph):
        far[a, b] = 1
    for middle in range(n):
        far = np.minimum(far, far[:, middle, None] + far[None, middle, :])
    assert diameter(graph) == far[np.isfinite(far)].max()
    assert connected(graph) == np.isfinite(far).all()
