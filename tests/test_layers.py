import ast
from pathlib import Path

import facade
from surroundings import loaded_by

SOURCE = Path(facade.__file__).parent
MODULES = {
    ".".join(("facade", *path.relative_to(SOURCE).with_suffix("").parts)).removesuffix(".__init__"): path
    for path in SOURCE.rglob("*.py")
}
LOW = {"errors", "tree", "seeds", "topology", "messages", "metrics", "optimisers", "executor", "linear_heads"}
BOTTOM = {"errors", "tree", "seeds", "metrics"}
"""Of the library, these know errors alone."""
PACKAGES_ABOVE = {"algorithms", "runtimes", "cli", "report"}


def imported(path, *, anywhere):
    """Modules of this library that a file imports: when it is loaded, or `anywhere` in it."""
    body = ast.parse(path.read_text())
    nodes = ast.walk(body) if anywhere else _at_load(body)
    found = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            inside = {f"{node.module}.{alias.name}" for alias in node.names} & MODULES.keys()
            found |= inside or {node.module}
    return found & MODULES.keys()


def _at_load(node):
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
            continue
        yield child
        yield from _at_load(child)


def test_low_modules_never_import_higher_ones():
    for name in LOW:
        found = {module.removeprefix("facade.") for module in imported(MODULES[f"facade.{name}"], anywhere=True)}
        assert found <= LOW, f"{name} imports {found - LOW}"


def test_the_lowest_modules_know_only_errors():
    for name in BOTTOM:
        assert imported(MODULES[f"facade.{name}"], anywhere=True) <= {"facade.errors"}, name


def test_only_runtimes_and_commands_know_the_peers():
    for name, path in MODULES.items():
        if name.split(".")[1:2] not in (["peers"], ["runtimes"], ["cli"]):
            found = {module for module in imported(path, anywhere=True) if module.startswith("facade.peers")}
            assert not found, f"{name} imports {found}"


def test_modules_load_in_one_direction():
    waiting = {name: imported(path, anywhere=False) - {name, "facade"} for name, path in MODULES.items()}
    while waiting:
        ready = {name for name, needs in waiting.items() if not needs & waiting.keys()}
        assert ready, f"these modules import each other: {sorted(waiting)}"
        waiting = {name: needs for name, needs in waiting.items() if name not in ready}


def test_the_round_loop_knows_no_algorithm_and_no_runtime_when_it_is_loaded():
    above = {"facade.config", "facade.setup", "facade.records", "facade.result"}
    for module in imported(MODULES["facade.engine"], anywhere=False):
        assert module not in above
        assert module.split(".")[1] not in PACKAGES_ABOVE


def test_algorithms_know_no_runtime_no_configuration_and_no_test_data():
    allowed = LOW | {"engine", "algorithms", "learner"}
    for name, path in MODULES.items():
        if name.startswith("facade.algorithms"):
            found = {module.split(".")[1] for module in imported(path, anywhere=True) if module != "facade"}
            assert found <= allowed, f"{name} imports {found - allowed}"


def test_importing_facade_loads_no_heavy_library():
    heavy = ("torch", "numpy", "sklearn", "ray", "grpc", "matplotlib", "altair")
    assert loaded_by("import facade", *heavy) == []


def test_every_public_name_is_found():
    for name in facade.__all__:
        assert getattr(facade, name).__name__ == name
