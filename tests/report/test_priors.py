import html

from facade import run
from facade.report import facts
from facade.report.page import report
from facade.report.verdicts import priors, verdicts
from facade.runs.history import load_all
from results.conftest import tiny


def of(*paths):
    (comparison,) = facts.comparisons(load_all(paths))
    return comparison


def test_the_page_says_which_prior_counts_and_what_the_other_gives_every_cluster(tmp_path):
    el = ("algorithm.name=el", "data.partition=dirichlet", "evaluation.every=6")
    settings = {"plain": (), "flat": ("training.loss=balanced",)}
    settings["own"] = (*settings["flat"], "evaluation.prior=own")
    summaries = {name: run(tiny(*el, *more), tmp_path / name).summary for name, more in settings.items()}
    flat, own = priors(of(*(tmp_path / name for name in settings)))
    majority, minority = (f"{100 * share:.1f}\u00a0%" for share in summaries["own"]["clusters"])
    assert flat.startswith("el loss=balanced prior=auto: its numbers are those of predictions as if all classes were")
    assert f"(prior = flat). Predicted with every node's own label shares added: majority {majority}, mi" in flat
    assert f"minority {minority}, all " in flat
    assert "el loss=balanced prior=own" in own
    differing = "Mind that they differ in training.loss (balanced against plain)"
    assert any(differing in verdict for verdict in verdicts(of(tmp_path / "flat", tmp_path / "plain"))), "by its name"
    page = report(load_all([tmp_path]))
    assert flat in html.unescape(page)
    assert "balanced loss, prior = own: predicted with every node" in page
