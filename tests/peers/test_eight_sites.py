"""Eight sites, two of which see everything upside down, and a hostile member among them; their models have running
variances, which are averaged as weights are."""

import dataclasses
import shutil

import pytest
import torch

from facade.core import tree
from facade.data.sources import SOURCES
from facade.peers.after.outcome import Outcome
from facade.peers.node.site_epoch import RemovedError
from facade.peers.trust.founding import NewSite, found_site
from facade.peers.trust.identity import Join
from facade.peers.trust.membership import load
from peers.makers import logged
from peers.memory import run_all
from peers.test_rollback import Sites, left_in_time

ROUNDS, BACK_TO, SPOILED_FROM = 4, 2, 3
HONEST, MINORITY = "abdefgh", "gh"


def upside_down(data):
    """The digits as the minority's sites have them."""
    whole = SOURCES["digits"](data)
    parts = [dataclasses.replace(part, x=torch.rot90(part.x, 2, (-2, -1))) for part in (whole.train, whole.test)]
    return dataclasses.replace(whole, train=parts[0], test=parts[1])


class EightSites(Sites):
    """Six sites of a majority, `c` among them, and two of a minority."""

    def __init__(self, base, *settings):
        averaged = "model.name=cnn-bn", "model.local=[]"
        super().__init__(base, "abcdefgh", ROUNDS, (*averaged, *settings))

    def join(self, id):
        source = f"{__name__}:upside_down" if id in MINORITY else "digits"
        return Join.load(
            found_site(self.base / id, NewSite(id, "127.0.0.1:1", [self.admin], {"data": {"source": source}}))
        )


def sends(node, changed):
    """A node publishes what a function of a round and a tensor's path and content makes of its model."""
    publish = node.publisher.publish

    def publish_changed(epoch, post):
        flat = {path: changed(post.round, path, leaf) for path, leaf in tree.flatten(post.outbox).items()}
        publish(epoch, dataclasses.replace(post, outbox=tree.unflatten(flat, post.outbox)))

    node.publisher.publish = publish_changed


def one_negative_variance(round, path, leaf):
    """A model with one negative variance, in one round."""
    if round != SPOILED_FROM or not path.endswith("running_var"):
        return leaf
    leaf = leaf.clone()
    leaf[..., 0] = -0.01
    return leaf


def flipped(round, path, leaf):
    """From a round on, weights with flipped signs; variances stay what they can be."""
    kept = round < SPOILED_FROM or not leaf.is_floating_point() or path.endswith("running_var")
    return leaf if kept else -leaf


@pytest.mark.parametrize("rule", ["none", "fair"])
def test_one_negative_variance_ends_nobody_and_no_honest_site_is_blamed(rule, tmp_path):
    sites = EightSites(tmp_path / "sites", f"guard.rule={rule}")
    sends(sites.open()["c"], one_negative_variance)
    ends = run_all(sites.nodes)
    sites.close()
    assert [type(ends[id]) for id in HONEST] == [Outcome] * 7, ends
    refused = {id: {peer: entry["refused"] for peer, entry in ends[id].ledger.items()} for id in HONEST}
    assert all(reasons.pop("c") == {"negative-variance": 1} for reasons in refused.values()), refused
    assert not any(reason for reasons in refused.values() for reason in reasons.values())
    found = sites.audit()
    assert found.findings == []
    assert {suspect.id for suspect in found.suspects} <= {"c"}


def test_when_flipped_models_are_taken_back_both_minority_sites_end_as_if_their_sender_had_left_in_time(
    tmp_path, command
):
    in_time = left_in_time(EightSites(tmp_path / "in time"), BACK_TO)
    assert isinstance(in_time.pop("c"), RemovedError)
    without = {id: end.state_sha256 for id, end in in_time.items()}
    sites = EightSites(tmp_path / "spoiled")
    sends(sites.open()["c"], flipped)
    ends = run_all(sites.nodes)
    sites.close()
    assert all(ends[id].state_sha256 != without[id] for id in HONEST), "all are spoiled"
    remove = "network", "update", sites.base / "1.json", "--remove", "c", "--key", sites.key
    ended = command(*remove, "--back-to-round", BACK_TO, "-o", sites.base / "2.json")
    assert ended.code == 0, ended.err
    sites.lists.append(load(sites.base / "2.json", sites.lists[0].admins))
    for id in HONEST:
        shutil.copy(sites.base / "2.json", sites.base / id / "membership.json")
    assert {id: end.state_sha256 for id, end in sites.run(HONEST).items()} == without
    assert [logged(sites.base / id, "went-back")[0]["round"] for id in HONEST] == [BACK_TO] * 7
    assert sites.audit().findings == []
