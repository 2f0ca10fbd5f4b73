import numpy as np
import pytest
import torch

from facade.algorithms.core_and_heads import chosen, joined
from facade.algorithms.dac import DAC
from facade.core import tree
from facade.core.messages import EVERYONE, Edges
from facade.core.plan import deliver
from facade.data.samples import Samples
from facade.errors import ExperimentError
from facade.experiment.setup import set_up
from facade.testing.contract import tiny
from facade.testing.driven import driven, inbox_of, one_turn, prepared, result_of

OPTIMISERS = [(), ("training.momentum=0.9",), ("training.optimiser=adam", "training.lr=0.01")]
NETWORKS = [(), ("network.loss=0.3", "network.offline=0.2"), ("topology.name=complete",)]


@pytest.mark.parametrize(("warmup", "network"), list(zip([0, 2, 0], NETWORKS, strict=True)))
@pytest.mark.parametrize("model", ["stacked", "looped", "cnn"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_k_1_equals_el_bit_for_bit(warmup, network, model, dtype):
    settings = ("model.name=cnn",) if model == "cnn" else (f"runtime.executor={model}",)
    settings = (*settings, *network, f"runtime.dtype={dtype}", "training.rounds=3")
    el = result_of(tiny("el", *settings))
    one = result_of(tiny("facade", *settings, "algorithm.heads=1", f"algorithm.warmup={warmup}"))
    assert one.summary["model_sha256"] == el.summary["model_sha256"]
    confusions = [[row["confusion"] for row in run.rows if row["kind"] != "round"] for run in (one, el)]
    assert confusions[0] == confusions[1]


@pytest.mark.parametrize("optimiser", OPTIMISERS)
def test_k_1_equals_el_with_every_optimiser(optimiser):
    el, one = (result_of(tiny(name, *optimiser, "algorithm.heads=1")) for name in ("el", "facade"))
    assert one.summary["model_sha256"] == el.summary["model_sha256"]


@pytest.mark.parametrize("own_head", ["if-chosen", "always"])
@pytest.mark.parametrize("optimiser", OPTIMISERS)
def test_the_warm_up_equals_el_round_by_round(own_head, optimiser):
    el = prepared(tiny("el", *optimiser))
    facade = prepared(
        tiny("facade", *optimiser, "algorithm.warmup=3", "algorithm.heads=3", f"algorithm.own_head={own_head}")
    )
    pairs = list(zip(driven(el).states(), driven(facade).states(), strict=True))
    for round, (one, other) in enumerate(pairs):
        same = tree.digests(el.algorithm.model(one), 8) == tree.digests(facade.algorithm.model(other), 8)
        assert same == (round <= 3)
        if round <= 3:
            assert all(torch.equal(heads, heads[:, :1].expand_as(heads)) for heads in other.facade.heads.values())


def test_a_warm_up_over_all_rounds_is_el_and_says_so():
    with pytest.warns(UserWarning, match="algorithm.warmup = 4 covers all 4 rounds: this run is EL"):
        setup = prepared(tiny("facade", "algorithm.warmup=4"))
    state = driven(setup).state
    assert tree.digest(setup.algorithm.model(state), 8) == result_of(tiny("el")).summary["model_sha256"]
    assert all(torch.equal(heads[:, 0], heads[:, 1]) for heads in state.facade.heads.values())


def test_the_first_choice_after_a_warm_up_is_drawn_without_scoring():
    result = result_of(tiny("facade", "algorithm.warmup=2"))
    rows = [[row for row in result.rows if row["kind"] == "round" and row["round"] == r] for r in (1, 2, 3, 4)]
    assert {row["choice"] for row in rows[0] + rows[1]} == {0}
    assert {row["choice"] for row in rows[2]} == {0, 1}
    assert all(row["head_losses"] == [None, None] for moment in rows[:3] for row in moment)
    assert all(None not in row["head_losses"] for row in rows[3])


def test_the_first_choice_is_even():
    many = (
        "data.clusters=150:150",
        "data.partition=sampled",
        "training.rounds=2",
        "training.steps=1",
        "training.batch=1",
    )
    result = result_of(tiny("facade", *many, "algorithm.heads=3", "algorithm.warmup=1"))
    counts = np.bincount([row["choice"] for row in result.rows if row["kind"] == "final"], minlength=3)
    assert abs(counts / 300 - 1 / 3).max() < 0.1


@pytest.mark.parametrize("executor", ["stacked", "looped"])
def test_exact_ties_are_broken_at_random_by_round_and_node(executor):
    setup = prepared(tiny("facade", "algorithm.heads=3", "training.rounds=22", f"runtime.executor={executor}"))
    equal = setup.algorithm.init(setup.shards()[0])
    chosen = [setup.algorithm.local(one_turn(setup, round), equal).facade for round in range(2, 22)]
    assert all(torch.equal(state.head_losses, state.head_losses[:, :1].expand(8, 3)) for state in chosen)
    counts = np.bincount(torch.cat([state.choice for state in chosen]).numpy(), minlength=3)
    assert counts.sum() == 160
    assert counts.min() > 35


@pytest.mark.parametrize("name", ["facade", "ifca"])
@pytest.mark.parametrize("heads", [1, 2, 5])
def test_the_payload_is_els_and_8_bytes(name, heads):
    el, other = (prepared(tiny(n, f"algorithm.heads={heads}")) for n in ("el", name))
    weights = 64 * 64 + 64 + 64 * 10 + 10
    sizes = [tree.row_bytes(driven(setup).posts[0][0].outbox) for setup in (el, other)]
    assert sizes == [4 * weights, 4 * weights + 8]


def test_seeding_adds_16_bytes_to_the_payload():
    settings = ("algorithm.warmup=1", "training.rounds=16")
    plain, seeded = (
        prepared(tiny("facade", f"algorithm.seeding={seeding}", *settings)) for seeding in ("none", "farthest")
    )
    sizes = [tree.row_bytes(driven(setup).posts[0][0].outbox) for setup in (plain, seeded)]
    assert sizes[1] == sizes[0] + 16


def test_payloads_of_the_others():
    core, head, n = 64 * 64 + 64, 64 * 10 + 10, 8
    expected = {
        ("dpsgd",): 4 * (core + head),
        ("dac",): 4 * (core + head) + 4 * n,
        ("dac", "algorithm.two_hop=false"): 4 * (core + head),
        ("deprl",): 4 * core,
        ("local",): 0,
    }
    found = {case: tree.row_bytes(driven(prepared(tiny(*case))).posts[0][0].outbox) for case in expected}
    assert found == expected


def test_bytes_per_node_leave_out_the_final_exchange():
    summary = result_of(tiny("el")).summary
    size = 4 * (64 * 64 + 64 + 64 * 10 + 10)
    assert summary["bytes_per_node"] == 4 * 4 * size
    assert summary["bytes_final"] == 7 * size
    assert result_of(tiny("dac")).summary["bytes_final"] == 0


@pytest.mark.parametrize(("round", "tau"), [(0, 1), (1, 3.990), (5, 14.864), (10, 23.848), (20, 29.921), (10_000, 31)])
def test_tau_grows_from_1_to_31(round, tau):
    assert DAC().tau(round) == pytest.approx(tau, abs=5e-4)


def test_dac_refuses_more_nodes_than_it_is_made_for():
    with pytest.raises(
        ExperimentError, match="a similarity for every pair of nodes; 4097 nodes are more than the 4096"
    ):
        set_up(tiny("dac", "data.clusters=4000:97"))


def test_dpsgd_refuses_directed_graphs():
    with pytest.raises(ExperimentError, match="mutual neighbours, but the topology KOut is directed; use"):
        result_of(tiny("dpsgd", "topology.name=k-out"))


@pytest.mark.parametrize("name", ["facade", "ifca"])
@pytest.mark.parametrize("heads", [2, 5])
def test_after_the_final_exchange_all_agree_on_the_core_and_every_chosen_head(name, heads):
    setup = prepared(tiny(name, f"algorithm.heads={heads}", "algorithm.warmup=0", "training.init=per-node"))
    states = driven(setup).states()
    before, after = states[-2].facade, states[-1].facade
    assert torch.equal(before.choice, after.choice)
    used = set(after.choice.tolist())
    for leaf in after.core.values():
        assert torch.equal(leaf, leaf[:1].expand_as(leaf))
    for path, leaf in after.heads.items():
        for head in range(heads):
            if head in used:
                assert torch.equal(leaf[:, head], leaf[:1, head].expand_as(leaf[:, head]))
            else:
                assert torch.equal(leaf[:, head], before.heads[path][:, head])
    assert len(set(tree.digests(setup.algorithm.model(states[-1]), 8))) == len(used)


def test_an_always_counted_own_head_leaves_nodes_apart():
    setup = prepared(tiny("facade", "algorithm.warmup=0", "algorithm.own_head=always", "training.init=per-node"))
    heads = driven(setup).state.facade.heads["head.weight"]
    assert not torch.equal(heads, heads[:1].expand_as(heads))


@pytest.mark.parametrize("name", ["el", "dpsgd", "deprl"])
def test_after_the_final_exchange_there_is_one_model_or_one_core(name):
    setup = prepared(tiny(name))
    state = driven(setup).state
    shared = state.core if name == "deprl" else state.model
    assert len(set(tree.digests(shared, 8))) == 1
    if name == "deprl":
        assert len(set(tree.digests(state.head, 8))) == 8


@pytest.mark.parametrize("name", ["el", "facade", "dac"])
def test_every_run_is_evaluated_before_and_after_the_final_exchange(name):
    rows = result_of(tiny(name, "training.rounds=5")).rows
    moments = sorted({(row["kind"], row["round"]) for row in rows if row["kind"] != "round"})
    assert moments == [("evaluation", 2), ("evaluation", 4), ("evaluation", 5), ("final", 5)]
    last, final = ([row["confusion"] for row in rows if (row["kind"], row["round"]) == m] for m in moments[2:])
    assert (last == final) == (name == "dac")


def test_every_algorithm_starts_from_the_same_model():
    first = {}
    for name in ("facade", "el", "dpsgd", "dac", "deprl", "local", "ifca"):
        setup = prepared(tiny(name, "algorithm.warmup=0"))
        first[name] = tree.digest(setup.algorithm.model(setup.algorithm.init(setup.shards()[0])), 8)
    assert len(set(first.values())) == 1


def test_graphs_are_fresh_or_fixed_as_the_algorithm_declares():
    fresh = {name: prepared(tiny(name)).plan.fresh for name in ("facade", "el", "dac", "dpsgd", "deprl", "ifca")}
    assert fresh == {"facade": True, "el": True, "dac": True, "dpsgd": False, "deprl": False, "ifca": False}
    assert prepared(tiny("el", "topology.fresh=false")).plan.fresh is False
    assert prepared(tiny("dpsgd", "topology.fresh=true")).plan.fresh is True


def test_a_nodes_data_and_draws_do_not_depend_on_who_shares_its_process():
    setup = prepared(tiny("el"))
    together = setup.federation.training
    for purpose in ("train", "choose", "core", "compare"):
        everyone = Samples(together, 3, purpose, 2, 12).of(slice(0, 8))
        for nodes in ([0], [5], [2, 3, 7], [6, 7]):
            apart = Samples(together.only(np.array(nodes)), 3, purpose, 2, 12).of(slice(0, len(nodes)))
            assert torch.equal(apart.x, everyone.x[nodes])
            assert torch.equal(apart.y, everyone.y[nodes])


def test_every_purpose_and_round_draws_other_samples():
    data = prepared(tiny("el")).federation.training
    drawn = {
        tuple(data.draw(3, purpose, round, slice(0, 1), 12).x.flatten().tolist())
        for purpose in ("train", "choose", "choose-0", "choose-1", "core", "compare")
        for round in range(3)
    }
    assert len(drawn) == 18


def test_scoring_does_not_disturb_which_batches_are_trained_on():
    shared, independent = (
        result_of(tiny("facade", f"algorithm.scoring={scoring}", "algorithm.warmup=0", "training.rounds=1")).rows
        for scoring in ("shared", "independent")
    )
    same = [
        (one["train_loss"], other["train_loss"])
        for one, other in zip(shared, independent, strict=True)
        if one["kind"] == "round" and one["choice"] == other["choice"]
    ]
    assert len(same) > 0
    assert all(one == other for one, other in same)


@pytest.mark.parametrize(("choice", "origin"), [(-1, 0), (2, 0), (1 << 40, 0), (0, 8), (0, -2)])
def test_facade_refuses_heads_and_bidders_that_do_not_exist(choice, origin):
    setup = prepared(tiny("facade", "algorithm.seeding=farthest", "training.rounds=20"))
    turn, bid = one_turn(setup, 0), {"origin": torch.tensor([origin]), "score": torch.zeros(1)}
    assert "does not exist" in setup.algorithm.refuse(turn, {"choice": torch.tensor([choice]), "bid": bid})
    nobody = bid | {"origin": torch.tensor([-1])}
    assert setup.algorithm.refuse(turn, {"choice": torch.tensor([1]), "bid": nobody}) is None


def test_a_lost_message_changes_nobody_elses_draws():
    setup = prepared(tiny("el", "network.loss=0.5"))
    graph = setup.plan.graph(0)
    wanted = [tuple(edge) for edge in zip(graph.receiver.tolist(), graph.sender.tolist(), strict=True)]
    network = setup.plan.network
    post = driven(setup).posts[0][0].wanted
    arrived = set(zip(post.receiver.tolist(), post.sender.tolist(), strict=True))
    assert 0 < len(arrived) < len(wanted)
    for nodes in ([0, 1], [4], [3, 6, 7]):
        part = setup.shard(np.array(nodes))
        row, sender = graph.into(part.nodes)
        edges = Edges(torch.from_numpy(row), torch.from_numpy(sender))
        kept = deliver(network, part, 0, edges)
        found = {(nodes[r], s) for r, s in zip(kept.receiver.tolist(), kept.sender.tolist(), strict=True)}
        assert found == {(r, s) for r, s in arrived if r in nodes}


def test_losses_and_absences_have_the_asked_frequency():
    setup = prepared(tiny("el", "network.loss=0.3", "network.offline=0.2", "topology.name=complete"))
    network, shard = setup.plan.network, setup.shards()[0]
    online = np.array([network.online(3, round, shard.nodes) for round in range(500)])
    assert abs(online.mean() - 0.8) < 0.02
    kept = [len(deliver(network, shard, round, EVERYONE).sender) for round in range(500)]
    assert abs(np.mean(kept) / 56 - 0.7 * 0.8**2) < 0.02


def test_a_head_is_trained_with_its_own_memory_and_no_other_memory_moves():
    setup = prepared(
        tiny("facade", "algorithm.heads=3", "algorithm.warmup=0", "training.momentum=0.9", "training.lr=0.01")
    )
    algorithm, state, turn = setup.algorithm.published, driven(setup).states()[2].facade, one_turn(setup, 2)
    mark = torch.arange(1.0, 4.0).view(1, 3, 1)
    apart = tree.map(lambda leaf: (leaf.flatten(2) + mark).view_as(leaf), state.heads_memory)
    state = state._replace(heads_memory=apart)
    after = algorithm.local(turn, state)
    memory = {slot: joined(state.core_memory[slot], chosen(apart[slot], after.choice)) for slot in apart}
    fitted = turn.learner.fit(joined(state.core, chosen(state.heads, after.choice)), memory, turn.samples("train"))
    assert tree.digest(algorithm.model(after), 8) == tree.digest(fitted.params, 8)
    others = torch.arange(3) != after.choice.unsqueeze(1)
    for slot, leaves in apart.items():
        for name, leaf in leaves.items():
            assert torch.equal(after.heads_memory[slot][name][others], leaf[others])


def test_deprl_keeps_the_momentum_of_head_and_core_and_notes_the_heads_loss():
    setup = prepared(tiny("deprl", "training.momentum=0.9"))
    turn = one_turn(setup, 0)
    begun = setup.algorithm.init(turn.shard)
    after = setup.algorithm.local(turn, begun)
    assert all(leaf.abs().max() > 0 for leaf in after.memory["momentum"].values())
    heads = turn.learner.fit(joined(begun.core, begun.head), begun.memory, turn.samples("train"), only="head")
    assert torch.equal(after.loss, heads.loss)


@pytest.mark.parametrize(("loss", "similarity"), [(0.0, 1e6), (torch.inf, 1e-6), (torch.nan, 1e-6)])
def test_a_model_s_similarity_is_a_number_whatever_its_loss(loss, similarity, monkeypatch):
    setup = prepared(tiny("dac"))
    turn = one_turn(setup, 0)
    state = setup.algorithm.local(turn, setup.algorithm.init(turn.shard))
    monkeypatch.setattr(
        type(turn.learner), "compare", lambda self, models, receiver, *_: torch.full((len(receiver),), loss)
    )
    heard = inbox_of(turn.shard, setup.algorithm.message(turn, state), setup.algorithm.wanted(turn, state))
    measured = setup.algorithm.mix(turn, state, heard).measured
    assert measured[measured > 0].tolist() == pytest.approx([similarity] * int(turn.degree.sum()))


@pytest.mark.parametrize("own_head", ["if-chosen", "always"])
def test_infinities_in_a_head_stay_what_they_are(own_head):
    setup = prepared(tiny("facade", "algorithm.warmup=0", f"algorithm.own_head={own_head}"))
    turn = one_turn(setup, 3)
    algorithm = setup.algorithm.published
    state = algorithm.init(turn.shard)
    masks = tree.map(lambda leaf: torch.full_like(leaf, -torch.inf), state.heads)
    heard = inbox_of(turn.shard, algorithm.message(turn, state._replace(heads=masks)), turn.edges)
    mixed = algorithm.mix(turn, state._replace(heads=masks), heard)
    assert all((leaf == -torch.inf).all() for leaf in mixed.heads.values())


def test_nodes_that_are_offline_do_not_work(monkeypatch):
    setup = prepared(tiny("el", "network.offline=0.6"))
    algorithm, worked = type(setup.algorithm), []
    local = algorithm.local
    monkeypatch.setattr(
        algorithm,
        "local",
        lambda self, turn, state: worked.append(turn.shard.nodes.tolist()) or local(self, turn, state),
    )
    driven(setup)
    online = [np.flatnonzero(setup.plan.network.online(setup.plan.seed, r, np.arange(8))).tolist() for r in range(4)]
    assert worked == [nodes for nodes in online if nodes]
    assert any(0 < len(nodes) < 8 for nodes in worked)
