"""Laws of levelled scores and energies at t = 0, where a process may have no noise at all.

alpha S / sigma is infinite there, and levels below the noise's least one are that one: finite, and at every other level
the formula of the docstring to the last bit.
"""

import inspect

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from harness import breaks, holds

import unnorm as un
from unnorm.estimate import OutcomeCode
from unnorm.networks import LevelledNetwork, level_features, silent_mlp
from unnorm.noises import AbstractGaussianNoise, VariancePreserving
from unnorm.objectives import CNCE, AtLevel
from unnorm.scores import LevelledEnergy, LevelledScore
from unnorm.spaces import Real
from unnorm.training import fit, fit_repeats

#: What those are made of that cannot be made of one number.
PARTS = {
    "StraightPath": (),
    "Ladder": ([0.5, 2.0],),
    "Chain": ([0.5, 0.6],),
    "Path": (jnp.cos, jnp.sin),
    "Begun": (VariancePreserving(), 0.1),
}
#: Every process there is, small or not.
PROCESSES = {
    name: kind(*PARTS.get(name, (0.5,)))
    for name, kind in vars(un.noises).items()
    if inspect.isclass(kind) and issubclass(kind, AbstractGaussianNoise) and not inspect.isabstract(kind)
}


class Unmended(AbstractGaussianNoise):
    """What the law must reject: a noise whose levels are taken as given, however little noise there is."""

    noise: AbstractGaussianNoise

    def alpha(self, t):
        return self.noise.alpha(t)

    def variance(self, t):
        return self.noise.variance(t)

    def least_level(self):
        return jnp.zeros(())


class Formula(eqx.Module):
    """The energy as the docstring of `Scaled` has it, written out."""

    network: un.networks.MLP
    noise: AbstractGaussianNoise

    def energy(self, t, x):
        level = jnp.asarray(t, x.dtype)
        alpha, sigma = self.noise.alpha(level), self.noise.sigma(level)
        width = jnp.sqrt((alpha * 1.0) ** 2 + sigma**2)
        found = self.network(jnp.concatenate([x.reshape(-1) / width, level_features(level, 3)]))
        return 0.5 * jnp.sum((x / width) ** 2) + alpha * 1.0 / sigma * found.reshape(())


def model(kind, noise, outputs=1, dimension=2):
    """A network that is not silent, so that what is not finite shows."""
    network = un.networks.MLP(dimension + 7, outputs, width=8, depth=2, key=jax.random.key(0))
    if kind is Formula:
        return kind(network, noise)
    return kind(network=LevelledNetwork(network), noise=noise, space=Real((dimension,)))


@eqx.filter_jit
def orders(energy, t, x):
    """Value, gradient and Hessian of one point."""
    at = eqx.Partial(energy.energy, t)
    return at(x), jax.grad(at)(x), jax.hessian(at)(x)


X = jnp.array([0.3, -1.2])


def finite(found) -> bool:
    return all(bool(jnp.all(jnp.isfinite(leaf))) for leaf in jax.tree.leaves(found))


def test_there_are_processes_of_both_kinds():
    starts = {name: float(noise.sigma(0.0)) for name, noise in PROCESSES.items()}
    assert min(starts.values()) == 0 < max(starts.values())


@pytest.mark.parametrize("name", PROCESSES)
def test_the_energy_is_finite_at_zero_and_unchanged_above(name):
    noise = PROCESSES[name]
    mended, formula = model(LevelledEnergy, noise), model(Formula, noise)
    least = noise.least_level()
    at_zero = orders(mended, jnp.zeros(()), X)
    assert finite(at_zero)
    for found, told in zip(at_zero, orders(mended, least, X), strict=True):
        assert jnp.array_equal(found, told)
    for t in (least, jnp.asarray(2e-5), jnp.asarray(0.3), jnp.asarray(1.0)):
        for found, told in zip(orders(mended, t, X), orders(formula, t, X), strict=True):
            assert jnp.array_equal(found, told)
    # Control: the formula itself is no number where the process starts without noise.
    assert finite(orders(model(LevelledEnergy, Unmended(noise)), jnp.zeros(()), X)) is (float(noise.sigma(0.0)) > 0)


@pytest.mark.parametrize("name", PROCESSES)
def test_the_score_is_finite_at_zero(name):
    score = model(LevelledScore, PROCESSES[name], outputs=2)
    assert finite(score(0.0, X))
    assert finite(jax.jacfwd(lambda x: score(jnp.zeros(()), x))(X))


# ---------------------------------------------------------------------------------------------------- what it learns

SIDES, REPEATS = (-0.7, 0.7), 8
#: alpha S / sigma is 1,000 at the least level, so that steps are a thousandth of what they would be.
SETTINGS = {"steps": 150, "batch": 200, "rate": 3e-5, "key": jax.random.key(3)}
OBJECTIVE = AtLevel(CNCE(un.noises.Gaussian(1.0)))


def silent(noise=VariancePreserving()):
    network = LevelledNetwork(silent_mlp(8, 1, width=8, depth=1, key=jax.random.key(1)))
    return LevelledEnergy(network=network, noise=noise, space=Real((1,)))


def rows(mean: float):
    return mean + jax.random.normal(jax.random.key(2), (REPEATS, 1000, 1))


def test_contrast_at_the_level_zero_learns_a_mean():
    def means(mean):
        fits = fit_repeats(silent(), OBJECTIVE, rows(mean), **SETTINGS)
        grid = jnp.linspace(-7, 7, 1001)[:, None]
        logs = eqx.filter_jit(eqx.filter_vmap(lambda m: -jax.vmap(m.at(0.0))(grid)))(fits)
        return np.asarray(jax.nn.softmax(logs, axis=1) @ grid[:, 0])

    left, right = means(SIDES[0]), means(SIDES[1])
    assert holds(left, SIDES[0]) and holds(right, SIDES[1])
    # An energy that was not learnt has its mean at 0.
    assert breaks(left, SIDES[1]) and breaks(right, 0.0)


def test_a_fit_at_the_level_zero_ends():
    settings = SETTINGS | {"steps": 20, "progress": False}
    ended = fit(silent(), OBJECTIVE, rows(0.7)[0], **settings)
    assert ended.outcome.code is OutcomeCode.COMPLETED
    # Control: under the formula as it stands no step is finite.
    assert (
        fit(silent(Unmended(VariancePreserving())), OBJECTIVE, rows(0.7)[0], **settings).outcome.code
        is OutcomeCode.DIVERGED
    )
