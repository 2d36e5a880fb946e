"""Laws of noise-contrastive estimation: the density and its constant come out, for the right log-odds only."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gradients import gradients
from harness import breaks, holds
from jaxtyping import Array
from scipy.spatial.distance import pdist

from unnorm.energies import (
    AbstractEnergy,
    GaussianDensity,
    GaussianMixture,
    Shifted,
    gaussian,
    gaussian_mixture,
    standard_gaussian,
)
from unnorm.errors import InputError
from unnorm.noises import (
    AbstractReference,
    FittedKDE,
    FittedMixture,
    KDEJump,
    Known,
    LeftOutKernels,
    MomentGaussian,
    SpanGaussian,
    UnitGaussian,
)
from unnorm.objectives import NCE
from unnorm.spaces import Real
from unnorm.training import fit_repeats

pytestmark = pytest.mark.optimised

BATCHES = 500


def truth() -> GaussianMixture:
    return gaussian_mixture([0.3, 0.7], [[-1.0, 0.0], [1.0, 0.5]], [[[0.5, 0.2], [0.2, 0.4]], [[0.3, 0.0], [0.0, 0.9]]])


@pytest.fixture(scope="module")
def batches() -> Array:
    """Independent batches of 60 points."""
    return truth().samples(BATCHES * 60, key=jax.random.key(4)).reshape(BATCHES, 60, 2)


class Tilted(AbstractReference):
    """A reference whose log density is wrong by a constant: what a wrong offset in the log-odds amounts to."""

    reference: AbstractReference
    offset: Array = eqx.field(converter=jnp.asarray)

    def sample(self, *, key):
        return self.reference.sample(key=key)

    def of_noise(self, y):
        return self.reference.of_noise(y) + self.offset

    def of_data(self, x):
        return self.reference.of_data(x) + self.offset


@pytest.mark.parametrize("ratio", [pytest.param(0.5, marks=pytest.mark.thorough), 4.0])
def test_the_gradient_vanishes_at_the_truth(ratio, batches):
    def found(constant: float, offset: float) -> np.ndarray:
        noise = Tilted(Known(standard_gaussian(2, 2.0)), offset)
        return gradients(NCE(noise, ratio=ratio), Shifted(truth(), constant), batches, noise)

    assert holds(found(0.0, 0.0), 0.0)
    # Negative controls: a constant 0.3 off, which the objective must feel, and the noise's density halved.
    assert breaks(found(0.3, 0.0), 0.0)
    assert breaks(found(0.0, math.log(0.5)), 0.0)
    # The offset that some lecture slides print, log(m/n) in place of log(n/m), and none at all.
    assert breaks(found(0.0, -2 * math.log(ratio)), 0.0)
    assert breaks(found(0.0, -math.log(ratio)), 0.0)


def test_noise_like_the_data_has_a_known_loss(batches):
    """With q = p the log-odds are log(1/nu) everywhere: the loss is log(1 + nu) + nu log(1 + 1/nu), on any batch."""
    ratio = 4.0
    objective = NCE(truth(), ratio=ratio)
    state = objective.init(truth(), batches[0], key=jax.random.key(0))
    value = eqx.filter_jit(objective)(truth(), state, batches[0], key=jax.random.key(1))[0]
    expected = math.log(1 + ratio) + ratio * math.log(1 + 1 / ratio)
    assert float(value) == pytest.approx(expected, abs=1e-5)
    # Negative control: noise terms averaged instead of summed per datum.
    assert abs(float(value) - math.log(1 + ratio) - math.log(1 + 1 / ratio)) > 0.1


class Quadratic(AbstractEnergy):
    """|P'(x - mean)|^2 / 2 without its constant."""

    gaussian: GaussianDensity
    space: Real = eqx.field(static=True, default=Real((2,)))

    def __call__(self, x):
        return self.gaussian(x) - self.gaussian(self.gaussian.mean)


MEAN = np.array([1.0, -0.5])
COVARIANCE = np.array([[1.2, 0.4], [0.4, 0.6]])


