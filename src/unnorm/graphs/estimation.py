"""`fit`: a model of random graphs by maximum likelihood, exact where it can be."""

import dataclasses
import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from unnorm.errors import InputError, require
from unnorm.estimate import Estimate, Outcome, OutcomeCode
from unnorm.graphs import bounds, bridge, convergence, curved, evidence, likelihood, logistic, pseudo
from unnorm.graphs import missing as missing_pairs
from unnorm.graphs.chains import Chains
from unnorm.graphs.constraints import CONSTRAINTS, Unconstrained
from unnorm.graphs.enumeration import MOST_DYADS, Enumerated
from unnorm.graphs.fitted import FittedGraph
from unnorm.graphs.model import Model
from unnorm.graphs.network import Network, networks_of
from unnorm.graphs.terms import AbstractCurved, AbstractTerm, parse

METHODS = ("auto", "exact", "mcmc", "mple")


def fit(
    graph: Any,
    terms: str | AbstractTerm | Sequence[AbstractTerm | str],
    *,
    key: Any = 0,
    covariates: Any = None,
    method: str = "auto",
    log_likelihood: bool = True,
    constraint: str | None = None,
    missing: Iterable[tuple[Any, Any]] | None = None,
) -> FittedGraph:
    """Learn the coefficients of an exponential random graph model, p(y) = exp(theta . s(y)) / Z(theta).

    `graph` is a graph of networkx, or a list of independent graphs on the same vertices; `terms` says what is counted:
    "edges, gwesp(0.5), nodematch(grade)". Where edges are independent, or the vertices few, the estimate is exact; else
    it is found by Markov chain Monte Carlo, and its standard errors hold what that adds. `method="mple"` maximises the
    pseudo-likelihood instead. `key` (one of JAX, or a whole number) decides the random numbers. `constraint` "edges"
    or "degrees" compares with graphs of as many edges, or with the same degrees, only.
    `missing` names pairs of vertices of which it is not known whether they have an edge.

    >>> import networkx
    >>> print(fit(networkx.path_graph(4), "edges")["edges"])
    0.00 ± 0.82 (logistic regression, exact)
    """
    require(method in METHODS, f"there is no method {method!r}; the methods are {', '.join(METHODS)}")
    networks = networks_of(graph)
    network = networks[0]
    graphs = tuple(each.edges for each in networks)
    if missing is not None:
        require(
            len(networks) == 1 and constraint is None and method in ("auto", "mcmc"),
            "missing pairs go with one graph, without a constraint, and with no other method than the likelihood",
        )
        chosen = parse(terms, covariates)
        require(not any(isinstance(term, AbstractCurved) for term in chosen), "with missing pairs give the decay")
        return missing_pairs.fitted(network, chosen, missing, log_likelihood, key)
    if constraint is not None:
        given = (networks, parse(terms, covariates), constraint, method, key, log_likelihood)
        return _constrained(*given)
    model = Model(parse(terms, covariates), network)
    if any(isinstance(term, AbstractCurved) for term in model.terms):
        return curved.fitted(model, graphs, key=key)
    observed = np.mean([model.statistics(edges) for edges in graphs], axis=0)
    model, design = _estimable(model, graphs, observed)
    few = network.dyads <= MOST_DYADS
    if method == "auto":
        method = "mple" if model.independent else "exact" if few else "mcmc"
    if method == "mple":
        found = pseudo.fitted(model, graphs, design, key=key)
    elif method == "exact":
        found = _exact(model, graphs, observed)
    else:
        reference, reference_value = pseudo.independence(model, graphs)
        begin = (logistic.maximise(design).theta, reference, reference_value)
        found = _mcmc(model, graphs, observed, begin, key, log_likelihood)
    return _with_infinite(found, observed, key)


def _estimable(model: Model, graphs: Sequence[np.ndarray], observed: np.ndarray) -> tuple[Model, logistic.Design]:
    """Refuse terms that cannot be told apart, and pin those whose estimate is infinite."""
    design = logistic.design(model, graphs)
    for _ in range(model.size + 1):
        learnt = np.flatnonzero(~model.fixed)
        if not learnt.size:
            break
        pinned = _constant(model, design, observed, learnt)
        if pinned is None:
            _require_apart(model, design)
            direction = logistic.escaping(design)
            if direction is None:
                break
            along = np.flatnonzero(np.abs(direction) > 1e-6)
            if len(along) > 1:
                said = " and ".join(f"{model.names[learnt[k]]} to {direction[k] * math.inf:+g}" for k in along)
                raise InputError(
                    f"there is no finite estimate: the likelihood grows without end as {said} in step, because no pair "
                    "of vertices speaks against it; leave one of these terms out"
                )
            pinned = {int(learnt[along[0]]): float(direction[along[0]]) * math.inf}
        held = {k: (coefficient, float(observed[k])) for k, coefficient in pinned.items()}
        model = dataclasses.replace(model, pinned={**model.pinned, **held})
        design = logistic.design(model, graphs)
    return model, design


