"""What a run of a sampler leaves behind: its draws, and how far to trust them."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import numpy as np

from unnorm.errors import InputError
from unnorm.samplers.base import AbstractAcceptanceRemarks, AbstractSampler
from unnorm.samplers.diagnostics import Diagnostics, summarise
from unnorm.words import Facts, lines, table


@dataclass(frozen=True)
class Trace:
    """The draws of a run, chains x steps x point, and how far to trust them.

    Points of several parts (`spaces.Mixed`) are a tuple of such arrays; diagnostics are of all coordinates in a row.
    `acceptance` has one mean per chain; `divergences` and `clipped` count over all chains and transitions. The draws of
    a run that went to disk are read from there as they are needed.

    >>> import unnorm as un
    >>> draws = np.random.default_rng(0).normal(size=(4, 1000, 2))
    >>> Trace(draws, np.ones(4), divergences=3, sampler=un.samplers.HMC()).warnings[0][:25]
    '3 transitions diverged: t'
    """

    draws: Any
    acceptance: np.ndarray
    divergences: int
    sampler: AbstractSampler
    clipped: int = 0

    @property
    def flat(self) -> Any:
        """All draws of all chains along one axis."""
        return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), self.draws)

    @property
    def _table(self) -> np.ndarray:
        """The draws as one array, chains x steps x point, or x all coordinates of points of several parts."""
        if isinstance(self.draws, np.ndarray):
            return self.draws
        leaves = jax.tree.leaves(self.draws)
        return np.concatenate([np.asarray(leaf, np.float64).reshape(*leaf.shape[:2], -1) for leaf in leaves], axis=2)

    @cached_property
    def diagnostics(self) -> Diagnostics:
        """R-hat, bulk and tail effective sample sizes per coordinate."""
        return summarise(self._table)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is wrong with this run, in sentences; empty if nothing was seen."""
        found = list(self.diagnostics.warnings())
        if self.divergences:
            found.append(
                f"{self.divergences} transitions diverged: the step is too large for part of the target, or leads over "
                "a wall of it; use a smaller step or a longer warm-up, and samplers.NUTS where there are walls."
            )
        if self.clipped:
            found.append(
                f"{self.clipped} variances or curvatures were clipped: there the target does not have the form that "
                f"{type(self.sampler).__name__} assumes."
            )
        if isinstance(self.sampler, AbstractAcceptanceRemarks):
            found.extend(self.sampler.remarks(float(np.mean(self.acceptance))))
        return tuple(found)

    def _words(self) -> tuple[str, Facts]:
        chains, steps = jax.tree.leaves(self.draws)[0].shape[:2]
        shapes = [str(leaf.shape[2:]) for leaf in jax.tree.leaves(self.draws)]
        found = self.diagnostics
        facts = [
            ("points", f"of shape {' and '.join(shapes)}"),
            ("acceptance", f"{float(np.mean(self.acceptance)):.2f} on average"),
            ("R-hat", f"{found.worst_rhat:.3f} at most"),
            ("effective draws", f"{found.worst_ess_bulk:,.0f} (bulk) and {found.worst_ess_tail:,.0f} (tail) at least"),
            ("diverged", f"{self.divergences:,} transitions"),
            *[("warning", sentence) for sentence in self.warnings],
        ]
        return f"Trace of {type(self.sampler).__name__}: {chains} chains of {steps:,} draws", facts

    def __str__(self) -> str:
        return lines(*self._words())

    def _repr_html_(self) -> str:
        return table(*self._words())

    def to_arviz(self, name: str = "x") -> Any:
        """The draws as ArviZ keeps them (an InferenceData before its release 1, a DataTree since), as variable `name`;
        points of several parts as `name`0, `name`1 and so on.

        The sampler, acceptances, divergences and clipped variances go along as attributes of the posterior. Needs
        ArviZ: `pip install "unnorm[arviz]"`.
        """
        try:
            import arviz
        except ImportError:
            raise InputError('to_arviz needs ArviZ: pip install "unnorm[arviz]"') from None
        leaves = jax.tree.leaves(self.draws)
        names = [name] if len(leaves) == 1 else [f"{name}{i}" for i in range(len(leaves))]
        groups: dict[str, Any] = {"posterior": dict(zip(names, leaves, strict=True))}
        convert: Any = arviz.from_dict
        # Release 1 takes the groups as one mapping, earlier ones take them as arguments.
        data = convert(**groups) if arviz.__version__.startswith("0.") else convert(groups)
        data["posterior"].attrs.update(
            sampler=type(self.sampler).__name__,
            acceptance=np.asarray(self.acceptance),
            divergences=self.divergences,
            clipped=self.clipped,
        )
        return data
