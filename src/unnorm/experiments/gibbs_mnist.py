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

from dataclasses import dataclass
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray
from matplotlib.figure import Figure

from unnorm import samplers
from unnorm.compiling import compiled
from unnorm.data.mnist import mnist
from unnorm.energies.base import Point
from unnorm.estimate import Estimate, mean_estimate
from unnorm.evaluation import classifier_test, median_bandwidth, mmd
from unnorm.evaluation.two_sample.mmd import GaussianSum
from unnorm.experiments.base import Claim, Experiment, Job, Result, Row, exact
from unnorm.networks import MLP
from unnorm.noises import Gaussian
from unnorm.noises.base import Level
from unnorm.objectives import DSM
from unnorm.plots import INK, MAP, new_figure, picture
from unnorm.scores import AbstractPlainScore, FromScore, widened
from unnorm.training import fit

SIGMA, PIXELS, SIDE = 0.5, 784, 28
ISOTROPIC, MEASURED, FLOOR = "isotropic, Eq. 18", "isotropic, measured error", "two samples of digits"
DRAWS, SEEN, TOLD_APART = "MMD^2 of draws", "MMD^2 of digits seen", "classifier"
EXPLAINED, ERROR, RAISED = "variance explained", "error of variances", "share raised"
COLUMNS = (DRAWS, SEEN, TOLD_APART, EXPLAINED, ERROR, RAISED)
SHOWN, SHEET = 6, 64


@dataclass(frozen=True)
class Size:
    """How much is done.

    `walked` are the numbers of probes with chains of their own, `counted` those whose variances are compared.
    """

    width: int
    depth: int
    steps: int
    batch: int
    rate: float
    chains: int
    moves: int
    from_noise: int
    moves_from_noise: int
    walked: tuple[int, ...]
    counted: tuple[int, ...]
    points: int
    rows: int


QUICK = Size(512, 3, 5000, 128, 1e-3, 600, 30, 64, 100, (1, 3, 10), (1, 3, 10, 30, 100), 24, 400)
PAPER = Size(1024, 4, 180_000, 100, 3e-4, 2000, 300, 256, 1000, (1, 10, 100), (1, 3, 10, 30, 100, 300), 64, 2000)


class Digits(AbstractPlainScore):
    """s(x~) = (D(x~) - x~) / sigma^2 with D = logistic(network): pixels lie in [0, 1], and so does their mean."""

    network: MLP

    def denoise(self, noisy: Point) -> Point:
        """D(x~), the mean of the digits that may have been x~."""
        return jax.nn.sigmoid(self.network(2 * (noisy - 0.13)))

    def __call__(self, t: Level, x: Point) -> Point:
        return (self.denoise(x) - x) / SIGMA**2


def _label(probes: int) -> str:
    return f"diagonal, {probes} probe{'s' * (probes > 1)}"


def _data() -> dict[str, np.ndarray]:
    """Rows to learn from, to watch, to begin chains at, and to compare them with; the last two are the test digits."""
    digits = mnist(SIDE)
    train, test = (part.images.reshape(-1, PIXELS) for part in (digits.train, digits.test))
    order = np.random.default_rng(0).permutation(len(test))
    return {"train": train[:58_000], "valid": train[58_000:], "start": test[order[:5000]], "held": test[order[5000:]]}


def _model(job: Job, size: Size, data: dict[str, np.ndarray]) -> tuple[Digits, float]:
    """Trained by denoising, or read from the job's folder; and its held-out squared error of a pixel."""
    begin, run = jax.random.split(jax.random.key(job.seed))
    network = widened(MLP(PIXELS, PIXELS, width=size.width, depth=size.depth, key=begin))
    pixel = np.clip(data["train"].mean(axis=0), 0.01, 0.99)
    last = network.layers[-1]
    first_guess = (0 * last.weight, jnp.asarray(np.log(pixel / (1 - pixel)), float))
    network = eqx.tree_at(lambda net: (net.layers[-1].weight, net.layers[-1].bias), network, first_guess)
    fitted = fit(
        Digits(network), DSM(Gaussian(SIGMA)), data["train"], valid=data["valid"], steps=size.steps, batch=size.batch,
        rate=size.rate, evaluations=10, checkpoint=job.folder / "training", resume=True, key=run, progress=job.progress,
    )  # fmt: skip
    return fitted.model, SIGMA**2 * float(np.min(fitted.history["held_out"]))


