"""A black-and-white picture with a tenth of its pixels flipped, restored under an Ising prior.

The lecture's model p(y, x) of a true picture y and a corrupted one x: terms of pixel and observation, terms of
neighbours that like to be equal. The pictures are drawn here, 64 x 64: letters and shapes. Three priors: the coupling
at which the infinite lattice orders; field and coupling of a second drawing, by pseudo-likelihood; and the numbers of
Bishop (2006, 8.3.3), coupling 2 and a field of 4.2, which believe in 1.5% of flips. Under each the least energy is
found exactly by graph cut, and approached by iterated conditional modes and by annealing; the most probable value of
each pixel alone is found by Gibbs sampling. Then what each makes of the picture is followed along the coupling, for the
exact minimum of a coupling that is too strong is worse than a minimum nearby (Greig, Porteous and Seheult 1989). On 3 x
3 pixels, the lecture's size, every noisy picture is restored and compared with all 512 pictures.
"""

from dataclasses import dataclass
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure

from unnorm.energies import Ising, critical_coupling, every_point, lattice
from unnorm.energies.enumeration import enumerated_energies
from unnorm.estimate import Estimate
from unnorm.evaluation.efficiency import minimised
from unnorm.experiments.base import Claim, Experiment, Job, Published, Result, Row, ahead, exact, over_seeds
from unnorm.objectives import PseudoLikelihood
from unnorm.plots import COLOURS, grid_lines, new_figure, picture
from unnorm.tasks import anneal, flipped_posterior, graph_cut, icm, marginal_modes

SIDE, FLIPS = 64, 0.1
SITES, FEW = lattice((SIDE, SIDE)), lattice((3, 3))
FIXED, LEARNT, BISHOP = "critical coupling", "pseudo-likelihood", "Bishop's numbers"
PRIORS = (FIXED, LEARNT, BISHOP)
#: What Bishop's field takes for the share of flips: log((1 - e) / e) = 4.2.
BISHOP_FLIPS = 1 / (1 + float(np.exp(4.2)))
ICM, ANNEALED, CUT, MODES = "conditional modes", "annealing", "graph cut", "marginal modes"
METHODS = (ICM, ANNEALED, CUT, MODES)
#: Where each method is followed along the coupling; annealing is left out, which ends where the cut does.
ALONG, FOLLOWED = tuple(round(0.2 * k, 1) for k in range(1, 14)), (ICM, CUT, MODES)
WRONG, ABOVE = "pixels wrong, %", "energy above the cut"
PUBLISHED = {(BISHOP, ICM): 4.0, (BISHOP, CUT): 1.0}

LETTERS = {
    "I": "#####,..#..,..#..,..#..,..#..,..#..,#####",
    "S": ".####,#....,#....,.###.,....#,....#,####.",
    "N": "#...#,##..#,##..#,#.#.#,#..##,#..##,#...#",
    "G": ".###.,#...#,#....,#.###,#...#,#...#,.###.",
    "B": "####.,#...#,#...#,####.,#...#,#...#,####.",
}


def drawing(word: str, mirrored: bool = False) -> Float[np.ndarray, "64 64"]:
    """Five letters, two pixels to a stroke, above a ring, a frame and a triangle; or all of it turned round."""
    found, (row, column) = np.zeros((SIDE, SIDE)), np.mgrid[:SIDE, :SIDE]
    for k, letter in enumerate(word):
        marks = np.array([[mark == "#" for mark in line] for line in LETTERS[letter].split(",")], float)
        found[4:18, 3 + 12 * k : 13 + 12 * k] = np.kron(marks, np.ones((2, 2)))
    distance = np.hypot(row - 41, column - 15)
    found[(distance <= 12) & (distance > 6)] = 1
    found[28:54, 31:45], found[33:49, 35:41] = 1, 0
    found[(row >= 24) & (row < 58) & (np.abs(column - 54) <= (row - 22) / 5)] = 1
    return found[::-1, ::-1] if mirrored else found


CLEAN, OTHER = drawing("ISING"), drawing("GIBBS", mirrored=True)


@dataclass(frozen=True)
class Size:
    """Noisy pictures, sweeps of annealing, sweeps of each chain that marginal modes are found by."""

    pictures: int
    cooling: int
    sweeps: int


QUICK = Size(10, 500, 200)
PAPER = Size(50, 5000, 2000)


@cache
def learnt() -> tuple[float, float]:
    """Field and coupling of the second drawing, by pseudo-likelihood."""
    start = Ising(SITES, 0.0, 1.0)
    found = minimised(start, PseudoLikelihood(), jnp.asarray(OTHER[None], float), key=jax.random.key(0))
    field, coupling = (float(value) for value in found.values)
    return field, coupling


