"""Names of a user's own code in an experiment."""

import sys

import pytest

from facade.core import names
from facade.errors import ExperimentError
from facade.learning.models import factory


@pytest.mark.parametrize(
    ("source", "name", "sentence"),
    [
        ("", "own_code:", r"'own_code:' is no name; expected package\.module:Attribute"),
        ("", ":Net", r"':Net' is no name; expected package\.module:Attribute"),
        ("", "nowhere_at_all:Net", "module 'nowhere_at_all' cannot be imported .*run from the directory that holds it"),
        ("import nowhere_at_all", "own_code:Net", r"\(No module named 'nowhere_at_all'\); install what it needs"),
        ("", "own_code:Net", "module 'own_code' has no 'Net'"),
        (
            "Net = 1 / 0",
            "own_code:Net",
            r"fails when it is imported \(ZeroDivisionError: division by zero\); .*--debug",
        ),
        ("import math\nNet = math.nothing", "own_code:Net", "fails when it is imported .*AttributeError"),
        ("def", "own_code:Net", r"fails when it is imported \(SyntaxError"),
    ],
)
def test_what_is_wrong_with_own_code_is_said_in_a_sentence(tmp_path, monkeypatch, source, name, sentence):
    (tmp_path / "own_code.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "own_code", raising=False)
    with pytest.raises(ExperimentError, match=sentence):
        names.foreign("model", name)


def test_a_model_that_wants_more_than_shape_and_classes_is_told_so(tmp_path, monkeypatch):
    net = "class Net(nn.Module):\n    def __init__(self, classes, width, depth, bias=True): ...\n"
    (tmp_path / "wide_net.py").write_text(f"from torch import nn\n{net}")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(
        ExperimentError, match=r"'wide_net:Net' wants the arguments width, depth; .* give the others def"
    ):
        factory("wide_net:Net", (1, 8, 8), 10)


def test_names_are_short_unless_two_are_called_alike():
    assert names.short("ward:Mine") == "Mine"
    assert names.short_ones(["el", "ward:Mine"]) == {"el": "el", "ward:Mine": "Mine"}
    assert names.short_ones(["a:Mine", "b:Mine"]) == {"a:Mine": "a:Mine", "b:Mine": "b:Mine"}
