"""A message on its way into a site: one copy of it, read where it lies."""

import hashlib
import subprocess
import sys
import tracemalloc

import pytest
import safetensors.torch
import torch

from facade.core import tree
from facade.peers.node.round_pulls import Pull
from facade.peers.protocol.headers import Reply, Status
from facade.peers.protocol.incoming import Incoming
from facade.peers.protocol.refusals import Reason, RefusedError
from facade.peers.protocol.wire import MessageForm, Origin, pack
from facade.runs import state_files

ORIGIN = Origin(b"m" * 32, 1, 7)
CHUNK = 1 << 18


def weights(scale=1.0, dtype=torch.float32):
    drawn = torch.Generator().manual_seed(3)
    return {"model": {name: scale * torch.randn(1, 1 << 20, generator=drawn).to(dtype) for name in "ab"}}


def pulled(form, content):
    """A message that came as replies with chunks of it."""
    pull, digest = Pull(1, None), hashlib.sha256(content).digest()
    while pull.come < form.size:
        chunk = content[pull.come : pull.come + CHUNK]
        reply = Reply(Status.HERE, 7, total=len(content), digest=digest, chunk=chunk)
        incoming = pull.add(Reply.parse(reply.packed()), form, CHUNK)
    return form.read(incoming, digest, ORIGIN)


def test_a_message_that_comes_in_chunks_is_in_memory_once():
    form, content = MessageForm(weights()), pack(ORIGIN, weights())
    tracemalloc.start()
    try:
        arrived = pulled(form, content)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert tree.digests(arrived, 1) == tree.digests(weights(), 1)
    assert form.size < peak < 1.2 * form.size


def test_tensors_are_read_where_their_bytes_came_in():
    form, content = MessageForm(weights()), pack(ORIGIN, weights())
    room = form.room()
    room.add(content)
    leaves = tree.flatten(form.read(room, hashlib.sha256(content).digest(), ORIGIN)).values()
    assert {leaf.untyped_storage().nbytes() for leaf in leaves} <= {4 << 20, form.size}
    assert all(leaf.data_ptr() % 64 == 0 for leaf in leaves)
    room.content[-4:] = bytes(4)
    assert list(leaves)[-1][0, -1] == 0


def test_no_more_than_the_known_size_finds_room():
    room = Incoming(10)
    room.add(b"12345678")
    with pytest.raises(ValueError, match="memoryview"):
        room.add(b"9012")
    assert bytes(room.content[:8]) == b"12345678"


def test_messages_are_written_as_safetensors_writes_them():
    dtypes = [*tree.DTYPES, torch.bfloat16]
    message = {f"{place % 3}é\n/{dtype}": torch.ones(1, place).to(dtype) for place, dtype in enumerate(dtypes)}
    assert pack(ORIGIN, message) == ORIGIN.envelope + safetensors.torch.save(message)
    assert pack(ORIGIN, {}) == ORIGIN.envelope + safetensors.torch.save({})
    arrived = MessageForm(message).unpack(pack(ORIGIN, message), hashlib.sha256(pack(ORIGIN, message)).digest(), ORIGIN)
    assert all(torch.equal(arrived[name], leaf) for name, leaf in message.items())
    assert b"".join(state_files.file_parts(state_files.in_one_piece(message))) == safetensors.torch.save(message)


def test_numbers_whose_squares_exceed_a_double_are_finite_and_too_large():
    own = weights(dtype=torch.float64)
    content = pack(ORIGIN, weights(scale=1e200, dtype=torch.float64))
    with pytest.raises(RefusedError) as refused:
        MessageForm(own).unpack(content, hashlib.sha256(content).digest(), ORIGIN)
    assert refused.value.reason is Reason.TOO_LARGE


@pytest.mark.parametrize("broken", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("place", [0, 1 << 16, -1])
def test_one_number_that_is_not_finite_is_found_wherever_it_is(broken, place):
    sent = weights()
    sent["model"]["b"][0, place] = broken
    content = pack(ORIGIN, sent)
    with pytest.raises(RefusedError) as refused:
        MessageForm(weights()).unpack(content, hashlib.sha256(content).digest(), ORIGIN)
    assert (refused.value.reason, refused.value.details) == (Reason.NOT_FINITE, "model/b")


FAULTS = """
import resource, sys
from facade.peers.protocol.allocation import keep_freed_chunks
if sys.argv[1] == "kept":
    keep_freed_chunks()
for _ in range(50):
    chunks = [b"x" * (1 << 22) for _ in range(3)]
    del chunks
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="other C libraries have their own ways")
def test_freed_chunks_are_used_again():
    faults = [
        int(subprocess.run([sys.executable, "-c", FAULTS, how], capture_output=True, check=True).stdout)
        for how in ("returned", "kept")
    ]
    assert faults[1] < faults[0] / 3
