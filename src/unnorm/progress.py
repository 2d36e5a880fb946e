"""A progress bar on stderr for work that takes longer than a breath.

Everything long runs in chunks; between chunks it calls `advance`. The bar appears only on a terminal, so logs and
pipes stay clean, and only if asked for.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol, runtime_checkable


@runtime_checkable
class Advance(Protocol):
    """Tell the bar that `done` more units are finished, with a short remark such as the loss."""

    def __call__(self, done: int, remark: str = "") -> None: ...


def silent(done: int, remark: str = "") -> None:
    """No bar: for callers that are not watched."""


#: The stage that is under way, which bars name before what they count.
_STAGE: ContextVar[str] = ContextVar("stage", default="")


@contextmanager
def stage(name: str, *, show: bool) -> Iterator[None]:
    """A part of a longer job: said on stderr as it begins (on a terminal or not), and named by the bars within it."""
    if show:
        print(name, file=sys.stderr, flush=True)
    token = _STAGE.set(name.split(":")[0])
    try:
        yield
    finally:
        _STAGE.reset(token)


@contextmanager
def progress(label: str, total: int, *, show: bool) -> Iterator[Advance]:
    """A bar of `total` units, or nothing when `show` is false or stderr is not a terminal."""
    if not (show and sys.stderr.isatty()):
        yield silent
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[remark]}"),
    )
    part = _STAGE.get()
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(f"{part} · {label}" if part else label, total=total, remark="")
        yield lambda done, remark="": bar.update(task, advance=done, remark=remark)
