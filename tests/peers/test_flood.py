"""Strangers that open connections and say nothing: the small version of benchmarks/flood.py."""

import os
import resource
import signal
import socket
from contextlib import ExitStack, suppress

from facade.peers.local_network import Processes, founded
from facade.peers.protocol import descriptors
from facade.peers.trust.site import Site
from peers.makers import QUICK, audited, logged, pauses, tiny, until

DESCRIPTORS, STRANGERS = 256, 300


def with_few_descriptors(home, events, rounds):
    resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS // 2, DESCRIPTORS))
    pauses(home, events, rounds)


def flood(home, opened):
    """More connections than the site's process may have descriptors, from another address."""
    host, _, port = Site.load(home).settings.address.rpartition(":")
    for _ in range(STRANGERS):
        with suppress(OSError):  # some are closed before they are open
            opened.enter_context(socket.create_connection((host, int(port)), 20, source_address=("127.0.0.2", 0)))


def test_more_silent_strangers_than_descriptors_end_no_site_and_keep_no_member_out(tmp_path):
    experiment = tiny('data.clusters="2:1"', "topology.degree=2", "training.steps=1", "evaluation.every=5")
    with founded(experiment, tmp_path, "patient", QUICK) as made, Processes([]) as processes, ExitStack() as opened:
        for home in made.homes:
            processes.start(home, with_few_descriptors, [2])
        until(lambda: all((home / "waits-2").exists() for home in made.homes))
        flood(made.homes[0], opened)
        restarted = processes.running[made.homes[1]]
        os.kill(restarted.pid, signal.SIGKILL)
        restarted.join()
        for home in made.homes:
            (home / "go-2").touch()
        processes.start(made.homes[1], with_few_descriptors, [])
        assert not [event for _, event in processes.events() if "failed" in event]
        assert [processes.running[home].exitcode for home in made.homes] == [0, 0, 0]
        assert {event["peer"] for event in logged(made.homes[0], "heard") if event["round"] > 2} == {"n1", "n2"}
        assert not logged(made.homes[0], "shortage")
    assert audited(made.homes) == []


def test_a_process_allows_itself_what_it_may_and_divides_it(monkeypatch):
    limits = {"now": (200, 5000)}
    monkeypatch.setattr(descriptors.resource, "getrlimit", lambda _: limits["now"])
    monkeypatch.setattr(descriptors.resource, "setrlimit", lambda _, new: limits.update(now=new))
    assert descriptors.unproven_places(3) == 16, "few, but some"
    descriptors.raise_limit()
    assert limits["now"] == (5000, 5000)
    assert descriptors.unproven_places(3) == 256
    limits["now"] = (1024, 1024)
    descriptors.raise_limit()
    places = descriptors.unproven_places(3)
    assert 100 < places < 256
    assert descriptors.needed(3) < 1024 - descriptors.PER_CONNECTION * places
    limits["now"] = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    assert descriptors.limit() == descriptors.highest_limit() == 65_536


def test_a_limit_that_must_not_be_raised_stays(monkeypatch):
    def refuse(*_):
        raise PermissionError

    monkeypatch.setattr(descriptors.resource, "getrlimit", lambda _: (200, 5000))
    monkeypatch.setattr(descriptors.resource, "setrlimit", refuse)
    descriptors.raise_limit()
    assert descriptors.limit() == 200
