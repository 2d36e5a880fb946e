"""The pages of the reference, one for each package: a table of its public names, then each with its arguments.

MkDocs calls this file (`hooks` in mkdocs.yml), and Griffe, which reads the sources, takes `Doctests` from it. The
library is read and not imported.
"""

import ast
import re
from pathlib import Path
from typing import Any

import griffe
from mkdocs.structure.files import File, Files

SOURCE = Path(__file__).parents[2] / "src" / "unnorm"
#: Packages in the order of the house, from the bottom.
PACKAGES = (
    "spaces", "networks", "energies", "noises", "data", "scores", "samplers", "generators", "objectives", "training",
    "evaluation", "tasks", "graphs", "catalogue", "runs",
)  # fmt: skip
PAGE = "reference/{}.md"
#: From a prompt to the next empty line.
EXAMPLE = re.compile(r"(?ms)^>>> .*?(?=^\s*$|\Z)")


def public(package: str) -> dict[str, str]:
    """The names a package offers, each with where it is written; tables of names (in capitals) are left out."""
    tree = ast.parse((SOURCE / package / "__init__.py").read_text())
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    written = {alias.asname or alias.name: f"{node.module}.{alias.name}" for node in imports for alias in node.names}
    offered = [alias.asname for node in imports for alias in node.names if alias.asname]
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            offered = ast.literal_eval(node.value)
    return {name: written.get(name, f"unnorm.{package}.{name}") for name in offered if not name.isupper()}


def summary(path: str) -> str:
    """The first line of what a name says of itself."""
    module, name = path.rsplit(".", 1)
    file = SOURCE.parent / Path(*module.split("."))
    tree = ast.parse(
        (file.with_suffix(".py") if file.with_suffix(".py").exists() else file / "__init__.py").read_text()
    )
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == name:
            text = ast.get_docstring(node) or ""
            return " ".join(text.split("\n\n")[0].split())
    return ""


def markdown(package: str) -> str:
    """The page of a package."""
    names = public(package)
    lines = [
        f"# unnorm.{package}",
        "",
        ast.get_docstring(ast.parse((SOURCE / package / "__init__.py").read_text())) or "",
    ]
    lines += ["", "| Name | What it is |", "|---|---|"]
    for name, path in names.items():
        told = summary(path).replace("|", "\\|").replace("<", "&lt;")
        lines.append(f"| [`{name}`](#unnorm.{package}.{name}) | {told} |")
    lines.append("")
    lines += [f"::: unnorm.{package}.{name}\n" for name in names]
    return "\n".join(lines)


def on_files(files: Files, config: Any) -> Files:
    """Every package that has public names gets its page."""
    for package in PACKAGES:
        if (SOURCE / package / "__init__.py").exists() and public(package):
            files.append(File.generated(config, PAGE.format(package), content=markdown(package)))
    return files


class Doctests(griffe.Extension):
    """Examples in docstrings are code: without fences their >>> would be quotations."""

    def on_instance(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        if obj.docstring:
            obj.docstring.value = re.sub(
                r"(?ms)^>>> .*?(?=^\s*$|\Z)",
                lambda block: f"```python\n{block.group().rstrip()}\n```\n",
                obj.docstring.value,
            )
