"""Small runs whose heads are seeded, and bids as they arrive."""

import torch

from experiments import digits
from facade.core.engine import RoundLoop, play
from facade.core.messages import Inbox
from facade.experiment.setup import set_up
from facade.runtimes.local import among_all


def experiment(clusters="6:2", rounds=40, *settings, **algorithm):
    fields = {"heads": 2, "warmup": 5, "seeding": "farthest"} | algorithm
    return digits(*settings, clusters=clusters, rounds=rounds, steps=5, every=rounds, **fields)


def states(described, upto):
    """States at the start of rounds 0..upto."""
    setup = set_up(described)
    [shard] = setup.shards()
    loop, kept = RoundLoop(play(setup.algorithm, shard, setup.plan, setup.federation)), []
    while True:
        kept.append(loop.post)
        if loop.post.round == upto:
            return setup, kept
        loop.advance(among_all(shard)(loop.post))


def inbox(scores, origins, deliveries):
    nodes = len(scores)
    pool = {
        "head": {"w": torch.arange(nodes).float().unsqueeze(1)},
        "bid": {"score": torch.tensor(scores, dtype=torch.float64), "origin": torch.tensor(origins)},
    }
    return Inbox(pool, torch.arange(nodes), torch.arange(nodes), deliveries)
