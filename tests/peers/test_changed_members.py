"""Members come, go and are replaced while whole sites play: what is kept about members stays with them, and a seeded
FACADE keeps its calendar."""

from collections import defaultdict
from types import MappingProxyType

import pytest
import torch

from facade.algorithms.farthest_facade import FarthestFacade, Phase
from facade.core import tree
from facade.core.algorithm import Algorithm
from facade.errors import ExperimentError, FacadeError
from facade.peers.local_network import founded
from facade.peers.node import site_epoch
from facade.peers.node.carried_state import carried
from facade.peers.node.playing import Playing
from facade.peers.node.site_epoch import RemovedError
from facade.peers.trust import identity
from facade.peers.trust.founding import NewSite, Terms, found_federation, found_site, schema_of
from facade.peers.trust.identity import Join
from facade.peers.trust.membership import Change, Epochs, Membership, changed
from peers.makers import QUICK, audited, federation, tiny
from peers.memory import MemoryNetwork, run_all

FOUNDERS, CHANGED_FROM, ROUNDS = "bcde", 13, 16
CHANGES = {"add": ("a", ""), "remove": ("", "c"), "replace": ("a", "c")}
"""Who comes and who goes; one whose id stands before the others' gives all of them another number."""


class Sites:
    """Sites that bring their own data; all founders are open to calls, with the first list."""

    def __init__(self, base, *settings):
        self.base, self.network, self.nodes = base, MemoryNetwork(), {}
        self.admin = identity.new_signing_key(base / "admin.key")
        rounds = f"training.rounds={ROUNDS}", f"evaluation.every={ROUNDS}", "training.steps=1"
        own_data = "data.source=given", 'data.clusters="4"', "data.skew=none", "topology.degree=2"
        given = tiny(*own_data, *rounds, *settings)
        terms = Terms("test", [self.admin], "patient", QUICK, schema_of(tiny()))
        self.first = found_federation([self.join(id) for id in FOUNDERS], given, terms)
        self.open(FOUNDERS, self.first)

    def join(self, id):
        data = {"data": {"source": "digits"}}
        return Join.load(found_site(self.base / id, NewSite(id, "127.0.0.1:1", [self.admin], data)))

    def write(self, ids, membership):
        for id in ids:
            (self.base / id / "membership.json").write_text(membership.sign([self.base / "admin.key"]))

    def open(self, ids, membership):
        self.write(ids, membership)
        for id in ids:
            self.nodes[id] = self.network.node(self.base / id)

    def change(self, comes, goes, first_round=CHANGED_FROM):
        """Give everybody the next list, and open the site that joins."""
        second = changed(self.first, Change([self.join(id) for id in comes], list(goes)), first_round)
        self.write(FOUNDERS, second)
        self.open(comes, second)
        return second

    def close(self):
        for node in self.nodes.values():
            node.close()


@pytest.fixture
def sites(tmp_path):
    opened = []

    def made(*settings):
        opened.append(Sites(tmp_path, *settings))
        return opened[0]

    yield made
    for each in opened:
        each.close()


def check_ends(sites, ends, goes, second):
    """All sites but the one that went have finished under the second list, and the logs fit together."""
    for id, end in ends.items():
        if id in goes:
            assert isinstance(end, RemovedError)
        else:
            assert end.epoch == 2, end
            assert all(entry["missed"] == 0 for entry in end.ledger.values())
    (sites.base / "2.json").write_text(second.sign([sites.base / "admin.key"]))
    (sites.base / "1.json").write_text(sites.first.sign([sites.base / "admin.key"]))
    assert audited([sites.base / id for id in ends], sites.base / "1.json", sites.base / "2.json") == []


def scores(state, membership):
    """What DAC holds about members, by id: how similar they are, what was told of them, and whose word it is."""
    ids = [member.id for member in membership.members]
    bridges = [ids[number] if number >= 0 else None for number in state["bridge"][0].tolist()]
    return {
        id: values
        for id, *values in zip(ids, state["measured"][0].tolist(), state["told"][0].tolist(), bridges, strict=True)
    }


@pytest.mark.parametrize("change", CHANGES)
def test_dacs_scores_stay_with_their_members(change, sites, monkeypatch):
    comes, goes = CHANGES[change]
    carries, whole = {}, site_epoch.carried

    def recorded(algorithm, state, fresh, old, new):
        result = whole(algorithm, state, fresh, old, new)
        if old is not new:
            carries[tuple(torch.cat([leaf.flatten().double() for leaf in state.values()]).tolist())] = (
                scores(state, old),
                scores(tree.flatten(result), new),
            )
        return result

    monkeypatch.setattr(site_epoch, "carried", recorded)
    network = sites("algorithm.name=dac")
    second = network.change(comes, goes)
    check_ends(network, run_all(network.nodes), goes, second)
    assert len(carries) == len(FOUNDERS) - len(goes)
    for before, after in carries.values():
        assert list(after) == [member.id for member in second.members]
        assert sum(measured > 0 for measured, _, _ in before.values()) >= 2
        for id, (measured, told, bridge) in after.items():
            if id in comes:
                assert (measured, told, bridge) == (0, 0, None)
            else:
                assert [measured, told] == before[id][:2]
                assert bridge == (None if before[id][2] in set(goes) else before[id][2])


