"""Lists that change while a network of real processes runs; all is done with the commands of docs/peers.md."""

import tomllib
from contextlib import contextmanager

import pytest
import tomli_w

from facade.peers.after.outcome import Outcome
from facade.peers.local_network import Processes, founded
from facade.peers.protocol.headers import Kind, Request, Status
from facade.peers.protocol.rpc import Credentials, Link
from facade.peers.protocol.transport import UnreachableError
from facade.peers.trust import identity
from facade.peers.trust.founding import schema_of
from facade.peers.trust.membership import load
from facade.peers.trust.site import Site, set_up
from peers.makers import QUICK, audited, leaves_on_sigterm, logged, pauses, tiny, until


class Network:
    """Sites that bring their own data, under a list that the admin made with the commands."""

    def __init__(self, command, base, homes):
        self._call, self.base, self.homes = command, base, {home.name: home for home in homes}
        self.processes = Processes([])
        self.round = dict.fromkeys(self.homes, 0)
        self.failed = {}

    def command(self, *arguments):
        ended = self._call(*arguments)
        assert ended.code == 0, ended.err

    def build(self, ids, rounds):
        given = tiny("data.source=given", f'data.clusters="{len(ids)}"', "data.skew=none", "topology.degree=2",
                     f"training.rounds={rounds}", f"evaluation.every={rounds}", "algorithm.name=el")  # fmt: skip
        (self.base / "trial.toml").write_text(given.toml())
        (self.base / "schema.json").write_text(schema_of(tiny()).model_dump_json())
        joins = [self.homes[id] / f"{id}.join" for id in ids]
        self.command(
            "network", "build", *joins, "--experiment", self.base / "trial.toml", "--schema", self.base / "schema.json",
            "--key", self.base / "admin.key", "-o", self.base / "1.json", "--policy", "patient",
            "--limit", f"deadline={QUICK.deadline}", "--limit", f"linger={QUICK.linger}",
        )  # fmt: skip
        self.replace(1, ids)

    def update(self, epoch, *change, from_round):
        made = self.base / f"{epoch}.json"
        self.command("network", "update", self.base / f"{epoch - 1}.json", *change, "--from-round", from_round,
                     "--key", self.base / "admin.key", "-o", made)  # fmt: skip

    def replace(self, epoch, ids):
        for id in ids:
            (self.homes[id] / "membership.json").write_text((self.base / f"{epoch}.json").read_text())

    def listed(self, epoch):
        return load(self.base / f"{epoch}.json", Site.load(self.homes["n0"]).settings.admins)

    def log(self, id, event):
        return logged(self.homes[id], event)

    def until_round(self, id, round):
        """Follow the sites until one of them has done so many rounds."""
        for home, event in self.processes.events():
            self.failed |= {home.name: event["failed"]} if "failed" in event else {}
            self.round[home.name] = max([self.round[home.name], *(row["round"] for row in event.get("rows", []))])
            if self.round[id] >= round:
                return
        assert round is END, f"all sites ended before round {round}: {self.failed}"

    @contextmanager
    def held(self, id, round):
        """While one site pauses in a round, the others wait for it: nobody gets more than a few rounds further."""
        self.until_round("n0", round)
        until((self.homes[id] / f"waits-{round}").exists)
        yield
        (self.homes[id] / f"go-{round}").touch()

    def start(self, id, *body):
        return self.processes.start(self.homes[id], *body)


END = float("inf")


@pytest.fixture
def network(command, tmp_path):
    experiment = tiny('data.clusters="5"', "data.skew=none", "topology.degree=2", "algorithm.name=el")
    with founded(experiment, tmp_path, "patient", QUICK) as made:
        for home in made.homes:
            node = tomllib.loads((home / "node.toml").read_text()) | {"data": {"source": "digits"}}
            (home / "node.toml").write_text(tomli_w.dumps(node))
            (home / "membership.json").unlink()
        together = Network(command, tmp_path, made.homes)
        with together.processes:
            yield together


def graph(network, epoch, id, round):
    """The ids that a site hears in a round, by the list of an epoch."""
    listed = network.listed(epoch)
    setup = set_up(Site.load(network.homes[id]), listed)
    drawn = setup.plan.graph(round)
    senders = range(listed.n) if drawn.everyone else drawn.sender[drawn.receiver == listed.number(id)]
    return {listed.members[i].id for i in senders} - {id}


