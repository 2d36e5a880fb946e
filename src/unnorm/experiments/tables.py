"""Held-out log-likelihood of the default of `unnorm fit` beside what people use today, on three tables.

The tables are those of Song 2022 (section 3.6.1), prepared as there: wine without its quality column and dequantised,
Parkinson's telemonitoring without nearly equal columns; whitened by the training rows, with noise of 0.05. Unlike
there, copies of a row and recordings of one person stay in one part of the split. The peers:
one Gaussian, a Gaussian mixture whose size validation chooses, scikit-learn's kernel density with its bandwidth chosen
so too, and flowjax's masked autoregressive flow (Papamakarios et al. 2017) with its own early stopping. A peer that is
done before ours goes on with other starts or finer widths until it has had as much time, and validation chooses; one
that takes longer is not stopped. Every difference is of the same test rows, so its error is that of paired differences.
"""

import importlib.util
import itertools
import math
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

from unnorm.compiling import compiled
from unnorm.data.uci import UCISplit, uci_apart
from unnorm.energies import AbstractNormalised, best_mixture, best_reference, fit_gaussian, tilt
from unnorm.energies.em import mean_log_prob
from unnorm.errors import require
from unnorm.estimate import Estimate, mean_estimate
from unnorm.evaluation import log_partition
from unnorm.experiments.base import Claim, Experiment, Job, Result, Row
from unnorm.objectives import TiltNCE
from unnorm.plots import DATA, QUIET, named_rows, panels
from unnorm.training import fit

TABLES = ("redwine", "whitewine", "parkinsons")
OURS, REFERENCE = "ours: tilted blend", "its reference alone"
#: Gains above this many nats are written into the picture instead of drawn.
LIMIT = 20.0
LogDensities = tuple[np.ndarray, float]


def _ours(data: UCISplit, seed: int, steps: int) -> tuple[LogDensities, LogDensities]:
    reference_key, start, run, log_z = jax.random.split(jax.random.key(seed), 4)
    reference = best_reference(data.train, data.valid, key=reference_key)
    model = tilt(reference, key=start)
    learnt = fit(model, TiltNCE(), data.train, valid=data.valid, steps=steps, key=run, progress=False).model
    normaliser = log_partition(learnt, base=reference, key=log_z)
    test = jnp.asarray(data.test)
    return (
        (np.asarray(-jax.vmap(learnt)(test)) - normaliser.value, normaliser.stderr),
        (np.asarray(jax.vmap(reference.log_prob)(test)), 0.0),
    )


class Candidate(NamedTuple):
    """One fit of a peer: what held-out rows make of it, and its log density at the test rows."""

    score: float
    log_densities: np.ndarray


def _judged(density: AbstractNormalised, data: UCISplit) -> Candidate:
    return Candidate(
        mean_log_prob(density, jnp.asarray(data.valid)), np.asarray(_log_probs(density, jnp.asarray(data.test)))
    )


def _gaussian(data: UCISplit, seed: int) -> Iterator[Candidate]:
    yield _judged(fit_gaussian(data.train), data)


def _mixture(data: UCISplit, seed: int) -> Iterator[Candidate]:
    for start in itertools.count():
        key = jax.random.fold_in(jax.random.key(seed), start)
        yield _judged(best_mixture(data.train, data.valid, sizes=(1, 2, 4, 8, 16, 32), key=key)[0], data)


def _kernel_density(data: UCISplit, seed: int) -> Iterator[Candidate]:
    from sklearn.neighbors import KernelDensity

    # A grid of widths, then finer ones around the best of it.
    widths = np.geomspace(0.1, 1.5, 15)
    for _ in range(4):
        fitted = [KernelDensity(bandwidth=width).fit(data.train) for width in widths]
        scores = [float(kde.score(data.valid)) / len(data.valid) for kde in fitted]
        best = int(np.argmax(scores))
        yield Candidate(scores[best], fitted[best].score_samples(data.test))
        widths = np.geomspace(widths[max(best - 1, 0)], widths[min(best + 1, len(widths) - 1)], 9)


def _flow(data: UCISplit, seed: int) -> Iterator[Candidate]:
    from flowjax.distributions import Normal
    from flowjax.flows import masked_autoregressive_flow
    from flowjax.train import fit_to_data

    rows = jnp.concatenate([jnp.asarray(data.train), jnp.asarray(data.valid)])
    share = len(data.valid) / len(rows)
    for start in itertools.count():
        begin, run = jax.random.split(jax.random.fold_in(jax.random.key(seed), start))
        flow = masked_autoregressive_flow(begin, base_dist=Normal(jnp.zeros(rows.shape[1])))
        flow, losses = fit_to_data(
            run, flow, rows, max_epochs=500, max_patience=10, val_prop=share, show_progress=False
        )
        yield Candidate(-float(min(losses["val"])), np.asarray(flow.log_prob(jnp.asarray(data.test))))


_log_probs = compiled(lambda density, rows: jax.vmap(density.log_prob)(rows))

#: Each goes on with other starts or widths for as long as it is asked.
PEERS: dict[str, Callable[[UCISplit, int], Iterator[Candidate]]] = {
    "one Gaussian": _gaussian,
    "Gaussian mixture": _mixture,
    "KDE (scikit-learn)": _kernel_density,
    "masked autoregressive flow (flowjax)": _flow,
}


