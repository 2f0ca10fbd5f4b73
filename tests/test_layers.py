"""Imports go one way, those inside functions and those for type checkers included."""

import ast
from importlib.metadata import version
from pathlib import Path

import facade
from surroundings import loaded_by

SOURCE = Path(facade.__file__).parent
MODULES = {
    ".".join(("facade", *path.relative_to(SOURCE).with_suffix("").parts)).removesuffix(".__init__"): path
    for path in SOURCE.rglob("*.py")
}
LAYERS = [
    {"errors"},
    {"files"},
    {"core", "learning", "data"},
    {"algorithms"},
    {"guards"},
    {"attacks"},
    {"experiment", "runs", "analysis"},
    {"testing", "export", "report", "sweep", "runtimes", "peers", "paper", "benchmarks", "trackers", "studies"},
    {"watch"},
    {"cli"},
    {"__main__"},
]
"""A package knows its own layer and those before it; `facade` itself, which names the public ones, knows all."""
HEIGHT = {package: height for height, packages in enumerate(LAYERS) for package in packages}


def imported(path):
    """Modules of this library that a file imports, wherever in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            inside = {f"{node.module}.{alias.name}" for alias in node.names} & MODULES.keys()
            found |= inside or {node.module}
    return found & MODULES.keys() - {"facade"}


def package(module):
    """The package, or the module at the top, that a module belongs to."""
    return module.split(".")[1]


def test_the_top_holds_packages_and_at_most_four_modules():
    assert {path.name for path in SOURCE.glob("*.py")} <= {"__init__.py", "__main__.py", "errors.py"}


def test_packages_import_only_their_own_layer_and_those_below():
    for name, path in MODULES.items():
        if name != "facade":
            above = {other for other in imported(path) if HEIGHT[package(other)] > HEIGHT[package(name)]}
            assert not above, f"{name} imports {above}"


def test_no_module_imports_itself_by_way_of_others():
    waiting = {name: imported(path) - {name} for name, path in MODULES.items() if name != "facade"}
    while waiting:
        ready = {name for name, needs in waiting.items() if not needs & waiting.keys()}
        assert ready, f"these modules import each other, or such as do: {sorted(waiting)}"
        waiting = {name: needs for name, needs in waiting.items() if name not in ready}


def test_algorithms_know_no_data_sets_and_no_test_data():
    for name, path in MODULES.items():
        if name.startswith("facade.algorithms"):
            assert "facade.data.federation" not in imported(path), name


def test_only_commands_benchmarks_and_the_page_that_watches_know_the_peers():
    for name, path in MODULES.items():
        if package(name + ".") not in ("peers", "watch", "cli", "benchmarks"):
            found = {module for module in imported(path) if module.startswith("facade.peers")}
            assert not found, f"{name} imports {found}"


def test_files_are_short_and_so_are_functions():
    for name, path in MODULES.items():
        text = path.read_text()
        assert len(text.splitlines()) <= 400, name
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                assert node.end_lineno - node.lineno < 45, f"{name}.{node.name}"


def test_importing_facade_loads_no_heavy_library():
    heavy = ("torch", "numpy", "sklearn", "ray", "grpc", "matplotlib", "altair")
    assert loaded_by("import facade; facade.__version__", *heavy) == []


def test_the_version_is_that_of_the_installed_package():
    assert facade.__version__ == version("facade-dl")
    assert "__version__" in dir(facade)


def test_every_public_name_is_found():
    for name in facade.__all__:
        assert getattr(facade, name).__name__ == name
