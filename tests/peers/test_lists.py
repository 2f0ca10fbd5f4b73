"""Lists that follow each other, as a site takes them."""

import pytest

from facade.errors import ExperimentError
from facade.peers import identity
from facade.peers.journal import Journal, lines
from facade.peers.membership import Change, Epochs, changed
from facade.peers.site import Site
from facade.runtimes.lists import Lists
from facade.runtimes.local_network import founded
from peers.makers import QUICK, federation, tiny


@pytest.fixture
def journal(tmp_path):
    opened = Journal(tmp_path / "log.jsonl")
    yield opened
    opened.close()


@pytest.mark.parametrize(("algorithm", "everybody"), [("el", False), ("dac", True)])
def test_a_message_is_for_the_neighbours_of_its_round(algorithm, everybody, tmp_path):
    with founded(tiny(f"algorithm.name={algorithm}"), tmp_path, "patient", QUICK) as made:
        lists = Lists(Site.load(made.homes[0]))
    graph, others = lists.scene(1).plan.graph(1), set(range(1, 8))
    hear = others if everybody else set(graph.receiver[graph.sender == 0].tolist())
    assert everybody or hear < others
    assert {caller for caller in others if lists.entitled(1, caller)} == hear
    assert all(lists.entitled(5, caller) for caller in others), "the final exchange"


def test_epochs_follow_each_other_and_two_lists_for_one_are_refused(tmp_path):
    made = federation(tmp_path, "abcd")
    second = changed(made.membership, Change(remove=["d"]), 7)
    assert second.digest != made.membership.digest
    assert second.experiment["data"]["clusters"] == "3"
    epochs = Epochs()
    assert epochs.add(made.membership)
    assert not epochs.add(made.membership)
    epochs.add(second)
    assert [epochs.governing(r).epoch for r in (0, 6, 7, 100)] == [1, 1, 2, 2]
    assert epochs.current(7) == [second]
    with pytest.raises(ExperimentError, match="two different lists"):
        epochs.add(changed(made.membership, Change(remove=["c"]), 8))
    with pytest.raises(ExperimentError, match="is no member"):
        changed(made.membership, Change(remove=["z"]), 7)


def rotated(made, id, first_round):
    join = made.join(id)
    _, certificate = identity.new_certificate(id, 10)
    change = Change(rotate=[identity.Join(id, join.address, certificate.decode(), join.signing_key)])
    return certificate.decode(), changed(made.membership, change, first_round)


def test_a_new_certificate_is_good_as_soon_as_it_is_listed_and_the_old_one_until_the_next_update(tmp_path):
    made = federation(tmp_path)
    old, (new, second) = made.join("b").certificate, rotated(made, "b", 5)
    epochs = Epochs([made.membership, second, changed(second, Change(), 9)])
    assert [epochs.certificates("b", round) for round in (0, 5, 9)] == [[old, new], [old, new], [new]]
    assert epochs.certificates("z", 0) == []


def test_a_site_whose_certificate_the_list_has_no_more_is_told_to_finish_the_rotation(tmp_path, journal):
    made = federation(tmp_path)
    site = Site.load(made.home("b"))
    lists = Lists(site)
    second = rotated(made, "b", 5)[1]
    for epoch in (second, changed(second, Change(), 9)):
        (site.home / "membership.json").write_text(epoch.sign([made.admin]))
        lists.look(journal)
    with pytest.raises(ExperimentError, match=r"in force from round 9 on.*rotate --finish"):
        lists.scene(9)


def test_a_list_that_cannot_be_used_is_named_once_and_the_node_goes_on(tmp_path, journal):
    made = federation(tmp_path, "abcd")
    site = Site.load(made.home("a"))
    lists = Lists(site)
    path = site.home / "membership.json"
    second = changed(made.membership, Change(remove=["d"]), 7).sign([made.admin])
    for content in (second[:500], second[:500], None, second.replace("127.0.0.1", "10.0.0.1")):
        path.write_text(content) if content else path.unlink()
        lists.look(journal)
    says = [event["says"] for event in lines(tmp_path / "log.jsonl")]
    assert ["not a membership list" in says[0], "cannot be read" in says[1], "not signed" in says[2]] == [True] * 3
    assert (len(says), lists.epochs.known) == (3, [made.membership])
    path.write_text(second)
    lists.look(journal)
    assert [membership.n for membership in lists.epochs.known] == [4, 3]
    assert [membership.n for membership in Lists(site).epochs.known] == [4, 3]