def posterior(prior: str, noisy: Any) -> Ising:
    """p(clean | noisy) under the prior of this name."""
    field, coupling = {FIXED: (0.0, critical_coupling()), LEARNT: learnt(), BISHOP: (0.0, 2.0)}[prior]
    return flipped_posterior(Ising(SITES, field, coupling), noisy, BISHOP_FLIPS if prior == BISHOP else FLIPS)


def flipped(clean: Any, seed: int, k: int) -> Float[np.ndarray, "64 64"]:
    """The k-th noisy picture."""
    hit = np.random.default_rng((seed, k)).random(np.shape(clean)) < FLIPS
    return np.where(hit, 1 - np.asarray(clean), clean)


def wrong(found: Any, clean: Any = CLEAN) -> float:
    """Pixels that are not those of the clean picture, in a hundred."""
    return 100 * float(np.mean(np.asarray(found) != np.asarray(clean)))


def _restored(k: int, size: Size, seed: int) -> dict[str, Any]:
    """One noisy picture by every method under every prior."""
    noisy = flipped(CLEAN, seed, k)
    cold, walk = jax.random.split(jax.random.fold_in(jax.random.key(seed), k))
    piece: dict[str, Any] = {"noisy": wrong(noisy), "along": {name: [] for name in FOLLOWED}}
    for coupling in ALONG:
        model = flipped_posterior(Ising(SITES, 0.0, coupling), noisy, FLIPS)
        ends = (icm(model), graph_cut(model), marginal_modes(model, key=walk))
        for name, end in zip(FOLLOWED, ends, strict=True):
            piece["along"][name].append(wrong(end.picture))
    for prior in PRIORS:
        model = posterior(prior, noisy)
        cut = graph_cut(model)
        found = {ICM: icm(model), ANNEALED: anneal(model, size.cooling, key=cold), CUT: cut}
        pictures = {name: each.picture for name, each in found.items()}
        pictures[MODES] = marginal_modes(model, sweeps=size.sweeps, key=walk).picture
        piece[prior] = {
            "wrong": {name: wrong(each) for name, each in pictures.items()},
            "above": {name: each.energy - cut.energy for name, each in found.items()},
            "bound": cut.above,
            "pictures": {name: each.astype(int).tolist() for name, each in pictures.items()} if k == 0 else None,
        }
    return piece


def _enumerated(step: int = 1) -> dict[str, Any]:
    """How far above the least of all 512 energies each method ends, of every noisy picture of 3 x 3 pixels."""
    every = jnp.asarray(every_point(Ising(FEW).space))
    # Ising models of one lattice differ in their fields alone, and so do the energies of all pictures.
    shared = np.asarray(enumerated_energies(Ising(FEW, 0.0, 1.0), every), np.float64)
    gaps: dict[str, list[float]] = {ICM: [], ANNEALED: [], CUT: []}
    for k, noisy in enumerate(np.asarray(every)[::step]):
        model = flipped_posterior(Ising(FEW, 0.0, 1.0), noisy, FLIPS)
        own = np.tensordot(np.asarray(every, np.float64), np.asarray(model.field, np.float64), 2)
        least = float(np.min(shared - own))
        cold = anneal(model, 100, key=jax.random.key(k))
        for name, found in ((ICM, icm(model)), (ANNEALED, cold), (CUT, graph_cut(model))):
            gaps[name].append(found.energy - least)
    return gaps


