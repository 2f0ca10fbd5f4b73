import copy
import importlib.util
import json
import re
import runpy
import subprocess
import sys
from collections import OrderedDict

import numpy as np
import pytest
import torch
from torch import nn

from facade import run
from facade.data.load import load
from facade.errors import ExperimentError, FacadeError, RunDirectoryError, StorageError
from facade.experiment.setup import set_up
from facade.export import portable
from facade.export.model_card import OWN_SHARES
from facade.export.package import export
from facade.export.portable import Deployed, WrittenForm, written_out
from facade.learning.inputs import Inputs
from facade.runs import history
from results.conftest import tiny

ALONE = """
import json, sys
sys.modules["facade"] = None  # from here on there is no such library
try:
    import facade
except ImportError:
    pass
else:
    raise SystemExit("facade can be imported")
import numpy, torch
torch.set_num_threads(1)
answers = []
for place in sys.argv[1:]:
    sys.path.insert(0, place)
    sys.modules.pop("model", None)
    import model
    logits = model.load()(torch.from_numpy(numpy.load(place + "/images.npy")))
    answers.append([logits.argmax(1).tolist(), len(model.CLASSES)])
    sys.path.pop(0)
print(json.dumps(answers))
"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A settled FACADE run with a network that can be written out, and one that must be traced."""
    base = tmp_path_factory.mktemp("export")
    settings = ("training.rounds=30", "training.steps=5", "training.lr=0.1", "evaluation.every=30", "data.clusters=4:3")
    run(tiny(*settings), base / "mlp")
    run(tiny("model.name=resnet8", "data.clusters=2:1", "training.rounds=3"), base / "resnet8")
    assert history.load(base / "mlp").final.choice.tolist() in ([0, 0, 0, 0, 1, 1, 1], [1, 1, 1, 1, 0, 0, 0])
    return base


@pytest.fixture
def without_onnx(monkeypatch):
    """The ONNX exporter takes seconds; one test of it is enough."""
    monkeypatch.setattr(portable, "onnx", lambda model: WrittenForm(None, "not wanted here"))


def test_a_card_says_what_is_the_nodes_own_and_what_another_site_does_about_it(runs, tmp_path, without_onnx):
    export(runs / "mlp", tmp_path / "head", head=1)
    export(runs / "resnet8", tmp_path / "node", node=2)
    assert "own" not in (tmp_path / "head" / "README.md").read_text().split("## Where it comes from")[1]
    card = (tmp_path / "node" / "README.md").read_text()
    assert "## What is this node's own\n\n`core.1.running_mean`, `core.1.running_var`" in card
    assert "layer.reset_running_stats()" in card
    assert "Train the others" not in card


