"""Lists that follow each other, as a site takes them."""

import gc
import json
import tomllib
import weakref

import pytest
import tomli_w

from facade.errors import ExperimentError
from facade.peers.local_network import founded
from facade.peers.node import followed_lists
from facade.peers.node.followed_lists import FollowedLists
from facade.peers.node.journal import Journal, lines
from facade.peers.trust import identity
from facade.peers.trust.membership import Change, Epochs, Membership, changed, load
from facade.peers.trust.site import Site, set_up
from peers import makers
from peers.makers import QUICK, federation, tiny


@pytest.fixture
def journal(tmp_path):
    opened = Journal(tmp_path / "log.jsonl")
    yield opened
    opened.close()


@pytest.mark.parametrize(("algorithm", "everybody"), [("el", False), ("dac", True)])
def test_a_message_is_for_the_neighbours_of_its_round(algorithm, everybody, tmp_path, journal):
    with founded(tiny(f"algorithm.name={algorithm}"), tmp_path, "patient", QUICK) as made:
        lists = FollowedLists(Site.load(made.homes[0]), journal)
    graph, others = lists.site_epoch(1).plan.graph(1), set(range(1, 8))
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
    for listed in (made.membership, made.membership, second):
        epochs.add(listed)
    assert epochs.known == [made.membership, second]
    assert [epochs.governing(r).epoch for r in (0, 6, 7, 100)] == [1, 1, 2, 2]
    assert epochs.current(7) == [second]
    with pytest.raises(ExperimentError, match="two different lists"):
        epochs.add(changed(made.membership, Change(remove=["c"]), 8))
    with pytest.raises(ExperimentError, match="is no member"):
        changed(made.membership, Change(remove=["z"]), 7)


def test_a_later_list_must_begin_later_and_be_of_the_same_federation(tmp_path):
    first = federation(tmp_path).membership
    second = changed(first, Change(), 7)
    epochs = Epochs([first, second])
    for update in ({"epoch": 3, "first_round": 7}, {"epoch": 3, "first_round": 9, "federation": "other"}):
        later = Membership.model_validate(second.model_dump(by_alias=True) | update)
        with pytest.raises(ExperimentError, match=r"epoch 3 of '\w+' cannot follow epoch 2 of 'test' from round"):
            epochs.add(later)
    assert epochs.known == [first, second]
    missed = Epochs([second])
    missed.add(first)
    assert missed.known == [first, second]


def test_a_list_must_name_this_very_site(tmp_path, journal):
    made = federation(tmp_path)
    for id in "za":
        update = {"id": id, "certificate": identity.new_certificate(id, 10)[1].decode()}
        members = [m.model_dump() | (update if m.id == "a" else {}) for m in made.membership.members]
        members = sorted(members, key=lambda member: member["id"])
        listed = Membership.model_validate(made.membership.model_dump(by_alias=True) | {"members": members})
        (made.home("a") / "membership.json").write_text(listed.sign([made.admin]))
        site = Site.load(made.home("a"))
        for read in (site.membership, lambda site=site: FollowedLists(site, journal)):
            with pytest.raises(ExperimentError, match=r"does not list this site \('a'\) with its certificate"):
                read()


def test_a_number_is_a_member_s_rank_and_nobody_else_has_one(tmp_path):
    listed = federation(tmp_path).membership
    assert [(listed.has(id), listed.number(id)) for id in "abc"] == [(True, 0), (True, 1), (True, 2)]
    assert not listed.has("z")
    with pytest.raises(ExperimentError, match="'z' is no member in epoch 1; members are a, b, c"):
        listed.number("z")


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
    lists = FollowedLists(site, journal)
    second = rotated(made, "b", 5)[1]
    for epoch in (second, changed(second, Change(), 9)):
        (site.home / "membership.json").write_text(epoch.sign([made.admin]))
        lists.look()
    with pytest.raises(ExperimentError, match=r"in force from round 9 on.*rotate --finish"):
        lists.site_epoch(9)


