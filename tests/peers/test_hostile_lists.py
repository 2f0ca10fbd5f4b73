"""Lists that an admin signed to do harm: refused in a sentence, with nothing opened and nothing large made."""

import dataclasses
import json
import os
import re
import resource
import sys
import threading
import tomllib
import tracemalloc
from pathlib import Path
from typing import get_args, get_origin, get_type_hints

import pytest

from facade.algorithms import ALGORITHMS
from facade.core.local_parts import published
from facade.core.tree import row_bytes
from facade.errors import ExperimentError
from facade.experiment.sections import SECTIONS
from facade.peers.local_network import founded
from facade.peers.node.followed_lists import FollowedLists
from facade.peers.node.journal import Journal, lines
from facade.peers.node.site_epoch import SiteEpoch
from facade.peers.protocol.wire import MessageForm
from facade.peers.trust import bounds
from facade.peers.trust.ceilings import estimate
from facade.peers.trust.membership import Change, Limits, changed, load
from facade.peers.trust.signatures import signature
from facade.peers.trust.site import Settings, Site, check_playable
from facade.testing.hostile_lists import excessive_lists, hostile_lists
from peers.makers import federation, tiny

MEGABYTES = 1 << 20
_watchers = []


def _audit(event, arguments):
    mine = _watchers and threading.current_thread() is threading.main_thread()
    if mine and event in ("open", "socket.connect", "subprocess.Popen", "os.system"):
        _watchers[-1].append((event, str(arguments[0])))


sys.addaudithook(_audit)  # there is no way to take it away; without watchers it does nothing


@pytest.fixture
def opened():
    """(event, what) of everything that this thread opens, connects to or starts from now on."""
    seen = []
    _watchers.append(seen)
    yield seen
    _watchers.remove(seen)


class Attacked:
    """A site that follows a good list, and an admin who signs anything."""

    def __init__(self, base):
        self.made = federation(base)
        self.site = Site.load(self.made.home("a"))
        self.path = self.site.home / "membership.json"
        self.pipe = self.site.home / "pipe"
        os.mkfifo(self.pipe)
        self.journal = Journal(base / "log.jsonl")
        self.lists = FollowedLists(self.site, self.journal)
        check_playable(self.site, self.made.membership)  # what is imported late is imported now

    def sign(self, content):
        return signature(content, self.made.admin, self.made.membership.admins)

    def later(self):
        """The good list of the next epoch."""
        return json.loads(changed(self.made.membership, Change(), 4).sign([self.made.admin]))["membership"]

    def hostile(self):
        return list(hostile_lists(self.later(), self.sign, [str(self.pipe)]))

    def excessive(self):
        return list(excessive_lists(self.later(), self.sign))


@pytest.fixture
def attacked(tmp_path):
    made = Attacked(tmp_path)
    yield made
    made.journal.close()


def is_one_sentence(says):
    return says.isprintable() and len(says) < 1_500 and "Traceback" not in says


def test_hostile_lists_for_a_later_round_are_refused_and_open_nothing(attacked, opened, tmp_path):
    hostile = attacked.hostile()
    assert len(hostile) >= 200
    attacked.lists.look()
    before, peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, 0
    tracemalloc.start()
    try:
        for number, (wrong, content) in enumerate(hostile):
            attacked.path.write_bytes(content)
            os.utime(attacked.path, ns=(number, number))
            opened.clear()
            tracemalloc.reset_peak()
            held = tracemalloc.get_traced_memory()[0]
            attacked.lists.look()
            peak = max(peak, tracemalloc.get_traced_memory()[1] - held)
            outside = [what for _, what in opened if not what.startswith(str(attacked.site.home / "membership.json"))]
            assert outside == [], wrong
            assert [membership.epoch for membership in attacked.lists.epochs.known] == [1], wrong
    finally:
        tracemalloc.stop()
    assert peak < 32 * MEGABYTES
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 128 * 1024
    says = [event["says"] for event in lines(tmp_path / "log.jsonl") if event["event"] == "list-refused"]
    assert len(says) > 150, "each new complaint is said once"
    assert [sentence for sentence in says if not is_one_sentence(sentence)] == []
    assert [sentence for sentence in says if "not signed" in sentence] == [], "it is not for want of a signature"


def test_hostile_lists_are_refused_also_as_the_first_list(attacked):
    for wrong, content in attacked.hostile():
        attacked.path.write_bytes(content)
        with pytest.raises(ExperimentError) as refused:
            check_playable(attacked.site, load(attacked.path, attacked.site.settings.admins))
        assert is_one_sentence(str(refused.value)), wrong


@pytest.mark.parametrize("name", ["pipe", "/dev/zero"])
def test_a_list_that_is_no_file_is_not_read(name, attacked, command):
    attacked.path.unlink()
    attacked.path.symlink_to(attacked.site.home / name)
    for verb in ("doctor", "up"):
        ended = command("node", verb, "--home", attacked.site.home)
        assert ended.code in (1, 2)
        assert "membership.json is not a file" in " ".join((ended.out + ended.err).split())


def test_the_command_refuses_a_hostile_first_list_in_a_sentence(attacked, command):
    hostile = dict(attacked.hostile())
    for wrong in (f"edges from {attacked.pipe}", "edges from /dev/zero", "the id 'zz/../../x'", "deep lists"):
        home = attacked.made.home("b")
        (home / "membership.json").write_bytes(hostile[wrong])
        for verb in ("doctor", "up"):
            ended = command("node", verb, "--home", home)
            said = " ".join((ended.out + ended.err).split())
            assert ended.code in (1, 2)
            assert ("is not a membership list" in said, "Traceback" in said) == (True, False), wrong


