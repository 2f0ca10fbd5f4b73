"""Settings of the runtime: what becomes of them, and what cannot."""

import pytest
import torch

from facade.errors import ExperimentError
from facade.experiment import setup
from facade.experiment.setup import set_up
from facade.testing.contract import tiny
from facade.testing.driven import result_of


def test_bfloat16_moves_results_a_little_and_leaves_weights_in_full_precision(monkeypatch):
    monkeypatch.setattr(setup, "has_bf16_instructions", lambda: True)  # this machine may have to emulate them
    full, half = (result_of(tiny("el", f"runtime.precision={precision}")).models for precision in ("fp32", "bf16"))
    moved = max(float((half[name] - leaf).abs().max()) for name, leaf in full.items())
    assert 1e-5 < moved < 1e-2
    assert {leaf.dtype for leaf in half.values()} == {torch.float32}


def test_bfloat16_that_has_to_be_emulated_is_warned_of(monkeypatch):
    monkeypatch.setattr(setup, "has_bf16_instructions", lambda: False)
    with pytest.warns(UserWarning, match="this CPU has no bfloat16 instructions: expect it to be slower than fp32"):
        set_up(tiny("el", "runtime.precision=bf16"))


def test_a_batch_larger_than_what_a_node_holds_is_warned_of():
    settings = ("data.partition=uneven", "data.few_nodes=2", "data.few_rows=6")
    said = "training.batch = 7 is more than the 6 samples of node 0, and 1 more nodes hold fewer than that"
    with pytest.warns(UserWarning, match=said):
        set_up(tiny("el", *settings, "training.batch=7"))
    set_up(tiny("el", *settings, "training.batch=6"))


def test_a_device_that_is_not_there_costs_one_sentence():
    with pytest.raises(ExperimentError, match=r"^runtime.device = 'nowhere' cannot be used here \(.+\); use 'cpu'$"):
        set_up(tiny("el", "runtime.device=nowhere"))
