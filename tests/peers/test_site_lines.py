"""What an operator reads while a site runs."""

import pytest

from facade.cli.site_lines import SiteLines


@pytest.mark.parametrize(
    ("event", "line"),
    [
        ({"event": "waiting", "peers": ["b", "c"], "seconds": 600.0}, "waiting for b, c, at most 600 s"),
        ({"event": "waiting", "round": 4, "epoch": 1}, "waiting until the others are in round 5, this site's first"),
        ({"event": "absent", "peers": ["c"]}, "beginning without c: no answer"),
        ({"event": "missed", "round": 4, "peers": ["b"]}, "round 5: going on without b"),
        ({"event": "missed", "round": 9, "peers": ["b"]}, "final exchange: going on without b"),
        (
            {"event": "refused", "peer": "b", "side": "callee", "reason": "other-membership", "details": "theirs is x"},
            "b refuses this site's calls (other-membership: theirs is x)",
        ),
        (
            {"event": "refused", "peer": "b", "side": "payload", "reason": "not-finite", "details": ""},
            "a message of b is not used (not-finite)",
        ),
        (
            {"event": "refused", "peer": "203.0.113.9", "side": "caller", "reason": "stranger"},
            "a call of 203.0.113.9 is refused (stranger)",
        ),
        ({"event": "ignoring", "peers": ["c"]}, "ignoring c, as node.toml says"),
        ({"event": "ignoring", "peers": []}, "ignoring nobody any more"),
        ({"event": "settings-refused", "says": "it is not TOML"}, "the changed node.toml is not used: it is not TOML"),
        ({"event": "refused", "peer": "c", "side": "payload", "reason": "ignored", "details": ""}, None),
        (
            {"event": "paused", "round": 4, "there": 2, "needed": 4, "members": 6, "absent": ["c", "d", "e", "f"]},
            "round 5: pausing, for 2 of 6 members are there, itself included, and 4 must be"
            " (absent: c, d, e, f); going on when more answer",
        ),
        ({"event": "resumed", "round": 4}, "round 5: going on, for enough members answer again"),
        (
            {"event": "flood", "address": "203.0.113.9", "closed": 7},
            "more connections than places, most of them from 203.0.113.9; the idle ones are closed",
        ),
        (
            {"event": "short", "round": 4, "peer": "b", "lacks": "memory"},
            "round 5: too little memory for the message of b",
        ),
        ({"event": "jumped", "before": 2, "round": 6}, "too far behind the others: going on in round 7"),
        ({"event": "epoch", "epoch": 2, "round": 6, "rounds": 9}, "round 7: list 2 is in force"),
        ({"event": "list-refused", "says": "no signature"}, "the new membership.json is not used: no signature"),
        ({"event": "staying", "peers": ["b"]}, "finished; staying for b, who may still need its messages"),
        (
            {"event": "judged", "round": 4, "dropped": {}, "gate_closed": True},
            "round 5: what was heard is not used, for it makes this site's model far worse",
        ),
        ({"event": "judged", "round": 4, "dropped": {"b": ["core"]}, "gate_closed": False}, None),
        ({"event": "heard", "round": 4, "peer": "b"}, None),
    ],
)
def test_events_that_concern_an_operator_are_sentences(event, line):
    said = []
    SiteLines(said.append, rounds=9).event(event)
    assert said == ([line] if line else [])


def test_rounds_and_evaluations_are_lines():
    said = []
    lines = SiteLines(said.append)
    lines.event({"event": "started", "round": 0, "rounds": 20})
    counts = [[3, 1], [0, 4]]
    lines.rows([{"kind": "round", "round": 20, "bytes": 12345}])
    lines.rows([{"kind": "evaluation", "round": 20, "confusion": counts}])
    lines.rows([{"kind": "final", "round": 20, "confusion": counts}])
    assert said == [
        "round 20 of 20  12,345 bytes heard",
        "accuracy after round 20: 87.5% on this site's test data",
        "accuracy after the final exchange: 87.5% on this site's test data",
    ]
