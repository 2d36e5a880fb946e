"""What objectives may be given: an impossible model, noise or number is refused before any work, in one sentence."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jax.core import Tracer

from unnorm.arguments import named
from unnorm.energies import AbstractEnergy
from unnorm.errors import InputError, require
from unnorm.noises import AbstractGaussianNoise, same_noise
from unnorm.parts import held
from unnorm.samplers.base import AbstractSampler
from unnorm.scores import AbstractLevelledScore, AbstractScore, LevelledEnergy
from unnorm.spaces import AbstractSpace, Binary, Categorical, Conditioned


def require_kind(given: Any, kinds: type | tuple[type, ...], sentence: str) -> None:
    """Refuse what is of none of these kinds; `sentence` has a {} for what it is."""
    if not isinstance(given, kinds):
        raise InputError(sentence.format(named(given)))


def require_energy(model: Any, who: str) -> None:
    """Refuse a model that is no energy."""
    if isinstance(model, AbstractEnergy):
        return
    if isinstance(model, LevelledEnergy):
        raise InputError(f"{who} trains one energy, and LevelledEnergy has one at every level; use AtLevel({who}(..))")
    advice = (
        "train a score by DSM or SSM"
        if isinstance(model, AbstractScore)
        else "a function of one point becomes one by energies.FunctionEnergy(function, space)"
    )
    raise InputError(f"{who} trains an energy, and {named(model)} is not one; {advice}")


def require_real(space: AbstractSpace, who: str, why: str) -> None:
    """Refuse a space whose points are no vectors of real numbers."""
    sites = isinstance(space, Binary | Categorical)
    advice = "PCD(samplers.Gibbs()) trains" if sites else "CNCE takes a noise of your own"
    require(space.continuous, f"{who} {why}, and {space} has no such points; {advice} there")


def require_walk(sampler: AbstractSampler, model: Any, who: str) -> None:
    """Refuse a model that is no energy, and one that the sampler of this objective cannot walk."""
    require_energy(model, who)
    sampler.check(model)


def require_sampler(sampler: Any, who: str) -> None:
    """Refuse a walk that is no sampler."""
    require_kind(
        sampler, AbstractSampler, f"{who} moves its chains by a sampler such as samplers.Langevin(0.01), not {{}}"
    )


def require_gaussian(noise: Any, who: str) -> None:
    """Refuse a noise that is not alpha(t) x + sigma(t) z."""
    require_kind(
        noise, AbstractGaussianNoise, f"{who} takes away Gaussian noise such as noises.Gaussian(0.1), not {{}}"
    )


def noise_for(given: AbstractGaussianNoise | None, score: AbstractScore, who: str) -> AbstractGaussianNoise:
    """The noise of an objective: its own, or where it has none the score's; refused if they are not one and the same.

    >>> import unnorm as un
    >>> score = un.scores.LevelledFunction(lambda t, x: -x, un.noises.Gaussian(0.5))
    >>> noise_for(un.noises.Gaussian(0.1), score, "DSM")
    Traceback (most recent call last):
    unnorm.errors.InputError: DSM adds Gaussian(scale=0.1), and LevelledFunction is made for Gaussian(scale=0.5); \
leave the noise out, as in DSM(), to take the score's own
    """
    if not isinstance(score, AbstractLevelledScore):
        if given is None:
            raise InputError(
                f"{who} needs a noise, for {named(score)} has none of its own; use {who}(noises.Gaussian(0.1))"
            )
        return given
    if given is None:
        return held(score.noise)
    require(
        same_noise(given, score.noise),
        f"{who} adds {told(given)}, and {named(score)} is made for {told(score.noise)}; "
        f"leave the noise out, as in {who}(), to take the score's own",
    )
    return given


def told(noise: AbstractGaussianNoise) -> str:
    """A noise by its class and fields.

    >>> import unnorm as un
    >>> told(un.noises.VarianceExploding(0.1, 10.0))
    'VarianceExploding(low=0.1, high=10.0)'
    """

    def value(field: Any) -> str:
        if isinstance(field, jax.Array | np.ndarray) and not isinstance(field, Tracer) and field.size == 1:
            return f"{float(field):g}"
        return named(field)

    fields = (f"{field.name}={value(getattr(noise, field.name))}" for field in dataclasses.fields(noise))
    return f"{type(noise).__name__}({', '.join(fields)})"


def parted(rows: Any, score: AbstractScore, who: str) -> Conditioned:
    """Rows as points and the condition beside each (None where there is none), refused if the score takes others."""
    beside = isinstance(rows, Conditioned)
    if score.condition is None:
        require(
            not beside, f"{who} got a condition beside each point, and {named(score)} takes none; train on the points"
        )
        return Conditioned(rows, None)
    require(
        beside,
        f"{named(score)} takes a condition on {score.condition}; give {who} rows that are "
        "spaces.Conditioned(points, conditions)",
    )
    return rows


def require_sigma(noise: AbstractGaussianNoise, level: float, who: str) -> None:
    """Refuse a level at which nothing is added, or nothing is left of the point."""
    sigma, alpha = noise.sigma(level), noise.alpha(level)
    # Inside compiled code there is no value to look at.
    if is_known((sigma, alpha)):
        sound = 0 < float(sigma) < float("inf") and 0 < float(alpha) < float("inf")
        require(
            sound,
            f"{who} uses {named(noise)} at level {level:g}, where its standard deviation is {float(sigma):g} and the "
            f"signal's share {float(alpha):g}; both must be positive: use noises.Gaussian or another level",
        )


def is_known(tree: Any) -> bool:
    """Whether all arrays of a tree have values: inside compiled code they have none."""
    return not any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(tree))


def require_finite(fitted: Any, who: str, recipe: Any) -> None:
    """Refuse a noise that the data made infinite; only outside compiled code, where it has values."""
    leaves = jax.tree.leaves(eqx.filter(fitted, eqx.is_inexact_array))
    if is_known(leaves):
        require(
            # By numpy: while a program is being traced, JAX would make the answer a part of it.
            all(bool(np.all(np.isfinite(np.asarray(leaf)))) for leaf in leaves),
            f"{who} cannot fit {named(recipe)} to these data: the rows are too few, or all alike; "
            "give more rows, or a noise of fixed width",
        )