def test_an_exported_model_predicts_as_in_the_run_where_facade_is_not_installed(runs, tmp_path, without_onnx):
    export(runs / "mlp", tmp_path / "head", head=1)
    export(runs / "resnet8", tmp_path / "node", node=2)
    assert "nn.Sequential" in (tmp_path / "head" / "model.py").read_text()
    assert "torch.export.load" in (tmp_path / "node" / "model.py").read_text()
    past = [history.load(runs / "mlp"), history.load(runs / "resnet8")]
    places = [tmp_path / "head", tmp_path / "node"]
    nodes = [past[0].final.choice.tolist().index(1), 2]
    tests = [_test_of(run, node) for run, node in zip(past, nodes, strict=True)]
    for place, test in zip(places, tests, strict=True):
        np.save(place / "images.npy", test.x.numpy())
    done = subprocess.run([sys.executable, "-c", ALONE, *places], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for (predicted, classes), was, node, test in zip(json.loads(done.stdout), past, nodes, tests, strict=True):
        counts = np.zeros((classes, classes), int)
        np.add.at(counts, (test.y.numpy(), predicted), 1)
        assert counts.tolist() == was.final.confusion[node].tolist()


def _test_of(run, node):
    """The test set of a node."""
    experiment = tiny(f"data.clusters={run.experiment['data']['clusters']}")
    federation = load(experiment.data, experiment.seed)
    return federation.tests[federation.test_of[node]]


def test_the_command_writes_everything_and_a_card_that_says_what_was_not_tested(command, runs, tmp_path):
    ended = command("export", runs / "mlp", "--head", "0", "-o", tmp_path / "model")
    assert ended.code == 0, ended.err
    files = {path.name for path in (tmp_path / "model").iterdir()}
    missing = {"model.onnx"} if importlib.util.find_spec("onnxscript") is None else set()
    wanted = {"model.py", "weights.safetensors", "classes.json", "model.pt2", "model.onnx", "README.md"}
    assert files == wanted - missing
    assert json.loads((tmp_path / "model" / "classes.json").read_text()) == [str(d) for d in range(10)]
    card = (tmp_path / "model" / "README.md").read_text()
    past = history.load(runs / "mlp")
    users = np.nonzero(past.final.choice == 0)[0]
    mine = int(past.cluster[users[0]])
    matrix = past.final.confusion[users[0]]
    accuracy = f"{np.trace(matrix) / matrix.sum():.1%}"
    assert re.search(rf"\| cluster {mine} .*\| {accuracy} \| [\d.]+% to [\d.]+% \| 355 \|", card)
    assert re.search(rf"\| cluster {1 - mine} .*\| not tested \|", card)
    assert "## What it was not tested on" in card
    assert "test-set noise only" in card
    measured = r"\| [\d.]+\W% \[[\d.]+\W%, [\d.]+\W%\] \| 0\.\d+ \[[\d., ]+\] \| [\d.]+ \[[\d., ]+\] \| 0\.\d+ \|"
    assert re.search(rf"\| cluster {mine} .*{measured}", card)
    assert "calibrated" not in card
    assert str(tmp_path) not in card


def test_the_onnx_model_and_the_program_compute_the_same(runs, tmp_path):
    onnx = pytest.importorskip("onnx", reason="the onnx extra is not installed")
    pytest.importorskip("onnxscript", reason="the onnx extra is not installed")
    from onnx.reference import ReferenceEvaluator

    export(runs / "mlp", tmp_path / "model", node=0)
    images = np.arange(5 * 64, dtype=np.uint8).reshape(5, 1, 8, 8)
    onnx.checker.check_model(onnx.load(tmp_path / "model" / "model.onnx"))
    logits = ReferenceEvaluator(str(tmp_path / "model" / "model.onnx")).run(None, {"samples": images})[0]
    program = torch.export.load(tmp_path / "model" / "model.pt2").module()
    traced = program(torch.from_numpy(images)).detach().numpy()
    assert logits == pytest.approx(traced, abs=1e-5)


def test_an_onnx_model_that_answers_otherwise_is_left_out(runs, tmp_path, monkeypatch):
    pytest.importorskip("onnxscript", reason="the onnx extra is not installed")
    exporter = torch.onnx.export

    def wrong(model, *given, **options):
        other = copy.deepcopy(model)
        next(other.parameters()).data.zero_()
        return exporter(other, *given, **options)

    monkeypatch.setattr(torch.onnx, "export", wrong)
    written = export(runs / "mlp", tmp_path / "model", node=0)
    assert written.left_out == {"model.onnx": "the ONNX model does not compute what the run's model computes"}
    assert not (tmp_path / "model" / "model.onnx").exists()
    assert "does not compute" in (tmp_path / "model" / "README.md").read_text()


@pytest.mark.parametrize("name", ["softmax", "mlp", "cnn", "gn-lenet"])
def test_plain_architectures_are_written_out(name):
    module = set_up(tiny(f"model.name={name}")).learner.module({})
    text = written_out(module, torch.rand(2, 1, 8, 8))
    rebuilt = eval(text, {"nn": nn, "OrderedDict": OrderedDict})
    assert list(rebuilt.state_dict()) == list(module.state_dict())
    assert repr(rebuilt) == repr(module)


class Pooled(nn.Sequential):
    """A layer that does not print all that it does."""

    def __init__(self, shape, classes):
        pool = nn.AvgPool2d(3, 1, 1, count_include_pad=False)
        super().__init__(OrderedDict(core=nn.Sequential(pool, nn.Flatten()), head=nn.Linear(64, classes)))


def test_a_layer_that_does_not_print_all_it_does_is_traced(tmp_path, without_onnx):
    assert written_out(nn.Sequential(*Pooled((1, 8, 8), 10).core), torch.rand(2, 1, 8, 8)) is None
    run(tiny("model.name=results.test_export:Pooled"), tmp_path / "run")
    export(tmp_path / "run", tmp_path / "model", node=0)
    assert "torch.export.load" in (tmp_path / "model" / "model.py").read_text()


class Masked(nn.Module):
    """A random buffer that a state_dict leaves out."""

    def __init__(self, shape, classes):
        super().__init__()
        self.register_buffer("mask", torch.rand(64), persistent=False)
        self.core, self.head = nn.Linear(64, 8), nn.Linear(8, classes)

    def forward(self, x):
        z = self.core(x.flatten(1) * self.mask)
        return self.head(z if float(z.detach().sum()) > 0 else -z)  # which no tracer can follow


def test_buffers_outside_the_state_dict_are_taken_home(tmp_path, without_onnx):
    experiment = tiny("model.name=results.test_export:Masked", "training.init=per-node")
    result = run(experiment, tmp_path / "run")
    export(tmp_path / "run", tmp_path / "model", node=1)
    test = load(experiment.data, experiment.seed).tests[0]
    written = runpy.run_path(str(tmp_path / "model" / "model.py"))["load"]()
    with torch.no_grad():
        answers = written(test.x).argmax(1)
    (own,) = [row for row in result.rows if row["kind"] == "final" and row["node"] == 1]
    assert int((answers == test.y).sum()) == np.trace(own["confusion"])


def test_the_card_of_a_run_tested_by_an_oracle_claims_no_accuracy(tmp_path, without_onnx):
    run(tiny("evaluation.head=oracle"), tmp_path / "run")
    export(tmp_path / "run", tmp_path / "model", node=0)
    text = (tmp_path / "model" / "README.md").read_text()
    assert "the head that is best on the test data" in text
    assert text.count("not tested |") == 2


def test_a_model_of_the_balanced_loss_says_in_every_form_how_to_predict(tmp_path):
    settings = ("training.loss=balanced", "data.partition=dirichlet", "evaluation.prior=own")
    result = run(tiny(*settings), tmp_path / "run")
    export(tmp_path / "run", tmp_path / "model", node=3)
    card = (tmp_path / "model" / "README.md").read_text()
    assert f"{OWN_SHARES} Accuracies below are of predictions with every node's own label shares added." in card
    written = runpy.run_path(str(tmp_path / "model" / "model.py"))
    assert OWN_SHARES in " ".join(written["__doc__"].split())
    texts = {"advice.txt": ""}
    torch.export.load(tmp_path / "model" / "model.pt2", extra_files=texts)
    assert texts["advice.txt"] == OWN_SHARES
    if importlib.util.find_spec("onnx") is not None:
        import onnx

        assert onnx.load(tmp_path / "model" / "model.onnx").doc_string == OWN_SHARES
    federation = load(result.experiment.data, result.experiment.seed)
    test, held = federation.tests[1], federation.training
    counts = torch.bincount(held.samples.y[torch.from_numpy(held.rows[3])], minlength=10)
    with torch.no_grad():
        outputs = written["load"]()(test.x) + torch.log((counts + 0.5) / (counts.max() + 0.5))
    final = list(result.rows)[-1]
    assert int((outputs.argmax(1) == test.y).sum()) == np.trace(final["confusion"]) != np.trace(final["flat_confusion"])


def test_the_card_of_a_node_that_trained_alone_says_so(tmp_path, without_onnx):
    run(tiny("algorithm.name=local"), tmp_path / "run")
    export(tmp_path / "run", tmp_path / "model", node=0)
    assert (
        "Trained alone, beside 3 other nodes that each trained alone, for 6 rounds"
        in (tmp_path / "model" / "README.md").read_text()
    )


class Untraceable(nn.Module):
    """A forward that depends on its input, which no tracer can follow."""

    def __init__(self, shape, classes):
        super().__init__()
        self.core = nn.Sequential(nn.Flatten(), nn.Linear(shape[0] * shape[1] * shape[2], 8))
        self.head = nn.Linear(8, classes)

    def forward(self, x):
        z = self.core(x)
        return self.head(z if float(z.detach().sum()) > 0 else -z)


def test_a_module_that_cannot_be_traced_is_exported_as_the_users_own_class(tmp_path, without_onnx):
    run(tiny("model.name=results.test_export:Untraceable"), tmp_path / "run")
    done = export(tmp_path / "run", tmp_path / "model", node=0)
    assert "torch.export cannot trace this model" in done.left_out["model.pt2"]
    text = (tmp_path / "model" / "model.py").read_text()
    assert 'importlib.import_module("results.test_export").Untraceable(shape=(1, 8, 8), classes=10)' in text


def test_normalisation_is_built_in_to_the_bit():
    inputs = Inputs((3, 4, 4), [0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
    x = torch.arange(96, dtype=torch.uint8).view(2, 3, 4, 4) * 2
    model = Deployed(nn.Identity(), inputs, torch.float32, torch.uint8)
    assert torch.equal(model(x), inputs.prepare(x, torch.float32))


def test_rows_of_numbers_are_taken_as_they_are():
    model = Deployed(nn.Identity(), Inputs((4,), [0.5], [0.5]), torch.float32, torch.float32)
    x = torch.rand(2, 4)
    assert torch.equal(model(x), x)
    assert "self.network(x)" in portable.source(model, "mlp", ["a", "b"], traced=False)


def refusals(runs):
    return {
        (("--head", "7"), "mlp"): "--head 7 was deployed by nobody at the end of the run; heads in use: 0, 1",
        (("--node", "7"), "mlp"): "--node 7 does not exist; nodes are 0 to 6",
        ((), "mlp"): "say which model to export",
        (("--node", "1", "--head", "1"), "mlp"): "say which model to export",
        (("--head", "0"), "el-1"): "algorithm 'el' has no heads to choose from; use --node",
        (("--node", "0"), "nothing"): "holds no run",
    }


@pytest.mark.parametrize("case", range(6))
def test_an_export_that_makes_no_sense_is_refused_in_a_sentence(command, runs, digits_runs, tmp_path, case):
    (arguments, name), said = list(refusals(runs).items())[case]
    where = digits_runs if name == "el-1" else runs
    ended = command("export", where / name, *arguments, "-o", tmp_path / "model")
    assert ended.code == 2
    assert said in ended.err
    assert not (tmp_path / "model").exists()


def test_nodes_of_one_head_with_different_models_are_refused(tmp_path):
    run(tiny("algorithm.all_reduce=false"), tmp_path / "run")
    head = int(np.bincount(history.load(tmp_path / "run").final.choice).argmax())
    with pytest.raises(ExperimentError, match=rf"nodes that chose head {head} deploy different models"):
        export(tmp_path / "run", tmp_path / "model", head=head)


def test_a_directory_that_is_not_empty_is_refused(runs, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(RunDirectoryError, match="is not empty"):
        export(runs / "mlp", tmp_path, node=0)


def test_a_model_that_fails_its_own_check_is_not_left_behind(runs, tmp_path, without_onnx, monkeypatch):
    monkeypatch.setattr(portable, "source", lambda *_: "def load():\n    return lambda samples: samples\n")
    (tmp_path / "there").mkdir()
    for out in (tmp_path / "new", tmp_path / "there"):
        with pytest.raises(FacadeError, match="does not compute what the run's model computes, so nothing was written"):
            export(runs / "mlp", out, node=0)
    assert [path.name for path in tmp_path.rglob("*")] == ["there"]


def test_a_place_that_cannot_be_written_is_a_sentence(runs, tmp_path, without_onnx):
    (tmp_path / "taken").touch()
    with pytest.raises(StorageError, match="could not be written"):
        export(runs / "mlp", tmp_path / "taken" / "model", node=0)


@pytest.fixture
def site(tmp_path):
    """A new site with digits upside down: none, all, or those that an array marks."""

    def make(turned):
        from sklearn.datasets import load_digits

        raw = load_digits()
        x = (raw.images * 15).astype(np.uint8)
        turned = np.broadcast_to(turned, len(x))
        x[turned] = x[turned, ::-1, ::-1]
        np.savez(
            tmp_path / "site.npz",
            x_train=x[:200],
            y_train=raw.target[:200],
            x_test=x[200:300],
            y_test=raw.target[200:300],
        )
        return ["--data", "npz", "--root", tmp_path, "--path", "site.npz"]

    return make


@pytest.mark.parametrize("turned", [False, True])
def test_a_new_site_is_told_which_head_fits_with_the_losses(command, runs, site, turned):
    past = history.load(runs / "mlp")
    right = int(past.final.choice[-1 if turned else 0])
    ended = command("recommend", runs / "mlp", *site(turned))
    assert ended.code == 0, ended.err
    first, second, verdict = ended.out.splitlines()
    assert re.match(rf" +head {right}  loss [\d.]+  accuracy [\d.]+%", first)
    assert re.match(rf" +head {1 - right}  loss [\d.]+", second)
    assert verdict.startswith(f"Head {right} fits best, clearly by ")
    assert f"--node {past.final.choice.tolist().index(right)} -o DIR" in verdict


def test_a_site_that_is_half_of_either_kind_is_told_that_it_is_too_close_to_call(command, runs, site):
    ended = command("recommend", runs / "mlp", *site(np.arange(1797) % 2 == 0))
    assert ended.code == 0, ended.err
    pattern = (
        r"Head \d fits best, but too little to tell from chance: by ([\d.]+) ± ([\d.]+) over head \d\. Take it home"
    )
    by, reach = re.match(pattern, ended.out.splitlines()[-1]).groups()
    assert float(by) <= float(reach)


def test_heads_that_nobody_deploys_are_not_offered(command, runs, site, tmp_path):
    run(tiny("algorithm.heads=5"), tmp_path / "run")
    unused = sorted(set(range(5)) - set(history.load(tmp_path / "run").final.choice.tolist()))
    printed = command("recommend", tmp_path / "run", *site(False)).out
    assert unused
    for head in unused:
        assert f"head {head}  deployed by nobody" in printed


def test_a_site_with_other_inputs_or_classes_is_refused(command, runs, tmp_path):
    x, y = np.zeros((20, 9, 9), np.uint8), np.arange(20) % 2
    for changed, sentence in {
        "shape": "takes inputs of shape [1, 8, 8]",
        "classes": "the run knows no class 'cat'",
    }.items():
        images = x if changed == "shape" else x[:, :8, :8]
        names = {"classes": np.array(["cat", "dog"])} if changed == "classes" else {}
        np.savez(tmp_path / "s.npz", x_train=images, y_train=y, x_test=images, y_test=y, **names)
        ended = command("recommend", runs / "mlp", "--data", "npz", "--root", tmp_path, "--path", "s.npz")
        assert ended.code == 2
        assert sentence in ended.err
