import contextlib
import errno
import os
import subprocess
import sys

import pytest

from facade.analysis import statistics
from facade.runs.history import load
from facade.runs.stop_signals import StopSignals
from facade.sweep import process_pool
from results.jobs import ends, jobs_of


@pytest.mark.parametrize("at_once", [1, 2])
def test_a_run_tells_how_good_its_clusters_are_whenever_they_are_tested(tmp_path, at_once):
    told = []
    jobs = jobs_of(tmp_path, "training.rounds=4", "evaluation.every=2", count=1)
    (end,) = process_pool.compute_all(jobs, at_once, lambda job, event: told.append(event), StopSignals())
    assert end.ended == "finished"
    run = load(jobs[0].path)
    assert [(event["done"], event["values"]) for event in told if "values" in event] == [
        (evaluation.round, [found["cluster_0"], found["cluster_1"]])
        for evaluation in run.evaluations
        for found in [statistics.tested(evaluation, run.cluster)]
    ]
    assert [evaluation.round for evaluation in run.evaluations] == [2, 4]


def test_a_worker_that_cannot_be_started_fails_its_run(tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))

    monkeypatch.setattr(subprocess, "Popen", full)
    ended = ends(jobs_of(tmp_path, count=3))
    assert {end.ended for end in ended} == {"failed"}
    assert {end.reason for end in ended} == {"no process could be started for it: Cannot allocate memory"}
    assert len(ended) == 3


def test_a_worker_that_dies_in_the_middle_of_a_line_fails_its_run(tmp_path, monkeypatch):
    dies = 'import os; input(); os.write(1, b\'{"done": 1}\\n{"do\'); os._exit(7)'
    monkeypatch.setattr(sys, "executable", fake_python(tmp_path, dies))
    told = []
    (end,) = ends(jobs_of(tmp_path, count=1), lambda job, event: told.append(event))
    assert end.ended == "failed"
    assert end.reason == "its process ended with code 7 (killed, or out of memory?)"
    assert told == [{"done": 1}]


def fake_python(tmp_path, program):
    """An interpreter that runs this program whatever it is told."""
    (tmp_path / "program.py").write_text(program)
    (tmp_path / "python").write_text(f'#!/bin/sh\nexec "{sys.executable}" "{tmp_path}/program.py"\n')
    (tmp_path / "python").chmod(0o755)
    return str(tmp_path / "python")


def test_code_that_leaves_the_process_fails_its_run_and_nobody_waits_for_ever(tmp_path):
    def leaves(job, tell):
        raise SystemExit(3)

    jobs = jobs_of(tmp_path)
    ended = list(
        process_pool.compute_in_threads(jobs, [contextlib.nullcontext(leaves)], lambda job, event: None, StopSignals())
    )
    assert [(end.job, end.ended, end.reason) for end in ended] == [(job, "failed", "SystemExit: 3") for job in jobs]
