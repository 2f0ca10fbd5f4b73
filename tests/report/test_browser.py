import json
import tomllib

import pytest
import tomli_w

from facade.report import page as pages
from facade.runs.history import load_all
from handmade import write_run
from report.conftest import write_large_run

HOSTILE = "</script><script>window.hostile = 1</script><img src=x onerror='window.hostile = 1'>"


@pytest.fixture(scope="module")
def page(digits_runs, tmp_path_factory):
    return pages.write(load_all([digits_runs]), tmp_path_factory.mktemp("page") / "report.html")


def assert_whole(opened, lines):
    assert opened.console == []
    assert opened.seen["drawn"] == len(opened.seen["marks"]) > 0
    assert min(opened.seen["marks"]) > 3
    assert opened.seen["fetched"] == []
    assert opened.seen["lines"] == lines


def test_a_browser_draws_every_chart_without_errors_or_requests(page, browser):
    assert_whole(browser(page), lines=3)


def test_the_page_fits_a_phone_and_is_dark_where_that_is_wanted(page, browser):
    opened = browser(page, width=390, dark=True)
    assert_whole(opened, lines=3)
    assert opened.seen["scroll"] <= opened.seen["width"] == 390
    assert opened.seen["ground"] == "rgb(21, 24, 28)"


def test_a_browser_draws_two_nodes_and_a_thousand(tmp_path, browser):
    for nodes, minority in ((2, 1), (1000, 60)):
        for algorithm in ("facade", "local"):
            write_large_run(tmp_path / f"{nodes}" / algorithm, algorithm, nodes, 200, minority)
        page = pages.write(load_all([tmp_path / f"{nodes}"]), tmp_path / f"{nodes}.html")
        assert_whole(browser(page), lines=2)


def write_hostile_run(path, setting):
    """A run with hostile text wherever a page shows what a run says of itself."""
    model = f'model.name="models:Net {HOSTILE}"'
    write_run(path, [(1000, [0, 0, 0, 1])] * 2, {2: [9, 9, 9, 5]}, [9, 9, 9, 5], model)
    experiment = tomllib.loads((path / "experiment.toml").read_text()) | {"name": f"run {HOSTILE}"}
    experiment["training"]["init"] = setting  # what tells two experiments apart is their name in charts
    (path / "experiment.toml").write_text(tomli_w.dumps(experiment))
    facts = json.loads((path / "federation.json").read_text())
    facts |= {"classes": [f"class {HOSTILE}", "b"], "notes": [f"note {HOSTILE}"]}
    (path / "federation.json").write_text(json.dumps(facts))
    (path / "environment.json").write_text(json.dumps({f"key {HOSTILE}": f"value {HOSTILE}"}))


def test_hostile_text_from_runs_is_shown_and_not_executed(tmp_path, browser):
    script, image = "<script>window.hostile = 2</script>", "<img src=x onerror='window.hostile = 1'>"
    write_hostile_run(tmp_path / f"directory {image}", script)
    write_hostile_run(tmp_path / "other", "shared")
    opened = browser(pages.write(load_all([tmp_path]), tmp_path / "page.html"))
    assert_whole(opened, lines=2)
    assert not opened.seen["hostile"]
    for place in ("run", "Net", "note", "key", "value"):
        assert f"{place} {HOSTILE}" in opened.seen["text"], place
    assert f"init={script}" in opened.seen["text"]
    assert "directory <img src=x" in opened.seen["text"]
