"""What goes wrong because of what was asked, said in one sentence.

`InputError` is raised for anything the caller can mend: a bad file, an impossible option, a space a sampler
cannot walk. The command line prints its sentence on stderr and exits with code 2; a traceback there is a bug.
"""


class InputError(ValueError):
    """A request that cannot be met; the message says what was wrong, where, and what to do.

    >>> raise InputError("batch 0 is too small; pass at least 1")
    Traceback (most recent call last):
    unnorm.errors.InputError: batch 0 is too small; pass at least 1
    """


def require(condition: bool, sentence: str) -> None:
    """Raise `InputError(sentence)` unless the condition holds."""
    if not condition:
        raise InputError(sentence)
