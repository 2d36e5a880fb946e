"""Song 2022, Figs 4.5 and 4.6, Table 4.3: Ozaki's walk against Langevin's, each at its best step and at equal time.

Table 4.3 prints effective sample sizes of chains of 10,000 steps, 21.81 and 26.33 on "Dataset 1" and "Dataset 2". A row
is lost there; by the step sizes of the text these two belong to Langevin. The best steps are printed as e = 0.5 and 2
for Langevin, 5 and 6 for Ozaki, and "one third to one sixth of the iterations" as the gain. The data sets are in a
picture only, so that two stand in for them: modes far enough apart that a chain of Langevin has a few tens of effective
draws, of a width at which the printed steps are stable (variance 0.3 and 1). Song 2022 walks on learnt scores; here
they are exact, so that nothing but the walk is judged. Two Gaussians stand beside them: one along the axes, where Ozaki
has no error at any step, and one across them, where a diagonal cannot see the shape.

Effective draws are those of Song 2022: n / (1 + 2 sum_s (1 - s/n) rho_s), rho_s with the true mean and variance, the
sum cut where rho_s < 0.05; the least over coordinates of a chain, and the mean over chains. They say nothing about the
law of the draws: Langevin on N(0, v) at h = v gives independent draws of variance 2 v, hence as many effective ones as
there are, and between two modes a step that is too large crosses the more often. Therefore the best step is told
twice, by effective draws alone and among those steps whose draws have the right mean energy to within 0.1 nats (the
right law, below). Steps are chosen on one run of 32 chains and measured on another.

All steps are times h of dx = s dt + sqrt(2) dB. Song 2022 writes e = 2 h for Langevin and e = h for Ozaki, so that at
the same printed e Ozaki walks twice as long: Fig. 4.6 (e = 0.01 for both) is done as printed and at equal time.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure

from unnorm.energies import gaussian, gaussian_mixture
from unnorm.energies.base import AbstractNormalised
from unnorm.estimate import Estimate, mean_estimate
from unnorm.experiments.base import Claim, Experiment, Job, Published, Result, Row, exact
from unnorm.plots import QUIET, dots, panels
from unnorm.samplers import AbstractSampler, Langevin, Ozaki, sample
from unnorm.samplers.diagnostics import ess_mean

CHAINS, STEPS, BURN_IN = 32, 9000, 1000
#: Chains of the runs that are told, after a step was chosen with the printed number.
TOLD = 128
#: Times of one step, the same for both.
GRID = tuple(float(2.0 ** (k / 2)) for k in range(-12, 9))
#: A law counts as right when its mean energy is, to this many nats (a Gaussian of the plane has a mean of 1).
TOLERANCE = 0.1
CUT = 0.05
ALIGNED, ACROSS, FIRST, SECOND = "Gaussian along the axes", "Gaussian across them", "two modes", "four modes"
LANGEVIN, OZAKI = "Langevin", "Ozaki"
WALKS = {LANGEVIN: Langevin, OZAKI: Ozaki}
STEP, ESS, EXCESS = "best step", "effective draws", "excess energy"
RIGHT_STEP, RIGHT_ESS, EQUAL = "best right step", "effective draws there", "at equal time"
PUBLISHED = {(FIRST, LANGEVIN): 21.81, (SECOND, LANGEVIN): 26.33}
#: Fig. 4.6: printed step, points, iterations, and how often they are looked at.
PRINTED, POINTS, ITERATIONS, EVERY, GROUPS = 0.01, 2000, 1000, 10, 8


def targets() -> dict[str, AbstractNormalised]:
    """The densities, all of the plane."""
    turned = 4.0 * np.array([[1.0, 0.95], [0.95, 1.0]])
    corners = 2.8 * np.array([[-1.0, -1.0], [-1.0, 1.0], [1.0, -1.0], [1.0, 1.0]])
    narrow = np.tile(np.diag([0.3, 1.0]), (2, 1, 1))
    return {
        ALIGNED: gaussian(np.zeros(2), np.diag([0.1, 10.0])),
        ACROSS: gaussian(np.zeros(2), turned),
        FIRST: gaussian_mixture([0.5, 0.5], [[-1.6, 0.0], [1.6, 0.0]], narrow),
        SECOND: gaussian_mixture(np.full(4, 0.25), corners, 1.0),
    }


@dataclass(frozen=True)
class Truth:
    """What independent draws say: mean and variance of the coordinates, and the mean energy."""

    mean: np.ndarray
    variance: np.ndarray
    energy: float


def truth_of(target: AbstractNormalised, n: int = 400_000) -> Truth:
    """From `n` independent draws, as in Song 2022."""
    draws = target.samples(n, key=jax.random.key(2**20))
    points = np.asarray(draws, np.float64)
    energies = np.asarray(jax.jit(jax.vmap(target))(draws), np.float64)
    return Truth(points.mean(0), points.var(0), float(energies.mean()))


def effective_draws(
    draws: Float[np.ndarray, "chains n d"], mean: np.ndarray, variance: np.ndarray
) -> Float[np.ndarray, "chains d"]:
    """n / (1 + 2 sum_{s < S} (1 - s/n) rho_s), S the first lag with rho_s < 0.05; mean and variance are the truth's.

    >>> draws = np.random.default_rng(0).normal(size=(2, 1000, 1))
    >>> effective_draws(draws, np.zeros(1), np.ones(1)).tolist()
    [[1000.0], [1000.0]]
    """
    n = draws.shape[1]
    length = 1 << (2 * n - 1).bit_length()
    spectrum = np.fft.rfft(np.asarray(draws, np.float64) - mean, length, axis=1)
    lags = np.arange(n)[:, None]
    products = np.fft.irfft(np.abs(spectrum) ** 2, length, axis=1)[:, :n]
    rho = products / ((n - lags) * variance)
    kept = np.logical_and.accumulate(rho[:, 1:] >= CUT, axis=1)
    return n / (1 + 2 * np.sum(np.where(kept, (1 - lags[1:] / n) * rho[:, 1:], 0), axis=1))


def _measure(
    target: AbstractNormalised, truth: Truth, sampler: AbstractSampler, chains: int, key: Any
) -> tuple[dict[str, Any], np.ndarray]:
    """Effective draws and excess energy of every chain (nothing if one was lost), and the draws."""
    begin, run = jax.random.split(key)
    start = target.samples(chains, key=begin)
    draws = sample(
        target, sampler, chains=chains, steps=STEPS, warmup=BURN_IN, start=start, key=run, progress=False
    ).draws  # fmt: skip
    energies = np.asarray(_energies(target, draws), np.float64)
    if not np.all(np.isfinite(energies)):
        return {"lost": True}, draws
    return {
        "lost": False,
        "ess": effective_draws(draws, truth.mean, truth.variance).min(axis=1).tolist(),
        "excess": (energies.mean(axis=1) - truth.energy).tolist(),
    }, draws


_energies = jax.jit(lambda target, draws: jax.vmap(jax.vmap(target))(draws))


def _ranking(found: list[dict[str, Any]], right: bool) -> list[int]:
    """Places in the grid from the most effective draws down, of all steps or of those whose law is right.

    A step at which no chain was lost may lose one in another run; then the next is as good as it gets.
    """
    kept = [
        i
        for i, piece in enumerate(found)
        if not piece["lost"] and not (right and abs(np.mean(piece["excess"])) > TOLERANCE)
    ]
    # The smallest step is the nearest to right where none is within the tolerance.
    return sorted(kept, key=lambda i: -float(np.mean(found[i]["ess"]))) or [0]


def _key(seed: int, name: str, method: str) -> Any:
    place = 1000 * list(targets()).index(name) + list(WALKS).index(method)
    return jax.random.fold_in(jax.random.key(seed), place)


def _walk(name: str, method: str, told: int, seed: int) -> dict[str, Any]:
    """Every step of the grid; then the two best once more, with other keys."""
    target = targets()[name]
    truth = truth_of(target)
    key, walk = _key(seed, name, method), WALKS[method]
    found = [_measure(target, truth, walk(h), CHAINS, jax.random.fold_in(key, i))[0] for i, h in enumerate(GRID)]
    piece: dict[str, Any] = {"grid": found}
    for what, right in (("best", False), ("right", True)):
        for place in _ranking(found, right):
            again, draws = _measure(target, truth, walk(GRID[place]), told, jax.random.fold_in(key, 100 + right))
            if not again["lost"]:
                shown = np.round(np.asarray(draws[0, ::6], np.float64), 3).tolist()
                pooled = float(ess_mean(draws).min()) / len(draws)
                piece[what] = {"place": place, **again, "points": shown, "pooled": pooled}
                break
    return piece


def _equal(name: str, place: int, told: int, seed: int) -> dict[str, Any]:
    """Ozaki at the step that Langevin does best with among those whose law is right."""
    target, key = targets()[name], jax.random.fold_in(_key(seed, name, OZAKI), 200)
    return _measure(target, truth_of(target), Ozaki(GRID[place]), told, key)[0]


def _relaxation(seed: int) -> dict[str, Any]:
    """Fig. 4.6: excess energy by iteration, from points spread evenly over a square, in groups."""
    target = targets()[FIRST]
    energy = truth_of(target).energy
    walks = {
        f"Langevin, e = {PRINTED:g}": Langevin.halved(PRINTED),
        f"Ozaki, e = {PRINTED:g}": Ozaki(PRINTED),
        f"Langevin, e = {2 * PRINTED:g}": Langevin.halved(2 * PRINTED),
    }
    piece: dict[str, Any] = {}
    for i, (label, sampler) in enumerate(walks.items()):
        begin, run = jax.random.split(jax.random.fold_in(jax.random.key(seed), 7 + i))
        start = jax.random.uniform(begin, (POINTS, 2), minval=-5.0, maxval=5.0)
        draws = sample(
            target, sampler, chains=POINTS, steps=ITERATIONS // EVERY, thin=EVERY, start=start, key=run, progress=False
        ).draws  # fmt: skip
        energies = np.asarray(_energies(target, draws), np.float64).reshape(GROUPS, -1, draws.shape[1])
        piece[label] = (energies.mean(axis=1) - energy).tolist()
    return piece


def _iterations(curves: Any) -> Estimate:
    """How many iterations until the excess is within the tolerance, on average over groups."""
    inside = np.asarray(curves) < TOLERANCE
    first = np.where(inside.any(axis=1), np.argmax(inside, axis=1) + 1, inside.shape[1] + 1)
    return mean_estimate(EVERY * first, f"{GROUPS} groups of {POINTS // GROUPS} points")


def _over_chains(values: list[float]) -> Estimate:
    return mean_estimate(values, f"mean over {len(values)} chains")


def _pooled(pieces: dict[str, Any]) -> str:
    """Effective draws of all chains together, by the library's own measure, for one chain."""
    found = {name: [pieces[f"{_file(name)}-{method}"]["right"]["pooled"] for method in WALKS] for name in targets()}
    told = "; ".join(f"{name} {langevin:.1f} and {ozaki:.1f}" for name, (langevin, ozaki) in found.items())
    return f"At the best right steps, all chains pooled, effective draws a chain (Langevin and Ozaki): {told}."


