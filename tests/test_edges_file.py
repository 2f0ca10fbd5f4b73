"""A graph of one's own: its edges, and the file that lists them."""

import pytest

from facade.core.topology import (
    GivenEdges,
)
from facade.errors import ExperimentError
from facade.experiment.config import Experiment
from facade.experiment.edges_file import edges_in
from facade.experiment.setup import set_up


def test_edges_are_linked_both_ways_and_once_in_every_round():
    topology = GivenEdges("0-1 2-1 1-2")
    topology.check(3)
    for seed, round in ((1, 0), (9, 9)):
        graph = topology.draw(3, seed, round)
        assert list(zip(graph.receiver, graph.sender, strict=True)) == [(0, 1), (1, 0), (1, 2), (2, 1)]


@pytest.mark.parametrize("edge", ["0-3", "1-1", "1-01", "0", "0-1-2", "a-b", "-1-0", "0-"])
def test_what_is_no_edge_is_named(edge):
    with pytest.raises(ExperimentError, match=f"topology.edges: '{edge}' is not an edge; .* numbers from 0 to 2"):
        GivenEdges(f"0-1 {edge}").check(3)


def test_edges_must_be_given():
    with pytest.raises(ExperimentError, match=r"needs topology\.edges, such as '0-1 1-2'"):
        GivenEdges().check(3)


def test_a_file_lists_the_edges_with_comments_and_blank_lines(tmp_path):
    (tmp_path / "edges.txt").write_text("# a path\n0 1\n\n2 1  # backwards\n1 2\n")
    assert edges_in(str(tmp_path / "edges.txt")) == "0-1 2-1 1-2"


@pytest.mark.parametrize("line", ["0", "0 1 2", "a b", "-1 0", "1 1"])
def test_a_wrong_line_of_a_file_is_named(tmp_path, line):
    (tmp_path / "edges.txt").write_text(f"0 1\n{line}\n")
    with pytest.raises(ExperimentError, match=r"line 2: .* is not an edge; expected two different node numbers"):
        edges_in(str(tmp_path / "edges.txt"))


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ExperimentError, match=r"topology.file = '.*nowhere.txt' cannot be read \(No such file"):
        edges_in(str(tmp_path / "nowhere.txt"))


def test_a_file_without_edges_is_named(tmp_path):
    (tmp_path / "edges.txt").write_text("# nothing yet\n")
    with pytest.raises(ExperimentError, match=r"topology.file = '.*edges.txt' has no edges"):
        edges_in(str(tmp_path / "edges.txt"))


def test_edges_that_the_name_does_not_ask_for_are_refused_or_left_out(tmp_path):
    def of(**topology):
        return Experiment.of({"data": {"source": "digits", "clusters": "3"}, "topology": topology})

    with pytest.raises(ExperimentError, match="file is for name = 'file', and the name is 'regular'"):
        of(file=str(tmp_path / "edges.txt"))
    with pytest.raises(ExperimentError, match="edges are for name = 'edges', and no name is given"):
        of(edges="0-1 1-2")
    assert of(name="edges", edges="0-1 1-2").with_("topology.name=ring") == of(name="ring")


def test_a_file_that_is_no_text_is_named(tmp_path):
    (tmp_path / "edges.png").write_bytes(b"\x89\xff")
    with pytest.raises(ExperimentError, match=r"edges.png' cannot be read \(it is not text\)"):
        edges_in(str(tmp_path / "edges.png"))


def test_a_file_of_edges_is_read_once_and_counts_for_the_hash(tmp_path):
    file = tmp_path / "edges.txt"
    written = {"data": {"source": "digits", "clusters": "3"}, "topology": {"name": "file", "file": str(file)}}
    file.write_text("0 1\n1 2\n")
    path = Experiment.of(written)
    file.write_text("0 1\n1 2\n0 2\n")
    assert (path.topology.name, path.topology.edges, path.topology.file) == ("edges", "0-1 1-2", "")
    assert Experiment.of(path.model_dump()) == path
    assert Experiment.of(written).hash != path.hash
    assert path.with_("topology.name=file", f"topology.file={file}").topology.edges == "0-1 1-2 0-2"


def on(edges):
    written = {"source": "digits", "clusters": "6"}
    return Experiment.of({"data": written, "topology": {"name": "edges", "edges": edges}})


def test_given_edges_are_a_fixed_graph_however_fresh_an_algorithm_wants_it():
    plan = set_up(on("0-1 1-2 2-3 3-4 4-5")).plan
    assert plan.spread == 5 + 2
    assert plan.graph(7) is plan.graph(0)


def test_a_fixed_graph_in_parts_is_warned_of():
    with pytest.warns(UserWarning, match="the graph falls into parts that never hear each other"):
        set_up(on("0-1 1-2 3-4 4-5"))
