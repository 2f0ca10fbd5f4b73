"""Who must have signed a list, how long it is good, and which data it may choose for a site."""

import datetime
import json
import tomllib

import pytest
import tomli_w

from facade.errors import ExperimentError
from facade.peers.node.followed_lists import FollowedLists
from facade.peers.node.journal import Journal, lines
from facade.peers.trust import expiry, identity
from facade.peers.trust.founding import NewSite, found_site
from facade.peers.trust.membership import Change, Limits, Membership, changed, load, verified
from facade.peers.trust.site import Settings, Site, check_playable, set_up
from peers.makers import federation, logged
from peers.memory import opened, run_all

BUILT = 'data = {source = "digits", clusters = "2:1"}\nalgorithm = {heads = "auto"}\ntopology = {degree = 2}\n'


@pytest.fixture
def journal(tmp_path):
    made = Journal(tmp_path / "log.jsonl")
    yield made
    made.close()


class SeveralAdmins:
    """Three sites, two of whose three admins must sign."""

    def __init__(self, base, command):
        self.command = command
        self.keys = [base / f"{name}.key" for name in ("first", "second", "third")]
        self.admins = [identity.new_signing_key(key) for key in self.keys]
        given = [option for admin in self.admins for option in ("--admin", admin)]
        for number, id in enumerate("abc"):
            founded = ("node", "init", "--id", id, "--address", f"127.0.0.1:{7000 + number}", "--home", base / id)
            assert command(*founded, *given, "--required", 2).code == 0
        self.joins = [base / id / f"{id}.join" for id in "abc"]
        (base / "exp.toml").write_text(BUILT)
        self.file = base / "a" / "membership.json"
        self.built = self.build("--admin", self.admins[1], "--admin", self.admins[2], "--required", 2)

    def build(self, *options):
        made = ("network", "build", *self.joins, "--experiment", self.joins[0].parents[1] / "exp.toml")
        return self.command(*made, "--key", self.keys[0], "-o", self.file, *options)


@pytest.fixture
def several(tmp_path, command):
    return SeveralAdmins(tmp_path, command)


def test_a_list_counts_when_as_many_admins_have_signed_as_the_site_asks_for(several, command):
    assert (several.built.code, "1 of 2 admins have signed it" in several.built.out) == (0, True)
    site = Site.load(several.file.parent)
    with pytest.raises(ExperimentError, match=r"signed by 1 of the admins .* and 2 must have signed; .*network sign"):
        site.membership()
    again = command("network", "sign", several.file, "--key", several.keys[0])
    assert "1 of 2 admins have signed it" in again.out, "one admin counts once"
    with pytest.raises(ExperimentError, match="and 2 must have signed"):
        site.membership()
    signed = command("network", "sign", several.file, "--key", several.keys[2])
    assert (signed.code, "members a, b, c" in signed.out, "Every site puts it beside" in signed.out) == (0, True, True)
    assert site.membership().required == 2


def test_only_signatures_of_different_pinned_admins_under_this_very_list_count(several, command, tmp_path):
    written = json.loads(several.file.read_text())
    assert command("network", "sign", several.file, "--key", several.keys[1]).code == 0
    both = json.loads(several.file.read_text())
    settings = Settings.load(several.file.parent)

    def check(content, pinned=settings.admins, needed=2):
        return verified(json.dumps(content).encode(), several.file, pinned, needed)

    assert check(both).n == 3
    other = {**both, "membership": {**both["membership"], "federation": "another"}}
    with pytest.raises(ExperimentError, match="not signed"):
        check(other)
    with pytest.raises(ExperimentError, match="signed by 1 of"):
        check({**written, "signatures": written["signatures"] * 2})
    with pytest.raises(ExperimentError, match="signed by 1 of"):
        check(both, pinned=settings.admins[:1])
    with pytest.raises(ExperimentError, match="signed by 1 of"):
        check(both, pinned=settings.admins[:1], needed=1)  # the list itself asks for two
    stranger = identity.new_signing_key(tmp_path / "stranger.key")
    assert stranger not in settings.admins
    refused = command("network", "sign", several.file, "--key", tmp_path / "stranger.key")
    assert (refused.code, "is not the key of an admin of this federation" in refused.err) == (2, True)


