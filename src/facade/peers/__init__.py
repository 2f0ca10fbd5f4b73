"""A real site of a federation.

The way of a message from site A to site B, file by file:

1. A's `node/playing.py` drives the round loop (`core/engine.py`). The loop trains and yields a post.
2. A's `node/publishing.py` packs the post's message (`protocol/wire.py`), writes the state that the round began with,
   then the message (`node/outgoing.py`), and only then may others have it.
3. B's `node/hearing.py`, which turns B's own post of that round into an inbox, demands the message, and
   `node/pulling.py` asks A for it, chunk by chunk, through a link (`protocol/transport.py`, `protocol/rpc.py`).
4. A's server hands the call to its `protocol/gate.py`: who is calling, may they have this, here is a chunk.
5. B's `node/pulling.py` checks what came (`protocol/wire.py`, and the algorithm's own `refuse`), `node/hearing.py`
   makes an inbox of all that was heard, and the loop mixes it.

`trust/` says who is who: keys, the signed list of members, what a list makes of a site. `node/node.py` puts a site
together and runs it; `after/` is what is left of a run; `local_network.py` runs a whole network on one machine.
"""