def run(job: Job) -> Result:
    """Every noisy picture, and all small ones."""
    size = QUICK if job.quick else PAPER
    pieces = list(job.over("picture", lambda k: _restored(k, size, job.seed), range(size.pictures)).values())
    small = job.piece("small", _enumerated)
    rows = [Row("noisy", {WRONG: over_seeds([piece["noisy"] for piece in pieces])})]
    for prior in PRIORS:
        for name in METHODS:
            figures = {WRONG: over_seeds([piece[prior]["wrong"][name] for piece in pieces])}
            if name != MODES:
                figures[ABOVE] = over_seeds([piece[prior]["above"][name] for piece in pieces])
            known = PUBLISHED.get((prior, name))
            rows.append(Row(f"{prior}: {name}", figures, {} if known is None else {WRONG: Published(known)}))
    for name, gaps in small.items():
        rows.append(Row(f"3 x 3, all 512: {name}", {ABOVE: exact(float(np.mean(gaps)), "mean of all pictures")}))
    series = {
        "drawn": {
            "clean": CLEAN.tolist(),
            "noisy": flipped(CLEAN, job.seed, 0).tolist(),
            "learnt from": OTHER.tolist(),
        },
        "restored": {prior: pieces[0][prior]["pictures"] for prior in PRIORS},
        "wrong": {prior: pieces[0][prior]["wrong"] for prior in PRIORS},
        "couplings": list(ALONG),
        "along": {name: np.mean([piece["along"][name] for piece in pieces], axis=0).tolist() for name in FOLLOWED},
    }
    field, coupling = learnt()
    bound = max(piece[prior]["bound"] for piece in pieces for prior in PRIORS)
    along = series["along"]
    remarks = (
        "Fewest wrong pixels along the coupling: "
        + "; ".join(f"{min(of):.1f}% by {name} at {ALONG[int(np.argmin(of))]:g}" for name, of in along.items())
        + ".",
        f"Pseudo-likelihood of the second drawing: field {field:.2f}, coupling {coupling:.2f}.",
        f"Rounding leaves the cuts at most {bound:.1g} above the least energy.",
        "The published figures are of another picture.",
    )
    title = f"A picture of {SIDE} x {SIDE} pixels, a tenth of them flipped, restored ({size.pictures} noisy pictures)"
    return Result(title, (WRONG, ABOVE), tuple(rows), _claims(pieces, small), series, remarks)


def _gap(pieces: list[dict[str, Any]], prior: str, what: str, worse: str, better: str) -> Estimate:
    return over_seeds([piece[prior][what][worse] - piece[prior][what][better] for piece in pieces])


def _claims(pieces: list[dict[str, Any]], small: dict[str, list[float]]) -> tuple[Claim, ...]:
    worst, reached = max(small[CUT]), np.mean(np.asarray(small[ICM]) < 1e-5)
    lowest = min(piece[prior]["above"][name] for piece in pieces for prior in PRIORS for name in (ICM, ANNEALED))
    claims = [
        Claim(f"3 x 3: every cut is the least of all 512 energies (off by at most {worst:.1g}).", worst < 1e-5),
        Claim(
            f"3 x 3: conditional modes miss it for some pictures (and reach it for {reached:.0%}).", bool(reached < 1)
        ),
        Claim(f"No method ends below the cut (the lowest {lowest:.1g} above it).", lowest > -1e-6),
    ]
    for prior in PRIORS:
        halved = over_seeds([piece["noisy"] / 2 - piece[prior]["wrong"][CUT] for piece in pieces])
        claims += [
            ahead(f"{prior}: conditional modes stop above the cut (by {{}}).", _gap(pieces, prior, "above", ICM, CUT)),
            ahead(f"{prior}: annealing ends lower (by {{}}).", _gap(pieces, prior, "above", ICM, ANNEALED)),
            ahead(f"{prior}: the cut mends more than half of the wrong pixels (by {{}} in a hundred).", halved),
            ahead(
                f"{prior}: the cut has fewer wrong pixels than conditional modes (by {{}} in a hundred).",
                _gap(pieces, prior, "wrong", ICM, CUT),
            ),
            ahead(
                f"{prior}: marginal modes have fewer wrong pixels than the cut (by {{}} in a hundred).",
                _gap(pieces, prior, "wrong", CUT, MODES),
            ),
        ]
    return tuple(claims)


def draw(result: Result) -> Figure:
    """The drawings, what every method makes of the noisy one, prior by prior, and wrong pixels along the coupling."""
    drawn, restored = result.series["drawn"], result.series["restored"]
    figure = new_figure(14, 6.6)
    grid = figure.add_gridspec(len(PRIORS), 3 + len(METHODS))
    for k, (prior, (name, image)) in enumerate(zip(PRIORS, drawn.items(), strict=True)):
        one = figure.add_subplot(grid[k, 0])
        picture(one, image)
        one.set_title(name)
        for column, method in enumerate(METHODS, 1):
            one = figure.add_subplot(grid[k, column])
            picture(one, restored[prior][method])
            share = result.series["wrong"][prior][method]
            one.set_title(f"{prior}\n{method}: {share:.1f}%", fontsize=7.5)
    beside = figure.add_subplot(grid[:, 1 + len(METHODS) :])
    for (name, values), colour in zip(result.series["along"].items(), COLOURS, strict=False):
        beside.plot(result.series["couplings"], values, "o-", ms=4, color=colour, label=name)
    beside.set_ylim(0)
    beside.set_xlabel("coupling")
    beside.set_ylabel(WRONG)
    beside.legend()
    grid_lines(beside)
    return figure


EXPERIMENT = Experiment("ising-denoise", run, draw)