def _file(name: str) -> str:
    return name.replace(" ", "-")


def _row(pieces: dict[str, Any], name: str, method: str) -> Row:
    piece = pieces[f"{_file(name)}-{method}"]
    best, right = piece["best"], piece["right"]
    figures = {
        STEP: exact(GRID[best["place"]], "chosen from a grid"),
        ESS: _over_chains(best["ess"]),
        EXCESS: _over_chains(best["excess"]),
        RIGHT_STEP: exact(GRID[right["place"]], "chosen from a grid"),
        RIGHT_ESS: _over_chains(right["ess"]),
        # Langevin's own step is the common one.
        EQUAL: _over_chains((right if method == LANGEVIN else pieces[f"{_file(name)}-equal"])["ess"]),
    }
    printed = PUBLISHED.get((name, method))
    return Row(f"{name}: {method}", figures, {} if printed is None else {ESS: Published(printed)})


def _more(rows: dict[tuple[str, str], Row], name: str, column: str) -> tuple[Estimate, float]:
    """Ozaki's effective draws less Langevin's, and their ratio."""
    ozaki, langevin = rows[name, OZAKI].figures[column], rows[name, LANGEVIN].figures[column]
    return ozaki.minus(langevin), ozaki.value / langevin.value


def _ahead(rows: dict[tuple[str, str], Row], name: str, column: str, words: str) -> Claim:
    gap, ratio = _more(rows, name, column)
    return Claim(f"{name}: {words}, Ozaki has more effective draws ({ratio:.2f} times).", gap.value > 2 * gap.stderr)


