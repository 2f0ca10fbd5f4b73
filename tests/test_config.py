import dataclasses
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest

from experiments import written
from facade import Experiment, ExperimentError
from facade.algorithms import ALGORITHMS
from facade.algorithms.el import EL
from facade.experiment.algorithm_table import build_algorithm
from facade.experiment.decisive_settings import ADDED_LATER, decisive_settings

DIGITS = {"data": {"source": "digits", "clusters": "30:2"}}
RESULTS = Path(__file__).parents[1] / "results"


def test_only_source_and_clusters_are_required():
    experiment = Experiment.of(DIGITS)
    assert (experiment.n, experiment.algorithm["name"], experiment.training.rounds) == (32, "facade", 200)


def test_the_resolved_toml_describes_the_same_experiment(tmp_path):
    experiment = Experiment.of(DIGITS | {"override": {"facade": {"training": {"lr": 0.01}}}}, ["seed=7"])
    again = Experiment.load(written(experiment, tmp_path / "again.toml"))
    assert again == experiment
    assert again.hash == experiment.hash
    assert again.training.lr == 0.01
    assert "override" not in tomllib.loads(experiment.toml())


def test_the_name_defaults_to_the_files_stem(tmp_path):
    (tmp_path / "ward-7.toml").write_text('[data]\nsource = "digits"\nclusters = "3:2"\n')
    assert Experiment.load(tmp_path / "ward-7.toml").name == "ward-7"


@pytest.mark.parametrize(
    "setting", ["name=x", "data.root=elsewhere", "evaluation.measure=auc", "runtime.threads=3", "runtime.shards=4"]
)
def test_what_cannot_change_the_result_is_not_hashed(setting):
    assert Experiment.of(DIGITS, [setting]).hash == Experiment.of(DIGITS).hash


@pytest.mark.parametrize(
    "setting",
    ["seed=2", "data.clusters=16:16", "training.lr=0.1", "runtime.executor=looped", "runtime.dtype=float64"],
)
def test_what_changes_the_result_is_hashed(setting):
    assert Experiment.of(DIGITS, [setting]).hash != Experiment.of(DIGITS).hash


@pytest.mark.parametrize(("section", "key"), [(s, key) for s, fields in ADDED_LATER.items() for key in fields])
def test_an_experiment_that_is_older_than_a_field_is_the_one_in_which_the_field_changes_nothing(section, key):
    today = Experiment.of(DIGITS).model_dump()
    older = today | {section: {k: v for k, v in today[section].items() if k != key}}
    assert Experiment.of(older).model_dump()[section][key] == ADDED_LATER[section][key]
    assert Experiment.of(older).hash == Experiment.of(DIGITS).hash
    assert decisive_settings(older) == decisive_settings(today)
    assert f"{section}.{key}" not in decisive_settings(today)


def test_an_older_experiment_averages_running_statistics_which_stay_at_their_nodes_today():
    today = Experiment.of(DIGITS, ["model.name=resnet8"])
    older = today.model_dump() | {"model": {"name": "resnet8", "head": "head"}}
    assert (today.model.local, Experiment.of(older).model.local) == (["running-statistics"], [])
    assert Experiment.of(older).hash == today.with_("model.local=[]").hash != today.hash
    assert Experiment.of(older, ["algorithm.name=el"]).model.local == []
    assert Experiment.of(DIGITS | {"model": {"name": "resnet8", "head": "head"}}).hash == today.hash


def test_kept_runs_mean_what_they_meant():
    kept = [Experiment.load(path) for path in sorted(RESULTS.glob("*/experiment.toml"))]
    assert len(kept) > 50
    assert {(*run.model.local, run.training.loss) for run in kept} == {("plain",)}


def test_a_field_that_was_added_later_counts_once_it_changes_something():
    ring = {"name": "edges", "edges": "0-1 1-2 2-0"}
    three = Experiment.of({"data": {"source": "digits", "clusters": "2:1"}, "topology": ring})
    assert decisive_settings(three.model_dump())["topology.edges"] == ring["edges"]
    assert three.with_("topology.edges=0-1 1-2").hash != three.hash