def _best_within(candidates: Iterator[Candidate], seconds: float) -> LogDensities:
    """The candidate that held-out rows like best among those begun before the time was up, and at least one."""
    began, best = time.monotonic(), next(candidates)
    while time.monotonic() - began < seconds:
        another = next(candidates, None)
        if another is None:
            break
        best = max(best, another, key=lambda one: one.score)
    return best.log_densities, 0.0


def _content(found: LogDensities, seconds: float) -> dict[str, Any]:
    rows, error = found
    return {"log_densities": [float(v) for v in rows], "log_z_error": error, "seconds": seconds}


def _table(name: str, seed: int, steps: int) -> dict[str, Any]:
    data = uci_apart(name, seed)
    began = time.monotonic()
    ours, reference = _ours(data, seed, steps)
    seconds = time.monotonic() - began
    assert data.together is not None
    found = {OURS: _content(ours, seconds), REFERENCE: _content(reference, 0.0), "together": data.together.tolist()}
    for label, peer in PEERS.items():
        began = time.monotonic()
        found[label] = _content(_best_within(peer(data, seed), seconds), time.monotonic() - began)
    return found


def _of_log_z(found: list[dict[str, Any]], *labels: str) -> Estimate:
    """What log Z adds to the error of a mean over rows: every row of a split has the same one."""
    errors = [float(np.mean([piece[label]["log_z_error"] for piece in found])) for label in labels]
    return Estimate(0.0, math.hypot(*errors), "log Z")


def _mean(found: list[dict[str, Any]], label: str) -> Estimate:
    """The mean over all test rows of all splits."""
    rows = np.concatenate([piece[label]["log_densities"] for piece in found])
    return mean_estimate(rows, "held-out rows", _groups(found)).plus(_of_log_z(found, label))


def _gain(found: list[dict[str, Any]], label: str) -> Estimate:
    """Ours minus a peer's on the same rows, with the errors of both constants."""
    pairs = [np.subtract(piece[OURS]["log_densities"], piece[label]["log_densities"]) for piece in found]
    return mean_estimate(np.concatenate(pairs), "paired rows", _groups(found)).plus(_of_log_z(found, OURS, label))


def _groups(found: list[dict[str, Any]]) -> np.ndarray:
    """Which test rows of which split err together: copies, and recordings of one person."""
    labels, first = [], 0
    for piece in found:
        own = np.asarray(piece["together"], np.int64)
        labels.append(own + first)
        first += int(own.max()) + 1
    return np.concatenate(labels)


def run(job: Job) -> Result:
    """Fit everything to each table and compare on its test rows."""
    for package, extra in (("sklearn", "sklearn"), ("flowjax", "flows")):
        require(
            importlib.util.find_spec(package) is not None,
            f'this comparison needs {package}: pip install "unnorm[{extra}]"',
        )
    seeds, steps = (1, 1500) if job.quick else (5, 5000)
    names = {f"{table}-{s}": partial(_table, table, job.seed + s, steps) for table in TABLES for s in range(seeds)}
    pieces = job.pieces(names, "tables")
    by_table = {table: [pieces[f"{table}-{s}"] for s in range(seeds)] for table in TABLES}
    rows = [
        Row(label, {table: _mean(found, label) for table, found in by_table.items()})
        for label in (OURS, REFERENCE, *PEERS)
    ]
    claims = [
        Claim(
            f"{table}: ours is at least as good as {label} within two errors ({gain.number()} nats per row above it).",
            gain.value >= -2 * gain.stderr,
        )
        for table, found in by_table.items()
        for label in PEERS
        for gain in (_gain(found, label),)
    ]
    seconds = {
        table: {label: float(np.mean([piece[label]["seconds"] for piece in found])) for label in (OURS, *PEERS)}
        for table, found in by_table.items()
    }
    remarks = tuple(
        f"{table}: seconds to fit: " + ", ".join(f"{label} {value:.0f}" for label, value in spent.items())
        for table, spent in seconds.items()
    )
    series = {
        "seconds": seconds,
        "gains": {
            table: {label: _gain(found, label).to_dict() for label in (REFERENCE, *PEERS)}
            for table, found in by_table.items()
        },
    }
    return Result("Held-out log-likelihood, nats per row", TABLES, tuple(rows), tuple(claims), series, remarks)


def draw(result: Result) -> Figure:
    """How far each peer is below ours, with twice the error of the paired difference."""
    figure, row = panels(1, len(TABLES), 3, 3.2, sharey=True)
    for axes, table in zip(row[0], TABLES, strict=True):
        gains = result.series["gains"][table]
        for place, gain in enumerate(gains.values()):
            # A flow may give one row a density of exp(-1e8): what would flatten the rest is written, not drawn.
            if abs(gain["value"]) > LIMIT:
                axes.annotate(f"{gain['value']:.2g}", (0.97, place), xycoords=("axes fraction", "data"), ha="right")
            else:
                axes.errorbar(gain["value"], place, xerr=2 * gain["stderr"], fmt="o", capsize=3, color=DATA)
        axes.axvline(0, color=QUIET, lw=1)
        axes.set(title=table)
        named_rows(axes, list(gains))
    figure.supxlabel("ours minus theirs, nats per row")
    return figure


EXPERIMENT = Experiment("tables", run, draw)
