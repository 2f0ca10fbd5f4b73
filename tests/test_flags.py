"""The library names arguments, the command line its options."""

import ast
import re
from pathlib import Path

import pytest
import typer

import facade
from experiments import digits, written
from facade import ExperimentError, run
from facade.cli import app
from facade.cli.flags import with_flags
from facade.errors import RunDirectoryError
from facade.export.package import export
from facade.sweep.jobs import Sweep

SOURCE = Path(facade.__file__).parent


def tiny():
    return digits(clusters="3:1", degree=2, rounds=2, steps=1, every=2)


@pytest.mark.parametrize(
    ("words", "sentence", "printed"),
    [
        (["run", "x.toml"], "add `resume=True` to continue it", "add --resume to continue it"),
        (["--debug", "run", "demo"], "nothing answers at `address` h:1", "nothing answers at --address h:1"),
        (["export", "run"], "`node` 9 does not exist", "--node 9 does not exist"),
        (["network", "update"], "use `rotate`", "use --rotate"),
        (["paper", "all"], "`dry_run`", "`dry_run`"),
        (["sweep"], "`dry_run`", "--dry-run"),
        (["run"], "the argument `classes` of its constructor; `ray start`", None),
        (["nonsense"], "`out`", None),
        ([], "`out`", None),
    ],
)
def test_an_argument_is_printed_as_the_option_of_the_command_that_was_given(words, sentence, printed):
    assert with_flags(sentence, typer.main.get_command(app), words) == (printed or sentence)


def test_a_run_that_is_there_is_told_in_the_words_of_the_reader(command, tmp_path):
    file = written(tiny(), tmp_path / "tiny.toml")
    run(tiny(), tmp_path / "run")
    with pytest.raises(RunDirectoryError, match=r"/run already holds a run of this experiment; add `resume=True`"):
        run(tiny(), tmp_path / "run")
    ended = command("run", file, "--set", "name=tiny", "--out", tmp_path / "run")
    assert (ended.code, "/run already holds a run of this experiment; add --resume to" in ended.err) == (2, True)


def test_a_model_that_is_not_named_is_told_in_the_words_of_the_reader(command, digits_runs, tmp_path):
    with pytest.raises(ExperimentError, match=r"say which model to export: give `node`, or `head` for"):
        export(digits_runs / "el-1", tmp_path / "out")
    ended = command("export", digits_runs / "el-1", "--out", tmp_path / "out")
    assert (ended.code, "say which model to export: give --node, or --head for" in ended.err) == (2, True)


def test_an_empty_sweep_is_told_in_the_words_of_the_reader(command, tmp_path):
    file = written(tiny(), tmp_path / "tiny.toml")
    with pytest.raises(ExperimentError, match=r"give `grid`, such as .*, or `seeds`, such as 1,2,3"):
        Sweep(file, tmp_path / "sweep").jobs()
    ended = command("sweep", file, "--out", tmp_path / "sweep")
    assert (ended.code, "give --grid, such as" in ended.err, "or --seeds, such as" in ended.err) == (2, True, True)


def test_a_setting_without_a_value_is_quoted(command, tmp_path):
    file = written(tiny(), tmp_path / "tiny.toml")
    assert "setting 'training.lr': expected section.key=value" in command("run", file, "--set", "training.lr").err


def spoken(error):
    """The text of an error that is raised, as far as it stands in the source."""
    texts = [node.value for node in ast.walk(error) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    return " ".join(texts)


def test_no_error_of_the_library_speaks_of_an_option_unless_it_gives_the_whole_command():
    for path in SOURCE.rglob("*.py"):
        if path.parent.name == "cli":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Raise) and node.exc is not None:
                text = spoken(node.exc)
                assert "facade " in text or not re.search(r"(^|[\s'(])--?[a-z]", text), f"{path}, line {node.lineno}"