def test_an_override_applies_to_its_algorithm_alone_and_settings_win():
    written = DIGITS | {"training": {"lr": 0.2}, "override": {"el": {"training": {"lr": 0.05}}}}
    assert Experiment.of(written).training.lr == 0.2
    assert Experiment.of(written, ["algorithm.name=el"]).training.lr == 0.05
    assert Experiment.of(written, ["algorithm.name=el", "training.lr=0.3"]).training.lr == 0.3


def test_an_override_may_be_set_like_anything_else():
    chosen = ["override.el.training.lr=0.05"]
    assert Experiment.of(DIGITS, [*chosen, "algorithm.name=el"]).training.lr == 0.05
    assert Experiment.of(DIGITS, chosen).hash == Experiment.of(DIGITS).hash


@pytest.mark.parametrize("name", ALGORITHMS)
@pytest.mark.parametrize("other", ALGORITHMS)
def test_a_resolved_experiment_with_another_algorithm_is_that_algorithms_own(name, other):
    resolved = Experiment.of(DIGITS, [f"algorithm.name={name}", "training.lr=0.3"])
    assert resolved.with_(f"algorithm.name={other}") == Experiment.of(
        DIGITS, [f"algorithm.name={other}", "training.lr=0.3"]
    )


def test_what_a_file_says_is_kept_though_it_be_another_algorithms_default():
    written = DIGITS | {"algorithm": {"name": "facade", "all_reduce": True}, "topology": {"name": "regular"}}
    assert Experiment.of(written, ["algorithm.name=dac"]).algorithm["all_reduce"]
    assert Experiment.of(written, ["algorithm.name=ifca"]).topology.name == "regular"


def test_a_run_that_is_older_than_a_field_serves_another_algorithm_too():
    older = Experiment.of(DIGITS, ["algorithm.name=ifca"]).model_dump()
    del older["topology"]["edges"]
    assert Experiment.of(older, ["algorithm.name=el"]) == Experiment.of(DIGITS, ["algorithm.name=el"])


def test_a_file_whose_algorithm_has_no_proper_name_is_refused_whatever_is_set():
    with pytest.raises(ExperimentError, match=r"algorithm.name = \[1\] is not a name"):
        Experiment.of(DIGITS | {"algorithm": {"name": [1]}}, ["algorithm.name=el"])


def test_the_preset_stands_whatever_the_file_was_made_for():
    resolved = Experiment.of(DIGITS, ["algorithm.name=ifca"]).model_dump()
    assert Experiment.of(resolved, ["algorithm.name=facade"], "artefact").algorithm["seeding"] == "none"


def test_a_file_of_an_algorithm_that_is_not_here_runs_with_another():
    written = DIGITS | {"algorithm": {"name": "nowhere:Mine"}}
    assert Experiment.of(written, ["algorithm.name=el"]).algorithm["name"] == "el"


def test_what_is_not_a_default_is_handed_on_to_another_algorithm():
    written = DIGITS | {"algorithm": {"name": "facade", "all_reduce": False}, "topology": {"degree": 6}}
    handed = Experiment.of(written).with_("algorithm.name=el")
    assert handed.algorithm == {"name": "el", "all_reduce": False}
    assert handed.topology.degree == 6


@pytest.mark.parametrize("name", ALGORITHMS)
def test_fields_of_other_algorithms_are_dropped(name):
    fields = {"name": name, "heads": 3, "core_steps": 2, "two_hop": False, "warmup": 5}
    resolved = Experiment.of(DIGITS | {"algorithm": fields}).algorithm
    own = {field.name for field in dataclasses.fields(ALGORITHMS[name].algorithm)}
    assert set(resolved) == own | {"name"}
    assert all(resolved[key] == fields[key] for key in own & set(fields))


def test_the_artefact_preset_sets_what_the_artefact_did():
    experiment = Experiment.of(DIGITS, preset="artefact")
    assert experiment.algorithm["scoring"] == "independent"
    assert experiment.algorithm["own_head"] == "always"
    assert (experiment.training.init, experiment.evaluation.head) == ("per-node", "oracle")
    assert experiment.data.partition == "shuffled"
    assert Experiment.of(DIGITS, ["algorithm.name=dac"], "artefact").algorithm["two_hop"] is False


