"""Yu et al. 2025, Table 1: noise-contrastive estimation of the 20-D mixture of 40 components, by kind of noise.

One residual network is trained by each kind from the same 10,000 rows and judged as in the paper: Ratio, the mean
squared error of log f(x) - log f(x') over pairs of test rows; NLL; MSE, the mean squared error of the normalised log
density at test rows. f is normalised by importance sampling from the true density (100,000 draws), which only an
experiment has.

The energies to be learnt are of order 1 / sigma^2 = 100, and at the paper's local width 0.1 data and noise are told
apart at once (log-odds about 10), so a plain network stalls. Here the network's output is divided by the square of the
data's own length and local moves are of the size that changes the energy by about one: `noises.scales_of` finds both.

Three rows say what the numbers mean: a constant energy, a Gaussian mixture by EM, and the truth. `ours` is the default
of `unnorm fit`, a tilted reference; `ours-neural` an energy without one, a network of wells that start at data rows.
Draws of the truth do not show what mass a model has elsewhere, so these two are normalised without it as well.
"""

import math
from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

from unnorm.data import Problem, load
from unnorm.energies import (
    AbstractEnergy,
    AbstractNormalised,
    FunctionEnergy,
    NeuralEnergy,
    ResNetEnergy,
    Tilted,
    best_reference,
    fit_gaussian,
    fit_mixture,
    tilt,
)
from unnorm.energies.em import FULL, SPHERICAL
from unnorm.estimate import Estimate
from unnorm.evaluation import energies, log_likelihood, log_partition, tempered_population
from unnorm.experiments.base import Claim, Experiment, Job, Published, Result, Row, over_seeds
from unnorm.networks.wells import Wells
from unnorm.noises import FittedKDE, Gaussian, GlobalJumps, Jumps, MomentGaussian, scales_of
from unnorm.objectives import CNCE, NCE, AbstractObjective, TiltNCE
from unnorm.plots import QUIET, named_rows, panels
from unnorm.training import fit

COLUMNS = ("Ratio", "NLL", "MSE")
#: Means and errors over seeds, as printed.
PRINTED = {
    "NCE": ((54.9, 8.6), (3.5, 1.3), (334.2, 48.6)),
    "NCE global": ((39.1, 6.6), (-5.9, 1.6), (87.6, 29.7)),
    "CNCE local": ((130.0, 43.4), (2.1, 2.7), (329.2, 103.9)),
    "CNCE mix": ((23.8, 0.5), (-6.6, 0.5), (66.2, 7.4)),
    "CNCE global": ((20.2, 0.5), (-3.3, 2.5), (130.9, 55.8)),
}
#: Energies that are also normalised without the truth.
OWN = ("ours-neural", "ours")
#: Where the picture ends, in nats per row.
EDGE = 10.0
METHODS = (*PRINTED, "ours-neural", "ours", "constant energy", "mixture by EM", "true density")


def figures(model: AbstractEnergy, problem: Problem, *, draws: int = 100_000, seed: int = 0) -> dict[str, float]:
    """Ratio, NLL and MSE of an energy on a problem whose density is known."""
    truth = problem.truth
    assert isinstance(truth, AbstractNormalised)

    points = truth.samples(draws, key=jax.random.key(seed + 77))
    weights = energies(truth, points) - energies(model, points)
    log_z = float(np.log(np.mean(np.exp(weights - weights.max()))) + weights.max())
    log_p = -energies(model, problem.test) - log_z
    error = log_p + energies(truth, problem.test)
    half = len(error) // 2
    pairs = error[:half] - error[half : 2 * half]
    return {"Ratio": float(np.mean(pairs**2)), "NLL": float(-log_p.mean()), "MSE": float(np.mean(error**2))}


def _objective(name: str, step: float, bandwidth: float) -> AbstractObjective:
    if name == "NCE":
        return NCE(MomentGaussian())
    if name == "NCE global":
        return NCE(FittedKDE(bandwidth))
    if name == "CNCE local":
        return CNCE(Gaussian(step))
    if name == "CNCE global":
        return CNCE(GlobalJumps(bandwidth, leave_one_out=True))
    return CNCE(Jumps(local=step, bandwidth=bandwidth, share=0.75, leave_one_out=True))


