"""What the documentation tells people to type."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def blocks(page, language):
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)


def test_the_experiment_in_the_readme_runs_as_its_python_says(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    experiment = blocks("README.md", "toml")[0]
    assert "rounds = 200" in experiment
    Path("ward.toml").write_text(experiment.replace("rounds = 200", "rounds = 40"))
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


@pytest.mark.parametrize("page", ["README.md", *sorted(f"docs/{page.name}" for page in (ROOT / "docs").glob("*.md"))])
def test_what_a_page_links_to_is_there(page):
    base = (ROOT / page).parent
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", (ROOT / page).read_text()):
        assert target.startswith("http") or (base / target).exists(), target