def _claims(rows: dict[tuple[str, str], Row], counts: dict[str, Estimate]) -> tuple[Claim, ...]:
    names, modes = list(dict.fromkeys(name for name, _ in rows)), (FIRST, SECOND)
    slow, ozaki, fast = counts.values()
    equal = [_more(rows, name, EQUAL) for name in names]
    aligned, across = (_more(rows, name, RIGHT_ESS)[1] for name in (ALIGNED, ACROSS))
    wrong = [rows[name, LANGEVIN].figures[EXCESS].value for name in names]
    same, twice = ozaki.minus(fast), slow.value / ozaki.value
    return (
        *(_ahead(rows, name, ESS, "each at the step of the most effective draws (Table 4.3)") for name in modes),
        Claim(
            "That measure cannot choose a step: where Langevin has the most effective draws, its mean energy is wrong "
            f"by more than 1 nat on every target ({', '.join(f'{excess:.1f}' for excess in wrong)}).",
            all(excess > 1 for excess in wrong),
        ),
        *(_ahead(rows, name, RIGHT_ESS, "each at its best step with the right law") for name in modes),
        Claim(
            "With the right law Ozaki has at least ten times as many on a Gaussian along the axes "
            f"({aligned:.0f} times), and a tenth of that gain or less on one across them ({across:.1f} times).",
            aligned >= 10 and across <= aligned / 10,
        ),
        Claim(
            "At equal time and step Ozaki has no more than Langevin on any target, to 3 standard errors (ratios "
            f"{', '.join(f'{ratio:.2f}' for _, ratio in equal)}): the gain is the larger step that it bears.",
            all(gap.value < 3 * gap.stderr for gap, _ in equal),
        ),
        Claim(
            f"Fig. 4.6: at the same printed e Langevin needs about twice the iterations of Ozaki ({twice:.2f} times).",
            1.6 < twice < 2.4,
        ),
        Claim(
            "At equal time it needs as many, to 3 standard errors "
            f"({fast.number()} against {ozaki.number()} iterations).",
            abs(same.value) < 3 * same.stderr,
        ),
    )


