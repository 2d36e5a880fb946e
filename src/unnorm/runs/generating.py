"""Points made by walking a score from noise to data, in lots, with the conditions they are made under."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from unnorm.catalogue import SOLVERS, Context, find, read_options
from unnorm.catalogue.diffusion import SolverOptions, levels_of
from unnorm.errors import require
from unnorm.generators import generate
from unnorm.progress import progress as progress_bar
from unnorm.runs.lots import Lots
from unnorm.runs.prepare import Prepared
from unnorm.scores import AbstractLevelledScore, ClassifierFree
from unnorm.spaces import Categorical, Conditioned

#: Points that walk side by side.
AT_ONCE = 256


@dataclass(frozen=True, eq=False)
class Walked:
    """Points that a solver made, and what it took: `steps` levels, and how many points were lost."""

    points: np.ndarray
    solver: str
    steps: int
    lost: int
    #: The condition of every point, where the score is told one.
    conditions: Any = None
    warnings: tuple[str, ...] = ()
    #: How often the score was asked on the way of each point, where the solver chooses its own steps.
    evaluations: float | None = None

    def figures(self) -> dict[str, Any]:
        """How they were made, as plain numbers."""
        told = {} if self.evaluations is None else {"evaluations": self.evaluations}
        return {"kind": "generated", "solver": self.solver, "steps": self.steps, "lost": self.lost, **told}


def conditions_for(prepared: Prepared, n: int, given: Mapping[str, Any], *, seed: int) -> Any:
    """The given condition for every point; without one those of training rows, as often as they come there."""
    if prepared.schema.condition is None:
        require(
            not given,
            "the model was fitted without conditions, so nothing can be given to it; fit it again with --condition",
        )
        return None
    if given:
        one = prepared.schema.given(given)
        return jax.tree.map(lambda leaf: jnp.broadcast_to(jnp.asarray(leaf), (n, *jnp.shape(leaf))), one)
    assert isinstance(prepared.train, Conditioned)
    beside = prepared.train.condition
    chosen = np.random.default_rng(seed).integers(len(jax.tree.leaves(beside)[0]), size=n)
    return jax.tree.map(lambda leaf: jnp.asarray(leaf)[chosen], beside)


def guided(score: AbstractLevelledScore, guidance: float) -> AbstractLevelledScore:
    """The score pushed towards its label by this weight; 1 leaves it as it is."""
    if guidance == 1:
        return score
    require(
        isinstance(score.condition, Categorical),
        "--guidance pushes draws towards a label, and this model was fitted without one; fit it with --condition label",
    )
    return ClassifierFree(score, guidance)


def walked(
    score: AbstractLevelledScore,
    n: int,
    *,
    conditions: Any = None,
    solver: str | None = None,
    options: dict[str, Any] | None = None,
    lots: Lots | None = None,
    key: PRNGKeyArray,
    progress: bool = True,
) -> Walked:
    """n points by a solver of the catalogue, the first of it unless named, `AT_ONCE` at a time.

    What `lots` holds already is not made again.
    """
    entry = SOLVERS[0] if solver is None else find(SOLVERS, solver, "solver")
    chosen = read_options(entry, options or {})
    assert isinstance(chosen, SolverOptions)
    transition = entry.build(chosen, Context(score.space or _unknown(), None, key))
    levels = levels_of(score.noise, entry.name, chosen.steps)
    kept_lots = Lots(None, {}) if lots is None else lots
    points, said, asked = [], [], []
    with progress_bar(f"drawing by {entry.name}", n, show=progress) as advance:
        for lot, first in enumerate(range(0, n, AT_ONCE)):
            kept = min(AT_ONCE, n - first)
            before = kept_lots.found(lot, kept)
            if before is not None:
                some, told = before
            else:
                # Lots of one size share a program; of the last one the rest is thrown away.
                size = min(AT_ONCE, n)
                which = np.minimum(np.arange(first, first + size), n - 1)
                beside = None if conditions is None else jax.tree.map(lambda leaf: leaf[which], conditions)  # noqa: B023
                found = generate(
                    score, transition, levels=levels, n=size, condition=beside, temperature=chosen.temperature,
                    key=jax.random.fold_in(key, lot),
                )  # fmt: skip
                some = np.asarray(found.points)[:kept]
                each = float(found.counts["evaluations"]) / size if "evaluations" in found.counts else None
                told = {"warnings": list(found.warnings), "evaluations": each}
                kept_lots.keep(lot, some, told)
            points.append(some)
            said += [sentence for sentence in told["warnings"] if sentence not in said]
            asked += [] if told["evaluations"] is None else [told["evaluations"]]
            advance(kept)
    drawn = np.concatenate(points)
    lost = int(np.sum(~np.isfinite(drawn).reshape(n, -1).all(axis=1)))
    evaluations = float(np.mean(asked)) if asked else None
    return Walked(drawn, entry.name, chosen.steps, lost, conditions, tuple(said), evaluations)


def _unknown() -> Any:
    from unnorm.spaces import AnyNumbers

    return AnyNumbers()
