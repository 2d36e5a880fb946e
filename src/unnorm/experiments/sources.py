"""Which files an experiment is written in: its module and those of its package that it imports; nothing is run."""

import ast
import hashlib
from pathlib import Path


def _named(node: ast.AST, package: str) -> list[str]:
    """The modules, by their names within the package, that an import may mean."""
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom):
        # The modules of a package lie side by side, so that one dot means the package itself.
        module = ".".join([package, *filter(None, [node.module])]) if node.level else node.module or ""
        # `from package import name` may mean a module of that name, or what the package itself has under it.
        names = [module, *(f"{module}.{alias.name}" for alias in node.names)]
    else:
        names = []
    return [name.removeprefix(f"{package}.") for name in names if name.startswith(f"{package}.")]


def sources(module: Path, folder: Path, package: str) -> tuple[Path, ...]:
    """`module` and the modules in `folder`, the package's, that it imports, and those that these import, and so on.

    Imports within functions count. What is imported by a name made at run time is not seen.

    >>> here = Path(__file__).parent
    >>> [path.name for path in sources(here / "hosm_table.py", here, "unnorm.experiments")]
    ['base.py', 'hosm_errors.py', 'hosm_table.py', 'hosm_targets.py', 'hosm_times.py', 'sources.py']
    """
    found, waiting = set(), [module]
    while waiting:
        path = waiting.pop()
        if path not in found:
            found.add(path)
            names = [name for node in ast.walk(ast.parse(path.read_bytes())) for name in _named(node, package)]
            imported = [folder / f"{name.split('.')[0]}.py" for name in names]
            waiting += [file for file in imported if file.is_file()]
    return tuple(sorted(found))


def digest(module: Path, folder: Path, package: str, release: str) -> str:
    """A short digest of all that `sources` finds, by name and content, and of the release."""
    found = hashlib.sha256(release.encode())
    for path in sources(module, folder, package):
        found.update(f"\0{path.name}\0".encode() + path.read_bytes())
    return found.hexdigest()[:16]
