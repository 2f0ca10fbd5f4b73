"""What new lines of a rows.jsonl say, as a page needs it: columns of whole rounds, and evaluations."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import groupby
from math import nan
from typing import NamedTuple

from facade.core.types import Row

_ROUND = (
    rb'\{"kind": ?"round", ?"round": ?(\d+), ?"node": ?(\d+), ?"bytes": ?(\d+)'
    rb'(?=(?:[^\n]*?"train_loss": ?([-\d.eE+]+))?)(?=(?:[^\n]*?"choice": ?(\d+))?)'
)
_GUARDED = rb'(?=(?:[^\n]*?"dropped": ?\[([^]\n]*)\])?)(?=(?:[^\n]*?"gate_closed": ?(t))?)'
"""A row of a round as the round loop writes it, and more of it where there is a guard. Where rounds take milliseconds,
most of a watcher's work is to read such rows, and this takes a fifth of the time of a JSON parser."""
_OTHER = re.compile(rb'^\{"kind": ?"(?:evaluation|final)"[^\n]*$', re.MULTILINE)
_NOBODY = re.compile(rb"(?:-1,? ?)*")
"""What a guard notes that dropped nothing."""
Fields = tuple[bytes, ...]


class Round(NamedTuple):
    """One round of all nodes, in their order."""

    round: int
    bytes: list[int]
    losses: list[float]
    """NaN where there is none, as of a node that was offline."""
    choice: list[int]
    """Empty for algorithms without heads."""
    dropped: list[tuple[int, int]]
    """(receiver, sender) of messages of which a guard dropped something."""
    closed: int
    """Nodes whose last gate closed."""


class RoundRows:
    """Rows of a run of n nodes, as they come. Rounds and evaluations that lack nodes are left out."""

    def __init__(self, n: int, guarded: bool) -> None:
        self._n = n
        self._pattern = re.compile(_ROUND + (_GUARDED if guarded else b"()()"))
        self._rounds: list[Fields] = []
        """Of the round that is not whole yet."""
        self._tests: list[Row] = []
        """Of the evaluation that is not whole yet."""

    def rounds(self, content: bytes) -> Iterator[Round]:
        """The rounds that are whole with these lines."""
        found = self._rounds + self._pattern.findall(content)
        begin = 0
        while begin < len(found):
            end = begin + self._n
            whole = found[begin:end]
            if whole[-1][0] != whole[0][0]:  # nodes are missing: go on with the next round
                end = begin + next(i for i, fields in enumerate(whole) if fields[0] != whole[0][0])
            elif len(whole) < self._n:
                break
            else:
                yield _round(whole)
            begin = end
        self._rounds = found[begin:]

    def evaluations(self, content: bytes) -> Iterator[tuple[Row, ...]]:
        """The evaluations, the final one among them, that are whole with these lines: a row of each node."""
        found = _OTHER.findall(content)
        if not found:
            return
        rows = self._tests + [json.loads(line) for line in found]
        self._tests = []
        for _, group in groupby(rows, key=lambda row: (row["kind"], row["round"])):
            whole = tuple(group)
            if len(whole) == self._n:
                yield whole
            else:
                self._tests = list(whole)  # the last of them may go on; of others nodes are missing


def _round(rows: list[Fields]) -> Round:
    round, nodes, heard, losses, choice, dropped, closed = zip(*rows, strict=True)
    return Round(
        int(round[0]),
        [int(count) for count in heard],
        [float(loss) if loss else nan for loss in losses],
        [int(head) for head in choice] if choice[0] else [],
        [
            (int(node), sender)
            for node, senders in zip(nodes, dropped, strict=True)
            if senders and not _NOBODY.fullmatch(senders)
            for sender in sorted({int(number) for number in senders.split(b",")} - {-1})
        ],
        closed.count(b"t"),
    )
