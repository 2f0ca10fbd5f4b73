import pytest

from facade.report import page as pages
from facade.runs.history import load_all
from report.conftest import write_large_run


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
