"""What sites used, by digest in their logs, and mixed again from the messages that they keep."""

import json
import shutil

import pytest

from facade.errors import ExperimentError
from facade.peers.after.audit import Again, audit
from facade.peers.after.site_log import Log
from facade.peers.local_network import founded
from facade.peers.node.journal import lines
from peers.makers import QUICK, logged, tiny
from peers.memory import opened, run_all
from peers.test_guarded import EL, attack

ROUNDS = 6
GUARDED = (
    'data.clusters="4"', "data.skew=none", "topology.degree=2", "guard.rule=fair", "training.steps=5",
    "training.lr=0.3", f"training.rounds={ROUNDS}", f"evaluation.every={ROUNDS}",
)  # fmt: skip


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    """Sites behind a guard when they have played; one of them sends flipped signs."""
    base = tmp_path_factory.mktemp("played")
    experiment = tiny(*GUARDED, EL[0], *attack("sign-flip"))
    with founded(experiment, base, "patient", QUICK) as sites, opened(sites.homes) as nodes:
        run_all(nodes)
    return base


@pytest.fixture
def base(played, tmp_path):
    shutil.copytree(played, tmp_path / "sites")
    return tmp_path / "sites"


def homes(base):
    return sorted(base.glob("n*"))


def audited(base, again=None):
    logs = [home / "run" / "log.jsonl" for home in homes(base)]
    return audit(logs, [base / "membership.json"], again)


def change(home, event, round, **facts):
    """Have a site's log say something else of an event."""
    path = home / "run" / "log.jsonl"
    events = lines(path)
    (found,) = [line for line in events if line["event"] == event and line.get("round") == round]
    found.update(facts)
    path.write_text("".join(f"{json.dumps(line)}\n" for line in events))


def test_every_exchange_is_in_the_log_by_digest_and_the_last_state_is_the_outcome(base):
    for home in homes(base):
        used = logged(home, "used")
        assert [event["round"] for event in used] == [*range(ROUNDS), ROUNDS]
        outcome = json.loads((home / "run" / "outcome.json").read_text())
        assert used[-1]["state_sha256"] == outcome["state_sha256"]
    assert any(logged(home, "judged") for home in homes(base)), "the guard drops something"
    assert audited(base).findings == []


def test_mixing_again_what_is_kept_gives_the_recorded_states(base, command):
    found = audited(base, Again(homes(base)))
    assert (found.findings, found.notes) == ([], [])
    assert found.replayed == 4 * (ROUNDS + 1), "of a short run all messages are kept, and the first checkpoint"
    logs = [home / "run" / "log.jsonl" for home in homes(base)]
    ended = command(
        "network", "audit", *logs, "--membership", base / "membership.json", "--replay", homes(base)[0],
        *(option for home in homes(base)[1:] for option in ("--messages", home / "run" / "outgoing")),
    )  # fmt: skip
    assert (ended.code, f"{ROUNDS + 1} exchanges mixed again" in ended.out) == (0, True), ended.out


def test_a_log_that_hides_what_the_guard_dropped_contradicts_its_own_digest(base):
    home, event = next((home, found) for home in homes(base) for found in logged(home, "judged"))
    change(home, "judged", event["round"], dropped={})
    said = f"round {event['round']}: {home.name} did not use what its log says was heard and dropped"
    assert audited(base).findings == [said]


def test_a_state_that_mixing_does_not_give_is_found_by_playing_again(base):
    home = homes(base)[0]
    change(home, "used", 4, state_sha256=64 * "a")
    assert audited(base).findings == [], "logs alone do not show it"
    (said,) = audited(base, Again([home], [other / "run" / "outgoing" for other in homes(base)])).findings
    assert said.startswith("round 4: n0 played again: mixing gives the state ")
    assert said.endswith(f"its log has {16 * 'a'}")


def test_other_verdicts_than_the_guard_gives_are_found_by_playing_again(base):
    home, event = next((home, found) for home in homes(base) for found in logged(home, "judged"))
    from facade.peers.node.verdicts import used_sha256

    told = Log.read(home / "run" / "log.jsonl")
    heard = {e.peer: e.sha256 for e in told.heard if e.round == event["round"]}
    change(home, "judged", event["round"], dropped={})
    change(home, "used", event["round"], sha256=used_sha256(heard, {}, False))
    assert audited(base).findings == [], "the log agrees with itself"
    said = audited(base, Again([home], [other / "run" / "outgoing" for other in homes(base)])).findings
    assert said == [
        f"round {event['round']}: {home.name} played again: its guard lets other things through than its log says"
    ]


def test_what_is_not_kept_any_more_is_a_note_and_later_checkpoints_are_played(base):
    home = homes(base)[0]
    heard = logged(home, "heard")[0]
    (base / heard["peer"] / "run" / "outgoing" / f"{heard['round']:09d}.saved").unlink()
    found = audited(base, Again(homes(base)))
    assert found.findings == []
    assert f"n0: not played again from rounds 0 on, for messages of {heard['peer']} are not kept" in found.notes
    assert 3 <= found.replayed < 4 * (ROUNDS + 1)


def test_a_message_or_data_of_ones_own_that_have_changed_are_found(base):
    home = homes(base)[0]
    text = (home / "membership.json").read_text()
    change(home, "committed", 5, sha256=64 * "b")
    said = audited(base, Again([home], [other / "run" / "outgoing" for other in homes(base)])).findings
    assert any("n0 played again: its message comes out as" in sentence for sentence in said)
    assert (home / "membership.json").read_text() == text


def test_only_sites_whose_logs_are_given_are_played_again(base):
    some = [home / "run" / "log.jsonl" for home in homes(base)[1:]]
    with pytest.raises(ExperimentError, match="is the directory of 'n0', whose log is not among those given"):
        audit(some, [base / "membership.json"], Again(homes(base)[:1]))
    with pytest.raises(ExperimentError, match="nowhere is no directory; give a site's run/outgoing"):
        audited(base, Again([], [base / "nowhere"]))