def _constant(
    model: Model, design: logistic.Design, observed: np.ndarray, learnt: np.ndarray
) -> dict[int, float] | None:
    """Statistics that no pair changes: of edges alone they say nothing, else they are as low as they can be."""
    for column, k in enumerate(learnt):
        if np.any(design.rows[:, column]):
            continue
        name = model.names[k]
        dependent = not model.independent and observed[k] == model.empty[k]
        require(
            dependent,
            f"no pair of vertices changes {name}: it is {observed[k]:g} whatever the edges are; leave it out",
        )
        return {int(k): -math.inf}
    return None


def _require_apart(model: Model, design: logistic.Design) -> None:
    """Refuse columns of which one is a sum of others."""
    mixed = logistic.collinear(design.rows)
    if mixed is not None:
        names = [name for name, x in zip(model.learnt, mixed, strict=True) if abs(x) > 1e-6]
        raise InputError(
            f"{', '.join(names)} cannot be told apart: every edge changes them in fixed proportion; leave one of "
            "them out"
        )


def _exact(model: Model, graphs: Sequence[np.ndarray], observed: np.ndarray) -> FittedGraph:
    """By the sum over all graphs."""
    every, free, count = Enumerated(model), ~model.fixed, len(graphs)
    learnt = observed[free]
    rows = every.table[0][:, free]
    for k, name in enumerate(model.learnt):
        low, high = rows[:, k].min(), rows[:, k].max()
        require(
            bool(low < learnt[k] < high),
            f"{name} is {learnt[k]:g}, an end of what it can be, and its estimate infinite; leave it out",
        )
    theta, information = every.maximise(learnt)
    covariance = np.linalg.pinv(information * count, hermitian=True)
    full = model.full(theta)
    value = count * (float(model.weighed(full, observed)) - every.log_partition(theta))
    method = f"maximum likelihood, exact over all {int(every.allowed.sum()):,} graphs"
    return FittedGraph(
        model,
        tuple(graphs),
        pseudo.coefficients(model, theta, covariance, np.zeros_like(covariance)),
        covariance,
        method,
        Outcome(OutcomeCode.COMPLETED, 0, "exact"),
        Estimate(value, 0.0, "exact"),
        None,
        model.network.notes,
    )


def _mcmc(
    model: Model,
    graphs: Sequence[np.ndarray],
    observed: np.ndarray,
    begin: tuple[np.ndarray, np.ndarray, float],
    key: Any,
    log_likelihood: bool,
) -> FittedGraph:
    """By Markov chain Monte Carlo, from a start or, if that leads astray, from where the likelihood is known."""
    free = ~model.fixed
    start, reference, reference_value = begin
    found = likelihood.maximise(model, graphs, observed[free], start, reference[free], key=key)
    method = "maximum likelihood, by Markov chain Monte Carlo"
    nothing = Estimate(math.nan, math.nan, "not estimated")
    notes = model.network.notes
    if not found.outcome.ok:
        rows = pseudo.coefficients(model, start * math.nan, found.information, found.monte_carlo)
        shown = None
        if isinstance(model.constraint, Unconstrained):
            shown = evidence.evidence(model, graphs[0], observed[free], reference[free], start, key=key)
        told = (method, found.outcome, nothing, key, notes, found.diagnostics, shown)
        return FittedGraph(model, tuple(graphs), rows, found.information, *told)
    covariance = np.linalg.pinv(found.information, hermitian=True) + found.monte_carlo
    walks = Chains(model, [graphs[c % len(graphs)] for c in range(likelihood.CHAINS)], key=key, stream=5)
    known = (found.theta, observed[free], found.information, found.monte_carlo)
    test = convergence.converged(model, walks, *known, found.interval, len(graphs))
    if test.p_value < 0.001:
        worst = model.learnt[int(np.argmax(np.abs(test.gaps)))]
        notes = (
            *notes,
            f"The chains have not settled: the mean of {worst} at the estimate is {np.abs(test.gaps).max():.1f} of its "
            f"errors from what was observed (p = {test.p_value:.1g}). Fit again with another key, or use fewer terms.",
        )
    value = nothing
    if log_likelihood and math.isfinite(reference_value):
        value = _bridged(model, graphs, observed, found, reference, reference_value, key)
    rows = pseudo.coefficients(model, found.theta, covariance, found.monte_carlo)
    return FittedGraph(
        model,
        tuple(graphs),
        rows,
        covariance,
        method,
        found.outcome,
        value,
        key,
        (*notes, *found.notes),
        {**found.diagnostics, "convergence": test.statistic, "convergence_p_value": test.p_value},
    )


