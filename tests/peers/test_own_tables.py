"""Hospitals that each read a table of their own reach what a simulator reaches that has the tables of all."""

import json
import tomllib

import pytest
import tomli_w

from data.makers import SITES, patients
from facade import Experiment, run
from facade.core import tree
from facade.data.errors import DataError
from facade.errors import ExperimentError
from facade.peers.after.outcome import Outcome
from facade.peers.local_network import Processes, founded
from facade.peers.trust.membership import vouched
from facade.peers.trust.schema import Schema
from facade.peers.trust.site import Site, set_up
from facade.runs.rows import in_order
from facade.runs.run_directory import RunDirectory
from peers.makers import QUICK


def simulated(root, **fields):
    """The experiment that has all rows in one table."""
    table = {"source": "csv", "root": str(root), "path": "people.csv", "label": "sick", "site": "hospital"}
    return Experiment.of(
        {
            "name": "hospitals",
            "data": table | {"clusters": "unknown"} | fields,
            "model": {"name": "mlp"},
            "algorithm": {"name": "facade", "seeding": "none", "warmup": 1},
            "topology": {"degree": 2},
            "training": {"rounds": 3, "steps": 2, "loss": "balanced"},
            "evaluation": {"every": 3},
            "runtime": {"threads": 1},
        }
    )


def give_own_table(home, root, site, **fields):
    """A site's node.toml with its own table instead of a share of the experiment's."""
    node = tomllib.loads((home / "node.toml").read_text())
    node["data"] = {"source": "csv", "root": str(root), "path": f"{site}.csv", "label": "sick"} | fields
    (home / "node.toml").write_text(tomli_w.dumps(node))


@pytest.mark.parametrize("scale", ["auto", "standard"])
def test_four_peers_with_tables_of_their_own_reach_the_bits_of_the_simulator(command, tmp_path, scale):
    patients(tmp_path / "data")
    experiment = simulated(tmp_path / "data", scale=scale)
    with founded(experiment.with_("data.clusters=4"), tmp_path / "net", "patient", QUICK) as sites:
        for home, site in zip(sites.homes, SITES, strict=True):
            give_own_table(home, tmp_path / "data", site)
        if scale == "auto":  # what sites say of their own tables comes to what one says who has them all
            files = [home / "node.toml" for home in sites.homes]
            assert command("data", "schema", *files, "-o", tmp_path / "schema.json").code == 0
            found = Schema.model_validate_json((tmp_path / "schema.json").read_text())
            assert found == vouched(tmp_path / "net" / "membership.json").schema_
        with Processes(sites.homes) as processes:
            ended = [event["ended"] for _, event in processes.events() if "ended" in event]
    assert ended == [0] * 4
    result = run(experiment)
    outcomes = [Outcome.load(home / "run") for home in sites.homes]
    assert tree.joint([outcome.state_sha256 for outcome in outcomes]) == result.summary["state_sha256"]
    assert in_order([row for home in sites.homes for row in RunDirectory(home / "run").rows]) == list(result.rows)


def test_a_category_that_nobody_agreed_on_stops_a_site_with_a_sentence(tmp_path):
    patients(tmp_path / "data")
    with founded(simulated(tmp_path / "data").with_("data.clusters=4"), tmp_path / "net", "patient", QUICK) as sites:
        home = sites.homes[0]
        table = tmp_path / "data" / "basel.csv"
        table.write_text(table.read_text().replace(",east,", ",north,", 1))
        give_own_table(home, tmp_path / "data", "basel")
        site = Site.load(home)
        with pytest.raises(DataError, match="column 'ward' holds the category 'north', which nobody agreed on"):
            set_up(site, site.membership())
        bare = site.membership().schema_.model_copy(update={"columns": []})
        give_own_table(home, tmp_path / "data", "lyon")
        with pytest.raises(ExperimentError, match="did not agree on the columns of one"):
            set_up(Site.load(home), site.membership().model_copy(update={"schema_": bare}))
        give_own_table(home, tmp_path / "data", "lyon", columns=["age"])
        site = Site.load(home)
        with pytest.raises(ExperimentError, match=r"node.toml says data.columns itself, but all sites agreed"):
            set_up(site, site.membership())


def test_schemas_of_sites_that_differ_in_more_than_words_are_refused(command, tmp_path):
    column = {"name": "age", "categories": [], "missing": False}
    first = {"classes": ["no", "yes"], "shape": [1], "mean": [0], "std": [1], "columns": [column]}
    changes = {
        "the sites' tables have other columns": {"columns": [column | {"name": "size"}]},
        "the sites' values are not scaled alike": {"mean": [2]},
        "column 'age' holds numbers at one site": {"columns": [column | {"categories": ["a"]}]},
        "have shapes [1] and [2]": {"columns": [], "shape": [2]},
    }
    for said, change in changes.items():
        second = first | change
        one = first | {"columns": []} if not second["columns"] else first
        (tmp_path / "a.json").write_text(json.dumps(one))
        (tmp_path / "b.json").write_text(json.dumps(second))
        ended = command("data", "schema", tmp_path / "a.json", tmp_path / "b.json")
        assert (ended.code, said in " ".join(ended.err.split())) == (2, True), ended.err
    (tmp_path / "b.json").write_text("{}")
    assert "is no schema" in command("data", "schema", tmp_path / "b.json").err
