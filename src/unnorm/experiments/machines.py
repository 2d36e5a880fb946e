"""What the experiments on Boltzmann machines share: training, log-likelihoods between two bounds, sheets of draws."""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from unnorm.energies import RBM, DeepBoltzmann, fit_sites
from unnorm.estimate import Estimate, mean_estimate
from unnorm.evaluation import energies, layered_bracket, unnormalised_evidence
from unnorm.evaluation.partition.reverse_ais import Bracket
from unnorm.objectives import PCD, MeanFieldPCD
from unnorm.samplers import Gibbs, sample
from unnorm.spaces import Binary
from unnorm.training import fit

#: Rows of data that are added to each value of a pixel before its log-odds are taken.
PRIOR = 1.0
SHEET = 20
LOWER, UPPER, LOG_Z, GAP = "log-likelihood, at least", "at most", "log Z", "bracket"


@dataclass(frozen=True)
class Annealing:
    """Chains and levels of AIS, moves of the chains whose ends walk back, rows of the test and chains for each."""

    chains: int = 128
    levels: int = 3000
    moves: int = 1000
    rows: int = 500
    row_chains: int = 16
    row_levels: int = 200


def log_odds(rows: np.ndarray) -> np.ndarray:
    """Of every pixel: where the biases of the visible units begin (Hinton 2012)."""
    logits = np.asarray(fit_sites(Binary((rows.shape[1],)), rows, prior=PRIOR).logits)
    return logits[:, 1] - logits[:, 0]


def learnt_rbm(rows: np.ndarray, hidden: int, steps: int, key: PRNGKeyArray) -> RBM:
    """PCD with one sweep an update, 100 chains, batches of 100, Adam."""
    begin, run = jax.random.split(key)
    weights = 0.01 * jax.random.normal(begin, (rows.shape[1], hidden))
    model = RBM(Binary((rows.shape[1],)), weights, log_odds(rows), jnp.zeros(hidden))
    objective = PCD(Gibbs(), chains=100, moves=1)
    return fit(model, objective, rows, steps=steps, batch=100, rate=2e-3, evaluations=5, key=run, progress=False).model


def learnt_deep(rows: np.ndarray, hidden: tuple[int, ...], steps: int, key: PRNGKeyArray) -> DeepBoltzmann:
    """Mean field for the data and persistent chains for the model, from small weights, without pretraining."""
    begin, run = jax.random.split(key)
    sizes = (rows.shape[1], *hidden)
    keys = jax.random.split(begin, len(hidden))
    weights = [0.01 * jax.random.normal(k, pair) for k, pair in zip(keys, pairwise(sizes), strict=True)]
    model = DeepBoltzmann(weights, (log_odds(rows), *(jnp.zeros(size) for size in hidden)))
    objective = MeanFieldPCD(Gibbs(), chains=100, moves=1, sweeps=8)
    return fit(model, objective, rows, steps=steps, batch=100, rate=2e-3, evaluations=5, key=run, progress=False).model


def settled(model: RBM | DeepBoltzmann, rows: np.ndarray, chains: int, moves: int, key: PRNGKeyArray) -> np.ndarray:
    """Where chains of Gibbs sampling end that began at data: draws of the machine, as far as they have mixed."""
    begin, walk = jax.random.split(key)
    if isinstance(model, DeepBoltzmann):
        start = MeanFieldPCD(Gibbs(), chains=chains).init(model, jnp.asarray(rows), key=begin)
    else:
        start = jnp.asarray(rows)[jax.random.randint(begin, (chains,), 0, len(rows))]
    trace = sample(model, Gibbs(), chains=chains, steps=1, thin=moves, start=start, key=walk, progress=False)
    return trace.draws[:, 0]


def _constant(model: RBM | DeepBoltzmann, draws: np.ndarray, size: Annealing, key: PRNGKeyArray) -> Bracket:
    if isinstance(model, DeepBoltzmann):
        odd = np.asarray(jax.vmap(model.odd)(jnp.asarray(draws)))
        base = fit_sites(Binary(odd.shape[1:]), odd)
    else:
        base = fit_sites(model.space, draws)
    return layered_bracket(model, draws, base, chains=size.chains, levels=size.levels, key=key)


def judged(
    model: RBM | DeepBoltzmann, train: np.ndarray, test: np.ndarray, size: Annealing, seed: int
) -> dict[str, Any]:
    """The mean log-likelihood of test rows between two bounds, log Z, draws to look at; plain data."""
    walk, anneal, rows = jax.random.split(jax.random.fold_in(jax.random.key(seed), 7), 3)
    draws = settled(model, train, size.chains, size.moves, walk)
    found = _constant(model, draws, size, anneal)
    if isinstance(model, DeepBoltzmann):
        test = test[: size.rows]
        values, errors = unnormalised_evidence(model, test, chains=size.row_chains, levels=size.row_levels, key=rows)
        bias = float(np.mean(errors**2) / 2)
    else:
        values, bias = -energies(model, test), 0.0
    mean = mean_estimate(values, f"mean over {len(test)} rows")
    visible = draws[:SHEET, : test.shape[1]]
    return {
        LOWER: mean.minus(found.upper).to_dict(),
        UPPER: mean.minus(found.lower).to_dict(),
        LOG_Z: found.lower.to_dict(),
        GAP: found.gap.to_dict(),
        "bias": bias,
        "warnings": list(found.warnings),
        "sheet": [[int(value) for value in row] for row in visible],
    }


def figures(piece: dict[str, Any]) -> dict[str, Estimate]:
    """The columns of a table."""
    return {name: Estimate.from_dict(piece[name]) for name in (LOWER, UPPER, LOG_Z, GAP)}
