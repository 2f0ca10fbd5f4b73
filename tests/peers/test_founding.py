"""Founding and changing a federation: what is written, and what is refused in a sentence."""

import json
import os

import pytest

from facade.errors import ExperimentError, StorageError
from facade.peers.trust import identity
from facade.peers.trust.founding import NewSite, Terms, found_federation, found_site
from facade.peers.trust.identity import Join
from facade.peers.trust.membership import Change, changed, load
from peers.makers import SCHEMA, federation, tiny

ADMIN = "5f" * 32


def given(n):
    return tiny("data.source=given", f'data.clusters="{n}"', "topology.degree=2", "data.skew=none")


def test_a_directory_that_is_not_there_is_named(command, tmp_path):
    ended = command("network", "admin", "-o", tmp_path / "absent" / "admin.key")
    assert (ended.code, "admin.key could not be written: No such file" in ended.err.replace("\n", " ")) == (1, True)


def test_a_directory_that_cannot_be_made_is_named(command, tmp_path):
    (tmp_path / "file").write_text("")
    home = tmp_path / "file" / "site"
    ended = command("node", "init", "--id", "a", "--address", "h:1", "--admin", ADMIN, "--home", home)
    assert (ended.code, "could not be written: Not a directory" in ended.err.replace("\n", " ")) == (1, True)


def test_a_key_is_never_written_over(tmp_path):
    path = tmp_path / "admin.key"
    identity.private(path, b"first")
    with pytest.raises(ExperimentError, match=r"admin.key exists already; keys are never written over"):
        identity.private(path, b"second")
    assert path.read_bytes() == b"first"


def test_keys_are_on_the_disk_before_the_join_file_is_there(tmp_path, monkeypatch):
    home, synced = tmp_path / "a", []
    sync = os.fsync

    def watched(handle):
        name = os.path.basename(os.readlink(f"/proc/self/fd/{handle}"))
        synced.append((name, (home / "a.join").exists()))
        sync(handle)

    monkeypatch.setattr(os, "fsync", watched)
    found_site(home, NewSite("a", "h:1", [ADMIN]))
    for name in (identity.TLS_KEY, identity.SIGNING_KEY, "node.toml"):
        assert (name, False) in synced
    assert synced[-2][0].startswith(".a.join.")


def test_a_disk_that_is_full_is_said(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StorageError, match=r"tls.key could not be written: No space left on device"):
        found_site(tmp_path / "a", NewSite("a", "h:1", [ADMIN]))


@pytest.mark.parametrize(
    ("new", "says"),
    [
        (NewSite("A!", "h:1", [ADMIN]), "id 'A!' is not possible"),
        (NewSite("a" * 33, "h:1", [ADMIN]), "is not possible; use up to 32 letters"),
        (NewSite("a", "h", [ADMIN]), "address h is not possible"),
        (NewSite("a", ":7700", [ADMIN]), "address :7700 is not possible"),
        (NewSite("a", "h:65536", [ADMIN]), "address h:65536 is not possible"),
        (NewSite("a", "h:port", [ADMIN]), "address h:port is not possible"),
        (NewSite("a", "::1:7700", [ADMIN]), r"address ::1:7700 is not possible; .* or \[2001:db8::7\]:7700"),
        (NewSite("a", "http://h:7700", [ADMIN]), "address http://h:7700 is not possible"),
        (NewSite("a", "[h]:7700", [ADMIN]), r"address \[h\]:7700 is not possible"),
        (NewSite("a", "h:7700", [ADMIN], {"listen": "7700"}), "listen 7700 is not possible"),
        (NewSite("a", "h:1", ["5f3c"]), "the admin's key 5f3c is not a public key"),
        (NewSite("a", "h:1", ["g" * 64]), "is not a public key; expected 64 hexadecimal digits"),
    ],
)
def test_what_a_site_says_of_itself_wrongly_is_named_and_nothing_is_made(new, says, tmp_path):
    with pytest.raises(ExperimentError, match=says):
        found_site(tmp_path / "a", new)
    assert not (tmp_path / "a").exists()


