"""What the library imports is what it says it needs."""

import ast
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
#: Packages whose names for `import` and for pip differ.
NAMES = {"sklearn": "scikit-learn", "skimage": "scikit-image", "PIL": "pillow"}


def wanted(text: str) -> set[str]:
    """The packages that a source imports, by their names for pip."""
    nodes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Import | ast.ImportFrom)]
    modules = [
        name
        for node in nodes
        for name in ([alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""])
    ]
    found = {module.split(".")[0] for module in modules} - set(sys.stdlib_module_names) - {"unnorm", ""}
    return {NAMES.get(name, name) for name in found}


def listed() -> set[str]:
    """The packages that an installation with all extras for users brings."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = [entry for name, of in project["optional-dependencies"].items() if name != "dev" for entry in of]
    return {entry.split(">")[0].split("=")[0].split("[")[0] for entry in [*project["dependencies"], *extras]}


def test_all_that_is_imported_is_listed():
    missing = {
        package: str(path.relative_to(ROOT))
        for path in (ROOT / "src").rglob("*.py")
        for package in wanted(path.read_text()) - listed() - {"pandas"}  # a user's own frames, never required
    }
    assert not missing


@pytest.mark.parametrize("line", ["import beartype", "from beartype.door import is_bearable", "import pooch as p"])
def test_what_only_the_tests_need_is_not_the_librarys(line):
    """The control: these are seen, and would be missing."""
    assert wanted(line) - listed()
