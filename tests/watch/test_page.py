"""The page as a browser shows it: drawn, followed, safe, and there again when the watcher is."""

import json

import pytest

from experiments import digits
from facade.report.theme import CLUSTER_COLOURS, OKABE_ITO
from facade.watch.places import Places
from facade.watch.serving import page_server, serving
from facade.watch.watching import Watching
from handmade import write_run
from watch.chromium import chromium
from watch.watched import running, served

HOSTILE = "<img src=x onerror='window.hostile = 1'><script>window.hostile = 1</script>"
SHOWN = "document.body.innerText"
DRAWN = "document.documentElement.dataset.drawn > 0"


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with chromium(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


def says(browser, text):
    """Wait until the page says something."""
    return browser.until(f"{SHOWN}.includes({json.dumps(text)})")


def test_a_page_draws_a_run_follows_it_and_outlives_its_watcher(browser, tmp_path):
    experiment = digits("training.lr=0.1", clusters="3:1", degree=2, rounds=40, steps=2, every=5)
    browser.problems.clear()
    browser.look(1280)
    with running(experiment, tmp_path / "one") as paced:
        paced.go_to(6)
        with served(tmp_path / "one") as server:
            listen = f"127.0.0.1:{server.access.listen.port}"
            browser.open(server.url)
            says(browser, "round 6 of 40")
            assert browser.ask("[...document.querySelectorAll('figure')].map((one) => one.id)") == [
                "quality", "losses", "heads", "graph",
            ]  # fmt: skip
            marks = "document.querySelectorAll('#graph svg path').length"
            assert browser.ask(marks) > 8
            assert browser.ask("document.querySelectorAll('svg[role=img]:not([aria-label])').length") == 0
            browser.ask("document.querySelector('#graph details').open = true")
            paced.go_to(7)
            says(browser, "round 7 of 40")
            assert browser.ask("document.querySelector('#graph details').open"), "what was opened stays open"
            assert browser.problems == []
        says(browser, "the watcher has stopped")
        paced.go_to(12)
        again = page_server(Watching(Places([tmp_path / "one"])), listen)
        with serving(again):
            says(browser, "round 12 of 40")
            assert browser.until("document.getElementById('link').textContent === 'live'")
            paced.go_on()
            says(browser, "finished")
            fetched = browser.ask("performance.getEntriesByType('resource').map((one) => one.name)")
            assert all(name.startswith(server.url) for name in fetched)


def test_several_runs_stand_side_by_side_and_one_can_be_opened(browser, tmp_path):
    for name, minority in (("first", 5), ("second", 7)):
        chosen = [(1000, [0, 0, 0, 1])] * 4
        write_run(tmp_path / name, chosen, {2: [9, 9, 9, minority]}, [9, 9, 9, minority])
    with served(tmp_path) as server:
        browser.open(server.url)
        browser.until(f"{DRAWN} && document.querySelectorAll('.card').length === 2")
        assert browser.ask("document.querySelectorAll('.overview tbody tr').length") == 2
        browser.ask("document.querySelector('.card a').click()")
        says(browser, "Who hears whom")
        assert browser.ask("document.getElementById('title').textContent") == "Facade: watching first"
        browser.ask("document.querySelector('#back a').click()")
        browser.until("document.querySelectorAll('.card').length === 2")


@pytest.mark.parametrize("dark", [False, True])
def test_the_page_fits_a_phone_light_and_dark(browser, tmp_path, dark):
    write_run(tmp_path / "run", [(1000, [0, 0, 0, 1])] * 4, {2: [9, 9, 9, 5]}, [9, 9, 9, 5])
    with served(tmp_path / "run") as server:
        browser.look(390, dark=dark)
        browser.open(server.url)
        browser.until(DRAWN)
        assert browser.ask("document.documentElement.scrollWidth") == 390
        ground = browser.ask("getComputedStyle(document.body).backgroundColor")
        assert ground == ("rgb(21, 24, 28)" if dark else "rgb(255, 255, 255)")
    browser.look(1280)


def test_hostile_text_is_shown_and_not_executed(browser, tmp_path):
    write_run(
        tmp_path / "run", [(1000, None)] * 2, {2: [9, 9, 9, 5]}, [9, 9, 9, 5], cluster=None, sites=[HOSTILE, *"bcd"]
    )
    described = (tmp_path / "run/experiment.toml").read_text().replace("'digits'", '"digits"')
    named = described.replace('source = "digits"', f"source = {json.dumps(HOSTILE)}")
    assert named != described
    (tmp_path / "run/experiment.toml").write_text(named)
    browser.problems.clear()
    with served(tmp_path / "run") as server:
        browser.open(server.url)
        browser.until(DRAWN)
        assert browser.ask(SHOWN).count("<img src=x") >= 3
        assert not browser.ask("'hostile' in window")
        assert browser.problems == []


def test_the_token_leaves_the_address_and_its_cookie_is_enough(browser, tmp_path):
    write_run(tmp_path / "run", [(1000, None)] * 2, {2: [9, 9, 9, 5]}, [9, 9, 9, 5])
    with served(tmp_path / "run", token="t" * 40) as server:
        browser.open(server.url)
        browser.until(DRAWN)
        assert browser.ask("location.href") == server.url.partition("?")[0]
        assert browser.ask("document.cookie") == "", "no script can read it"
        browser.open("about:blank")
        browser.open(server.url.partition("?")[0])
        browser.until(DRAWN)


def test_colours_are_those_of_reports(tmp_path):
    from importlib.resources import files

    style = files("facade.watch").joinpath("page/page.css").read_text()
    assert OKABE_ITO[0] == CLUSTER_COLOURS[0]
    assert all(f"--c{i}: {colour};" in style for i, colour in enumerate(OKABE_ITO))