@compiled
def _seen(model: Digits, points: Float[Array, "n d"], key: PRNGKeyArray) -> tuple[Array, Array]:
    """Noise added, and D of it."""
    noisy = points + SIGMA * jax.random.normal(key, points.shape)
    return noisy, jax.vmap(model.denoise)(noisy)


def _bytes(images: Any) -> list[list[int]]:
    """For a picture: grey levels from 0 to 255."""
    return np.round(255 * np.clip(np.asarray(images, np.float64), 0, 1)).astype(int).tolist()


def _compared(points: np.ndarray, seen: np.ndarray, references: dict[str, np.ndarray], key: PRNGKeyArray) -> Any:
    """The three measures, each with its error, and what the comparison of two samplers needs."""
    held, denoised = references["held"], references["denoised"]
    return {
        DRAWS: mmd(points, held, bandwidths=_bandwidths(held)).to_dict(),
        SEEN: mmd(seen, denoised, bandwidths=_bandwidths(denoised)).to_dict(),
        TOLD_APART: classifier_test(points, held, width=128, steps=1000, rate=1e-3, key=key).to_dict(),
        "influence": {DRAWS: _influence(points, held), SEEN: _influence(seen, denoised)},
        "sheet": _bytes(points[:SHEET]),
        "seen": _bytes(seen[:SHEET]),
    }


def _influence(points: np.ndarray, reference: np.ndarray) -> list[list[float]]:
    """What each point of either sample adds to MMD^2, to first order: 2 E k(x, x') - 2 E k(x, y), and -2 E k(x, y)."""
    kernel = GaussianSum(jnp.asarray(_bandwidths(reference)))
    own, other = (np.asarray(kernel(jnp.asarray(points), jnp.asarray(b)), np.float64) for b in (points, reference))
    return [(2 * own.mean(axis=1) - 2 * other.mean(axis=1)).tolist(), (-2 * other.mean(axis=0)).tolist()]


def _gap(one: dict[str, Any], two: dict[str, Any], what: str) -> Estimate:
    """A measure of one sampler less that of the other; both begin at the same digits and meet the same reference."""
    if what == TOLD_APART:
        return Estimate.from_dict(one[what]).minus(Estimate.from_dict(two[what]))
    parts = [np.subtract(a, b) for a, b in zip(one["influence"][what], two["influence"][what], strict=True)]
    error = sum(part.var(ddof=1) / len(part) for part in parts) ** 0.5
    return Estimate(one[what]["value"] - two[what]["value"], float(error), "paired difference")


def _bandwidths(points: np.ndarray) -> tuple[float, ...]:
    middle = median_bandwidth(points)
    return tuple(middle * factor for factor in (0.25, 0.5, 1.0, 2.0, 4.0))


def _references(model: Digits, data: dict[str, np.ndarray], size: Size, seed: int) -> dict[str, np.ndarray]:
    """Held-out digits that no chain begins at, and what the model sees in them through noise."""
    held = data["held"][: 2 * size.chains]
    return {"held": held, "denoised": np.asarray(_seen(model, jnp.asarray(held), jax.random.key(seed + 1))[1])}


def _chains(
    model: Digits, covariance: samplers.AbstractCovariance, data: dict[str, np.ndarray], size: Size, seed: int
) -> dict[str, Any]:
    """Chains from digits, measured, and chains from noise, shown."""
    keys = jax.random.split(jax.random.fold_in(jax.random.key(seed), 2), 5)
    sampler = samplers.DenoisingGibbs(SIGMA, covariance)
    trace = samplers.sample(
        model, sampler, chains=size.chains, steps=1, thin=size.moves, start=data["start"][: size.chains], key=keys[0],
        progress=False,
    )  # fmt: skip
    points = trace.draws[:, 0]
    seen = np.asarray(_seen(model, jnp.asarray(points), keys[1])[1])
    piece = _compared(points, seen, _references(model, data, size, seed), keys[2])
    pixels = data["train"]
    begin = pixels.mean(axis=0) + pixels.std(axis=0) * jax.random.normal(keys[3], (size.from_noise, PIXELS))
    noise = samplers.sample(
        model, sampler, chains=size.from_noise, steps=1, thin=size.moves_from_noise, start=begin, key=keys[4],
        progress=False,
    )  # fmt: skip
    return piece | {
        "raised": trace.clipped / (size.chains * size.moves * PIXELS),
        "from noise": _bytes(noise.draws[:SHEET, 0]),
    }