@pytest.mark.parametrize("change", CHANGES)
def test_a_seeded_facade_does_not_go_back_to_seeking(change, sites, monkeypatch):
    comes, goes = CHANGES[change]
    phases, phase = defaultdict(dict), FarthestFacade._phase

    def recorded(self, turn):
        phases[turn.shard.n, int(turn.shard.nodes[0])][turn.round] = phase(self, turn)
        return phase(self, turn)

    monkeypatch.setattr(FarthestFacade, "_phase", recorded)
    network = sites("algorithm.seeding=farthest", "algorithm.warmup=1")
    second = network.change(comes, goes)
    assert [network.first.founding_size, second.founding_size] == [4, 4]
    check_ends(network, run_all(network.nodes), goes, second)
    assert {played[ROUNDS - 1] for played in phases.values() if ROUNDS - 1 in played} == {Phase.CHOOSING}
    for played in phases.values():
        assert all(played[round] is Phase.CHOOSING for round in played if round >= 12)
        assert all(played[round] is Phase.SEEKING for round in played if 4 <= round < 12)


@pytest.mark.parametrize("first_round", [6, 22], ids=["while it lasts", "after it"])
@pytest.mark.parametrize("change", CHANGES)
def test_a_survey_bears_that_members_come_and_go(change, first_round, sites):
    comes, goes = CHANGES[change]
    rounds = ("training.rounds=34", "evaluation.every=34")
    network = sites("algorithm.seeding=class-means", "algorithm.warmup=0", *rounds)
    second = network.change(comes, goes, first_round)
    check_ends(network, run_all(network.nodes), goes, second)


def test_a_restart_under_a_later_list_takes_the_scores_of_its_checkpoint_to_the_new_numbers(tmp_path, monkeypatch):
    monkeypatch.setattr(site_epoch.SiteEpoch, "neighbours", lambda *_: [])
    experiment = tiny('data.clusters="5"', "data.skew=none", "topology.degree=2", "algorithm.name=dac")
    with founded(experiment, tmp_path, "patient", QUICK) as made:
        home = made.homes[3]
    network = MemoryNetwork()
    node = network.node(home)
    first = node.followed_lists.membership
    fresh = node.followed_lists.in_force.fresh()
    played = fresh._replace(measured=torch.tensor([[1.0, 2.0, 3.0, 0.0, 5.0]]), bridge=torch.tensor([[-1, 4, 1, 0, 2]]))
    node.files.checkpoints.save(3, first.epoch, played, {})
    node.close()
    experiment_without_data = first.experiment | {"data": first.experiment["data"] | {"clusters": "4"}}
    second = changed(first.model_copy(update={"experiment": experiment_without_data}), Change(remove=["n1"]), 2)
    (home / "membership.json").write_text(second.sign([tmp_path / "admin.key"]))
    again = network.node(home)
    starts = []
    monkeypatch.setattr(Playing, "_play_from", lambda self, epoch, start: starts.append(start))
    again._playing.play(again._saved)
    again.close()
    (round, state) = starts[0]
    assert (round, again.followed_lists.membership.epoch) == (3, 2)
    assert state.measured.tolist() == [[1.0, 3.0, 0.0, 5.0]]
    assert state.bridge.tolist() == [[-1, -1, 0, 1]]
    (home / "run" / "epochs" / "1.json").unlink()
    forgetful = network.node(home)
    with pytest.raises(FacadeError, match=r"under the list of epoch 1, which is not in .*epochs; put that list there"):
        forgetful._playing.play(forgetful._saved)
    forgetful.close()


class Undeclared(Algorithm):
    """An algorithm that says nothing of what it keeps about members."""

    init = local = message = mix = model = notes = None


class Declared(Undeclared):
    """One that says that it does."""

    member_axes = MappingProxyType({"seen": 1})
    member_numbers = frozenset({"best"})


def test_what_does_not_fit_the_new_list_and_is_not_declared_is_refused(tmp_path):
    first = federation(tmp_path, "abcd").membership
    second = changed(first, Change(remove=["b"]), 7)
    state, fresh = {"seen": torch.tensor([[1, 2, 3, 4]])}, {"seen": torch.zeros(1, 3, dtype=torch.int64)}
    says = r"'seen' of the algorithm's state, of shape \[1, 4\], should now have shape \[1, 3\]; .*member_axes"
    with pytest.raises(FacadeError, match=says):
        carried(Undeclared(), state, fresh, first, second)
    assert carried(Declared(), state, fresh, first, second)["seen"].tolist() == [[1, 3, 4]]
    with pytest.raises(FacadeError, match="do not both have a leaf 'other'"):
        carried(Declared(), state | {"other": torch.zeros(1)}, fresh, first, second)


def test_numbers_of_members_follow_them_and_those_of_who_left_name_nobody(tmp_path):
    first = federation(tmp_path, "bcde").membership
    _, certificate = identity.new_certificate("a", 10)
    newcomer = Join("a", "127.0.0.1:1", certificate.decode(), "0" * 64)
    second = changed(first, Change(add=[newcomer], remove=["c"]), 7)
    state = {"seen": torch.tensor([[1, 2, 3, 4]]), "best": torch.tensor([[0, 1, 2, 3, -1]])}
    fresh = {"seen": torch.full((1, 4), 9), "best": torch.full((1, 5), -1)}
    after = carried(Declared(), state, fresh, first, second)
    assert (after["seen"].tolist(), after["best"].tolist()) == ([[9, 1, 3, 4]], [[1, -1, 2, 3, -1]])


def test_lists_agree_on_how_many_members_founded_the_run(tmp_path):
    first = federation(tmp_path, "abcd").membership
    second = changed(first, Change(remove=["b"]), 7)
    assert (second.n, second.founding_size) == (3, 4)
    other = Membership.model_validate(second.model_dump(by_alias=True) | {"founding_size": 3})
    with pytest.raises(ExperimentError, match="says that 3 members founded 'test', that of epoch 1 says 4"):
        Epochs([first]).add(other)
