"""The command line: `unnorm --help`.

Nothing heavy is imported until a command runs, so help and mistakes answer at once.
"""

import errno
import os
import sys

from unnorm.errors import InputError


def main() -> None:
    """Run a command; whatever the caller can mend is one sentence on stderr and exit code 2."""
    from unnorm.cli.app import app

    try:
        app(prog_name="unnorm")
    except InputError as error:
        _fail(str(error))
    except KeyboardInterrupt:
        print("unnorm: interrupted; what was saved can be continued with --resume", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:
        # The reader of a pipe has enough; what it did not read is not an error.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except OSError as error:
        place = f" {error.filename}" if error.filename else ""
        advice = "; free some space and run again with --resume" if error.errno == errno.ENOSPC else ""
        _fail(f"cannot use{place}: {(error.strerror or str(error)).lower()}{advice}")


def _fail(sentence: str) -> None:
    print(f"unnorm: {sentence}", file=sys.stderr)
    sys.exit(2)