def test_a_member_comes_and_another_goes_while_the_network_runs(network):
    network.build(["n0", "n1", "n2", "n3"], rounds=36)
    for id in ("n0", "n1", "n2"):
        network.start(id)
    network.start("n3", pauses, (1, 16))
    with network.held("n3", 1):
        network.update(2, "--add", network.homes["n4"] / "n4.join", from_round=12)
        half = (network.base / "2.json").read_text()[:1000]
        (network.homes["n0"] / "membership.json").write_text(half)
        until(lambda: network.log("n0", "list-refused"))
        network.replace(2, network.homes)
        network.start("n4")
        until(lambda: network.log("n4", "waiting"))
    with network.held("n3", 16):
        network.update(3, "--remove", "n1", from_round=30)
        network.replace(3, network.homes)
    network.until_round("n0", END)
    assert list(network.failed) == ["n1"]
    assert "no member from round 30 on" in network.failed["n1"]
    assert network.log("n4", "committed")[0]["round"] == 12
    assert audited(list(network.homes.values()), *(network.base / f"{epoch}.json" for epoch in (1, 2, 3))) == []
    for id in ("n0", "n2", "n3", "n4"):
        heard = {(e["round"], e["peer"]) for e in network.log(id, "heard")}
        for round in range(12 if id == "n4" else 0, 36):
            epoch = 1 + (round >= 12) + (round >= 30)
            assert {peer for r, peer in heard if r == round} == graph(network, epoch, id, round)
        outcome = Outcome.load(network.homes[id] / "run")
        assert outcome.epoch == 3
        assert all(entry["late"] == entry["missed"] == 0 for entry in outcome.ledger.values())


def test_a_site_that_gets_a_list_late_plays_the_round_again_by_it(network):
    ids = ["n0", "n1", "n2"]
    network.build(ids, rounds=16)
    for id in ("n0", "n1"):
        network.start(id)
    network.start("n2", pauses, (1,))
    with network.held("n2", 1):
        network.command("node", "rotate", "--home", network.homes["n1"])
        network.update(2, "--rotate", network.homes["n1"] / "next-n1.join", from_round=12)
        network.replace(2, ["n0", "n1"])
    until(lambda: any(e["round"] == 12 for e in network.log("n2", "committed")))
    network.replace(2, ["n2"])
    network.until_round("n0", END)
    assert not network.failed
    assert [e["round"] for e in network.log("n2", "epoch")] == [12]
    for id in ids:
        assert {(e["round"], e["peer"]) for e in network.log(id, "heard")} == {
            (round, peer) for round in range(17) for peer in ids if peer != id
        }


def answered(network, id, credentials, epoch):
    """Whether n0 answers a call with these credentials."""
    listed = network.listed(epoch)
    request = Request(Kind.PROBE, listed.digest, listed.number(id), listed.first_round)
    link = Link(credentials, listed.members[0], 1 << 20)
    try:
        return link.call(request, 10).status is not Status.REFUSED
    except UnreachableError:
        return False
    finally:
        link.close()


def test_a_certificate_is_changed_while_the_network_runs(network):
    ids = ["n0", "n1", "n2"]
    network.build(ids, rounds=60)
    network.start("n0")
    network.start("n1", leaves_on_sigterm)
    network.start("n2", pauses, (1, 22, 42))
    home = network.homes["n1"]
    old = Credentials((home / identity.TLS_KEY).read_bytes(), (home / identity.CERTIFICATE).read_bytes())
    with network.held("n2", 1):
        network.command("node", "rotate", "--home", home)
        network.update(2, "--rotate", home / "next-n1.join", from_round=20)
        network.replace(2, ids)
        network.command("node", "rotate", "--home", home, "--finish")
        process = network.processes.running[home]
        process.terminate()
        process.join()
        assert process.exitcode == 0
        network.start("n1")
    new = Credentials((home / identity.TLS_KEY).read_bytes(), (home / identity.CERTIFICATE).read_bytes())
    assert new != old
    network.until_round("n1", 8)  # under the first list still, over the new certificate
    with network.held("n2", 22):
        until(lambda: answered(network, "n1", new, 2))
        assert answered(network, "n1", old, 2)
        network.update(3, from_round=40)
        network.replace(3, ids)
    with network.held("n2", 42):
        assert answered(network, "n1", new, 3)
        assert not answered(network, "n1", old, 3)
    network.until_round("n0", END)
    assert network.failed == {"n1": "left in good order; to come back: facade node up"}
    for id in ids:
        outcome = Outcome.load(network.homes[id] / "run")
        assert outcome.epoch == 3
        assert all(entry["late"] == entry["missed"] == 0 for entry in outcome.ledger.values())