def test_a_list_that_cannot_be_used_is_named_once_and_the_node_goes_on(tmp_path, journal):
    made = federation(tmp_path, "abcd")
    site = Site.load(made.home("a"))
    lists = FollowedLists(site, journal)
    path = site.home / "membership.json"
    second = changed(made.membership, Change(remove=["d"]), 7).sign([made.admin])
    for content in (second[:500], second[:500], None, second.replace("127.0.0.1", "10.0.0.1")):
        path.write_text(content) if content else path.unlink()
        lists.look()
    says = [event["says"] for event in lines(tmp_path / "log.jsonl")]
    assert ["not a membership list" in says[0], "cannot be read" in says[1], "not signed" in says[2]] == [True] * 3
    assert (len(says), lists.epochs.known) == (3, [made.membership])
    path.write_text(second)
    lists.look()
    assert [membership.n for membership in lists.epochs.known] == [4, 3]
    assert [membership.n for membership in FollowedLists(site, journal).epochs.known] == [4, 3]


def unusable(made, **parts):
    """The next epoch's list, signed, with another experiment."""
    second = changed(made.membership, Change(), 7)
    experiment = {name: {**second.experiment[name], **part} for name, part in parts.items()}
    listed = Membership.model_validate(
        second.model_dump(by_alias=True) | {"experiment": second.experiment | experiment}
    )
    return listed.sign([made.admin])


@pytest.mark.parametrize(
    ("parts", "says"),
    [
        ({"topology": {"degree": 3}}, "topology.degree = 3"),
        ({"model": {"name": "our_net:Net"}}, "has not allowed"),
        ({"model": {"name": "mpl"}}, "unknown model 'mpl'"),
        ({"training": {"rounds": -1}}, "training.rounds = -1 is not possible"),
        ({"data": {"clusters": "5"}}, "is for 5 nodes but the list names 3"),
    ],
)
def test_a_signed_list_that_cannot_be_played_by_is_refused_and_not_kept(parts, says, tmp_path, journal):
    made = federation(tmp_path)
    site = Site.load(made.home("a"))
    lists = FollowedLists(site, journal)
    (site.home / "membership.json").write_text(unusable(made, **parts))
    for _ in range(2):
        lists.look()
    refused = [event["says"] for event in lines(tmp_path / "log.jsonl")]
    assert (len(refused), says in refused[0]) == (1, True)
    assert [path.name for path in (site.run / "epochs").iterdir()] == ["1.json"]
    again = FollowedLists(site, journal)
    again.look()
    assert again.epochs.known == [made.membership]
    (site.home / "membership.json").write_text(changed(made.membership, Change(), 7).sign([made.admin]))
    again.look()
    assert [membership.epoch for membership in again.epochs.known] == [1, 2]


def test_a_model_that_fails_where_it_is_allowed_is_a_refusal_too(tmp_path, journal):
    made = federation(tmp_path)
    node = made.home("a") / "node.toml"
    node.write_text(node.read_text().replace("allow = []", 'allow = ["peers.makers:Unmakeable"]'))
    site = Site.load(made.home("a"))
    lists = FollowedLists(site, journal)
    (site.home / "membership.json").write_text(unusable(made, model={"name": "peers.makers:Unmakeable"}))
    lists.look()
    assert "the model cannot be made: KeyError: 'absent'" in lines(tmp_path / "log.jsonl")[0]["says"]
    assert lists.epochs.known == [made.membership]


@pytest.fixture
def three_epochs(tmp_path, journal):
    """A site of four that bring nothing of their own, and what it makes of lists from rounds 0, 7 and 9 on."""
    experiment = tiny('data.clusters="3:1"', "topology.degree=2", "training.rounds=20")
    with founded(experiment, tmp_path / "net", "patient", QUICK) as made:
        site = Site.load(made.homes[1])
        lists = FollowedLists(site, journal)
        listed = site.membership()
        for first_round in (7, 9):
            listed = changed(listed, Change(), first_round)
            (site.home / "membership.json").write_text(listed.sign([tmp_path / "net" / "admin.key"]))
            lists.look()
    return site, lists


def test_lists_that_follow_each_other_are_played_on_the_same_samples(three_epochs):
    _, lists = three_epochs
    epochs = [lists.site_epoch(round) for round in (0, 7, 9)]
    assert len({epoch.membership.epoch for epoch in epochs}) == 3
    assert len({epoch.shard.data.samples.x.data_ptr() for epoch in epochs}) == 1


def test_a_site_s_own_data_are_loaded_once(tmp_path):
    with founded(tiny('data.clusters="3:1"', "topology.degree=2"), tmp_path, "patient", QUICK) as made:
        home = made.homes[0]
    node = tomllib.loads((home / "node.toml").read_text()) | {"data": {"source": "peers.makers:counted_digits"}}
    (home / "node.toml").write_text(tomli_w.dumps(node))
    site = Site.load(home)
    before = len(makers.LOADED)
    made = [set_up(site, site.membership()).federation.training.samples.x for _ in range(2)]
    assert (len(makers.LOADED) - before, made[0].data_ptr()) == (1, made[1].data_ptr())


