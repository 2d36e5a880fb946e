"""Networks of pictures made energies: scores are gradients, second derivatives go through loops, dropout and clocks.

Finite differences are taken in double precision, where they can tell a gradient from what is nearly one.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from harness import breaks, holds

import unnorm as un
from unnorm.networks import Conv, Dropout, InnerProduct, OneLevel, SumOfOutputs, UNet, dropping
from unnorm.noises import EDM, Gaussian, VarianceExploding, VariancePreserving
from unnorm.objectives import DSM, Dropping
from unnorm.parts import trainable
from unnorm.scores import LevelledEnergy, LevelledScore, LogSigma, PredictScore, Scaled, Steps, Telling, edm_clock
from unnorm.spaces import Real

KEY, SHAPE = jax.random.key(0), (4, 4, 1)
PICTURES = jax.random.normal(jax.random.key(1), (6, *SHAPE))


class Small(eqx.Module):
    """Two convolutions told the level, for laws of what is built on top."""

    first: Conv
    second: Conv
    dropout: Dropout | None = None

    def __call__(self, x, level, condition=None):
        h = jax.nn.silu(self.first(x) + level)
        return self.second(h if self.dropout is None else self.dropout(h))


def small(dropout=None) -> Small:
    one, two = jax.random.split(KEY)
    return Small(Conv(1, 4, key=one), Conv(4, 1, key=two), dropout)


def energy(kind, noise, network=None) -> LevelledEnergy:
    return LevelledEnergy(network=kind(small() if network is None else network), noise=noise, space=Real(SHAPE))


@pytest.mark.parametrize("kind", [SumOfOutputs, InnerProduct])
def test_the_score_of_a_network_energy_is_minus_its_slope(kind):
    with jax.enable_x64(True):
        model = jax.tree.map(
            lambda leaf: leaf.astype(jnp.float64) if eqx.is_inexact_array(leaf) else leaf,
            energy(kind, VariancePreserving()),
        )
        x, t, h = jnp.asarray(PICTURES[0], jnp.float64), jnp.asarray(0.4, jnp.float64), 1e-5
        of = eqx.filter_jit(lambda x: (model.energy(t, x), model(t, x)))
        score = of(x)[1]
        for place in ((0, 0, 0), (2, 1, 0)):
            step = jnp.zeros(SHAPE).at[place].set(h)
            slope = (of(x + step)[0] - of(x - step)[0]) / (2 * h)
            assert abs(float(slope + score[place])) < 1e-7 * max(1.0, abs(float(slope)))
            # Control: the network's own answer is no gradient of the energy.
            assert abs(float(slope + model.network.network(x, t)[place])) > 1e-3


@pytest.mark.parametrize("kind", [SumOfOutputs, InnerProduct])
def test_energies_of_pictures_are_finite_at_level_0(kind):
    values = eqx.filter_jit(lambda m: (m.energy(0.0, PICTURES[0]), m(0.0, PICTURES[0]), m(1e-5, PICTURES[0])))
    for noise in (VariancePreserving(), VarianceExploding(0.01, 5.0)):
        at, score, least = values(energy(kind, noise))
        assert np.isfinite(at) and np.all(np.isfinite(score))
        if float(noise.variance(0.0)) == 0:
            np.testing.assert_array_equal(score, least)


NETWORKS = {"two convolutions": small, "a U-Net": lambda: UNet(SHAPE, channels=2, multipliers=(1, 2), key=KEY)}


@pytest.mark.parametrize("name", ["two convolutions", pytest.param("a U-Net", marks=pytest.mark.thorough)])
def test_second_derivatives_are_the_same_in_a_loop(name):
    """The gradient of a loss of scores of an energy, at once and within `lax.scan`."""
    net = NETWORKS[name]()
    weights, rest = eqx.partition(net, trainable(net))
    weights = jax.tree.map(lambda w: w + 0.1, weights)
    noise, z = Gaussian(0.5), jax.random.normal(KEY, (2, *SHAPE))

    def loss(weights):
        model = energy(InnerProduct, noise, eqx.combine(weights, rest))
        return jnp.mean(jax.vmap(lambda x, z: jnp.mean((0.5 * model(0.0, x + 0.5 * z) + z) ** 2))(PICTURES[:2], z))

    def step(weights, _):
        return jax.tree.map(lambda w, g: w - 1e-2 * g, weights, jax.grad(loss)(weights)), None

    @jax.jit
    def both(weights):
        once = jax.lax.scan(step, weights, length=2)[0]
        return step(step(weights, None)[0], None)[0], once

    alone, looped = both(weights)
    moved = jax.tree.map(lambda a, b: np.abs(a - b).max(), alone, weights)
    assert max(jax.tree.leaves(moved)) > 1e-3
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), alone, looped)


def test_a_network_of_pictures_is_an_energy_of_one_level_too():
    """E of `NeuralEnergy` with a convolutional network: the formula, on pictures as they are."""
    network = OneLevel(SumOfOutputs(small()), SHAPE)
    model = un.energies.NeuralEnergy(Real(SHAPE), network, scale=2.0)
    x = PICTURES[0]
    truth = (0.5 * jnp.sum(x**2) + jnp.sum(small()(x, jnp.zeros(())))) / 4.0
    np.testing.assert_allclose(model(x), truth, rtol=1e-5)
    other = un.energies.NeuralEnergy(Real(SHAPE), OneLevel(SumOfOutputs(small()), SHAPE, level=1.0), scale=2.0)
    assert abs(float(other(x) - truth)) > 1e-3
    assert len(jax.tree.leaves(eqx.filter(model, trainable(model)))) == 5


# ------------------------------------------------------------------------------------------------------- clocks


def test_clocks_change_what_is_told_and_nothing_else():
    t = jnp.asarray(0.3)
    for noise in (EDM(), VariancePreserving()):
        plain = Scaled(0.5).read(noise, t)
        ratio = np.log(float(noise.sigma(t) / noise.alpha(t)))
        for clock, level in ((LogSigma(), ratio), (edm_clock(), ratio / 4), (Steps(), 999 * 0.3)):
            told = Telling(Scaled(0.5), clock).read(noise, t)
            assert abs(float(told.level) - level) < 1e-4 * abs(level)
            assert told._replace(level=t) == plain
            assert abs(float(told.level) - float(t)) > 0.05


def test_a_network_may_answer_with_the_score_itself():
    score = LevelledScore(network=small(), noise=Gaussian(0.5), preconditioning=PredictScore(), space=Real(SHAPE))
    t = jnp.asarray(0.7)
    np.testing.assert_allclose(score(t, PICTURES[0]), small()(PICTURES[0], t), rtol=1e-5)


# ------------------------------------------------------------------------------------------------------ dropout


def test_dropout_keeps_the_mean_and_adds_its_variance():
    """E y = x and Var y = x^2 rate / (1 - rate); undivided it would fall short."""
    x, rate = jnp.linspace(0.5, 2.0, 4), 0.25
    keys = jax.random.split(KEY, 400)
    ys = np.asarray(jax.jit(jax.vmap(lambda k: Dropout(rate, k)(x)))(keys)).reshape(20, 20, 4)
    assert holds(ys.mean(1), x) and breaks(ys.mean(1) * (1 - rate), x)
    assert holds(((ys - x) ** 2).mean(1), x**2 * rate / (1 - rate))
    np.testing.assert_allclose(np.unique(ys[..., 0]), [0.0, 0.5 / 0.75], rtol=1e-5)


def test_points_of_one_batch_lose_different_numbers():
    layer = Dropout(0.5, KEY)
    lost = np.asarray(jax.vmap(layer)(1 + jax.random.uniform(KEY, (8, 64)))) == 0
    assert len({tuple(row) for row in lost}) == 8 and abs(lost.mean() - 0.5) < 0.1
    np.testing.assert_array_equal(layer(jnp.ones(64)), layer(jnp.ones(64)))


def test_dropout_is_for_training_alone():
    net = small(Dropout(0.5))
    score = LevelledScore(network=net, noise=Gaussian(0.5), space=Real(SHAPE))
    none = LevelledScore(network=small(Dropout(0.0)), noise=Gaussian(0.5), space=Real(SHAPE))
    t = jnp.asarray(0.3)
    np.testing.assert_array_equal(net(PICTURES[0], t), small()(PICTURES[0], t))
    assert np.abs(dropping(net, key=KEY)(PICTURES[0], t) - net(PICTURES[0], t)).max() > 1e-3
    loss = eqx.filter_jit(lambda o, m, k: o(m, None, PICTURES, key=k)[0])
    drop, plain = Dropping(DSM()), DSM()
    assert float(loss(plain, score, KEY)) == float(loss(plain, none, KEY))
    after = jax.random.split(KEY)[1]
    assert float(loss(drop, none, KEY)) == float(loss(plain, none, after))
    assert abs(float(loss(drop, score, KEY)) - float(loss(plain, score, after))) > 1e-3