@pytest.mark.parametrize(
    "recipe",
    [
        pytest.param(MomentGaussian(widen=1.5), id="moments"),
        pytest.param(UnitGaussian(), id="unit", marks=pytest.mark.thorough),
        pytest.param(FittedKDE(1.0), id="kernels", marks=pytest.mark.thorough),
        pytest.param(FittedMixture(2), id="mixture", marks=pytest.mark.thorough),
    ],
)
def test_nce_recovers_a_gaussian_and_its_log_z(recipe):
    """The learnt constant of the energy is log Z = log 2 pi + log det(covariance) / 2."""
    data = gaussian(MEAN, COVARIANCE).samples(16 * 1000, key=jax.random.key(0)).reshape(16, 1000, 2)
    start = Shifted(Quadratic(standard_gaussian(2)))
    fits = fit_repeats(
        start, NCE(recipe, ratio=2.0), data, steps=700, batch=100, rate=0.05, average=0.995, key=jax.random.key(1)
    )
    covariances = jax.vmap(lambda g: g.covariance)(fits.energy.gaussian)
    log_z = math.log(2 * math.pi) + 0.5 * math.log(np.linalg.det(COVARIANCE))
    found = np.concatenate([fits.energy.gaussian.mean, covariances[:, [0, 0, 1], [0, 1, 1]]], axis=1)
    assert holds(found, np.concatenate([MEAN, COVARIANCE[[0, 0, 1], [0, 1, 1]]]))
    assert holds(fits.constant, log_z)
    # Negative control: the constant of the unit covariance it started with.
    assert breaks(fits.constant, math.log(2 * math.pi))


def test_a_kernel_estimate_of_the_same_rows_needs_one_left_out(batches):
    """With a KDE of the very rows it is contrasted with, the gradient vanishes at the truth only if rows do not count
    themselves."""

    def contrasted(kind):
        def objective(model, state, batch, *, key):
            reference = kind(KDEJump(batch, 0.3))
            return NCE(reference)(model, reference, batch, key=key)

        return gradients(objective, Shifted(truth()), batches)

    class Plain(AbstractReference):
        kde: KDEJump

        def sample(self, *, key):
            return self.kde.sample(0.0, self.kde.density.middle, key=key)

        def of_noise(self, y):
            return self.kde.log_density(y)

        def of_data(self, x):
            return self.kde.log_density(x)

    assert holds(contrasted(LeftOutKernels), 0.0)
    assert breaks(contrasted(Plain), 0.0)


def test_recipes_are_what_they_say():
    data = gaussian(MEAN, COVARIANCE).samples(700, key=jax.random.key(2))
    double = np.asarray(data, np.float64)
    key = jax.random.key(3)
    moments = MomentGaussian(widen=2.0).fit(data, key=key).density
    np.testing.assert_allclose(moments.covariance, 4 * np.cov(double.T, bias=True), rtol=1e-4)
    np.testing.assert_allclose(moments.mean, double.mean(0), rtol=1e-4)
    assert np.all(MomentGaussian(at_zero=True).fit(data, key=key).density.mean == 0)
    span = SpanGaussian().fit(data, key=key).density
    np.testing.assert_allclose(span.covariance, (pdist(double).max() / 2) ** 2 * np.eye(2), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(span.mean, double.mean(0), rtol=1e-4)
    unit = UnitGaussian().fit(data, key=key).density
    np.testing.assert_allclose(unit.covariance, np.eye(2), atol=1e-6)
    assert np.all(unit.mean == 0)
    # One component fitted by EM is the Gaussian of the moments, up to its ridge.
    single = FittedMixture(1).fit(data, key=key).density.components
    np.testing.assert_allclose(single.mean[0], double.mean(0), atol=1e-3)
    spread = jax.vmap(lambda part: part.covariance)(single)[0]
    np.testing.assert_allclose(spread, np.cov(double.T, bias=True), atol=2e-3)


def test_bad_options_are_refused_in_one_sentence():
    for make in (
        lambda: NCE(UnitGaussian(), ratio=0.0),
        lambda: MomentGaussian(widen=-1.0),
        lambda: FittedKDE(0.0),
        lambda: FittedMixture(0),
        lambda: SpanGaussian().fit(jnp.zeros((1, 2)), key=jax.random.key(0)),
    ):
        with pytest.raises(InputError) as refusal:
            make()
        assert "\n" not in str(refusal.value)
