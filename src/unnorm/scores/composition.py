"""Models put together: products, mixtures and negations of scores and energies over the levels of one noise.

At the least level these are what they say. At a level above, the product of two noised densities is not the noised
product (Du et al. 2023, "Reduce, Reuse, Recycle"): a walk back by its score alone ends elsewhere, and moves that leave
the density of each level alone, `generators.MetropolisCorrector` for energies, mend it.
"""

from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.core import Tracer
from jaxtyping import Array, Float

from unnorm.energies.base import Point, Scalar
from unnorm.errors import require
from unnorm.noises import AbstractGaussianNoise, same_noise
from unnorm.noises.base import Level
from unnorm.parts import held
from unnorm.scores.base import AbstractLevelledScore, LevelScore, require_condition
from unnorm.scores.levelled import AbstractLevelledEnergy
from unnorm.spaces import AbstractSpace


def _weights(weights: Any) -> Float[Array, " k"]:
    return jnp.asarray(weights, float)


class LevelledEnergyFunction(AbstractLevelledEnergy):
    """Any callable (t, x) -> energy and the noise whose levels are its t.

    >>> import unnorm as un
    >>> noise = un.noises.VarianceExploding(0.1, 10.0)
    >>> energy = LevelledEnergyFunction(
    ...     lambda t, x: jnp.sum(x**2) / (2 + 2 * noise.variance(t)), noise, un.spaces.Real((1,))
    ... )
    >>> round(float(energy(0.0, jnp.ones(1))[0]), 4)
    -0.9901
    """

    function: Callable[[Level, Point], Scalar]
    noise: AbstractGaussianNoise
    space: AbstractSpace | None = eqx.field(static=True, default=None)
    condition: ClassVar[None] = None

    def energy(self, t: Level, x: Point, condition: Any = None) -> Scalar:
        """E(t, x) of one point."""
        return self.function(t, x)


class GivenEnergy(AbstractLevelledEnergy):
    """x -> E(t, x, c) with the condition c settled, so that energies of several labels can be put together."""

    levelled: AbstractLevelledEnergy
    settled: Any
    condition: ClassVar[None] = None

    def __check_init__(self):
        require_condition(self.levelled, self.settled)

    @property
    def noise(self) -> AbstractGaussianNoise:
        return self.levelled.noise

    @property
    def space(self) -> AbstractSpace | None:
        return self.levelled.space

    def energy(self, t: Level, x: Point, condition: Any = None) -> Scalar:
        """E(t, x, c) of one point."""
        return self.levelled.energy(t, x, held(self.settled))


def _check_parts(whole: Any) -> None:
    """One noise, one space, no conditions, and a weight for each."""
    parts, who = whole.parts, type(whole).__name__
    require(len(parts) >= 1, f"a {who} is made of one model or more")
    require(whole.weights.shape == (len(parts),), f"a {who} of {len(parts)} models needs as many weights")
    for part in parts:
        require(part.condition is None, f"a part of a {who} takes no condition; settle it first (Given, GivenEnergy)")
        require(same_noise(part.noise, parts[0].noise), f"the parts of a {who} have one noise, and these differ")
        require(part.space == parts[0].space, f"the parts of a {who} are on one space, and these are not")


class ScoreProduct(AbstractLevelledScore):
    """sum_k w_k s_k(t, x), the score of prod_k p_k(t, x)^w_k; a weight below 0 takes a model away (negation).

    >>> import unnorm as un
    >>> noise = un.noises.VarianceExploding(0.1, 10.0)
    >>> one = un.scores.LevelledFunction(lambda t, x: 1 - x, noise)
    >>> ScoreProduct((one, one), (2.0, -1.0))(0.5, jnp.zeros(1)).tolist()
    [1.0]
    """

    parts: tuple[AbstractLevelledScore, ...]
    weights: Float[Array, " k"] = eqx.field(converter=_weights)
    condition: ClassVar[None] = None

    def __check_init__(self):
        _check_parts(self)

    @property
    def noise(self) -> AbstractGaussianNoise:
        return self.parts[0].noise

    @property
    def space(self) -> AbstractSpace | None:
        return self.parts[0].space

    def __call__(self, t: Level, x: Point, condition: Any = None) -> Point:
        found = jnp.stack([part(t, x) for part in self.parts])
        return jnp.tensordot(held(self.weights).astype(x.dtype), found, axes=1)

    def at(self, t: Level, condition: Any = None) -> LevelScore:
        """The score of one level."""
        return LevelScore(score=self, level=t, space=self.space)


class EnergyProduct(AbstractLevelledEnergy):
    """E = sum_k w_k E_k(t, x): the density prod_k p_k^w_k; a weight below 0 takes a model away (negation)."""

    parts: tuple[AbstractLevelledEnergy, ...]
    weights: Float[Array, " k"] = eqx.field(converter=_weights)
    condition: ClassVar[None] = None

    def __check_init__(self):
        _check_parts(self)

    @property
    def noise(self) -> AbstractGaussianNoise:
        return self.parts[0].noise

    @property
    def space(self) -> AbstractSpace | None:
        return self.parts[0].space

    def energy(self, t: Level, x: Point, condition: Any = None) -> Scalar:
        """sum_k w_k E_k(t, x)."""
        return jnp.vdot(held(self.weights), jnp.stack([part.energy(t, x) for part in self.parts]))


class EnergyMixture(AbstractLevelledEnergy):
    """E = -log sum_k w_k exp(-E_k(t, x)): either model.

    The mass of each is w_k Z_k, and energies that are learnt have a Z of their own: equal weights are not equal masses
    unless the energies are normalised. Noised mixtures are mixtures of noised models: at every level this is exact.
    """

    parts: tuple[AbstractLevelledEnergy, ...]
    weights: Float[Array, " k"] = eqx.field(converter=_weights)
    condition: ClassVar[None] = None

    def __check_init__(self):
        _check_parts(self)
        if not isinstance(self.weights, Tracer):
            require(bool(jnp.all(self.weights > 0)), "the weights of a mixture are positive")

    @property
    def noise(self) -> AbstractGaussianNoise:
        return self.parts[0].noise

    @property
    def space(self) -> AbstractSpace | None:
        return self.parts[0].space

    def energy(self, t: Level, x: Point, condition: Any = None) -> Scalar:
        """-log sum_k w_k exp(-E_k(t, x))."""
        found = jnp.stack([part.energy(t, x) for part in self.parts])
        return -jax.nn.logsumexp(jnp.log(held(self.weights)) - found)