def test_the_good_list_that_hostile_ones_are_made_of_is_taken(attacked):
    attacked.path.write_text(json.dumps({"membership": attacked.later(), "signatures": [attacked.sign(b"")]}))
    attacked.lists.look()
    assert len(attacked.lists.epochs.known) == 1, "signed for something else"
    attacked.path.write_text(changed(attacked.made.membership, Change(), 4).sign([attacked.made.admin]))
    attacked.lists.look()
    assert [membership.epoch for membership in attacked.lists.epochs.known] == [1, 2]


def test_a_list_above_a_ceiling_is_refused_with_what_to_do(attacked, opened, tmp_path):
    excessive = attacked.excessive()
    assert {ceiling for ceiling, _ in excessive} == set(Settings.model_fields["ceilings"].default.model_dump())
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for number, (ceiling, (_, content)) in enumerate(excessive):
        attacked.path.write_bytes(content)
        os.utime(attacked.path, ns=(number, number))
        opened.clear()
        attacked.lists.look()
        assert [what for _, what in opened if what != str(attacked.path)] == [], ceiling
        says = lines(tmp_path / "log.jsonl")[-1]["says"]
        assert is_one_sentence(says)
        assert f"above this site's ceiling {ceiling} = " in says, says
        assert "ask the federation's admin for less, or raise it in node.toml, [ceilings]" in says
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 128 * 1024
    assert len(attacked.lists.epochs.known) == 1


def test_a_ceiling_says_the_list_s_value_and_can_be_raised(attacked):
    node = attacked.site.home / "node.toml"
    ceiling, (_, content) = attacked.excessive()[0]
    attacked.path.write_bytes(content)
    listed = load(attacked.path, attacked.site.settings.admins)
    assert ceiling == "rounds"
    with pytest.raises(ExperimentError, match=r"training.rounds is 10,001 .*ceiling rounds = 10,000"):
        check_playable(attacked.site, listed)
    node.write_text(node.read_text() + "\n[ceilings]\nrounds = 20000\n")
    check_playable(Site.load(attacked.site.home), listed)
    node.write_text(node.read_text().replace("rounds = 20000", "round = 20000"))
    with pytest.raises(ExperimentError, match=r"node.toml: unknown key 'ceilings.round'"):
        Site.load(attacked.site.home)


@pytest.mark.parametrize("training", [("optimiser=sgd",), ("optimiser=adam",), ("momentum=0.9",)])
@pytest.mark.parametrize("algorithm", [("heads=3",), ("heads=auto", "seeding=class-means"), ("split=all",)])
def test_what_a_run_takes_is_estimated_without_making_it(algorithm, training, tmp_path):
    settings = [f"algorithm.{setting}" for setting in algorithm] + [f"training.{setting}" for setting in training]
    experiment = tiny('data.clusters="2:1"', "topology.degree=2", "model.name=cnn", "training.rounds=40", *settings)
    with founded(experiment, tmp_path, "patient", Limits()) as made:
        site = Site.load(made.homes[0])
    epoch = SiteEpoch.of(site, site.membership())
    needs = estimate(epoch.membership, epoch.setup.experiment)
    state = epoch.setup.algorithm.init(epoch.shard)
    turn = epoch.plan.turn(epoch.shard, 0)
    message = MessageForm(published(epoch.setup.algorithm, turn, state)).size
    assert needs.message <= message <= 1.2 * needs.message + 4_096  # what is no weight, and the header
    assert 4 * row_bytes(state) <= needs.disk
    assert 4 * row_bytes(state) <= needs.memory


def test_a_new_node_toml_shows_the_ceilings_that_hold(attacked):
    shown = (attacked.site.home / "node.toml").read_text().partition("# [ceilings]")[2].replace("# ", "")
    assert tomllib.loads(shown) == attacked.site.settings.ceilings.model_dump()


def numbers(fields):
    """Names of fields that hold a number, or several; of (name, type) pairs."""
    return {name for name, kind in fields if _kinds(kind) & {int, float}}


def _kinds(kind):
    if get_origin(kind) is not None:
        return set().union(*(_kinds(inner) for inner in get_args(kind)))
    return {type(kind)} if isinstance(kind, int) and not isinstance(kind, bool) else {kind} if kind else set()


def test_every_number_of_a_list_and_of_an_experiment_has_a_largest_value():
    said = {f"limits.{name}" for name in numbers((k, f.annotation) for k, f in Limits.model_fields.items())}
    for section, model in SECTIONS.items():
        fields = numbers((name, field.annotation) for name, field in model.model_fields.items())
        said |= {f"experiment.{section}.{name}" for name in fields}
    for row in ALGORITHMS.values():
        hints = get_type_hints(row.algorithm, include_extras=False)
        own = numbers((field.name, hints[field.name]) for field in dataclasses.fields(row.algorithm))
        said |= {f"experiment.algorithm.{name}" for name in own}
    assert said - bounds.LARGEST.keys() == set()


def test_the_page_on_peers_says_the_largest_values_and_the_ceilings():
    page = (Path(__file__).parents[2] / "docs" / "peers.md").read_text()
    rows = re.findall(r"^\| (`.+`.*?) \| ([0-9,]+) \|", page, re.MULTILINE)
    said = {name: int(value.replace(",", "")) for names, value in rows for name in re.findall(r"`([^`]+)`", names)}
    assert {name: said.get(name) for name in bounds.LARGEST} == bounds.LARGEST
    ceilings = Settings.model_fields["ceilings"].default.model_dump()
    assert {name: said.get(name) for name in ceilings} == ceilings
