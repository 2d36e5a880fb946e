"""An experiment's digest follows its siblings: a folder of pieces must not go on under other code."""

import hashlib
import importlib
from pathlib import Path

import pytest

from unnorm.experiments.sources import digest, sources

FILES = {
    "__init__.py": "",
    "first.py": "import os\nfrom pack.second import thing\n\n\ndef run():\n    from pack import lazy\n",
    "second.py": "from .third import thing\n",
    "third.py": "import pack.first\nthing = 1\n",
    "lazy.py": "from . import dotted\n",
    "dotted.py": "",
    "stranger.py": "from pack.first import run\n",
}


@pytest.fixture
def folder(tmp_path):
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def code(folder: Path, release: str = "1") -> str:
    return digest(folder / "first.py", folder, "pack", release)


def test_every_sibling_that_is_reached_is_found(folder):
    found = [path.name for path in sources(folder / "first.py", folder, "pack")]
    assert found == ["dotted.py", "first.py", "lazy.py", "second.py", "third.py"]
    assert [path.name for path in sources(folder / "first.py", folder, "package")] == ["first.py"]


@pytest.mark.parametrize("name", ["first.py", "second.py", "third.py", "lazy.py", "dotted.py"])
def test_a_change_in_any_of_them_is_another_code(folder, name):
    before, alone = code(folder), hashlib.sha256((folder / "first.py").read_bytes()).hexdigest()
    assert code(folder) == before
    (folder / name).write_text(FILES[name] + "# another\n")
    assert code(folder) != before
    # Control: the digest of one file sees its own changes only.
    assert (hashlib.sha256((folder / "first.py").read_bytes()).hexdigest() == alone) is (name != "first.py")


def test_what_is_not_imported_plays_no_part(folder):
    before = code(folder)
    for name in ("stranger.py", "__init__.py"):
        (folder / name).write_text("# another\n")
    assert code(folder) == before != code(folder, "2")


def test_experiments_that_share_a_file_have_it_in_their_code(tmp_path):
    """On a copy of the experiments, so that a file can be changed."""
    module = importlib.import_module("unnorm.experiments.gibbs_table1")
    for path in Path(module.__file__).parent.glob("*.py"):
        (tmp_path / path.name).write_bytes(path.read_bytes())

    def codes():
        names = ("gibbs_table1", "gibbs_posterior", "blindness")
        return [digest(tmp_path / f"{name}.py", tmp_path, "unnorm.experiments", "1") for name in names]

    before = codes()
    with (tmp_path / "gibbs_models.py").open("a") as file:
        file.write("# another\n")
    assert [a == b for a, b in zip(before, codes(), strict=True)] == [False, False, True]
    assert len(module.EXPERIMENT.code) == 16