def _floor(model: Digits, data: dict[str, np.ndarray], size: Size, seed: int) -> dict[str, Any]:
    """Digits against other digits."""
    keys = jax.random.split(jax.random.fold_in(jax.random.key(seed), 3), 2)
    points = data["start"][: size.chains]
    seen = np.asarray(_seen(model, jnp.asarray(points), keys[0])[1])
    return _compared(points, seen, _references(model, data, size, seed), keys[1])


@compiled
def _estimates(model: Digits, noisy: Float[Array, "n d"], probes: int, key: PRNGKeyArray) -> Array:
    """sigma^2 + sigma^4 diag J with `probes` vectors of signs, not raised."""
    score = partial(model, jnp.zeros(()))
    pairs = (noisy, jax.random.split(key, len(noisy)))
    found = jax.lax.map(lambda p: samplers.hessian_diagonal(score, p[0], probes=probes, key=p[1]), pairs, batch_size=16)
    return SIGMA**2 + SIGMA**4 * found


@compiled
def _slopes(model: Digits, noisy: Float[Array, "n d"]) -> Array:
    """J at every point: the only place where it is formed."""
    return jax.lax.map(FromScore(model).matrix, noisy)


def _variances(model: Digits, data: dict[str, np.ndarray], size: Size, seed: int) -> dict[str, Any]:
    """What estimates with more and more vectors explain, how far they are from J's diagonal, and maps to look at."""
    keys = jax.random.split(jax.random.fold_in(jax.random.key(seed), 4), 2 + len(size.counted))
    clean = data["held"][-size.rows :]
    noisy, mean = _seen(model, jnp.asarray(clean), keys[0])
    squared = (clean - np.asarray(mean, np.float64)) ** 2
    base = np.mean((squared - squared.mean()) ** 2, axis=1)
    slopes = np.asarray(_slopes(model, noisy[: size.points]), np.float64)
    diagonal = np.diagonal(slopes, axis1=1, axis2=2)
    true = SIGMA**2 + SIGMA**4 * diagonal
    spread = SIGMA**8 * (np.sum(slopes**2, axis=2) - diagonal**2)
    piece: dict[str, Any] = {"counts": {}}
    maps: dict[str, Any] = {}
    for i, probes in enumerate(size.counted):
        found = np.asarray(_estimates(model, noisy, probes, keys[2 + i]), np.float64)
        scores = np.mean((squared - np.maximum(found, 0)) ** 2, axis=1)
        gap = np.mean((found[: size.points] - true) ** 2, axis=1)
        piece["counts"][str(probes)] = {
            "explained": _share(scores, base).to_dict(),
            "missed": _share(np.mean(true**2, axis=1) - gap, np.mean(true**2, axis=1)).to_dict(),
            "against theory": mean_estimate(gap * probes / spread.mean(axis=1), "mean over points").to_dict(),
        }
        maps[_label(probes)] = found[:SHOWN]
    exactly = np.mean((squared[: size.points] - np.maximum(true, 0)) ** 2, axis=1)
    piece["mean"] = float(true.mean())
    piece["exact"] = _share(exactly, base[: size.points]).to_dict()
    piece["asymmetry"] = float(np.linalg.norm(slopes - np.swapaxes(slopes, 1, 2)) / (2 * np.linalg.norm(slopes)))
    piece["negative"] = float(np.mean(true < 0))
    shown = {"noisy": noisy[:SHOWN], "mean": mean[:SHOWN], "squared error": squared[:SHOWN], "exact": true[:SHOWN]}
    piece["maps"] = {name: np.round(np.asarray(of, np.float64), 4).tolist() for name, of in (shown | maps).items()}
    return piece


