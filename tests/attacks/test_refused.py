"""What is refused before anything is computed, and rules and attacks of one's own."""

import pytest

from facade import ExperimentError
from facade.attacks import ATTACKS
from facade.experiment.setup import planned, set_up
from facade.guards import GUARDS
from facade.peers.trust.site import refuse_foreign_names
from facade.testing.contract import tiny

BAD = "attack.nodes=[1]"


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (("guard.rule=fairr",), "unknown guard 'fairr'; did you mean 'fair'?"),
        (("guard.rule=medain",), "unknown guard 'medain'; did you mean 'median'?"),
        (("attack.kind=sing-flip", BAD), "unknown attack 'sing-flip'; did you mean 'sign-flip'?"),
        (("attack.kind=noise", "attack.nodes=[8]"), "nodes are 0 to 7, and at least one must be honest"),
        (("attack.kind=noise", "attack.nodes=[5, 6, 7]"), "are all nodes of cluster 1"),
        (("attack.kind=alie", BAD, "runtime.shards=2"), "see the messages of all nodes"),
        (("attack.kind=mimic", BAD, "runtime.name=ray"), "use runtime.name = 'local' and runtime.shards = 1"),
        (("attack.kind=false-head", BAD, "algorithm.name=el"), "'false-head' is on heads, but nodes of algorithm 'el'"),
        (("attack.kind=adaptive-head", BAD, "algorithm.heads=1"), "have none to choose from"),
        (("attack.kind=lying-bid", BAD), "which those of algorithm 'facade' do not do here"),
        (("attack.kind=lying-bid", BAD, "algorithm.name=dac"), "which those of algorithm 'dac' do not do here"),
        (("guard.rule=guards.own:Judgeless",), "has no judge(); write it"),
        (("guard.rule=guards.own:Plain",), "is no frozen dataclass; write @dataclass(frozen=True) above its class"),
        (("guard.rule=guards.own:Demanding",), "cannot be made without arguments"),
        (("guard.rule=attacks.own:Contrary",), "is not derived from facade.Guard"),
        (("attack.kind=guards.own:Nothing", BAD), "is not derived from facade.Attack"),
        (("attack.kind=attacks.nowhere:Mine", BAD), "module 'attacks.nowhere' cannot be imported"),
    ],
)
def test_what_could_not_be_played_is_refused_in_a_sentence(settings, sentence):
    with pytest.raises(ExperimentError) as caught:
        set_up(tiny("facade", *settings))
    assert sentence in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (("attack.kind=noise",), "kind = 'noise' and nodes = [] do not go together"),
        (("attack.nodes=[1]",), "kind = 'none' and nodes = [1] do not go together"),
        (("attack.kind=noise", "attack.nodes=[-1]"), "attack.nodes = -1 is not possible"),
    ],
)
def test_what_makes_no_sense_is_refused_when_it_is_read(settings, sentence):
    with pytest.raises(ExperimentError) as caught:
        tiny("facade", *settings)
    assert sentence in str(caught.value)


SURVEYED = ("algorithm.seeding=class-means", "training.rounds=60")


def test_a_fixed_number_of_heads_is_warned_of_where_there_is_a_guard():
    with pytest.warns(UserWarning, match=r"take one of a fixed number of heads \(algorithm.heads = 2\); use heads"):
        planned(tiny("facade", "guard.rule=fair", "algorithm.heads=2", *SURVEYED))
    planned(tiny("facade", "guard.rule=fair", "algorithm.heads=auto", *SURVEYED))
    planned(tiny("facade", "algorithm.heads=2", *SURVEYED))


@pytest.mark.parametrize("named", ["guard.rule=guards.own:Nothing", "attack.kind=attacks.own:Contrary"])
def test_a_real_site_runs_no_rule_or_attack_that_it_has_not_allowed(named):
    experiment = tiny("facade", named, *([BAD] if "attack" in named else [])).model_dump()
    with pytest.raises(ExperimentError, match="code that this site has not allowed"):
        refuse_foreign_names(experiment, [])
    refuse_foreign_names(experiment, [named.partition("=")[2]])


def test_who_trains_alone_has_no_guard_and_no_attackers_but_names_are_checked():
    alone = planned(tiny("local", "guard.rule=fair", "attack.kind=noise", BAD))[0]
    assert type(alone).__name__ == "Local"
    with pytest.raises(ExperimentError, match="unknown guard"):
        planned(tiny("local", "guard.rule=fare"))


def test_an_experiment_without_guard_and_attack_is_the_one_that_it_was_before_there_were_any():
    plain = tiny("facade")
    assert plain.hash == plain.with_("guard.rule=none", "attack.kind=none", "attack.nodes=[]").hash
    assert plain.hash != plain.with_("guard.rule=fair").hash
    older = {k: v for k, v in plain.model_dump().items() if k not in ("guard", "attack")}
    assert type(plain).of(older) == plain


def test_everything_that_has_a_name_is_listed(command):
    for what, names in (("guards", GUARDS), ("attacks", ATTACKS)):
        listed = command("list", what).out
        assert all(name in listed for name in names)
