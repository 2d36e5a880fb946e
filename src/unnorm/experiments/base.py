"""What an experiment is: pieces of work that are kept as they finish, figures beside the published ones, and claims.

Each experiment is a module `unnorm.experiments.NAME` with one value `EXPERIMENT`. Its `run` does the work in pieces
(one seed, one method): each is a JSON file of the output folder the moment it is done, so that an interrupted
experiment goes on where it stopped. Its `draw` makes the figure from the result alone, so the numbers of the picture
are in the result.
"""

import inspect
import itertools
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
from matplotlib.figure import Figure

from unnorm import __version__
from unnorm.errors import InputError, require
from unnorm.estimate import Estimate
from unnorm.experiments.sources import digest
from unnorm.files import write_atomically
from unnorm.plots import png, styled
from unnorm.progress import progress as progress_bar

Scale = Literal["quick", "paper"]


@dataclass(frozen=True)
class Published:
    """A figure printed in a source; `error` as printed there, if it was."""

    value: float
    error: float | None = None

    def number(self) -> str:
        """As printed."""
        return f"{self.value:g}" + ("" if self.error is None else f" ± {self.error:g}")


@dataclass(frozen=True)
class Row:
    """One line of a table: what was measured, and what the source says of it (column by column, where it does)."""

    label: str
    figures: Mapping[str, Estimate]
    published: Mapping[str, Published] = field(default_factory=dict)


@dataclass(frozen=True)
class Claim:
    """A sentence the experiment was to show, and whether the figures show it."""

    sentence: str
    holds: bool


@dataclass(frozen=True, eq=False)
class Result:
    """A table, the claims it bears out or not, and the numbers of the picture (`series`, plain lists and dicts)."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    claims: tuple[Claim, ...]
    series: Mapping[str, Any] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()

    def row(self, label: str) -> Row:
        """The line of this label."""
        return next(row for row in self.rows if row.label == label)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "title": self.title,
            "rows": [
                {
                    "label": row.label,
                    "figures": {name: value.to_dict() for name, value in row.figures.items()},
                    "published": {n: {"value": p.value, "error": p.error} for n, p in row.published.items()},
                }
                for row in self.rows
            ],
            "claims": [{"sentence": claim.sentence, "holds": claim.holds} for claim in self.claims],
            "remarks": list(self.remarks),
            "series": dict(self.series),
        }


def _read_json(file: Path, advice: str) -> Any:
    """What the file holds; one that is not JSON is refused with the advice."""
    try:
        return json.loads(file.read_text())
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{file} is damaged; {advice}") from error


@dataclass(frozen=True)
class Job:
    """One run of an experiment: how large, from which seed, and where its pieces are kept."""

    folder: Path
    scale: Scale = "quick"
    seed: int = 0
    progress: bool = True

    @property
    def quick(self) -> bool:
        """Whether minutes are wanted rather than the printed settings."""
        return self.scale == "quick"

    def piece(self, name: str, compute: Callable[[], Any]) -> Any:
        """What `compute` returns (plain JSON data), from its file if an earlier run got that far."""
        file = self.folder / "pieces" / f"{name}.json"
        if file.exists():
            return _read_json(file, "delete it and run the experiment again")
        content = compute()
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(file, json.dumps(content).encode())
        return content

    def pieces(self, computes: Mapping[str, Callable[[], Any]], label: str) -> dict[str, Any]:
        """Several pieces in turn, with a bar that counts them."""
        found = {}
        with progress_bar(label, len(computes), show=self.progress) as advance:
            for name, compute in computes.items():
                found[name] = self.piece(name, compute)
                advance(1, name)
        return found

    def over(self, label: str, compute: Callable[..., Any], *axes: Iterable[Any]) -> dict[Any, Any]:
        """compute(a, b, ...) for every combination, each a piece; found by (a, b, ...), or by a where it is alone."""
        places: list[tuple[Any, ...]] = list(itertools.product(*axes))
        found = self.pieces({piece_name(*at): partial(compute, *at) for at in places}, label)
        keys = places if len(axes) > 1 else [at for (at,) in places]
        return dict(zip(keys, found.values(), strict=True))

    def open(self, name: str, code: str = "") -> None:
        """Make the folder, or refuse one that belongs to another experiment, to other settings or to other code.

        Pieces that were computed by different sizes or steps do not make one table.
        """
        file = self.folder / "experiment.json"
        settings = {"experiment": name, "scale": self.scale, "seed": self.seed, "code": code}
        if file.exists():
            started = _read_json(file, "choose another --out")
            known = isinstance(started, dict) and started.keys() == settings.keys()
            require(known, f"{file} is not of this release; choose another --out")
            require(
                started | {"code": code} == settings,
                f"{self.folder} holds {started['experiment']} at scale {started['scale']} from seed "
                f"{started['seed']}; choose another --out",
            )
            require(
                started["code"] == code,
                f"{self.folder} was begun by another release of {name}, whose pieces may not fit; choose another --out",
            )
            return
        # What a kill may have left of a folder that was never begun.
        left = [".lock", f".{file.name}"]
        require(
            not self.folder.exists()
            or (self.folder.is_dir() and all(f.name.startswith(tuple(left)) for f in self.folder.iterdir())),
            f"{self.folder} exists and is not an experiment of unnorm; choose another --out",
        )
        self.folder.mkdir(parents=True, exist_ok=True)
        write_atomically(file, json.dumps(settings).encode())


@dataclass(frozen=True)
class Experiment:
    """A name, what it shows, how it is run and how its result is drawn."""

    name: str
    run: Callable[[Job], Result]
    draw: Callable[[Result], Figure]

    def picture(self, result: Result, file: Path) -> None:
        """The figure, in the house style, as a PNG file."""
        write_atomically(file, png(styled(self.draw)(result)))

    @property
    def code(self) -> str:
        """A digest of the module's source, of what it imports from its siblings, and of the release."""
        return digest(Path(inspect.getfile(self.run)), Path(__file__).parent, "unnorm.experiments", __version__)


def piece_name(*parts: Any) -> str:
    """The file that keeps what was computed for these.

    >>> piece_name("VAE, SSM", 0.25, 3)
    'VAE-SSM-0.25-3'
    """
    return re.sub(r"[^\w.+=]+", "-", "-".join(f"{part:g}" if isinstance(part, float) else str(part) for part in parts))


def ahead(sentence: str, gap: Estimate, errors: float = 2.0) -> Claim:
    """Holds where the gap is above zero by so many of its standard errors; `{}` in the sentence is the gap."""
    return Claim(sentence.format(gap.number()), gap.value > errors * gap.stderr)


def over_seeds(values: Sequence[float], method: str = "mean over seeds") -> Estimate:
    """The mean over seeds with its standard error (infinite for a single seed: nothing is known of the spread)."""
    array = np.asarray(values, dtype=np.float64)
    error = float(array.std(ddof=1) / math.sqrt(array.size)) if array.size > 1 else math.inf
    return Estimate(float(array.mean()), error, method, {"seeds": float(array.size)})


def exact(value: float, method: str = "exact") -> Estimate:
    """A number known without error."""
    return Estimate(float(value), 0.0, method)
