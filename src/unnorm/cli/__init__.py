"""The command line: `unnorm --help`.

Nothing heavy is imported until a command runs, so help and mistakes answer at once.
"""

import errno
import os
import sys

from unnorm.errors import InputError

#: What becomes of a command that was cut short, where it saves anything on the way.
_GOES_ON = {
    "fit": "the same command with --resume goes on from what was saved",
    "compare": "the same command goes on from what was saved if it has --out, and begins again if not",
    "score": "the same command goes on from what was saved",
    "sample": "the same command goes on with draws in a folder, and begins again with those in a file",
    "reproduce": "the same command goes on from what was saved",
}
#: How shells name the end by Ctrl-C.
_INTERRUPTED = 130


def main() -> None:
    """Run a command; whatever the caller can mend is one sentence on stderr and exit code 2."""
    from unnorm.cli.app import app

    try:
        app(prog_name="unnorm")
    except InputError as error:
        _fail(str(error))
    except KeyboardInterrupt:
        _fail(f"interrupted; {_advice()}", _INTERRUPTED)
    except SystemExit as stop:
        # A command that runs is interrupted like this.
        if stop.code == _INTERRUPTED:
            _fail(f"interrupted; {_advice()}", _INTERRUPTED)
        raise
    except BrokenPipeError:
        # The reader of a pipe has enough; what it did not read is not an error.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except OSError as error:
        place = f" {error.filename}" if error.filename else ""
        advice = f"; free some space, then {_advice()}" if error.errno == errno.ENOSPC else ""
        _fail(f"cannot use{place}: {(error.strerror or str(error)).lower()}{advice}")


def _advice() -> str:
    """How to go on with the command that was given."""
    return _GOES_ON.get(sys.argv[1] if len(sys.argv) > 1 else "", "nothing was saved; the same command begins again")


def _fail(sentence: str, code: int = 2) -> None:
    print(f"unnorm: {sentence}", file=sys.stderr)
    sys.exit(code)
