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

from typing import Any

import jax
import numpy as np
from matplotlib.figure import Figure

from unnorm.estimate import Estimate, mean_estimate
from unnorm.experiments.base import Claim, Experiment, Job, Published, Result, Row, ahead, exact
from unnorm.experiments.ozaki_targets import (
    ACROSS,
    ALIGNED,
    CHAINS,
    EVERY,
    FIRST,
    GROUPS,
    POINTS,
    SECOND,
    STEPS,
    TOLERANCE,
    measure,
    ranking,
    relaxation_curves,
    targets,
    truth_of,
)
from unnorm.plots import QUIET, dots, panels
from unnorm.samplers import Langevin, Ozaki
from unnorm.samplers.diagnostics import ess_mean

#: Chains of the runs that are told, after a step was chosen with the printed number.
TOLD = 128
#: Times of one step, the same for both.
GRID = tuple(float(2.0 ** (k / 2)) for k in range(-12, 9))
LANGEVIN, OZAKI = "Langevin", "Ozaki"
WALKS = {LANGEVIN: Langevin, OZAKI: Ozaki}
STEP, ESS, EXCESS = "best step", "effective draws", "excess energy"
RIGHT_STEP, RIGHT_ESS, EQUAL = "best right step", "effective draws there", "at equal time"
PUBLISHED = {(FIRST, LANGEVIN): 21.81, (SECOND, LANGEVIN): 26.33}


def _key(seed: int, name: str, method: str) -> Any:
    place = 1000 * list(targets()).index(name) + list(WALKS).index(method)
    return jax.random.fold_in(jax.random.key(seed), place)


def _walk(name: str, method: str, told: int, seed: int) -> dict[str, Any]:
    """Every step of the grid; then the two best once more, with other keys."""
    target = targets()[name]
    truth = truth_of(target)
    key, walk = _key(seed, name, method), WALKS[method]
    found = [measure(target, truth, walk(h), CHAINS, jax.random.fold_in(key, i))[0] for i, h in enumerate(GRID)]
    piece: dict[str, Any] = {"grid": found}
    for what, right in (("best", False), ("right", True)):
        for place in ranking(found, right):
            again, draws = measure(target, truth, walk(GRID[place]), told, jax.random.fold_in(key, 100 + right))
            if not again["lost"]:
                shown = np.round(np.asarray(draws[0, ::6], np.float64), 3).tolist()
                pooled = float(ess_mean(draws).min()) / len(draws)
                piece[what] = {"place": place, **again, "points": shown, "pooled": pooled}
                break
    return piece


def _equal(name: str, place: int, told: int, seed: int) -> dict[str, Any]:
    """Ozaki at the step that Langevin does best with among those whose law is right."""
    target, key = targets()[name], jax.random.fold_in(_key(seed, name, OZAKI), 200)
    return measure(target, truth_of(target), Ozaki(GRID[place]), told, key)[0]


def _iterations(curves: Any) -> Estimate:
    """How many iterations until the excess is within the tolerance, on average over groups."""
    inside = np.asarray(curves) < TOLERANCE
    first = np.where(inside.any(axis=1), np.argmax(inside, axis=1) + 1, inside.shape[1] + 1)
    return mean_estimate(EVERY * first, f"{GROUPS} groups of {POINTS // GROUPS} points")


def _over_chains(values: list[float]) -> Estimate:
    return mean_estimate(values, f"mean over {len(values)} chains")


def _pooled(pieces: dict[Any, Any]) -> str:
    """Effective draws of all chains together, by the library's own measure, for one chain."""
    found = {name: [pieces[name, method]["right"]["pooled"] for method in WALKS] for name in targets()}
    told = "; ".join(f"{name} {langevin:.1f} and {ozaki:.1f}" for name, (langevin, ozaki) in found.items())
    return f"At the best right steps, all chains pooled, effective draws a chain (Langevin and Ozaki): {told}."


def _row(pieces: dict[Any, Any], equal: dict[str, Any], name: str, method: str) -> Row:
    piece = pieces[name, method]
    best, right = piece["best"], piece["right"]
    figures = {
        STEP: exact(GRID[best["place"]], "chosen from a grid"),
        ESS: _over_chains(best["ess"]),
        EXCESS: _over_chains(best["excess"]),
        RIGHT_STEP: exact(GRID[right["place"]], "chosen from a grid"),
        RIGHT_ESS: _over_chains(right["ess"]),
        # Langevin's own step is the common one.
        EQUAL: _over_chains((right if method == LANGEVIN else equal[name])["ess"]),
    }
    printed = PUBLISHED.get((name, method))
    return Row(f"{name}: {method}", figures, {} if printed is None else {ESS: Published(printed)})


def _shown(piece: dict[str, Any]) -> dict[str, Any]:
    """What the picture has of a walk: both measures at every step, and one chain."""
    told = {what: [None if p["lost"] else float(np.mean(p[what])) for p in piece["grid"]] for what in ("ess", "excess")}
    return told | {"points": piece["right"]["points"], "step": GRID[piece["right"]["place"]]}


def _more(rows: dict[tuple[str, str], Row], name: str, column: str) -> tuple[Estimate, float]:
    """Ozaki's effective draws less Langevin's, and their ratio."""
    ozaki, langevin = rows[name, OZAKI].figures[column], rows[name, LANGEVIN].figures[column]
    return ozaki.minus(langevin), ozaki.value / langevin.value


def _ahead(rows: dict[tuple[str, str], Row], name: str, column: str, words: str) -> Claim:
    gap, ratio = _more(rows, name, column)
    return ahead(f"{name}: {words}, Ozaki has more effective draws ({ratio:.2f} times).", gap)


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
    pieces = job.over("ozaki", lambda name, method: _walk(name, method, told, job.seed), targets(), WALKS)
    curves = job.piece("relaxation", lambda: relaxation_curves(job.seed))
    places = {name: pieces[name, LANGEVIN]["right"]["place"] for name in targets()}
    equal = job.over("equal time", lambda name: _equal(name, places[name], told, job.seed), places)
    rows = {at: _row(pieces, equal, *at) for at in pieces}
    counts = {label: _iterations(of) for label, of in curves.items()}
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
        "targets": {name: {method: _shown(pieces[name, method]) for method in WALKS} for name in targets()},
        "grid": list(GRID),
        "relaxation": {label: np.mean(of, axis=0).tolist() for label, of in curves.items()},
    }
    columns = (STEP, ESS, EXCESS, RIGHT_STEP, RIGHT_ESS, EQUAL)
    title = f"Ozaki and Langevin: effective draws of a chain of {STEPS}"
    return Result(title, columns, tuple(rows.values()), _claims(rows, counts), series, remarks)


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
