"""Zhang et al. 2023, Figs 3 to 6, at reduced size: denoising Gibbs on MNIST by the covariance of its posterior.

The paper trains an energy (a U-Net, 300 epochs) and shows samples with either covariance, maps of the variances, and
what the number of Rademacher vectors (100 there) does to them; it prints no figures for them. Here the model is a
denoiser D, a perceptron, which is the score (D(x~) - x~) / sigma^2 of the noisy digits, and everything is measured:

  * Chains begin at held-out digits and make some Gibbs steps. An exact sampler would leave their law as it is, so the
    MMD^2 between their last draws and other held-out digits is the sampler's own error. It is also told for the digits
    that the model sees in these draws (noise added and D applied), against D of other digits with noise, since D of an
    exact draw has that law. A classifier is trained to tell draws from digits (1/2: it cannot).
  * The variances v(x~) should be the mean squared errors of D. Their share explained is 1 - E (e^2 - v)^2 /
    E (e^2 - m)^2, over pixels of held-out digits, e = x - D(x~) and m the mean of e^2: 0 for the best single variance,
    the greatest for the true ones.
  * The estimate of the variances with n vectors of signs has an error of sigma^8 sum_{j != i} J_ij^2 / n, J the
    derivative of the score. At some points J is formed, and both sides are compared.

The isotropic variance of Eq. 18, sigma^2 - sigma^4 E |s|^2 / d, is the mean squared error of D only where s is exact;
of a learnt D it is 2 sigma^2 tr(D') / d less that error (by Stein's identity), and comes out too small here. Therefore
the error itself, measured on held-out digits, is run as an isotropic variance too.

Chains from noise are shown beside them; where a chain ends depends on where it begins, since one level of noise
seldom changes a digit into another (the paper's own caution).
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray
from matplotlib.figure import Figure

from unnorm import samplers
from unnorm.estimate import Estimate
from unnorm.evaluation import classifier_test, mmd
from unnorm.experiments.base import Claim, Experiment, Job, Result, Row, ahead, exact
from unnorm.experiments.gibbs_digits import (
    PAPER,
    PIXELS,
    QUICK,
    SIDE,
    SIGMA,
    Digits,
    Size,
    bandwidths_of,
    data_of_digits,
    grey_levels,
    influence,
    seen_by,
    trained_model,
)
from unnorm.experiments.gibbs_variances import SHEET, SHOWN, measured_variances, probes_label
from unnorm.plots import INK, MAP, new_figure, picture

ISOTROPIC, MEASURED, FLOOR = "isotropic, Eq. 18", "isotropic, measured error", "two samples of digits"
DRAWS, SEEN, TOLD_APART = "MMD^2 of draws", "MMD^2 of digits seen", "classifier"
EXPLAINED, ERROR, RAISED = "variance explained", "error of variances", "share raised"
COLUMNS = (DRAWS, SEEN, TOLD_APART, EXPLAINED, ERROR, RAISED)


def _compared(points: np.ndarray, seen: np.ndarray, references: dict[str, np.ndarray], key: PRNGKeyArray) -> Any:
    """The three measures, each with its error, and what the comparison of two samplers needs."""
    held, denoised = references["held"], references["denoised"]
    return {
        DRAWS: mmd(points, held, bandwidths=bandwidths_of(held)).to_dict(),
        SEEN: mmd(seen, denoised, bandwidths=bandwidths_of(denoised)).to_dict(),
        TOLD_APART: classifier_test(points, held, width=128, steps=1000, rate=1e-3, key=key).to_dict(),
        "influence": {DRAWS: influence(points, held), SEEN: influence(seen, denoised)},
        "sheet": grey_levels(points[:SHEET]),
        "seen": grey_levels(seen[:SHEET]),
    }


def _gap(one: dict[str, Any], two: dict[str, Any], what: str) -> Estimate:
    """A measure of one sampler less that of the other; both begin at the same digits and meet the same reference."""
    if what == TOLD_APART:
        return Estimate.from_dict(one[what]).minus(Estimate.from_dict(two[what]))
    parts = [np.subtract(a, b) for a, b in zip(one["influence"][what], two["influence"][what], strict=True)]
    error = sum(part.var(ddof=1) / len(part) for part in parts) ** 0.5
    return Estimate(one[what]["value"] - two[what]["value"], float(error), "paired difference")


def _references(model: Digits, data: dict[str, np.ndarray], size: Size, seed: int) -> dict[str, np.ndarray]:
    """Held-out digits that no chain begins at, and what the model sees in them through noise."""
    held = data["held"][: 2 * size.chains]
    return {"held": held, "denoised": np.asarray(seen_by(model, jnp.asarray(held), jax.random.key(seed + 1))[1])}


def _walked(model: Digits, sampler: Any, start: Any, moves: int, key: PRNGKeyArray) -> samplers.Trace:
    """Chains of which the last point is kept."""
    return samplers.sample(model, sampler, chains=len(start), steps=1, thin=moves, start=start, key=key, progress=False)


def _chains(
    model: Digits, covariance: samplers.AbstractCovariance, data: dict[str, np.ndarray], size: Size, seed: int
) -> dict[str, Any]:
    """Chains from digits, measured, and chains from noise, shown."""
    keys = jax.random.split(jax.random.fold_in(jax.random.key(seed), 2), 5)
    sampler = samplers.DenoisingGibbs(SIGMA, covariance)
    trace = _walked(model, sampler, data["start"][: size.chains], size.moves, keys[0])
    points = trace.draws[:, 0]
    seen = np.asarray(seen_by(model, jnp.asarray(points), keys[1])[1])
    piece = _compared(points, seen, _references(model, data, size, seed), keys[2])
    pixels = data["train"]
    begin = pixels.mean(axis=0) + pixels.std(axis=0) * jax.random.normal(keys[3], (size.from_noise, PIXELS))
    noise = _walked(model, sampler, begin, size.moves_from_noise, keys[4])
    return piece | {
        "raised": trace.clipped / (size.chains * size.moves * PIXELS),
        "from noise": grey_levels(noise.draws[:SHEET, 0]),
    }


def _floor(model: Digits, data: dict[str, np.ndarray], size: Size, seed: int) -> dict[str, Any]:
    """Digits against other digits."""
    keys = jax.random.split(jax.random.fold_in(jax.random.key(seed), 3), 2)
    points = data["start"][: size.chains]
    seen = np.asarray(seen_by(model, jnp.asarray(points), keys[0])[1])
    return _compared(points, seen, _references(model, data, size, seed), keys[1])


def run(job: Job) -> Result:
    """Train once; then chains with each covariance, and the variances."""
    size, data = QUICK if job.quick else PAPER, data_of_digits()
    model, held_out = trained_model(job, size, data)
    isotropic = samplers.isotropic_covariance(model, SIGMA, data["train"][:10_000], key=jax.random.key(job.seed + 7))
    tau2 = float(isotropic.variance)
    covariances: dict[str, Any] = {ISOTROPIC: isotropic, MEASURED: samplers.IsotropicCovariance(held_out)}
    covariances |= {probes_label(probes): samplers.DiagonalCovariance(probes) for probes in size.walked}
    chains = job.over("gibbs-mnist", lambda at: _chains(model, covariances[at], data, size, job.seed), covariances)
    chains[FLOOR] = job.piece("floor", lambda: _floor(model, data, size, job.seed))
    variances = job.piece("variances", lambda: measured_variances(model, data, size, job.seed))
    alone = [probes_label(probes) for probes in size.counted if probes not in size.walked]
    rows = tuple(_row(label, chains, variances) for label in (*covariances, *alone, FLOOR))
    best = probes_label(size.walked[-1])
    remarks = (
        f"Held-out squared error of a denoised pixel {held_out:.4f}; Eq. 18 says {tau2:.4f}, and the mean of "
        f"sigma^2 + sigma^4 diag J is {variances['mean']:.4f} (sigma^2 is {SIGMA**2:g}).",
        f"With J formed (at {size.points} digits) the variance explained is "
        f"{Estimate.from_dict(variances['exact']).number()}; {variances['negative']:.2%} of the variances are below 0, "
        f"and J is not symmetric by {variances['asymmetry']:.2f} of its norm, since D is no gradient.",
        "Squared error of the variances, as a share of what the off-diagonal entries of J give: "
        + "; ".join(
            f"{probes_label(int(probes))} {Estimate.from_dict(found['against theory']).number()}"
            for probes, found in variances["counts"].items()
        )
        + ".",
    )
    series = {
        "maps": variances["maps"],
        "sheets": {"held-out digits": chains[FLOOR]["sheet"]}
        | {
            f"{label}, {what}": chains[label][kind]
            for label in (MEASURED, best)
            for what, kind in (("from digits", "sheet"), ("seen by D", "seen"), ("from noise", "from noise"))
        },
        "error": {row.label: row.figures[ERROR].value for row in rows if ERROR in row.figures},
        "probes": [int(row.label.split()[1]) for row in rows if ERROR in row.figures],
    }
    title = f"Denoising Gibbs on MNIST, sigma = {SIGMA:g}: {size.moves} steps from held-out digits"
    claims = _claims({row.label: row for row in rows}, chains, best, variances)
    return Result(title, COLUMNS, rows, claims, series, remarks)


def _row(label: str, chains: dict[str, Any], variances: dict[str, Any]) -> Row:
    figures: dict[str, Estimate] = {}
    if label in chains:
        figures |= {name: Estimate.from_dict(chains[label][name]) for name in (DRAWS, SEEN, TOLD_APART)}
    for probes, found in variances["counts"].items():
        if label == probes_label(int(probes)):
            figures[EXPLAINED] = Estimate.from_dict(found["explained"])
            # The root of a share of the squared size, and its error.
            root = found["missed"]["value"] ** 0.5
            figures[ERROR] = Estimate(root, found["missed"]["stderr"] / (2 * root), "root of a ratio of means")
    if "raised" in chains.get(label, {}):
        figures[RAISED] = exact(chains[label]["raised"], "counted")
    return Row(label, figures)


def _nearer(chains: dict[str, Any], rival: str, best: str, what: str, words: str) -> Claim:
    return ahead(f"{words} than with {rival} ({what}: less by {{}}).", _gap(chains[rival], chains[best], what))


def _claims(rows: dict[str, Row], chains: dict[str, Any], best: str, variances: dict[str, Any]) -> tuple[Claim, ...]:
    counts = variances["counts"]
    few, many = min(counts, key=int), max(counts, key=int)
    theory = [Estimate.from_dict(found["against theory"]) for found in counts.values()]
    explained = rows[probes_label(int(many))].figures[EXPLAINED]
    rough, fine = (rows[probes_label(int(count))].figures[ERROR].value for count in (few, many))
    ratio = (rough / fine) ** 2
    return (
        *(
            _nearer(chains, rival, best, what, words)
            for rival in (ISOTROPIC, MEASURED)
            for what, words in (
                (DRAWS, "Draws of the diagonal covariance are nearer to digits"),
                (SEEN, "What the model sees in them is nearer to what it sees in digits"),
                (TOLD_APART, "A classifier tells them from digits less often"),
            )
        ),
        ahead(
            "The diagonal knows where the denoiser errs: it explains {} of the variance of squared errors that one "
            "variance leaves.",
            explained,
            3,
        ),
        Claim(
            "The estimate's squared error is what the off-diagonal entries of J give, over the number of probes, to 4 "
            "standard errors at every number.",
            all(abs(found.value - 1) < 4 * found.stderr for found in theory),
        ),
        Claim(
            f"{many} probes have {int(many) // int(few)} times less squared error than {few} ({ratio:.0f} times).",
            0.7 < ratio * int(few) / int(many) < 1.4,
        ),
    )


def draw(result: Result) -> Figure:
    """Maps of variances for some digits, sheets of draws, and the error of the variances by the number of probes."""
    maps, sheets = result.series["maps"], result.series["sheets"]
    figure = new_figure(13, 17)
    parts: Any = figure.subfigures(2, 1, height_ratios=(1.15, 2))
    above, below = parts
    top = float(np.quantile(maps["exact"], 0.995))
    for column, (name, images) in zip(above.subplots(SHOWN, len(maps)).T, maps.items(), strict=True):
        column[0].set_title(name, fontsize=8)
        limits = {"vmin": 0, "vmax": 1} if name in ("noisy", "mean") else {"vmin": 0, "vmax": top, "cmap": MAP}
        for axes, image in zip(column, images, strict=True):
            picture(axes, np.reshape(image, (SIDE, SIDE)), **limits)
    grid = below.subplots(3, 3).T.reshape(-1)
    for place, (name, images) in zip((0, 3, 4, 5, 6, 7, 8), sheets.items(), strict=True):
        side = int(len(images) ** 0.5)
        tiles = np.asarray(images[: side * side]).reshape(side, side, SIDE, SIDE)
        picture(grid[place], tiles.transpose(0, 2, 1, 3).reshape(side * SIDE, -1), vmin=0, vmax=255)
        grid[place].set_title(name)
    probes, root = result.series["probes"], list(result.series["error"].values())
    grid[1].loglog(probes, root, "o-", label="measured")
    grid[1].loglog(probes, root[0] * np.sqrt(probes[0] / np.asarray(probes)), ":", color=INK, label="1 / sqrt(n)")
    grid[1].set(xlabel="probes n", title="error of the variances / their size")
    grid[1].legend()
    grid[2].set_axis_off()
    return figure


EXPERIMENT = Experiment("gibbs-mnist", run, draw)