def run(job: Job) -> Result:
    """Both walks at every step of the grid on every target, and the figure of two modes."""
    told = TOLD if job.quick else 8 * TOLD
    computes: dict[str, Any] = {
        f"{_file(name)}-{method}": partial(_walk, name, method, told, job.seed)
        for name in targets()
        for method in WALKS
    }
    pieces = job.pieces(computes | {"relaxation": partial(_relaxation, job.seed)}, "ozaki")
    places = {name: pieces[f"{_file(name)}-{LANGEVIN}"]["right"]["place"] for name in targets()}
    pieces |= job.pieces(
        {f"{_file(name)}-equal": partial(_equal, name, place, told, job.seed) for name, place in places.items()},
        "equal time",
    )
    rows = {(name, method): _row(pieces, name, method) for name in targets() for method in WALKS}
    counts = {label: _iterations(curves) for label, curves in pieces["relaxation"].items()}
    remarks = (
        "Steps are times h; the e of Song 2022 is 2 h for Langevin and h for Ozaki. Its figures are of other data, "
        "which it does not print.",
        "A step of Ozaki costs a gradient and one derivative of it for each coordinate; here effective draws are "
        "counted per step, not per second.",
        _pooled(pieces),
        *(
            f"Fig. 4.6, {label}: {count.number()} iterations until the energy is right."
            for label, count in counts.items()
        ),
    )
    series = {
        "targets": {
            name: {
                method: {
                    "ess": [None if p["lost"] else float(np.mean(p["ess"])) for p in piece["grid"]],
                    "excess": [None if p["lost"] else float(np.mean(p["excess"])) for p in piece["grid"]],
                    "points": piece["right"]["points"],
                    "step": GRID[piece["right"]["place"]],
                }
                for method in WALKS
                for piece in (pieces[f"{_file(name)}-{method}"],)
            }
            for name in targets()
        },
        "grid": list(GRID),
        "relaxation": {label: np.mean(curves, axis=0).tolist() for label, curves in pieces["relaxation"].items()},
    }
    columns = (STEP, ESS, EXCESS, RIGHT_STEP, RIGHT_ESS, EQUAL)
    title = f"Ozaki and Langevin: effective draws of a chain of {STEPS}"
    return Result(title, columns, tuple(rows.values()), _claims(rows, counts), series, remarks)