def test_ifca_is_facade_without_a_core_on_the_complete_graph():
    experiment = Experiment.of(DIGITS, ["algorithm.name=ifca"])
    assert experiment.algorithm["split"] == "all"
    assert experiment.topology.name == "complete"


def test_a_list_of_one_head_is_that_head():
    assert Experiment.of(DIGITS, ["model.head=['head']"]).hash == Experiment.of(DIGITS, ["model.head=head"]).hash


BAD = {
    "algorithm.name=facde": "unknown algorithm 'facde'; did you mean 'facade'?",
    "algorithm.heds=2": "unknown key 'algorithm.heds'; did you mean 'algorithm.heads'?",
    "training.lrr=1": "unknown key 'training.lrr'; did you mean 'training.lr'?",
    "trainin.lr=1": "unknown key 'trainin'; did you mean 'training'?",
    "data.clusters=30:x": "clusters = '30:x' makes no sense",
    "data.clusters=30:0": "clusters = '30:0' makes no sense",
    "training.lr=-1": "training.lr = -1 is not possible",
    "training.lr=nan": "training.lr = NaN is not possible",
    "training.lr=inf": "training.lr = inf is not possible",
    "training.rounds=0": "training.rounds = 0 is not possible",
    "network.loss=1.5": "network.loss = 1.5 is not possible",
    "algorithm.heads=0": "heads = 0",
    "algorithm.heads=three": "input should be a valid integer, or input should be 'auto'",
    "algorithm.scoring=none": "algorithm.scoring = 'none' is not possible",
    "seed=-1": "seed = -1 is not possible",
    "nonsense": "expected section.key=value",
    "override.facde.training.lr=1": "unknown key 'override.facde'; did you mean 'override.facade'?",
    "override.el.trainig.lr=1": "did you mean 'override.el.training'?",
    "override.el.training.lrr=1": "did you mean 'override.el.training.lr'?",
    "override.el.training=1": "override.el.training = 1 is not possible: expected a table",
    "override.deprl.algorithm.core_stepz=1": "did you mean 'override.deprl.algorithm.core_steps'?",
    "override.el=1": "override.el = 1 is not possible: expected a table",
    "override=1": "override = 1 is not possible: expected a table",
    "algorithm=el": "algorithm = 'el' is not possible: expected a table, such as algorithm.name = 'el'",
    "algorithm.heads=many": "algorithm.heads = 'many' is not possible",
    "algorithm.name=[1]": "algorithm.name = [1] is not a name",
    "algorithm.nam=el": "unknown key 'algorithm.nam'; did you mean 'algorithm.name'?",
    "data.threads=1": "unknown key 'data.threads'; known: data.",
    "model.head=[]": "model.head = [] is not possible",
    "model.head=[1]": "model.head = [1] is not possible: input should be a valid string",
    "training.batch=true": "training.batch = true is not possible: input should be a valid integer",
    'training.rounds="20"': "training.rounds = '20' is not possible: input should be a valid integer",
    "training.rounds=20.0": "training.rounds = 20.0 is not possible: input should be a valid integer",
    'training.lr="0.1"': "training.lr = '0.1' is not possible: input should be a valid number",
    "training.nesterov=1": "training.nesterov = 1 is not possible: input should be a valid boolean",
    "network.loss=false": "network.loss = false is not possible: input should be a valid number",
    "attack.nodes=[true]": "input should be a valid integer",
    "data.clusters=true": "data.clusters = true is not possible: input should be a valid string",
    "algorithm.heads=true": "algorithm.heads = true is not possible: input should be a valid integer",
    'algorithm.warmup="3"': "algorithm.warmup = '3' is not possible: input should be a valid integer",
    "algorithm.all_reduce=1": "algorithm.all_reduce = 1 is not possible: input should be a valid boolean",
    'name="../../x"': "'../../x' cannot be the name of a directory; expected 1 to 100 characters, none of them / or",
    'name=".."': "'..' cannot be the name of a directory",
    'name=""': "'' cannot be the name of a directory",
    'name="C:\\\\x"': "cannot be the name of a directory",
}


