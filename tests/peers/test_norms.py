"""What a message's numbers may be."""

import hashlib

import pytest
import torch

from facade.core.message_parts import variances
from facade.peers.protocol.refusals import Reason, RefusedError
from facade.peers.protocol.wire import MessageForm, Origin, pack

ORIGIN = Origin(b"m" * 32, 1, 7)


def unpacked(form, sent):
    content = pack(ORIGIN, sent)
    return form.unpack(content, hashlib.sha256(content).digest(), ORIGIN)


@pytest.mark.parametrize("own", [1.0, 1e-3])
def test_a_norm_may_be_ten_times_ones_own_or_10_and_no_more(own):
    form = MessageForm({"model": torch.full((1, 4), own)})
    limit = 10 * max(1.0, 2 * own) / 2
    assert unpacked(form, {"model": torch.full((1, 4), 0.99 * limit)})
    with pytest.raises(RefusedError) as refused:
        unpacked(form, {"model": torch.full((1, 4), 1.01 * limit)})
    assert refused.value.reason is Reason.TOO_LARGE


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_numbers_that_may_be_of_any_size_must_be_finite_too(value):
    own = {"model": torch.ones(1, 4), "bid": {"score": torch.zeros(1, dtype=torch.float64)}}
    with pytest.raises(RefusedError) as refused:
        unpacked(
            MessageForm(own, frozenset({"bid"})), own | {"bid": {"score": torch.full((1,), value, dtype=torch.float64)}}
        )
    assert refused.value.reason is Reason.NOT_FINITE


def test_a_variance_is_never_negative_and_other_numbers_may_be():
    own = {"core": {"bn.running_mean": torch.ones(1, 2), "bn.running_var": torch.ones(1, 2)}}
    names = variances(own, frozenset({"bn.running_var"}))
    assert names == {"core/bn.running_var"}
    form = MessageForm(own, variances=names)
    assert unpacked(form, {"core": own["core"] | {"bn.running_mean": torch.tensor([[-1.0, 0.0]])}})
    assert unpacked(form, {"core": own["core"] | {"bn.running_var": torch.tensor([[0.0, 3.0]])}})
    with pytest.raises(RefusedError) as refused:
        unpacked(form, {"core": own["core"] | {"bn.running_var": torch.tensor([[1.0, -1e-9]])}})
    assert str(refused.value) == "negative-variance: core/bn.running_var"


def test_a_norm_beyond_float32_is_too_large_and_not_infinite():
    with pytest.raises(RefusedError) as refused:
        unpacked(MessageForm({"model": torch.ones(1, 4)}), {"model": torch.full((1, 4), 3e38)})
    assert refused.value.reason is Reason.TOO_LARGE
    assert "inf" not in str(refused.value)