def test_that_fewer_must_sign_is_signed_by_as_many_as_before(several, command, journal):
    assert command("network", "sign", several.file, "--key", several.keys[1]).code == 0
    node = several.file.parent / "node.toml"
    node.write_text(node.read_text().replace("required = 2", "required = 1"))
    lists = FollowedLists(Site.load(several.file.parent), journal)
    alone = ("network", "update", several.file, "--key", several.keys[0], "--from-round", 5, "--required", 1)
    assert command(*alone, "-o", several.file).code == 0
    lists.look()
    assert "and 2 must have signed" in lines(several.file.parents[1] / "log.jsonl")[-1]["says"]
    assert command("network", "sign", several.file, "--key", several.keys[2]).code == 0
    lists.look()
    assert [membership.required for membership in lists.epochs.known] == [2, 1]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--required", 2), "required = 2 of 1 different admins is not possible"),
        (("--admin", "5f"), "admins = '5f' is not possible; expected a public key"),
        (("--expires", "soon"), "expires = 'soon' is not possible; expected a date"),
        (("--expires", "2027-02-30"), "expires = '2027-02-30' is no date"),
        (("--limit", "deadline=1e300"), "limits.deadline = 1e+300 is not possible in a list"),
        (("--limit", "window=1000000000"), "limits.window = 1e+09 is not possible in a list"),
    ],
)
def test_terms_that_no_site_would_take_are_not_signed(several, options, says):
    several.file.unlink()
    ended = several.build(*options)
    assert (ended.code, says in " ".join(ended.err.split())) == (2, True), ended.err
    assert not several.file.exists()


def test_a_site_cannot_ask_for_more_signatures_than_it_knows_admins(tmp_path):
    with pytest.raises(ExperimentError, match="2 admins must sign, but 1 are named"):
        found_site(tmp_path / "a", NewSite("a", "h:1", ["5f" * 32], {"required": 2}))
    assert not (tmp_path / "a").exists()
    found_site(tmp_path / "a", NewSite("a", "h:1", ["5f" * 32]))
    node = tmp_path / "a" / "node.toml"
    node.write_text("required = 2\n" + node.read_text())
    with pytest.raises(ExperimentError, match="required = 2 is more than the 1 admins"):
        Settings.load(tmp_path / "a")


@pytest.mark.parametrize("line", ["threads = true", 'metrics_port = "9100"', "[ceilings]\nrounds = 100.0"])
def test_a_value_of_the_wrong_type_in_node_toml_is_refused(line, tmp_path):
    found_site(tmp_path / "a", NewSite("a", "h:1", ["5f" * 32]))
    settings = tmp_path / "a" / "node.toml"
    written = tomllib.loads(settings.read_text()) | tomllib.loads(line)
    settings.write_text(tomli_w.dumps(written))
    with pytest.raises(ExperimentError, match=r"node\.toml: (threads|metrics_port|ceilings\.rounds): Input should be"):
        Settings.load(tmp_path / "a")


def test_lists_that_say_neither_keep_the_digest_that_they_had(tmp_path):
    made = federation(tmp_path)
    written = json.loads((made.home("a") / "membership.json").read_text())["membership"]
    assert not written.keys() & {"required", "expires"}
    assert Membership.model_validate(written | {"required": 1, "expires": ""}).digest == made.membership.digest
    assert Membership.model_validate(written | {"expires": "2999-01-01"}).digest != made.membership.digest


YESTERDAY = (datetime.datetime.now(datetime.UTC).date() - datetime.timedelta(days=1)).isoformat()


def test_a_site_does_not_start_with_a_list_that_has_expired(tmp_path, journal, command):
    made = federation(tmp_path, expires=YESTERDAY)
    with pytest.raises(ExperimentError, match=rf"epoch 1 expired after {YESTERDAY}, .*network update --expires"):
        FollowedLists(Site.load(made.home("a")), journal)
    assert not list((made.home("a") / "run" / "epochs").iterdir())
    doctor = command("node", "doctor", "--home", made.home("a"))
    assert (doctor.code, f"the list expired after {YESTERDAY}" in doctor.out) == (1, True)
    ended = command("node", "up", "--home", made.home("a"))
    assert (ended.code, "Traceback" in ended.err, "expired after" in ended.err) == (2, False, True)


def test_a_list_is_good_on_its_last_day_and_not_on_the_next(tmp_path, journal, monkeypatch):
    made = federation(tmp_path, expires="2031-05-07")
    monkeypatch.setattr(expiry, "today", lambda: datetime.date(2031, 5, 7))
    lists = FollowedLists(Site.load(made.home("a")), journal)
    made.membership.refuse_expired()
    monkeypatch.setattr(expiry, "today", lambda: datetime.date(2031, 5, 8))
    with pytest.raises(ExperimentError, match="expired after 2031-05-07, and it is 2031-05-08"):
        lists.refuse_expired(0)
    assert [event["event"] for event in lines(tmp_path / "log.jsonl")] == ["expired"]


