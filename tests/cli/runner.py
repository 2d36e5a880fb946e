"""Run the command line inside this process: fast, with the compiled programs of earlier tests."""

import contextlib
import io
import sys
from dataclasses import dataclass

from unnorm.cli import main


@dataclass(frozen=True)
class Result:
    code: int
    out: str
    err: str


def unnorm(*arguments: object) -> Result:
    """What `unnorm ARGUMENTS` does: exit code, stdout, stderr."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    argv, sys.argv = sys.argv, ["unnorm", *map(str, arguments)]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                main()
            except SystemExit as stop:
                code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    finally:
        sys.argv = argv
    return Result(code, out.getvalue(), err.getvalue())


def refused(result: Result, *words: str) -> bool:
    """Exit code 2, nothing on stdout, one sentence on stderr that holds the words, no traceback."""
    lines = [line for line in result.err.splitlines() if line.strip()]
    return (
        result.code == 2
        and result.out == ""
        and "Traceback" not in result.err
        and len(lines) == 1
        and lines[0].startswith("unnorm: ")
        and all(word in lines[0] for word in words)
    )


def write_csv(path, values, columns=("length", "width")):
    """The values as a CSV file with a header."""
    lines = [",".join(columns), *(",".join(repr(float(v)) for v in row) for row in values)]
    path.write_text("\n".join(lines) + "\n")
    return path