def test_after_a_restart_messages_of_the_epoch_before_are_given_to_its_neighbours(three_epochs, journal):
    site, lists = three_epochs
    others = [0, 2, 3]
    hear = {
        round: [caller for caller in others if lists.site_epoch(round).entitled(round, caller)] for round in (6, 7, 8)
    }
    again = FollowedLists(site, journal)
    assert [membership.epoch for membership in again.epochs.known] == [1, 2, 3]
    assert not any(again.entitled(round, caller) for round in hear for caller in others)
    again.recall(range(6, 9))
    for round, callers in hear.items():
        assert [caller for caller in others if again.entitled(round, caller)] == callers
        assert callers


def test_what_only_rounds_beyond_the_window_need_is_dropped(three_epochs):
    _, lists = three_epochs
    epochs = [weakref.ref(lists.site_epoch(round)) for round in (0, 7, 9)]
    assert all(epoch().access.graph(round) is epoch().access.graph(round) for epoch in epochs for round in (0, 7))
    for before, left in (
        (6, [True] * 3),
        (7, [False, True, True]),
        (8, [False, True, True]),
        (9, [False, False, True]),
    ):
        lists.forget(before)
        gc.collect()
        assert [epoch() is not None for epoch in epochs] == left
    assert not lists.entitled(6, 0)


def test_what_is_kept_of_a_list_is_what_was_checked(tmp_path, monkeypatch, journal):
    made = federation(tmp_path)
    site = Site.load(made.home("a"))
    path, good = site.home / "membership.json", (site.home / "membership.json").read_bytes()
    contents = iter([good, b"half cop"])
    monkeypatch.setattr(followed_lists, "read", lambda given: next(contents) if given == path else None)
    FollowedLists(site, journal)
    assert (site.run / "epochs" / "1.json").read_bytes() == good


def test_the_admin_does_not_sign_a_list_without_a_graph(command, tmp_path):
    made = federation(tmp_path, "abcd")
    listed, output = made.home("a") / "membership.json", tmp_path / "next.json"
    change = ["--key", made.admin, "--from-round", 5, "-o", output]
    ended = command("network", "update", listed, "--remove", "c", "--remove", "d", *change)
    assert (ended.code, "topology.degree needs at least 3 nodes, 2 given" in ended.err, output.exists()) == (
        2,
        True,
        False,
    ), ended.err
    assert command("network", "update", listed, "--remove", "d", *change).code == 0


def test_a_pinned_key_that_the_list_names_no_more_signs_nothing(tmp_path):
    made = federation(tmp_path)
    heir = identity.new_signing_key(tmp_path / "heir.key")
    handed = Membership.model_validate(made.membership.model_dump(by_alias=True) | {"admins": [heir]})
    signed = json.loads(handed.sign([tmp_path / "heir.key"]))
    former = identity.load_signing_key(made.admin).sign(b"facade membership 1\n" + handed.content).hex()
    signed["signatures"] = [{"admin": made.membership.admins[0], "signature": former}]
    (tmp_path / "list.json").write_text(json.dumps(signed))
    with pytest.raises(ExperimentError, match="not signed"):
        load(tmp_path / "list.json", made.membership.admins)


@pytest.mark.parametrize("place", [(), ("limits",), ("members", 0), ("schema",)])
def test_a_list_with_a_key_that_nobody_signed_is_refused(place, tmp_path):
    made = federation(tmp_path)
    path = made.home("a") / "membership.json"
    written = json.loads(path.read_text())
    part = written["membership"]
    for step in place:
        part = part[step]
    part["extra"] = 1
    path.write_text(json.dumps(written))
    with pytest.raises(ExperimentError, match="is not a membership list"):
        load(path, made.membership.admins)


def test_a_rotation_brings_a_sites_new_address(tmp_path):
    made = federation(tmp_path)
    certificate = identity.new_certificate("b", 10)[1].decode()
    moved = identity.Join("b", "elsewhere:1", certificate, made.join("b").signing_key)
    assert changed(made.membership, Change(rotate=[moved]), 5).members[1].address == "elsewhere:1"