def _panel(axes: Any, grid: list[float], found: dict[str, Any], what: str, floor: float) -> None:
    """Both walks against the step; steps that lost a chain have no point."""
    for method, of in found.items():
        kept = [(h, value) for h, value in zip(grid, of[what], strict=True) if value is not None]
        axes.plot([h for h, _ in kept], [max(abs(value), floor) for _, value in kept], ".-", ms=4, label=method)
    axes.set(xscale="log", yscale="log", xlabel="step h")


def draw(result: Result) -> Figure:
    """For each target: effective draws and excess energy by step, and one chain of each; then Fig. 4.6."""
    found, grid = result.series["targets"], result.series["grid"]
    figure, rows = panels(len(found) + 1, 4, 3, 2.7)
    for line, (name, of) in zip(rows, found.items(), strict=False):
        for axes, what, least in ((line[0], "ess", 1.0), (line[1], "excess", 1e-3)):
            for method, drawn in of.items():
                # Steps that lost a chain have no point.
                kept = [(h, max(abs(v), least)) for h, v in zip(grid, drawn[what], strict=True) if v is not None]
                axes.loglog(*zip(*kept, strict=True), ".-", ms=4, label=method)
            axes.set(xlabel="step h")
        line[1].axhline(TOLERANCE, color=QUIET, lw=0.8, ls=":")
        line[0].set_title(f"{name}: effective draws", fontsize=9)
        line[1].set_title("| excess energy |, nats", fontsize=9)
        limit = 1.05 * max(float(np.abs(drawn["points"]).max()) for drawn in of.values())
        for axes, (method, drawn) in zip(line[2:], of.items(), strict=True):
            dots(axes, drawn["points"], limit)
            axes.set_title(f"one chain of {method}, h = {drawn['step']:.3g}", fontsize=9)
    last = rows[-1, 0]
    for label, curve in result.series["relaxation"].items():
        last.semilogy(EVERY * np.arange(1, len(curve) + 1), np.maximum(curve, 1e-2), lw=1.2, label=label)
    last.set(xlabel="iterations")
    last.set_title("two modes (Fig. 4.6): excess energy", fontsize=9)
    for axes in rows[-1, 1:]:
        axes.set_axis_off()
    for axes in (last, rows[0, 0]):
        axes.legend(fontsize=7)
    return figure


EXPERIMENT = Experiment("ozaki", run, draw)