def test_running_sites_stop_before_the_next_round_and_go_on_under_the_next_list(tmp_path, monkeypatch, own_digits):
    quick = Limits(deadline=90, floor=0.5, grace=0.2, linger=1)
    rounds = ("training.rounds=6", "training.steps=1", "evaluation.every=6")
    made = federation(tmp_path, expires="2031-05-07", experiment=rounds, limits=quick)
    homes = [made.home(id) for id in "abc"]
    own_digits(homes)

    def in_round_two():
        return any(event["round"] == 2 for home in homes for event in logged(home, "committed"))

    monkeypatch.setattr(expiry, "today", lambda: datetime.date(2031, 5, 8 if in_round_two() else 7))
    with opened(homes) as nodes:
        ends = run_all(nodes)
    assert all("expired after 2031-05-07, and it is 2031-05-08" in str(end) for end in ends.values()), ends
    assert all(len(logged(home, "expired")) == 1 for home in homes)
    assert max(event["round"] for home in homes for event in logged(home, "committed")) <= 3
    following = changed(made.membership, Change(expires="2031-06-30"), 1).sign([made.admin])
    for home in homes:
        (home / "membership.json").write_text(following)
    with opened(homes) as nodes:
        outcomes = run_all(nodes)
    assert {outcome.epoch for outcome in outcomes.values()} == {2}, outcomes
    monkeypatch.setattr(expiry, "today", lambda: datetime.date(2031, 7, 1))
    with opened(homes) as nodes:
        again = run_all(nodes)
    assert {outcome.epoch for outcome in again.values()} == {2}, "a run that is over needs no list to go on by"


@pytest.fixture
def own_digits():
    """A function that gives sites of two classes of 8x8 pixels data that open no file."""

    def give(homes):
        for home in homes:
            with (home / "node.toml").open("a") as file:
                file.write('\n[data]\nsource = "peers.makers:two_digits"\n')

    return give


def unsaid(made, home, **data):
    """A site whose node.toml has no [data], and a list that names a source."""
    experiment = made.membership.experiment
    changes = {"experiment": experiment | {"data": experiment["data"] | data}}
    return Site.load(home), made.membership.model_copy(update=changes)


@pytest.mark.parametrize("source", ["npz", "folder", "cifar10", "imagenette", "flickr-mammals"])
def test_without_data_of_its_own_a_site_lets_no_list_choose_what_is_read(source, tmp_path):
    made = federation(tmp_path)
    for refuses in (check_playable, set_up):
        with pytest.raises(ExperimentError, match=rf"data.source = '{source}', which reads from this site's disk, and"):
            refuses(*unsaid(made, made.home("a"), source=source))
    node = made.home("a") / "node.toml"
    node.write_text(node.read_text() + '\n[data]\nsource = "experiment"\n')
    with pytest.raises(ExperimentError, match=r"add \[data\] with this site's own source, root and path"):
        check_playable(*unsaid(made, made.home("a"), source=source))
    node.write_text(node.read_text() + f'root = "{tmp_path}"\n')
    check_playable(*unsaid(made, made.home("a"), source=source))


def test_a_list_names_no_place_and_a_file_of_edges_is_in_it_as_data(tmp_path, command):
    made = federation(tmp_path)
    (tmp_path / "edges.txt").write_text("0 1\n1 2\n")
    edges = f'topology = {{name = "file", file = "{tmp_path / "edges.txt"}"}}\n'
    data = f'data = {{source = "digits", clusters = "2:1", root = "{tmp_path}", path = "ward.npz"}}\n'
    (tmp_path / "exp.toml").write_text(data + edges + 'algorithm = {heads = "auto"}\n')
    joins = [made.home(id) / f"{id}.join" for id in "abc"]
    built = ("network", "build", *joins, "--experiment", tmp_path / "exp.toml", "--key", made.admin)
    ended = command(*built, "-o", tmp_path / "list.json")
    assert ended.code == 0, ended.err
    assert str(tmp_path) not in (tmp_path / "list.json").read_text()
    experiment = load(tmp_path / "list.json", made.membership.admins).experiment
    assert (experiment["topology"]["name"], experiment["topology"]["edges"]) == ("edges", "0-1 1-2")
    assert (experiment["data"]["root"], experiment["data"]["path"]) == ("data", "")