@pytest.mark.parametrize("setting", BAD)
def test_bad_settings_are_refused_with_a_sentence(setting):
    with pytest.raises(ExperimentError) as refused:
        Experiment.of(DIGITS, [setting])
    assert BAD[setting] in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(("setting", "path"), [("training.lr=1", ("training", "lr")), ("seed=3", ("seed",))])
def test_a_whole_number_is_a_number(setting, path):
    value = Experiment.of(DIGITS, [setting]).model_dump()
    for key in path:
        value = value[key]
    assert value == int(setting.partition("=")[2])


@pytest.mark.parametrize("name", ["ward-7", "Station 3 (neu)", "été", "a.b", "x" * 100])
def test_what_a_directory_may_be_called_is_a_name(name):
    assert Experiment.of(DIGITS | {"name": name}).name == name


@dataclass(frozen=True)
class Listed(EL):
    """An algorithm of one's own, with a field that TOML has no type for."""

    layers: tuple[int, ...] = ()


def test_a_list_may_become_a_tuple_in_an_algorithm_of_ones_own():
    experiment = Experiment.of(DIGITS | {"algorithm": {"name": "test_config:Listed", "layers": [1, 2]}})
    assert build_algorithm(experiment.algorithm).layers == (1, 2)


@dataclass(frozen=True)
class Eager(EL):
    """An algorithm of one's own, with a field."""

    haste: float = 0.5


class Forgetful(EL):
    """Its author forgot @dataclass, so nobody could set its field."""

    haste: float = 0.5


def test_a_file_for_an_algorithm_of_ones_own_serves_a_comparison():
    written = DIGITS | {"algorithm": {"name": "test_config:Eager", "haste": 0.7}}
    assert Experiment.of(written).algorithm["haste"] == 0.7
    assert "haste" not in Experiment.of(written, ["algorithm.name=el"]).algorithm
    with pytest.raises(ExperimentError, match=r"unknown key 'algorithm.hast'; did you mean 'algorithm.haste'"):
        Experiment.of(written, ["algorithm.hast=1"])


@dataclass(frozen=True)
class Particular(EL):
    """An algorithm of one's own, with fields of several kinds."""

    most: int | Literal["max"] = 1
    each: int | list[int] = 1


@pytest.mark.parametrize("field", ["most", "each"])
def test_a_wrong_value_of_a_field_of_several_kinds_is_one_mistake(field):
    with pytest.raises(ExperimentError) as refused:
        Experiment.of(DIGITS, ["algorithm.name=test_config:Particular", f"algorithm.{field}=['a']"])
    assert str(refused.value).count("algorithm.") == 1
    assert f"algorithm.{field} = ['a'] is not possible: " in str(refused.value)


def test_fields_of_a_class_that_is_no_dataclass_are_told():
    with pytest.raises(ExperimentError, match=r"fields that nobody could set; write @dataclass\(frozen=True\) above"):
        Experiment.of(DIGITS, ["algorithm.name=test_config:Forgetful"])


@pytest.mark.parametrize("setting", ["algorithm.a=nan", "algorithm.b=-1", "algorithm.b=inf"])
def test_dacs_preference_must_be_a_finite_number(setting):
    with pytest.raises(ExperimentError, match="expected finite numbers of at least 0"):
        Experiment.of(DIGITS, ["algorithm.name=dac", setting])


@pytest.mark.parametrize("clusters", ["10:10:10", "20:10:20"])
def test_clusters_are_no_time_of_day(clusters):
    assert Experiment.of(DIGITS, [f"data.clusters={clusters}"]).data.clusters == clusters


def test_one_cluster_may_be_given_as_a_number():
    assert Experiment.of({"data": {"source": "digits", "clusters": "3:1"}}, ["data.clusters=32"]).data.sizes == [32]
