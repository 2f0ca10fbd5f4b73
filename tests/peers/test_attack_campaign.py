"""The page of attacks tells of what was tried, and of nothing else."""

import importlib
import json
from pathlib import Path

import pytest


@pytest.fixture
def campaign(monkeypatch):
    """The campaign's module."""
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "benchmarks")
    return importlib.import_module("attack_campaign")


def test_the_page_of_attacks_is_drawn_from_what_was_tried(campaign):
    assert campaign.drawn(json.loads(campaign.RESULTS.read_text())) == campaign.PAGE.read_text()


def test_what_did_not_hold_stands_first(campaign):
    outcomes = {"a": {"tried": "x", "held": True, "figure": "1"}, "b": {"tried": "y", "held": False, "figure": "2"}}
    page = campaign.drawn(outcomes)
    assert "**Did not hold: b.**" in page
    assert page.index("| y | **no** | 2 |") < page.index("| x | yes | 1 |")
