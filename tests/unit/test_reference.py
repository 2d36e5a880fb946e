"""The reference has a page for every package, and every public name on it says what it is."""

import importlib.util
from pathlib import Path

import pytest

import unnorm as un

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs" / "reference" / "build.py"


@pytest.fixture(scope="module")
def pages():
    spec = importlib.util.spec_from_file_location("reference_pages", PAGES)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("package", un._MODULES)
def test_every_public_name_is_on_its_page(pages, package):
    module = getattr(un, package)
    own = {name: getattr(module, name) for name in getattr(module, "__all__", vars(module))}
    offered = {n for n, of in own.items() if n[0] != "_" and not n.isupper() and callable(of) and _ours(of)}
    assert len(offered) >= 3
    assert offered <= set(pages.public(package))
    text = pages.markdown(package)
    assert all(f"::: unnorm.{package}.{name}\n" in text for name in offered)
    assert pages.PAGE.format(package) in (ROOT / "mkdocs.yml").read_text()


def _ours(value: object) -> bool:
    return str(getattr(value, "__module__", "")).startswith("unnorm.") and not hasattr(value, "__origin__")


@pytest.mark.parametrize("package", un._MODULES)
def test_every_public_class_and_function_says_what_it_is(pages, package):
    silent = [name for name, path in pages.public(package).items() if _is_code(name, path) and not pages.summary(path)]
    assert silent == []


def _is_code(name: str, path: str) -> bool:
    value = getattr(importlib.import_module(path.rsplit(".", 1)[0]), path.rsplit(".", 1)[1])
    return callable(value) and _ours(value)


def test_a_name_that_is_nowhere_has_nothing_to_say(pages):
    """The control, and examples become code while prose stays prose."""
    assert pages.summary("unnorm.evaluation.partition.ais.no_such_name") == ""
    docstring = "What it is.\n\n>>> 1 + 1\n2\n"
    held = type("Held", (), {"docstring": type("Text", (), {"value": docstring})()})()
    pages.Doctests().on_instance(obj=held)
    assert held.docstring.value == "What it is.\n\n```python\n>>> 1 + 1\n2\n```\n"