def _constrained(
    networks: Sequence[Network],
    terms: Sequence[AbstractTerm],
    constraint: str,
    method: str,
    key: Any,
    log_likelihood: bool,
) -> FittedGraph:
    """Over graphs that keep the number of edges or all degrees; where no coefficient counts, all are as likely."""
    known = ", ".join(map(repr, CONSTRAINTS))
    require(constraint in CONSTRAINTS, f"there is no constraint {constraint!r}; the constraints are {known}")
    require(method != "mple", 'a pseudo-likelihood knows no constraint; use method="mcmc"')
    network, graphs = networks[0], tuple(each.edges for each in networks)
    model = Model(terms, network, constraint=CONSTRAINTS[constraint])
    for number, other in enumerate(networks):
        present = other.adjacency()[tuple(network.pairs().T)]
        require(
            bool(model.constraint.keeps(present[None], network)[0]),
            f"graph {number} of the list has other {constraint} than the first; constraint={constraint!r} holds them",
        )
    observed = np.mean([model.statistics(edges) for edges in graphs], axis=0)
    _require_moving(model, graphs, key)
    if method == "exact" or (method == "auto" and network.dyads <= MOST_DYADS):
        return _exact(model, graphs, observed)
    nothing = np.where(model.fixed, model.given, 0.0)
    even = not np.any(nothing[model.fixed])
    value = -len(graphs) * model.constraint.log_count(network) if even else math.nan
    return _mcmc(model, graphs, observed, (nothing[~model.fixed], nothing, value), key, log_likelihood)


def _require_moving(model: Model, graphs: Sequence[np.ndarray], key: Any) -> None:
    """Refuse statistics that are the same in all graphs of the constraint, or that move in fixed proportion."""
    chains = Chains(model, [graphs[c % len(graphs)] for c in range(4)], key=key, stream=41)
    interval = max(16, len(graphs[0]))
    drawn = chains.draw(np.where(model.fixed, model.given, 0.0), 256, interval)[..., ~model.fixed]
    rows = drawn.reshape(-1, drawn.shape[-1])
    rows = rows - rows[0]
    still = [name for name, moves in zip(model.learnt, np.any(np.abs(rows) > 1e-9, axis=0), strict=True) if not moves]
    require(not still, f"{', '.join(still)} is the same in all graphs that are compared; leave it out")
    mixed = logistic.collinear(rows)
    if mixed is not None:
        names = [name for name, x in zip(model.learnt, mixed, strict=True) if abs(x) > 1e-6]
        raise InputError(f"{', '.join(names)} cannot be told apart among graphs like these; leave one of them out")


def _bridged(
    model: Model,
    graphs: Sequence[np.ndarray],
    observed: np.ndarray,
    found: likelihood.Maximum,
    reference: np.ndarray,
    reference_value: float,
    key: Any,
) -> Estimate:
    """log L at the maximum, from that of the model without dependence."""
    end, count = model.full(found.theta), len(graphs)
    held = np.array([not math.isfinite(x) for x in end])
    begin = np.where(held, end, reference)
    chains = Chains(model, [graphs[c % count] for c in range(likelihood.CHAINS)], key=key, stream=9)
    crossed = bridge.bridge(chains, begin, end, found.interval)
    change = np.where(held, 0.0, np.where(held, 0.0, end) - np.where(held, 0.0, begin))
    value = reference_value + count * (float(change @ observed) - crossed.value)
    diagnostics = {"cuts": float(crossed.cuts), "effective_draws": crossed.effective}
    return Estimate(value, count * crossed.stderr, f"bridge sampling over {crossed.cuts} cuts", diagnostics)


def _with_infinite(found: FittedGraph, observed: np.ndarray, key: Any) -> FittedGraph:
    """The ends of one-sided intervals for what is infinite, and a sentence about each."""
    if not found.model.pinned or not found.outcome.ok:
        return found
    rows, notes = list(found.coefficients), list(found.notes)
    for k, (coefficient, held) in found.model.pinned.items():
        end = bounds.one_sided(found.model, found.graphs, found.theta, k, key=key)
        rows[k] = dataclasses.replace(rows[k], bound=end)
        side, extreme = ("below", "least") if coefficient < 0 else ("above", "most")
        notes.append(
            f"{rows[k].name} is {held:g}, the {extreme} it can be, so its estimate is {coefficient:+g}. "
            f"With 95% confidence it is {side} {end:.3g}; the other rows are for graphs in which it is {held:g}."
        )
    return dataclasses.replace(found, coefficients=tuple(rows), notes=tuple(notes))
