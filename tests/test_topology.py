import hashlib
import itertools
import struct

import numpy as np
import pytest

from facade.core.topology import (
    TOPOLOGIES,
    Complete,
    ErdosRenyi,
    Graph,
    KOut,
    Regular,
    Ring,
    Star,
    Stream,
    connected,
    diameter,
    undirected,
)
from facade.errors import ExperimentError
from surroundings import ROOT

PAGE = ROOT / "docs" / "topology.md"

VECTORS = [
    ("regular 3", 6, 1, 0, "0-1 0-2 0-3 1-2 1-5 2-4 3-4 3-5 4-5"),
    ("regular 3", 8, 1, 0, "0-4 0-5 0-6 1-2 1-3 1-6 2-5 2-7 3-4 3-6 4-7 5-7"),
    ("regular 3", 8, 1, 1, "0-4 0-5 0-7 1-3 1-5 1-7 2-3 2-4 2-5 3-6 4-6 6-7"),
    ("regular 3", 8, 7, 0, "0-3 0-4 0-7 1-2 1-4 1-7 2-3 2-6 3-5 4-5 5-6 6-7"),
    ("regular 4", 8, 1, 0, "0-1 0-2 0-3 0-7 1-4 1-5 1-7 2-3 2-4 2-6 3-5 3-7 4-5 4-6 5-6 6-7"),
    (
        "regular 4",
        10,
        2,
        5,
        "0-2 0-3 0-4 0-6 1-3 1-6 1-7 1-8 2-4 2-7 2-8 3-6 3-9 4-7 4-9 5-6 5-7 5-8 5-9 8-9",
    ),
    ("regular 2", 4, 1, 0, "0-2 0-3 1-2 1-3"),
    ("regular 2", 5, 1, 0, "0-1 0-2 1-3 2-4 3-4"),
    ("regular 3", 8, 332, 0, "0-2 0-3 0-6 1-3 1-5 1-7 2-3 2-4 4-6 4-7 5-6 5-7"),
    ("regular 3", 6, 163, 0, "0-2 0-3 0-4 1-2 1-4 1-5 2-5 3-4 3-5"),
    ("ring", 7, 1, 0, "0-1 0-2 1-6 2-4 3-4 3-5 5-6"),
    ("star", 7, 1, 0, "0-1 1-2 1-3 1-4 1-5 1-6"),
    ("erdos-renyi 3", 7, 1, 0, "0-1 0-2 0-4 0-6 1-2 1-6 2-3 2-4 2-5 3-5 4-5 4-6 5-6"),
    ("erdos-renyi 2", 8, 2, 0, "0-2 0-6 0-7 1-2 1-3 1-5 2-7 3-5 5-6"),
    ("k-out 2", 5, 1, 0, "0<1 0<4 1<3 1<4 2<0 2<4 3<2 3<4 4<0 4<3"),
]


# The page's rules again, in plain Python.


def stream(seed, round, attempt=0):
    for block in itertools.count():
        text = b"facade/topology/1" + struct.pack(">4Q", seed, round, attempt, block)
        yield from struct.unpack(">4Q", hashlib.sha256(text).digest())


