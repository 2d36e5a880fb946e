"""How long a user waits before anything happens: the help text, and the imports."""

import importlib.util
import subprocess
import sys

from benchmarks.harness import Bar, Report, Side, compare, measure, skipped

#: What the console script runs.
HELP = "import sys; from unnorm.cli import main; sys.exit(main())"
#: Names load on first use, so the bare import is nearly free; this is what a program that does something pays.
IN_USE = "import unnorm; unnorm.fit; unnorm.sample; unnorm.log_partition"


def _python(label: str, program: str, *arguments: str) -> Side:
    def call() -> None:
        done = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError((done.stderr.strip() or done.stdout.strip()).splitlines()[-1])

    return Side(label, call)


def run(*, repeats: int) -> list[Report]:
    """Whole processes, from launch to exit."""
    libraries = _python("import jax, equinox", "import jax, equinox")
    if importlib.util.find_spec("unnorm.cli") is None:
        first = skipped("unnorm --help", "there is no command line yet")
    else:
        first = measure(
            "unnorm --help, milliseconds",
            _python("unnorm --help", HELP, "--help"),
            repeats=repeats,
            bar=Bar(300, at_least=False),
        )
    bare = compare(
        "import unnorm",
        libraries,
        _python("import unnorm", "import unnorm"),
        repeats=repeats,
        bar=Bar(1.5, at_least=False),
    )
    in_use = _python("import unnorm and use it", IN_USE)
    return [first, bare, compare("import unnorm; fit, sample, log_partition", libraries, in_use, repeats=repeats)]