def test_a_site_is_founded_once(tmp_path):
    federation(tmp_path)
    with pytest.raises(ExperimentError, match="is a site already"):
        found_site(tmp_path / "a", NewSite("a", "h:1", [ADMIN]))


def test_a_federation_needs_two_sites_with_ids_of_their_own(tmp_path):
    made = federation(tmp_path)
    terms = Terms("test", [ADMIN], schema=SCHEMA)
    with pytest.raises(ExperimentError, match="needs at least 2 sites, 1 given"):
        found_federation([made.join("a")], given(1), terms)
    with pytest.raises(ExperimentError, match=r"two .join files have the same id: b"):
        found_federation([made.join(id) for id in "abb"], given(3), terms)


def test_only_an_admin_of_the_federation_signs(tmp_path):
    made = federation(tmp_path)
    identity.new_signing_key(tmp_path / "other.key")
    with pytest.raises(ExperimentError, match=r"other.key is not the key of an admin of this federation"):
        made.membership.sign([tmp_path / "other.key"])


def test_a_change_must_make_sense(tmp_path):
    made = federation(tmp_path)
    second = changed(made.membership, Change(), 7)
    with pytest.raises(ExperimentError, match="'b' is a member already; use `rotate`"):
        changed(made.membership, Change(add=[made.join("b")]), 7)
    with pytest.raises(ExperimentError, match="'b' is named twice; a site can be added, removed or rotated, and once"):
        changed(made.membership, Change(remove=["b"], rotate=[made.join("b")]), 7)
    with pytest.raises(ExperimentError, match="such a list is not possible: the two certificates of 'b' have the same"):
        changed(made.membership, Change(rotate=[made.join("b")]), 7)
    (tmp_path / "two").mkdir()
    with pytest.raises(
        ExperimentError, match="such a list is not possible: members: List should have at least 2 items"
    ):
        changed(federation(tmp_path / "two", "ab").membership, Change(remove=["b"]), 7)
    for round in (6, 7):
        with pytest.raises(ExperimentError, match=f"round {round}, the first of the new list, is not after round 7"):
            changed(second, Change(), round)


def test_an_update_without_a_change_is_refused(command, tmp_path):
    made = federation(tmp_path)
    listed = made.home("a") / "membership.json"
    ended = command("network", "update", listed, "--key", made.admin, "--from-round", 5, "-o", tmp_path / "next.json")
    assert (ended.code, "nothing to change; give --add" in ended.err.replace("\n", " ")) == (2, True)
    assert not (tmp_path / "next.json").exists()


def test_a_list_that_would_begin_after_the_end_is_refused(command, tmp_path):
    made = federation(tmp_path, "abcd")
    listed = made.home("a") / "membership.json"
    change = ["--remove", "c", "--key", made.admin, "-o", tmp_path / "next.json", "--from-round"]
    ended = command("network", "update", listed, *change, 6)
    assert (
        ended.code,
        "round 6, the first of this list, would never come: the run ends with round 5" in ended.err,
    ) == (2, True)
    assert not (tmp_path / "next.json").exists()
    assert command("network", "update", listed, *change, 5).code == 0


BUILT = 'data = {source = "digits", clusters = "2:1"}\nalgorithm.heads = "auto"\ntopology = {degree = 2}\n'


@pytest.mark.parametrize(
    ("more", "rule", "said"),
    [
        ("", "fair", True),
        ('guard = {rule = "none"}\n', "none", False),
        ('guard = {rule = "clip"}\n', "clip", False),
        ('override = {facade = {guard = {rule = "balance"}}}\n', "balance", False),
        ('override = {el = {guard = {rule = "balance"}}}\n', "fair", True),
        ("algorithm.name = 'el'\n", "balance", True),
    ],
)
def test_sites_are_guarded_unless_the_experiment_says_otherwise(command, tmp_path, more, rule, said):
    made = federation(tmp_path)
    (tmp_path / "exp.toml").write_text(BUILT + more)
    joins = [made.home(id) / f"{id}.join" for id in "abc"]
    list_file = tmp_path / "list.json"
    ended = command(
        "network", "build", *joins, "--experiment", tmp_path / "exp.toml", "--key", made.admin, "-o", list_file
    )
    assert (ended.code, f'Guard: "{rule}"' in ended.out) == (0, said), ended.err
    assert load(list_file, made.membership.admins).experiment["guard"]["rule"] == rule


