"""What the documentation tells people to type."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from facade.peers.local_network import Processes
from facade.testing import contract
from facade.testing import driven as driving
from peers.makers import kept_ports

ROOT = Path(__file__).parents[1]


def blocks(page, language):
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)


def test_the_experiment_in_the_readme_runs_as_its_python_says(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    experiment = blocks("README.md", "toml")[0]
    assert "rounds = 200" in experiment
    Path("examples").mkdir()
    Path("examples/ward.toml").write_text(experiment.replace("rounds = 200", "rounds = 40"))
    names = {}
    exec(blocks("README.md", "python")[0], names)
    assert len(names["result"].summary["clusters"]) == 3
    assert "[0." in capsys.readouterr().out


def test_federations_are_made_in_python_as_the_page_on_data_says(capsys):
    names = {}
    exec(blocks("docs/data.md", "python")[0], names)
    assert names["federation"].n == 5
    assert names["result"].experiment.training.rounds == 40
    assert "[0." in capsys.readouterr().out


def test_an_own_algorithm_is_tested_as_the_page_on_algorithms_says(monkeypatch):
    monkeypatch.syspath_prepend(ROOT)
    names = {}
    exec(blocks("docs/algorithms.md", "python")[0], names)
    names["test_quick_mean_keeps_the_contract"](contract.check_message_schema)


def test_a_guard_and_an_attack_of_ones_own_are_written_as_the_page_on_algorithms_says(tmp_path, monkeypatch):
    (tmp_path / "modest_and_loud.py").write_text(blocks("docs/algorithms.md", "python")[1])
    monkeypatch.syspath_prepend(tmp_path)
    names = ("guard.rule=modest_and_loud:Modest", "attack.kind=modest_and_loud:Loud")
    experiment = contract.tiny("facade", *names, "attack.nodes=[1]")
    contract.check_shard_invariant(experiment)
    dropped = driving.result_of(experiment).summary["guard"]["dropped"]
    assert dropped["attackers"] == 1
    assert dropped["honest"] == 0


def test_the_way_through_the_code_has_at_most_twelve_files_and_all_exist():
    page = (ROOT / "docs/design.md").read_text()
    way = page[page.index("## The way through the code") : page.index("## The way of a message")]
    files = re.findall(r"^\d+\. `([^`]+)`", way, re.MULTILINE)
    assert 8 <= len(files) <= 12
    assert all((ROOT / "src/facade" / file).is_file() for file in files)


def test_the_readme_names_every_package():
    readme = (ROOT / "README.md").read_text()
    packages = [path.parent.name for path in (ROOT / "src/facade").glob("*/__init__.py")]
    assert [name for name in packages if not re.search(rf"(── |; ){name}/", readme)] == []


@pytest.mark.parametrize(
    ("page", "example"), [("README.md", "ward"), ("docs/peers.md", "hospitals"), ("docs/results.md", "fair")]
)
def test_files_that_a_page_shows_are_among_the_examples(page, example):
    (shown,) = [block for block in blocks(page, "toml") if block.startswith(f"# examples/{example}.toml\n")]
    assert shown.partition("\n")[2] == (ROOT / "examples" / f"{example}.toml").read_text()


@pytest.mark.parametrize(
    "page",
    [
        "README.md",
        "SECURITY.md",
        "CONTRIBUTING.md",
        *sorted(f"docs/{page.name}" for page in (ROOT / "docs").glob("*.md")),
    ],
)
def test_what_a_page_links_to_is_there(page):
    base = (ROOT / page).parent
    text = (ROOT / page).read_text()
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text):
        assert target.startswith("http") or (base / target).exists(), target
    for file in re.findall(r"`((?:src|tests|examples|experiments)/[\w/.-]+)`", text):
        assert (ROOT / file).exists(), file


def test_four_sites_meet_as_the_page_on_peers_says(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    public = command("network", "admin", "-o", "admin.key").out.split()[-1]
    _, data, trial, *_ = blocks("docs/peers.md", "toml")
    (schema,) = blocks("docs/peers.md", "json")
    Path("trial.toml").write_text(trial.replace("rounds = 300", "rounds = 24"))
    Path("schema.json").write_text(schema)
    images, labels = np.arange(40 * 28 * 28, dtype=np.uint8).reshape(40, 28, 28), np.arange(40) % 2
    names = np.array(json.loads(schema)["classes"])
    np.savez("ward.npz", x_train=images, y_train=labels, x_test=images, y_test=labels, classes=names)
    ids = ["h1", "h2", "h3", "h4"]
    with kept_ports(5) as ports:
        for id, port in zip([*ids, "h5"], ports, strict=True):
            founded = command(
                "node", "init", "--id", id, "--address", f"127.0.0.1:{port}", "--admin", public, "--home", id
            )
            assert founded.code == 0, founded.err
            with open(f"{id}/node.toml", "a") as settings:
                settings.write(data.replace("/data", str(tmp_path)))
        joins = [f"{id}/{id}.join" for id in ids]
        signed = ["--key", "admin.key", "-o"]
        built = command(
            "network", "build", *joins, "--experiment", "trial.toml", "--schema", "schema.json", *signed, "list.json"
        )
        assert built.code == 0, built.err
        for id in ids:
            shutil.copy("list.json", f"{id}/membership.json")
        looked = command("node", "doctor", "--home", "h1")
        assert looked.code == 0, looked.out
        with Processes([Path(id) for id in ids]) as processes:
            ends = [event["ended"] for _, event in processes.events() if "ended" in event]
        assert ends == [0] * 4
    for id in ids:
        shutil.copy(f"{id}/run/site.json", f"{id}.json")
    told = command("network", "report", *(f"{id}.json" for id in ids), "--membership", "list.json", "--json")
    assert told.code == 0, told.err
    assert [site["id"] for site in json.loads(told.out)["sites"]] == ids
    for change in (["--add", "h5/h5.join"], ["--remove", "h2"]):
        updated = command("network", "update", "list.json", *change, "--from-round", 12, *signed, "next.json")
        assert updated.code == 0, updated.err
