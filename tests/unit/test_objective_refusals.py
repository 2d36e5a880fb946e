"""What objectives, their noises and `fit` refuse, in one sentence each, and what they must go on accepting."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import unnorm as un
from unnorm import noises as N
from unnorm import objectives as O
from unnorm.energies import FunctionEnergy, MLPEnergy, standard_gaussian
from unnorm.errors import InputError
from unnorm.networks import MLP
from unnorm.networks.autoencoder import Autoencoder, GaussianDecoder, PointEncoder
from unnorm.samplers import Gibbs, Langevin
from unnorm.scores import AbstractPlainScore, FreeScore, GaussianDenoiser, SpectralScore, stein_score
from unnorm.spaces import Binary, Categorical, Graph, Real

KEY = jax.random.key(0)
X = jax.random.normal(KEY, (64, 2))
SAME, ONE = jnp.ones((64, 2)), X[:1]
LINE = standard_gaussian(2)
FREE = FreeScore(MLP(2, 2, width=4, depth=1, key=KEY))
UNKNOWN = FunctionEnergy(lambda x: jnp.sum(x**2), Real((2,)))
SPHERE = O.SphereSlices(radius=1.0)
OU = N.OrnsteinUhlenbeck()
NOISE = N.Gaussian(0.1)


class Coins(un.energies.AbstractEnergy):
    """Independent coins."""

    logits: jax.Array
    space: Binary = Binary((2,))

    def __call__(self, x):
        return -jnp.sum(self.logits * x)


COINS = Coins(jnp.zeros(2))


def init(objective, model=LINE, data=X):
    return objective.init(model, data, key=KEY)


def fit(model=LINE, objective=None, data=X, **options):
    objective = O.SM() if objective is None else objective
    return un.fit(model, objective, data, **{"steps": 2, "batch": 32, "key": KEY, "progress": False, **options})


#: What is asked, and a part of the one sentence that answers.
NOISES = {
    "NCE, Gaussian noise": (lambda: O.NCE(NOISE), "normalised density such as noises.MomentGaussian(), and Gaussian"),
    "NCE, jumps to data": (lambda: O.NCE(N.DataJump(X)), "and DataJump is not one"),
    "NCE, a recipe of jumps": (lambda: O.NCE(N.GlobalJumps(0.0)), "and GlobalJumps is not one"),
    "NCE, a KDE as noise": (lambda: O.NCE(N.KDEJump(X, 0.1)), "and KDEJump is not one"),
    "NCE, an unknown constant": (lambda: O.NCE(UNKNOWN), "and FunctionEnergy is not one"),
    "NCE, nothing": (lambda: O.NCE(None), "and None is not one"),
    "NCE, infinite ratio": (lambda: O.NCE(N.UnitGaussian(), ratio=float("inf")), "positive and finite, not inf"),
    "NCE, noise elsewhere": (lambda: init(O.NCE(standard_gaussian(3))), "noise on Real(shape=(3,)) and its model on"),
    "tilt, infinite ratio": (lambda: O.TiltNCE(float("inf")), "positive and finite, not inf"),
    "CNCE, a reference": (lambda: O.CNCE(N.MomentGaussian()), "and MomentGaussian is not one; a density is for NCE"),
    "CNCE, a density": (lambda: O.CNCE(LINE), "and GaussianDensity is not one; a density is for NCE"),
    "CNCE, nothing": (lambda: O.CNCE(None), "and None is not one"),
    "CNCE, no noise at level 0": (lambda: O.CNCE(OU), "at level 0, where its standard deviation is 0"),
    "CNCE, half a draw": (lambda: O.CNCE(NOISE, draws=1.5), "whole number from 1 up, not 1.5"),
    "ED, a KDE": (lambda: O.EnergyDiscrepancy(N.KDEJump(X, 0.1)), "and KDEJump is neither"),
    "ED, jumps": (lambda: O.EnergyDiscrepancy(N.Jumps(0.1, 0.1)), "and Jumps is neither"),
    "ED, a number": (lambda: O.EnergyDiscrepancy(0.5), "and 0.5 is neither"),
    "ED, no noise": (lambda: O.GaussianPerturbation(OU, 0.0), "at level 0, where its standard deviation is 0"),
    "ED, no signal": (lambda: O.GaussianPerturbation(N.OrnsteinUhlenbeck(500.0)), "the signal's share 0"),
    "DSM, a KDE": (lambda: O.DSM(N.KDEJump(X, 0.1)), "noises.Gaussian(0.1), not KDEJump"),
    "DSM, a number": (
        lambda: O.DSM(0.1),
        "Gaussian noise such as noises.Gaussian(0.1), not 0.1",
    ),
    "D2SM, many levels": (lambda: O.JointSecondOrder(O.D2SM(N.VarianceExploding())), "not VarianceExploding"),
    "joint, no second order": (lambda: O.JointSecondOrder(O.SM()), "joins a loss such as D2SMVR"),
    "denoising KL, a KDE": (lambda: O.DenoisingKL(N.KDEJump(X, 0.1)), "noises.Gaussian(0.1), not KDEJump"),
    "denoising KL, no noise": (lambda: O.DenoisingKL(OU), "at level 0, where its standard deviation is 0"),
    "slices, a word": (lambda: O.SSM("gaussian"), "a law such as objectives.GaussianSlices(), not 'gaussian'"),
    "slices, a draw and a half": (lambda: O.SSM(draws=1.5), "whole number from 1 up, not 1.5"),
    "WAE, slices not white": (lambda: O.WAE(directions=SPHERE), "slices must have E[v v'] = I"),
    "WAE, negative weight": (lambda: O.WAE(-1.0), "must be positive and finite, not -1.0"),
    "kernel WAE, no weight": (lambda: O.KernelWAE(weight=0.0), "must be positive and finite, not 0.0"),
    "CD, negative magnitude": (lambda: O.CD(magnitude=-1.0), "finite and not negative, not -1.0"),
    "PCD, negative magnitude": (lambda: O.PCD(magnitude=-1.0), "finite and not negative, not -1.0"),
    "PCD, a scale without restarts": (lambda: O.PCD(restart_scale=1.0), "has no effect while restart is 0"),
    "PCD, no sampler": (lambda: O.PCD(0.1), "by a sampler such as samplers.Langevin(0.01), not 0.1"),
    "a sum with a number": (lambda: O.SM() + 1, "objectives are added to objectives, not to 1"),
    "an infinite weight": (lambda: float("inf") * O.SM(), "positive and finite, not inf"),
    "infinite noise": (lambda: N.Gaussian(float("inf")), "must be finite, not inf"),
    "infinite levels": (lambda: N.VarianceExploding(0.1, float("inf")), "finite high"),
    "infinite rates": (lambda: N.VariancePreserving(0.1, float("inf")), "positive and finite"),
    "an infinite horizon": (lambda: N.OrnsteinUhlenbeck(float("inf")), "positive and finite"),
    "an infinite bandwidth": (lambda: N.GlobalJumps(float("inf")), "finite and not negative"),
}

DATA = {
    "moments of one row": (lambda: init(O.NCE(N.MomentGaussian()), data=ONE), "the rows are too few, or all alike"),
    "moments of equal rows": (lambda: init(O.NCE(N.MomentGaussian()), data=SAME), "cannot fit MomentGaussian"),
    "the span of equal rows": (lambda: init(O.NCE(N.SpanGaussian()), data=SAME), "cannot fit SpanGaussian"),
    "a mixture of equal rows": (lambda: init(O.NCE(N.FittedMixture(2)), data=SAME), "cannot fit FittedMixture"),
    "kernels of one row": (lambda: init(O.NCE(N.FittedKDE(0.1)), data=ONE), "needs at least 2 rows, not 1"),
    "jumps of one row": (lambda: init(O.CNCE(N.Jumps(0.1, 0.1)), data=ONE), "not 1; use noises.Gaussian"),
    "blended jumps of one row": (lambda: init(O.CNCE(N.BlendedJumps(0.1, 0.1)), data=ONE), "not 1"),
    "wide jumps of equal rows": (
        lambda: init(O.CNCE(N.Jumps(0.1, 0.1, wide=0.1)), data=SAME),
        "CNCE cannot fit Jumps to these data",
    ),
    "a diffusion of zero": (lambda: init(O.DiffusionSM(jnp.zeros_like)), "so that nothing is learnt there"),
    "a diffusion of one axis": (
        lambda: init(O.DiffusionSM(lambda x: jnp.diag(jnp.array([1.0, 0.0])))),
        "so that nothing is learnt there",
    ),
    "an infinite diffusion": (lambda: init(O.DiffusionSM(lambda x: x / 0)), "not finite at some rows"),
    "a kernel of no width": (lambda: stein_score(X, width=0.0), "must be positive and finite, not 0"),
    "a kernel of negative width": (lambda: SpectralScore(X, width=-1.0), "must be positive and finite, not -1"),
    "the scores of equal samples": (lambda: stein_score(SAME), "samples of which most are equal"),
    "the spectrum of equal samples": (lambda: SpectralScore(SAME), "samples of which most are equal"),
}

WANT_AN_ENERGY = [
    O.CNCE(NOISE), O.NCE(N.UnitGaussian()), O.EnergyDiscrepancy(NOISE), O.PCD(), O.CD(), O.ShortRun(), O.Geyer(),
]  # fmt: skip
WANT_A_CODER = [O.ELBO(), O.ImplicitVAE(), O.WAE(), O.KernelVAE(), O.KernelWAE()]
WANT_REAL_POINTS = [
    O.CNCE(NOISE), O.CNCE(N.Jumps(0.1, 0.0)), O.CNCE(N.GlobalJumps(0.1)), O.NCE(N.MomentGaussian()), O.PCD(), O.CD(),
    O.EnergyDiscrepancy(NOISE), O.ShortRun(Gibbs()), O.PCD(Gibbs(), restart=0.5, restart_scale=1.0), O.Geyer(), O.SM(),
    O.SSM(), O.FDSSM(), O.DSM(NOISE),
]  # fmt: skip
ENCODER = PointEncoder(MLP(2, 1, width=4, depth=1, key=KEY))
CODER = Autoencoder(ENCODER, GaussianDecoder(MLP(1, 2, width=4, depth=1, key=KEY)))
MODELS = {
    **{
        f"{type(o).__name__} of a score": (lambda o=o: init(o, FREE), "trains an energy, and FreeScore is not one")
        for o in WANT_AN_ENERGY
    },
    **{
        f"{type(o).__name__} of {type(m).__name__}": (lambda o=o, m=m: init(o, m), f"not {type(m).__name__}")
        for o in WANT_A_CODER
        for m in (LINE, FREE)
    },
    **{
        f"{type(o).__name__} of coins, {i}": (lambda o=o: init(o, COINS, jnp.ones((8, 2))), "Binary(shape=(2,))")
        for i, o in enumerate(WANT_REAL_POINTS)
    },
    "denoising KL of a score": (lambda: init(O.DenoisingKL(NOISE), FREE), "a scores.GaussianDenoiser, not FreeScore"),
    "denoising KL of an energy": (lambda: init(O.DenoisingKL(NOISE)), "a scores.GaussianDenoiser, not Gaussian"),
    "an implicit loss without a score": (lambda: init(O.WAE(), CODER), "networks.ScoredAutoencoder, not Autoencoder"),
    "DSM of an autoencoder": (lambda: init(O.DSM(NOISE), CODER), "or an energy that has one, not Autoencoder"),
    "NCE of a DKEF": (
        lambda: init(O.NCE(N.UnitGaussian()), un.energies.DKEF(X, anchors=4, key=KEY)),
        "a DKEF has none; wrap it in energies.Shifted",
    ),
    "CNCE of a function": (
        lambda: init(O.CNCE(NOISE), jnp.sum),
        "becomes one by energies.FunctionEnergy(function, space)",
    ),
    "score matching of coins": (lambda: init(O.FDSSM(), COINS, jnp.ones((8, 2))), "PCD(samplers.Gibbs()) trains there"),
    "score matching of categories": (
        lambda: init(O.FDSSM(), FunctionEnergy(jnp.sum, Categorical((2,), 3)), jnp.ones((8, 2))),
        "PCD(samplers.Gibbs()) trains there",
    ),
    "score matching of graphs": (
        lambda: init(O.FDSSM(), FunctionEnergy(jnp.sum, Graph(2)), jnp.ones((8, 2, 2))),
        "CNCE takes a noise of your own there",
    ),
    "CNCE of an energy with levels": (
        lambda: init(O.CNCE(NOISE), un.scores.levelled_energy(NOISE, 2, key=KEY)),
        "one at every level; use AtLevel",
    ),
}

FITS = {
    "one column": (lambda: fit(data=X[:, :1]), "has shape (1,), and GaussianDensity is made for Real(shape=(2,))"),
    "three columns": (lambda: fit(data=jnp.ones((8, 3))), "training data has shape (3,)"),
    "another width to judge by": (lambda: fit(valid=X[:, :1]), "validation data has shape (1,)"),
    "another width of a score": (lambda: fit(FREE, valid=jnp.ones((8, 3))), "give both the same columns"),
    "words": (lambda: fit(data=[["a", "b"]]), "training data must be real numbers, not of type <U1"),
    "complex numbers": (lambda: fit(data=X + 1j), "must be real numbers, not of type complex64"),
    "ragged rows": (lambda: fit(data=[[1.0], [1.0, 2.0]]), "rows of unequal length"),
    "nothing to learn": (lambda: fit(UNKNOWN), "FunctionEnergy has no parameters, so nothing to learn"),
    "no objective": (lambda: fit(objective=O.SM), "is trained by an objective such as"),
    "an infinite rate": (lambda: fit(rate=float("inf")), "positive and finite, not inf"),
    "no patience": (lambda: fit(valid=X, patience=0), "patience is a number of evaluations, at least 1, not 0"),
    "one column, many times": (
        lambda: un.training.fit_repeats(LINE, O.SM(), jnp.ones((3, 8, 1)), steps=1, key=KEY),
        "training data has shape (1,)",
    ),
}  # fmt: skip


CASES = NOISES | DATA | MODELS | FITS


@pytest.mark.parametrize(("ask", "sentence"), CASES.values(), ids=CASES.keys())
def test_what_cannot_be_is_refused_in_one_sentence(ask, sentence):
    with pytest.raises(InputError) as refusal:
        ask()
    said = str(refusal.value)
    assert sentence in said and "\n" not in said and len(said) < 300


@pytest.mark.parametrize(
    ("objective", "model", "data"),
    [
        (O.CNCE(N.GlobalJumps(0.0)), COINS, jnp.ones((8, 2), int)),
        (O.PCD(Gibbs(), chains=4, moves=1), COINS, jnp.ones((8, 2), int)),
        (O.CNCE(N.Independent(LINE)), LINE, X),
        (O.NCE(N.LeftOutKernels(N.KDEJump(X, 0.1))), LINE, X),
        (O.NCE(N.UnitGaussian()), un.energies.Shifted(un.energies.DKEF(X, anchors=4, key=KEY)), X),
        (O.DiffusionSM(lambda x: x), LINE, X),
        (O.DenoisingKL(NOISE), GaussianDenoiser(MLP(2, 4, width=4, depth=1, key=KEY)), X),
        (O.KernelWAE(), CODER, X),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_can_be_is_accepted(objective, model, data):
    init(objective, model, data)


def test_checks_do_not_stand_in_the_way_of_compiled_code():
    """Inside a program values are unknown, and what needs them is not asked."""
    state = jax.jit(lambda x: init(O.NCE(N.MomentGaussian()), data=x).density.mean)(X)
    np.testing.assert_allclose(state, X.mean(0), rtol=1e-5)
    assert jax.jit(stein_score)(X).shape == X.shape
    assert jax.jit(lambda x: SpectralScore(x)(0.0, x[0]))(X).shape == (2,)


def test_whole_numbers_are_learnt_as_real_ones():
    """The same run to the last bit; cast to whole numbers the noise would be another."""
    rows = np.round(3 * np.asarray(X)).astype(np.int64)
    model = MLPEnergy(Real((2,)), width=4, depth=1, key=KEY)
    whole, real = (fit(model, O.NCE(N.MomentGaussian()), data, valid=data) for data in (rows, rows.astype(np.float32)))
    assert [a.tolist() for a in jax.tree.leaves(whole.state.weights)] == [
        a.tolist() for a in jax.tree.leaves(real.state.weights)
    ]


def test_whole_numbers_stay_whole_on_a_discrete_space():
    fitted = fit(COINS, O.PCD(Gibbs(), chains=4, moves=1), np.ones((8, 2), np.int32), batch=8)
    assert fitted.state.objective.dtype == jnp.int32


def collapses(rate: float):
    objective = O.Geyer(Langevin(0.1), chains=64, moves=1, every=1000, burn_in=1)
    data = 5 + X
    return fit(MLPEnergy(Real((2,)), width=8, depth=1, key=KEY), objective, data, steps=20, rate=rate)


def test_collapsed_weights_are_said_among_the_events():
    """As often as the state counted them, and nothing is said if it counted none."""
    fitted = collapses(0.5)
    count = int(fitted.state.objective.collapses)
    assert count > 1 and len(fitted.events) == 1
    assert fitted.events[0].startswith(f"The importance weights collapsed {count} times (effective share below 0.3)")
    calm = collapses(1e-6)
    assert int(calm.state.objective.collapses) == 0 and calm.events == ()


def test_a_sum_says_what_its_parts_say():
    state = O.geyer.GeyerState(None, X, jnp.asarray(0), jnp.asarray(1))
    total = O.SM() + 0.5 * O.Geyer()
    assert total.remarks((None, state)) == O.Geyer().remarks(state)
    assert "collapsed 1 time (" in total.remarks((None, state))[0]
    assert total.remarks((None, O.geyer.GeyerState(None, X, jnp.asarray(0), jnp.asarray(0)))) == ()


class InUnitsOfNoise(AbstractPlainScore):
    """A score that is divided by sigma as it stands, and so is not one where there is no noise."""

    weight: jax.Array
    noise: N.AbstractGaussianNoise

    def __call__(self, t, x, condition=None):
        return -self.weight * x / self.noise.sigma(t)


@pytest.mark.parametrize(
    "noise", [OU, N.VariancePreserving(), N.VarianceExploding(), NOISE], ids=lambda n: type(n).__name__
)
def test_training_over_levels_never_meets_a_level_without_noise(noise, monkeypatch):
    """A uniform number can be 0, about once in 2^23: here all of them are."""
    least = float(noise.least_level())
    assert float(noise.sigma(least)) > 0 and least == pytest.approx(0.0 if float(noise.sigma(0.0)) > 0 else 1e-5)
    score = InUnitsOfNoise(jnp.ones(()), noise)
    monkeypatch.setattr(jax.random, "uniform", lambda key, shape, dtype: jnp.zeros(shape, dtype))

    def loss(score, objective):
        return objective(score, None, X[:4], key=KEY)[0]

    for objective in (O.DSM(noise), O.DSMVR(noise)):
        found = eqx.filter_value_and_grad(loss)(score, objective)
        assert all(bool(jnp.all(jnp.isfinite(leaf))) for leaf in jax.tree.leaves(found))
    # Negative control: at level 0 itself the score of a noise that begins at 0 is no number.
    assert bool(jnp.all(jnp.isfinite(score(0.0, X[0])))) == (least == 0)