def test_an_attack_is_signed_only_if_the_admin_says_so(command, tmp_path):
    made = federation(tmp_path)
    (tmp_path / "exp.toml").write_text(BUILT + 'attack = {kind = "sign-flip", nodes = [1]}\n')
    joins = [made.home(id) / f"{id}.join" for id in "abc"]
    build = ["network", "build", *joins, "--experiment", tmp_path / "exp.toml", "--key", made.admin]
    ended = command(*build, "-o", tmp_path / "list.json")
    assert (ended.code, "has members attack the others" in " ".join(ended.err.split())) == (2, True)
    assert not (tmp_path / "list.json").exists()
    assert command(*build, "-o", tmp_path / "list.json", "--attack").code == 0


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"std": [0.0]}, "std.0: Input should be greater than 0"),
        ({"mean": [0.5, 0.5]}, "mean has 2 numbers; expected 1 or 3, one per channel"),
        ({"mean": []}, "mean has 0 numbers"),
        ({"shape": [8, 8]}, "shape [8, 8] is not possible; expected [channels, height, width] or [values]"),
        ({"shape": [3, 0, 8]}, "shape.1: Input should be greater than 0"),
        ({"classes": ["ill", "ill"]}, "classes ['ill', 'ill'] are not all different"),
        ({"classes": ["ill"]}, "classes: List should have at least 2 items"),
    ],
)
def test_a_schema_that_no_data_can_have_is_not_signed(command, tmp_path, changes, said):
    made = federation(tmp_path)
    plain = {"classes": ["ill", "well"], "shape": [3, 8, 8], "mean": [0.5], "std": [0.5, 0.5, 0.5]}
    (tmp_path / "schema.json").write_text(json.dumps(plain | changes))
    (tmp_path / "exp.toml").write_text('data = {source = "given", skew = "none"}\ntopology = {degree = 2}\n')
    joins = [made.home(id) / f"{id}.join" for id in "abc"]
    more = ["--schema", tmp_path / "schema.json", "--key", made.admin, "-o", tmp_path / "list.json"]
    ended = command("network", "build", *joins, "--experiment", tmp_path / "exp.toml", *more)
    assert (ended.code, f"--schema: {said}" in " ".join(ended.err.split())) == (2, True), ended.err
    assert not (tmp_path / "list.json").exists()


def test_a_certificate_is_changed_also_where_the_join_file_was_moved_away(command, tmp_path):
    made = federation(tmp_path)
    before = made.join("a")
    (made.home("a") / "a.join").unlink()
    assert command("node", "rotate", "--home", made.home("a")).code == 0
    after = Join.load(made.home("a") / "next-a.join")
    assert (after.id, after.address, after.signing_key) == (before.id, before.address, before.signing_key)
    assert after.certificate != before.certificate


def test_the_status_of_a_site_that_has_not_begun_is_a_sentence(command, tmp_path):
    home = federation(tmp_path).home("a")
    ended = command("node", "status", "--home", home)
    assert (ended.code, "the node has not begun" in ended.err.replace("\n", " ")) == (2, True)
    (home / "run").mkdir()
    facts = {"id": "a", "round": 3, "rounds": 9, "epoch": 1, "policy": "brisk", "ledger": {}, "refusals": {}}
    (home / "run" / "status.json").write_text(json.dumps(facts))
    assert "a: round 3 of 9, epoch 1" in command("node", "status", "--home", home).out
    (home / "run" / "shortage.json").write_text('{"lacks": "space on the disk", "says": "rows.jsonl"}   ')
    assert "pausing: too little of space on the disk (rows.jsonl)" in command("node", "status", "--home", home).out
