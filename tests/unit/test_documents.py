"""What the documents say is true: their code runs, their commands exist, their names are in the library."""

import importlib
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import numpy as np
import pytest
from runner import unnorm

pytestmark = pytest.mark.optimised

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
DOCUMENTS = [README, ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
SOURCE = ROOT / "src"

FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SHELL = ("sh", "console")


class Block(NamedTuple):
    language: str
    text: str
    line: int


def blocks(document: Path, *languages: str) -> list[Block]:
    """The fenced blocks of a document in these languages, and the lines their code begins on."""
    text = document.read_text(encoding="utf-8")
    found = (Block(m[1], m[2], text.count("\n", 0, m.start(2)) + 1) for m in FENCE.finditer(text))
    return [block for block in found if block.language in languages]


def commands(document: Path, program: str) -> list[list[str]]:
    """The shell lines of a document that call a program, as words."""
    lines = [line for block in blocks(document, *SHELL) for line in block.text.splitlines()]
    return [shlex.split(line, comments=True) for line in lines if line.startswith(f"{program} ")]


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder to work in, with a small table of two groups."""
    rng = np.random.default_rng(0)
    tall = rng.integers(0, 2, 300)
    values = np.where(tall[:, None], [1.8, 80.0], [1.6, 60.0]) + rng.normal(size=(300, 2)) * [0.05, 4.0]
    np.savetxt(tmp_path / "measurements.csv", values, delimiter=",", header="height,weight", comments="")
    monkeypatch.chdir(tmp_path)
    return tmp_path


# ------------------------------------------------------------------------------------------------ code that runs


@pytest.mark.parametrize("document", [d for d in DOCUMENTS if blocks(d, "python")], ids=name_of)
def test_python_runs(document, folder, monkeypatch):
    """The blocks of one document, in order, in one namespace; an error shows the document's own line."""
    module = ModuleType("document")
    monkeypatch.setitem(sys.modules, "document", module)
    # The laws shown to contributors import the harness as laws do.
    monkeypatch.syspath_prepend(ROOT / "tests" / "laws")
    if 'un.load("run")' in document.read_text(encoding="utf-8"):
        # The run that a reader has made on the command line by then.
        made = unnorm("fit", "measurements.csv", "--out", "run", "--steps", 100, "--no-report", "--quiet")
        assert made.code == 0, made.err
    for block in blocks(document, "python"):
        exec(compile("\n" * (block.line - 1) + block.text, document, "exec"), module.__dict__)
    if document == README:
        _check_what_readme_promises(module)


def _check_what_readme_promises(module: ModuleType) -> None:
    """The README says what its example prints, and how far that is from the truth."""
    said, truth = re.findall(r"about (-[\d.]+) ± .* true density has (-[\d.]+) ", README.read_text(), re.DOTALL)[0]
    found = module.un.log_likelihood(module.fit.model, module.problem.test, module.log_z)
    assert abs(found.value - float(said)) < 0.02
    assert 0.01 < found.stderr < 0.025
    assert round(-module.problem.facts["entropy"], 2) == float(truth)


def test_readme_commands_run(folder):
    """One after the other in one folder, as a reader would type them."""
    path = os.pathsep.join(filter(None, [str(SOURCE), os.environ.get("PYTHONPATH")]))
    for words in commands(README, "unnorm"):
        done = subprocess.run(
            [sys.executable, "-m", *words],
            cwd=folder,
            # As a reader's programs are compiled, even where compiling is kept short.
            env={**os.environ, "PYTHONPATH": path, "JAX_DISABLE_MOST_OPTIMIZATIONS": "0"},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, f"{shlex.join(words)}\n{done.stderr}"
        for place in [words[i + 1] for i, word in enumerate(words) if word == "--out"]:
            assert (folder / place).exists(), f"{shlex.join(words)} did not write {place}"
    assert (folder / "rings-run" / "report.html").stat().st_size > 10_000
    assert len((folder / "draws.csv").read_text().splitlines()) == 501


# ------------------------------------------------------------------------------------------------ names that exist


@pytest.mark.parametrize("document", [d for d in DOCUMENTS if commands(d, "unnorm")], ids=name_of)
def test_commands_are_understood(document):
    """Every command line in a document parses: the command, its arguments and its options exist."""
    import typer

    from unnorm.cli.app import app

    group = typer.main.get_command(app)
    for _, name, *arguments in commands(document, "unnorm"):
        if name != "--help":
            group.commands[name].make_context(name, list(arguments))


#: For each row of the README's table: the module its names are in, and the list of the catalogue that must be complete.
ROWS = {
    "Energies": ("unnorm.energies", "models"),
    "Scores": ("unnorm.scores", None),
    "Noises": ("unnorm.noises", "noises"),
    "Objectives": ("unnorm.objectives", "objectives"),
    "Samplers": ("unnorm.samplers", "samplers"),
    "Generators": ("unnorm.generators", "generators"),
    "Evaluation": ("unnorm.evaluation", None),
    "Tasks": ("unnorm.tasks", None),
    "Training": ("unnorm.training", None),
    "Data": ("unnorm.data", "data"),
    "Commands": ("unnorm.cli.app", None),
}


def table_rows() -> dict[str, list[str]]:
    """The README's table: what, and the names in it."""
    rows = re.findall(r"^\| (\w+) \| (.+) \|$", README.read_text(encoding="utf-8"), re.MULTILINE)
    return {what: re.findall(r"`([^`]+)`", names) for what, names in rows if what != "What"}


def test_readme_table_has_these_rows():
    assert list(table_rows()) == list(ROWS)


@pytest.mark.parametrize("what", [row for row in ROWS if row != "Commands"])
def test_readme_table_names_what_exists(what):
    """A name is public in its module or in `unnorm list`, and nothing that `unnorm list` shows is left out."""
    from unnorm.catalogue import listing

    module, kind = ROWS[what]
    listed = {name for name, _ in listing()[kind]} if kind else set()
    names = table_rows()[what]
    public = vars(importlib.import_module(module))
    assert [name for name in names if name not in public and name not in listed] == []
    assert sorted(listed - set(names)) == []


def test_readme_table_names_the_commands():
    import typer

    from unnorm.cli.app import app

    assert sorted(table_rows()["Commands"]) == sorted(typer.main.get_command(app).commands)


# ------------------------------------------------------------------------------------------------ form


def test_readme_has_two_make_commands():
    assert commands(README, "make") == [["make", "demo"], ["make", "test"]]
    assert set(re.findall(r"\bmake [a-z]+", README.read_text())) == {"make demo", "make test"}
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert {"demo", "test"} <= set(targets)


def test_readme_examples_are_short():
    (python,) = blocks(README, "python")
    (shell,) = blocks(README, "sh")
    assert sum(line.strip() != "" for line in python.text.splitlines()) <= 10
    assert sum(line.strip() != "" for line in shell.text.splitlines()) <= 5


@pytest.mark.parametrize("document", DOCUMENTS[:2], ids=name_of)
def test_links_lead_somewhere(document):
    """Links between files; those of `docs` are checked when the pages are built."""
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", document.read_text(encoding="utf-8"))
    inside = [link for link in links if "://" not in link]
    assert [link for link in inside if not (ROOT / link).exists()] == []


def test_pages_build(tmp_path):
    """Strictly: a page outside the menu, or a link to nowhere, is an error."""
    pytest.importorskip("mkdocs")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", tmp_path / "site"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "A new sampler" in (tmp_path / "site" / "contributing" / "index.html").read_text(encoding="utf-8")
