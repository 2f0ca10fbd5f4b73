"""What a message's numbers may be."""

import hashlib

import pytest
import torch

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


def test_a_norm_beyond_float32_is_too_large_and_not_infinite():
    with pytest.raises(RefusedError) as refused:
        unpacked(MessageForm({"model": torch.ones(1, 4)}), {"model": torch.full((1, 4), 3e38)})
    assert refused.value.reason is Reason.TOO_LARGE
    assert "inf" not in str(refused.value)