def _model(name: str, problem: Problem, seed: int, steps: int) -> AbstractEnergy:
    rows, valid = jnp.asarray(problem.train), jnp.asarray(problem.valid)
    start, run = jax.random.split(jax.random.key(seed))
    if name == "true density":
        assert problem.truth is not None
        return problem.truth
    if name == "constant energy":
        return FunctionEnergy(lambda x: jnp.zeros((), x.dtype), problem.space)
    if name == "mixture by EM":
        # Full covariances of 20 columns learn the training rows by heart (-13.3): validation prefers round components.
        found = [fit_mixture(rows, k, covariance=kind, key=start) for k in (40, 60) for kind in (FULL, SPHERICAL)]
        return max(found, key=lambda mixture: float(jnp.mean(jax.vmap(mixture.log_prob)(valid))))
    scales = scales_of(problem.train, problem.valid)
    if name == "ours":
        model = tilt(best_reference(rows, valid, key=start), key=start)
        # The reference is close already: the network has nothing more to find after this many.
        return fit(model, TiltNCE(), rows, valid=valid, steps=min(steps // 4, 2000), key=run, progress=False).model
    if name == "ours-neural":
        # Wells as narrow as the data's own kernels. Of those that start at 2 * length many end 1.4 to 1.8 from every
        # mode, at radii up to 0.16 instead of 0.1: no noise falls there, and they hold nearly all of the mass.
        network = Wells(rows, units=256, radius=scales.bandwidth, key=start)
        model = NeuralEnergy(problem.space, network, confinement=1e-3)
        objective = CNCE(Jumps(local=(scales.step, 3 * scales.step), bandwidth=scales.bandwidth, leave_one_out=True))
        return fit(model, objective, rows, valid=valid, steps=steps, rate=3e-3, key=run, progress=False).model
    model = ResNetEnergy(problem.space, scale=scales.length, key=start)
    objective = _objective(name, scales.step, scales.bandwidth)
    return fit(model, objective, rows, valid=valid, steps=steps, rate=2e-3, key=run, progress=False).model


def own_nll(model: AbstractEnergy, problem: Problem, seed: int) -> Estimate:
    """NLL with log Z found without the truth, by `log_partition`.

    A base fitted to the rows alone does not see what mass the model has away from them, and says nothing of it. So a
    population walks first from the rows' Gaussian to the model, and the base is a wide mixture fitted to both.
    """
    walk, start, run = jax.random.split(jax.random.key(seed + 78), 3)
    found = tempered_population(model, fit_gaussian(problem.train), key=walk).draws(len(problem.train))
    base = fit_mixture(jnp.asarray(np.concatenate([problem.train, found])), 60, ridge=0.02, key=start)
    log_z = log_partition(model, base=base, key=run)
    mean = log_likelihood(model, problem.test, log_z)
    return replace(mean, value=-mean.value)


def _piece(name: str, seed: int, steps: int) -> dict[str, float]:
    problem = load("gmm20")
    model = _model(name, problem, seed, steps)
    found = figures(model, problem, seed=seed)
    if name in OWN:
        nll = own_nll(model, problem, seed)
        found |= {"own NLL": nll.value, "own stderr": nll.stderr}
    if isinstance(model, Tilted):
        found["reference NLL"] = float(np.mean(energies(model.reference, problem.test)))
    return found


def _name(method: str, seed: int) -> str:
    return f"{method.replace(' ', '-')}-{seed}"


def _published(name: str) -> dict[str, Published]:
    return {c: Published(*p) for c, p in zip(COLUMNS, PRINTED[name], strict=True)} if name in PRINTED else {}


def run(job: Job) -> Result:
    """Train by each kind of noise and judge."""
    seeds, steps = (1, 12_000) if job.quick else (3, 50_000)
    jobs = {_name(m, s): partial(_piece, m, job.seed + s, steps) for m in METHODS for s in range(seeds)}
    pieces = job.pieces(jobs, "cnce-table1")
    found = {m: [pieces[_name(m, s)] for s in range(seeds)] for m in METHODS}
    means = {m: {c: over_seeds([piece[c] for piece in found[m]]) for c in COLUMNS} for m in METHODS}
    mix, ours, neural = means["CNCE mix"], means["ours"], means["ours-neural"]
    em = means["mixture by EM"]
    own = {m: float(np.mean([piece["own NLL"] for piece in found[m]])) for m in OWN}
    reference = float(np.mean([piece["reference NLL"] for piece in found["ours"]]))
    claims = (
        Claim("CNCE mix is at least as good as printed in NLL (-6.6).", mix["NLL"].value <= -6.6),
        Claim("CNCE mix is at least as good as printed in MSE (66.2).", mix["MSE"].value <= 66.2),
        Claim(
            "CNCE mix has a lower NLL than local and than global noise alone.",
            mix["NLL"].value < min(means["CNCE local"]["NLL"].value, means["CNCE global"]["NLL"].value),
        ),
        Claim("ours: NLL at most -13.8.", ours["NLL"].value <= -13.8),
        Claim("ours: Ratio at most 0.5.", ours["Ratio"].value <= 0.5),
        Claim("ours: MSE at most 0.5.", ours["MSE"].value <= 0.5),
        Claim(
            "ours is no worse than a Gaussian mixture by EM (to 0.05 nats).",
            ours["NLL"].value <= em["NLL"].value + 0.05,
        ),
        Claim(
            f"ours is no worse than the reference it began with ({reference:.2f}).",
            max(ours["NLL"].value, own["ours"]) <= reference,
        ),
        Claim("ours-neural: NLL at most -11.", neural["NLL"].value <= -11),
        *(
            Claim(f"{m}: NLL at most {bar:g} with log Z by log_partition too.", own[m] <= bar)
            for m, bar in (("ours", -13.8), ("ours-neural", -11.0))
        ),
    )
    floor = math.log(40) + 20 * (0.5 * math.log(2 * math.pi * math.e) + math.log(0.1))
    remarks = [f"The entropy of the true density, the floor of NLL, is {floor:.2f} up to the components' overlap."]
    remarks.append(
        "log Z is estimated from draws of the true density, as in the paper: mass that a model puts elsewhere is not "
        "seen, so NLL flatters an energy that is not normalised (a constant one has no density at all)."
    )
    for m in OWN:
        errors = [piece["own stderr"] for piece in found[m]]
        remarks.append(f"{m} with log Z by log_partition: NLL {own[m]:.2f} ± {np.hypot.reduce(errors) / seeds:.2f}.")
    if job.quick:
        remarks.append(f"Quick: {steps} steps and {seeds} seed; the paper's settings are 50,000 steps and 3 seeds.")
    rows = tuple(Row(m, means[m], _published(m)) for m in METHODS)
    series = {m: {c: means[m][c].value for c in COLUMNS} for m in METHODS}
    return Result("The 20-D mixture of 40 components", COLUMNS, rows, claims, series, tuple(remarks))


def draw(result: Result) -> Figure:
    """NLL of every row, ours and the published one."""
    figure, panel = panels(1, 1, 8, 3.6)
    axes = panel[0, 0]
    values = np.array([result.series[m]["NLL"] for m in METHODS])
    axes.plot(np.minimum(values, EDGE), np.arange(len(METHODS)), "o", label="here")
    # Those that do not normalise would leave the others no room: they stand at the edge, with their number.
    for place in np.flatnonzero(values > EDGE):
        told = f"{values[place]:.0f} →"
        axes.annotate(told, (EDGE, place), (-8, 0), textcoords="offset points", ha="right", va="center")
    for i, method in enumerate(m for m in METHODS if m in PRINTED):
        value, error = PRINTED[method][1]
        place, label = METHODS.index(method) + 0.15, "published" if i == 0 else None
        axes.errorbar(value, place, xerr=error, fmt="s", color=QUIET, label=label)
    named_rows(axes, METHODS)
    axes.set(xlabel="negative log-likelihood, nats per row (lower is better)")
    axes.legend()
    return figure


EXPERIMENT = Experiment("cnce-table1", run, draw)