def _share(scores: np.ndarray, base: np.ndarray) -> Estimate:
    """1 - E scores / E base over rows, with the error of a ratio."""
    ratio = scores.mean() / base.mean()
    error = np.std(scores - ratio * base, ddof=1) / (len(base) ** 0.5 * base.mean())
    return Estimate(float(1 - ratio), float(error), f"{len(base)} digits", {"rows": float(len(base))})


def run(job: Job) -> Result:
    """Train once; then chains with each covariance, and the variances."""
    size, data = QUICK if job.quick else PAPER, _data()
    model, held_out = _model(job, size, data)
    isotropic = samplers.isotropic_covariance(model, SIGMA, data["train"][:10_000], key=jax.random.key(job.seed + 7))
    tau2 = float(isotropic.variance)
    covariances: dict[str, Any] = {ISOTROPIC: isotropic, MEASURED: samplers.IsotropicCovariance(held_out)}
    covariances |= {_label(probes): samplers.DiagonalCovariance(probes) for probes in size.walked}
    computes: dict[str, Any] = {
        label.replace(",", "").replace(" ", "-"): partial(_chains, model, covariance, data, size, job.seed)
        for label, covariance in covariances.items()
    }
    computes["floor"] = partial(_floor, model, data, size, job.seed)
    computes["variances"] = partial(_variances, model, data, size, job.seed)
    pieces = list(job.pieces(computes, "gibbs-mnist").values())
    chains = dict(zip((*covariances, FLOOR), pieces[:-1], strict=True))
    variances = pieces[-1]
    alone = [_label(probes) for probes in size.counted if probes not in size.walked]
    rows = tuple(_row(label, chains, variances) for label in (*covariances, *alone, FLOOR))
    best = _label(size.walked[-1])
    remarks = (
        f"Held-out squared error of a denoised pixel {held_out:.4f}; Eq. 18 says {tau2:.4f}, and the mean of "
        f"sigma^2 + sigma^4 diag J is {variances['mean']:.4f} (sigma^2 is {SIGMA**2:g}).",
        f"With J formed (at {size.points} digits) the variance explained is "
        f"{Estimate.from_dict(variances['exact']).number()}; {variances['negative']:.2%} of the variances are below 0, "
        f"and J is not symmetric by {variances['asymmetry']:.2f} of its norm, since D is no gradient.",
        "Squared error of the variances, as a share of what the off-diagonal entries of J give: "
        + "; ".join(
            f"{_label(int(probes))} {Estimate.from_dict(found['against theory']).number()}"
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
        if label == _label(int(probes)):
            figures[EXPLAINED] = Estimate.from_dict(found["explained"])
            # The root of a share of the squared size, and its error.
            root = found["missed"]["value"] ** 0.5
            figures[ERROR] = Estimate(root, found["missed"]["stderr"] / (2 * root), "root of a ratio of means")
    if "raised" in chains.get(label, {}):
        figures[RAISED] = exact(chains[label]["raised"], "counted")
    return Row(label, figures)


def _nearer(chains: dict[str, Any], rival: str, best: str, what: str, words: str) -> Claim:
    gap = _gap(chains[rival], chains[best], what)
    return Claim(f"{words} than with {rival} ({what}: less by {gap.number()}).", gap.value > 2 * gap.stderr)


def _claims(rows: dict[str, Row], chains: dict[str, Any], best: str, variances: dict[str, Any]) -> tuple[Claim, ...]:
    counts = variances["counts"]
    few, many = min(counts, key=int), max(counts, key=int)
    theory = [Estimate.from_dict(found["against theory"]) for found in counts.values()]
    explained = rows[_label(int(many))].figures[EXPLAINED]
    ratio = (rows[_label(int(few))].figures[ERROR].value / rows[_label(int(many))].figures[ERROR].value) ** 2
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
        Claim(
            f"The diagonal knows where the denoiser errs: it explains {explained.number()} of the variance of squared "
            "errors that one variance leaves.",
            explained.value > 3 * explained.stderr,
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