def below(words, bound):
    return next(word for word in words if word < 2**64 // bound * bound) % bound


def shuffle(words, size):
    keys = [next(words) for _ in range(size)]
    return sorted(range(size), key=lambda i: (keys[i], i))


def edge(a, b):
    return min(a, b), max(a, b)


def ring(n, seed, round):
    order = shuffle(stream(seed, round), n)
    return {edge(order[i], order[(i + 1) % n]) for i in range(n)}


def regular(n, degree, seed, round):
    """The pairs of the graph and how many attempts were given up."""
    everything = set(itertools.combinations(range(n), 2))
    if degree == n - 1:
        return everything, 0
    if degree == 2 and n > 4:
        return ring(n, seed, round), 0
    for attempt in itertools.count():
        pairs = pairing(n, min(degree, n - 1 - degree), stream(seed, round, attempt))
        if pairs is not None:
            pairs = everything - pairs if degree > n - 1 - degree else pairs
            if reach(n, pairs) == set(range(n)):
                return pairs, attempt
    raise AssertionError


def pairing(n, degree, words):
    stubs = shuffle(words, n * degree)
    edges = [edge(a // degree, b // degree) for a, b in zip(stubs[::2], stubs[1::2], strict=True)]
    good, bad = {}, []
    for place, (a, b) in enumerate(edges):
        if a == b or (a, b) in good.values():
            bad.append(place)
        else:
            good[place] = (a, b)
    for _ in range(100 * len(edges)):
        if not bad:
            break
        other, flip = below(words, len(edges)), below(words, 2)
        if other not in good:
            continue
        a, b = edges[bad[-1]]
        c, d = reversed(good[other]) if flip else good[other]
        first, second = edge(a, c), edge(b, d)
        taken = set(good.values())
        if a != c and b != d and first != second and first not in taken and second not in taken:
            edges[bad[-1]] = good[bad[-1]] = first
            good[other] = second
            bad.pop()
    return None if bad else set(good.values())


def reach(n, pairs):
    found, waiting = {0}, [0]
    while waiting:
        node = waiting.pop()
        for a, b in pairs:
            for here, there in ((a, b), (b, a)):
                if here == node and there not in found:
                    found.add(there)
                    waiting.append(there)
    return found


def star(n, seed, round):
    centre = below(stream(seed, round), n)
    return {edge(centre, i) for i in range(n) if i != centre}


def erdos_renyi(n, degree, seed, round):
    limit = min(degree * 2**64 // (n - 1), 2**64 - 1)
    words = stream(seed, round)
    return {pair for pair in itertools.combinations(range(n), 2) if next(words) < limit}


def k_out(n, degree, seed, round):
    words, heard = stream(seed, round), set()
    for node in range(n):
        peers = set()
        while len(peers) < degree:
            other = below(words, n - 1)
            peers.add(other if other < node else other + 1)
        heard |= {(node, peer) for peer in peers}
    return heard


def arcs(graph):
    if graph.everyone:
        return {(a, b) for a in range(graph.n) for b in range(graph.n) if a != b}
    return set(zip(graph.receiver.tolist(), graph.sender.tolist(), strict=True))


def both_ways(pairs):
    return set(pairs) | {(b, a) for a, b in pairs}


def drawn(topology, n, seed, round):
    name, _, degree = topology.partition(" ")
    made = TOPOLOGIES[name](int(degree)) if degree else TOPOLOGIES[name]()
    return made.draw(n, seed, round)


@pytest.mark.parametrize(("topology", "n", "seed", "round", "edges"), VECTORS)
def test_graphs_equal_the_published_vectors(topology, n, seed, round, edges):
    listed = {tuple(int(end) for end in e.replace("<", "-").split("-")) for e in edges.split()}
    assert arcs(drawn(topology, n, seed, round)) == (listed if "<" in edges else both_ways(listed))


@pytest.mark.parametrize(("topology", "n", "seed", "round", "edges"), VECTORS)
def test_the_page_prints_the_vectors(topology, n, seed, round, edges):
    assert f"| {topology} | {n} | {seed} | {round} | {edges} |" in PAGE.read_text()


def test_the_stream_equals_the_published_words():
    words = Stream(1, 0).words(6)
    assert [f"{word:016x}" for word in words.tolist()] == [
        "1133cb743dfc15b0", "2c762e6e1dd806c0", "c72ecf2f5d1dbc4f",
        "7499479208fa66e2", "94d500ece2173ce7", "54638c387f243243",
    ]  # fmt: skip
    digits = Stream(1, 0)
    assert [digits.below(10) for _ in range(8)] == [2, 6, 3, 2, 7, 9, 1, 7]
    assert Stream(1, 0).shuffle(8).tolist() == [0, 1, 6, 5, 3, 7, 4, 2]


def test_the_stream_gives_the_same_words_however_they_are_taken():
    plain = list(itertools.islice(stream(9, 4, 2), 40))
    assert Stream(9, 4, 2).words(40).tolist() == plain
    mixed = Stream(9, 4, 2)
    taken = [*mixed.words(3).tolist(), mixed.below(2**64), *mixed.words(9).tolist(), *mixed.words(0).tolist()]
    taken += [mixed.below(2**64) for _ in range(6)] + mixed.words(21).tolist()
    assert taken == plain


def test_below_passes_over_words_that_would_favour_small_numbers():
    bound = 2**63 + 1
    plain = (word for word in stream(1, 0) if word < bound)
    numbers = Stream(1, 0)
    assert [numbers.below(bound) for _ in range(20)] == list(itertools.islice(plain, 20))


@pytest.mark.parametrize("n", [4, 5, 6, 7, 8, 9, 12, 16])
def test_regular_graphs_equal_a_second_implementation(n):
    for degree in range(2, n):
        if n * degree % 2 == 0:
            for seed, round in [(0, 0), (1, 3), (2**63 - 1, 10**6)]:
                pairs, _ = regular(n, degree, seed, round)
                assert arcs(Regular(degree).draw(n, seed, round)) == both_ways(pairs)


def test_unconnected_graphs_and_failed_pairings_are_drawn_again():
    assert regular(8, 3, 332, 0)[1] == 1
    assert reach(8, pairing(8, 3, stream(332, 0))) != set(range(8))
    assert regular(6, 3, 163, 0)[1] == 1
    assert pairing(6, 2, stream(163, 0)) is None


@pytest.mark.parametrize(("n", "seed", "round"), [(2, 1, 0), (3, 1, 1), (9, 4, 0), (40, 4, 77)])
def test_other_graphs_equal_a_second_implementation(n, seed, round):
    assert arcs(Ring().draw(n, seed, round)) == both_ways(ring(n, seed, round))
    assert arcs(Star().draw(n, seed, round)) == both_ways(star(n, seed, round))
    for degree in range(2, n, 3):
        assert arcs(ErdosRenyi(degree).draw(n, seed, round)) == both_ways(erdos_renyi(n, degree, seed, round))
        assert arcs(KOut(degree).draw(n, seed, round)) == k_out(n, degree, seed, round)


def test_regular_graphs_are_regular_connected_symmetric_and_without_loops_up_to_64_nodes():
    for n in range(3, 65):
        for degree in range(2, n):
            if n * degree % 2:
                continue
            graph = Regular(degree).draw(n, 1, n)
            assert (graph.degree == degree).all()
            if graph.everyone:
                assert degree == n - 1
                continue
            receiver, sender = graph.receiver, graph.sender
            code = receiver * n + sender
            assert (np.diff(code) > 0).all()
            assert (receiver != sender).all()
            assert np.array_equal(np.sort(sender * n + receiver), code)
            assert connected(graph)


def test_dense_regular_graphs_are_drawn_at_once():
    for round in range(50):
        assert (Regular(8).draw(12, 1, round).degree == 8).all()


def test_other_rounds_and_other_seeds_give_other_graphs():
    for topology in (Regular(4), Ring(), ErdosRenyi(4), KOut(4)):
        graphs = [frozenset(arcs(topology.draw(20, 1, round))) for round in range(20)]
        graphs += [frozenset(arcs(topology.draw(20, seed, 0))) for seed in range(2, 12)]
        assert len(set(graphs)) == 30
    assert len({frozenset(arcs(Star().draw(20, 1, round))) for round in range(100)}) == 20


def test_every_pair_is_linked_equally_often_in_regular_graphs():
    counts = np.zeros((10, 10))
    for round in range(1500):
        graph = Regular(3).draw(10, 1, round)
        counts[graph.receiver, graph.sender] += 1
    share = counts[~np.eye(10, dtype=bool)] / 1500
    assert np.abs(share - 3 / 9).max() < 0.06


def test_a_ring_is_one_ring():
    for n in range(3, 30):
        graph = Ring().draw(n, 1, n)
        assert (graph.degree == 2).all()
        assert connected(graph)
    assert arcs(Ring().draw(2, 1, 0)) == {(0, 1), (1, 0)}


def test_a_star_has_one_centre():
    graph = Star().draw(9, 1, 0)
    assert sorted(graph.degree.tolist()) == [1] * 8 + [8]
    assert connected(graph)


def test_a_complete_graph_lists_no_edges():
    graph = Complete().draw(1000, 1, 0)
    assert graph.everyone
    assert len(graph.receiver) == 0
    assert (graph.degree == 999).all()


def test_erdos_renyi_graphs_are_symmetric_and_have_the_degree_on_average():
    degrees = []
    for round in range(60):
        graph = ErdosRenyi(4).draw(30, 1, round)
        assert arcs(graph) == {(b, a) for a, b in arcs(graph)}
        degrees.append(graph.degree.mean())
    assert abs(np.mean(degrees) - 4) < 0.2


def test_a_node_of_an_erdos_renyi_graph_may_be_alone():
    assert ErdosRenyi(2).draw(8, 2, 0).degree[4] == 0


def test_in_a_k_out_graph_every_node_hears_exactly_k_others():
    graph = KOut(3).draw(15, 1, 2)
    assert (graph.degree == 3).all()
    assert (graph.receiver != graph.sender).all()
    assert len(arcs(graph)) == 45
    assert arcs(graph) != {(b, a) for a, b in arcs(graph)}
    assert [name for name, topology in TOPOLOGIES.items() if topology.directed] == ["k-out"]


def test_edges_into_some_nodes_keep_their_order():
    graph = Regular(4).draw(12, 1, 0)
    nodes = np.array([2, 3, 7])
    row, sender = graph.into(nodes)
    expected = [(r, s) for r, s in zip(graph.receiver.tolist(), graph.sender.tolist(), strict=True) if r in (2, 3, 7)]
    assert list(zip(nodes[row].tolist(), sender.tolist(), strict=True)) == expected


@pytest.mark.parametrize(
    "topology", [Ring(), Star(), Regular(3), KOut(2), ErdosRenyi(2)], ids=lambda t: type(t).__name__
)
def test_the_diameter_is_the_longest_of_all_shortest_ways(topology):
    for seed in range(5):
        graph = topology.draw(20, seed, 0)
        way = np.full((20, 20), np.inf)
        np.fill_diagonal(way, 0)
        way[graph.receiver, graph.sender] = 1
        for middle in range(20):
            way = np.minimum(way, way[:, middle, None] + way[middle])
        assert diameter(graph) == way[np.isfinite(way)].max()


def test_a_graph_without_edges_has_no_way():
    nothing = np.zeros(0, np.int64)
    assert diameter(Graph(4, nothing, nothing)) == 0


def test_connected_tells_one_component_from_two():
    assert connected(undirected(5, {(0, 4), (4, 2), (2, 3), (3, 1)}))
    assert not connected(undirected(5, {(0, 4), (4, 2), (3, 1)}))
    assert not connected(Graph(2, np.zeros(0, np.int64), np.zeros(0, np.int64)))
    assert connected(Complete().draw(5, 1, 0))


@pytest.mark.parametrize("topology", [Regular, ErdosRenyi, KOut])
@pytest.mark.parametrize("degree", [-1, 0, 1, 8, 100])
def test_an_impossible_degree_is_refused_with_the_possible_ones(topology, degree):
    with pytest.raises(ExperimentError, match=f"topology.degree = {degree} is not possible with 8 nodes; give 2 to 7"):
        topology(degree).check(8)


@pytest.mark.parametrize("topology", [Regular, ErdosRenyi, KOut])
def test_two_nodes_are_told_to_use_a_topology_without_degree(topology):
    with pytest.raises(
        ExperimentError, match=r"degree needs at least 3 nodes, 2 given; use topology\.name = 'complete'"
    ):
        topology(4).check(2)


def test_an_odd_number_of_stubs_is_refused():
    with pytest.raises(ExperimentError, match=r"no graph gives each of 7 nodes exactly 3 neighbours \(7 x 3 is odd\)"):
        Regular(3).check(7)
    Regular(4).check(7)


@pytest.mark.parametrize("topology", [Ring(), Star(), Complete(), Regular(2), KOut(2)])
def test_one_node_is_no_network(topology):
    with pytest.raises(ExperimentError, match=r"a network needs at least 2 nodes, 1 given; change data\.clusters"):
        topology.check(1)
