"""What a fit of a random graph model has found, and how it reads."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from unnorm.errors import InputError, require
from unnorm.estimate import Estimate, Outcome
from unnorm.graphs.chains import Chains
from unnorm.graphs.evidence import Evidence
from unnorm.graphs.model import Model

if TYPE_CHECKING:
    import networkx


@dataclass(frozen=True)
class Coefficient:
    """One row of the table: an estimate with its error, and how much of the error's square is Monte Carlo.

    `kind` is "learnt", "decay" (of a term whose decay is learnt too), "given" (an offset), or "infinite": then `bound`
    is the end of the one-sided 95% interval.
    """

    name: str
    estimate: float
    stderr: float
    monte_carlo_share: float
    kind: str = "learnt"
    bound: float = math.nan

    @property
    def z(self) -> float:
        """The estimate in units of its error."""
        return self.estimate / self.stderr if self.stderr > 0 else math.nan

    @property
    def p_value(self) -> float:
        """Of the hypothesis that the coefficient is 0, both sides."""
        return math.erfc(abs(self.z) / math.sqrt(2)) if math.isfinite(self.z) else math.nan

    @property
    def odds_ratio(self) -> float:
        """By how much a change of the statistic by one multiplies the odds of an edge."""
        return math.exp(min(self.estimate, 700.0))

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        found = {
            "name": self.name,
            "kind": self.kind,
            "estimate": self.estimate,
            "stderr": self.stderr,
            "monte_carlo_share": self.monte_carlo_share,
            "z": self.z,
            "p_value": self.p_value,
            "odds_ratio": self.odds_ratio,
            "bound": self.bound,
        }
        return {name: _for_json(value) for name, value in found.items()}


def _for_json(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


@dataclass(frozen=True, eq=False)
class FittedGraph:
    """A model of random graphs with its coefficients; `print` shows them as a table.

    `coefficients` holds one row for each statistic, `covariance` that of the learnt ones, with what Monte Carlo adds.
    `evidence` shows why a model was called degenerate.
    """

    model: Model
    graphs: tuple[np.ndarray, ...]
    coefficients: tuple[Coefficient, ...]
    covariance: np.ndarray
    method: str
    outcome: Outcome
    log_likelihood: Estimate
    key: Any
    notes: tuple[str, ...] = ()
    diagnostics: Mapping[str, float] = field(default_factory=dict)
    evidence: Evidence | None = None
    #: Pairs of which it was not known whether they have an edge, in rows; they are in `graphs` without one.
    missing: np.ndarray = field(default_factory=lambda: np.zeros((0, 2), np.int32))

    @property
    def theta(self) -> np.ndarray:
        """All coefficients, in the order of the statistics; without decays that were estimated."""
        return np.array([row.estimate for row in self.coefficients if row.kind != "decay"])

    @property
    def observed(self) -> np.ndarray:
        """The statistics of what was fitted; the mean over several graphs."""
        return np.mean([self.model.statistics(edges) for edges in self.graphs], axis=0)

    def __getitem__(self, name: str) -> Estimate:
        """A coefficient by the name of its statistic, with its error."""
        for row in self.coefficients:
            if row.name == name:
                return Estimate(row.estimate, row.stderr, self.method, {"monte_carlo_share": row.monte_carlo_share})
        raise InputError(f"there is no statistic {name!r}; the statistics are: {', '.join(self.model.names)}")

    @property
    def parameters(self) -> int:
        """How many coefficients were learnt."""
        return sum(row.kind in ("learnt", "decay") for row in self.coefficients)

    @property
    def aic(self) -> float:
        """Akaike's criterion, 2 p - 2 log L."""
        return 2 * self.parameters - 2 * self.log_likelihood.value

    @property
    def bic(self) -> float:
        """Schwarz's criterion, p log(number of pairs) - 2 log L."""
        pairs = self.model.network.dyads * len(self.graphs)
        return self.parameters * math.log(pairs) - 2 * self.log_likelihood.value

    def simulate(self, count: int, *, key: Any = None) -> "list[networkx.Graph]":
        """Graphs drawn from the fitted model, with the labels and attributes of the one that was fitted."""
        network = self.model.network
        return [network.with_edges(edges).to_networkx() for edges in self.simulated_edges(count, key=key)]

    def simulated_edges(self, count: int, *, key: Any = None) -> list[np.ndarray]:
        """The edges of graphs drawn from the model: one chain, with gaps that make neighbours nearly independent."""
        require(self.outcome.ok, f"there is nothing to simulate from: {self.outcome.message}")
        require(count >= 1, f"ask for at least one graph, not {count}")
        chains = Chains(self.model, [self.graphs[0]], key=self.key if key is None else key, stream=77)
        gap = self.gap
        chains.draw(self.theta, 1, 10 * gap)
        found = []
        for _ in range(count):
            chains.draw(self.theta, 1, gap)
            found.append(chains.edges_of(0))
        return found

    @cached_property
    def gap(self) -> int:
        """Proposals after which a graph has forgotten where it was: two autocorrelation times."""
        told = self.diagnostics
        if "autocorrelation" in told:
            return math.ceil(2 * told["interval"] * told["autocorrelation"])
        return 10 * max(self.model.network.n, len(self.graphs[0])) + self.model.network.dyads

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "terms": list(self.model.names),
            "vertices": self.model.network.n,
            "edges": int(np.mean([len(edges) for edges in self.graphs])),
            "graphs": len(self.graphs),
            "directed": self.model.network.directed,
            "method": self.method,
            "outcome": self.outcome.to_dict(),
            "coefficients": [row.to_dict() for row in self.coefficients],
            "log_likelihood": {
                k: _for_json(v) for k, v in self.log_likelihood.to_dict().items() if k in ("value", "stderr", "method")
            },
            "aic": _for_json(self.aic),
            "bic": _for_json(self.bic),
            "notes": list(self.notes),
            "diagnostics": {name: _for_json(float(value)) for name, value in self.diagnostics.items()},
            "evidence": None if self.evidence is None else self.evidence.to_dict(),
        }

    def rows(self) -> list[list[str]]:
        """The table as text: a head, and a row for each statistic."""
        head = ["", "estimate", "std. error", "MC share", "z", "p-value", "odds ratio"]
        return [head, *(_row(row) for row in self.coefficients)]

    def __str__(self) -> str:
        return "\n".join(_text(self))

    def __repr__(self) -> str:
        return str(self)


def _p_value(p: float) -> str:
    if math.isnan(p):
        return ""
    stars = "***" if p < 0.001 else "**" if p < 0.01 else "*" if p < 0.05 else "." if p < 0.1 else ""
    return f"{'<1e-4' if p < 1e-4 else f'{p:.4f}'} {stars}".rstrip()


def _row(row: Coefficient) -> list[str]:
    if row.kind == "given":
        return [row.name, f"{row.estimate:.4g}", "given", "", "", "", ""]
    if row.kind == "infinite":
        side = "below" if row.estimate < 0 else "above"
        return [row.name, f"{row.estimate:+g}", f"95% {side} {row.bound:.3g}", "", "", "", ""]
    digits = 4 if not row.stderr > 0 else max(3, 2 - math.floor(math.log10(row.stderr)))
    shown = [
        row.name,
        f"{row.estimate:.{digits}f}",
        f"{row.stderr:.{digits}f}",
        f"{100 * row.monte_carlo_share:.2g}%",
    ]
    if row.kind == "decay":
        return [*shown, "", "", ""]
    return [
        *shown,
        f"{row.z:.2f}",
        _p_value(row.p_value),
        f"{row.odds_ratio:.4g}",
    ]


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows of text under each other, the first column to the left and the others to the right.

    >>> aligned([["", "x"], ["edges", "-1.6"]])
    ['          x', 'edges  -1.6']
    """
    widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        lines.append("  ".join(cells).rstrip())
    return lines


def _text(fitted: FittedGraph) -> list[str]:
    network, count = fitted.model.network, len(fitted.graphs)
    kind = "with directions" if network.directed else "without directions"
    edges = np.mean([len(graph) for graph in fitted.graphs])
    size = f"{network.n} vertices, {edges:g} edges, {kind}"
    lines = [f"Exponential random graph: {size}" if count == 1 else f"{count} exponential random graphs: each {size}"]
    lines.append(f"fitted by {fitted.method}")
    if not fitted.outcome.ok:
        return [
            *lines,
            "",
            f"No estimate: {fitted.outcome.message}. {fitted.outcome.advice}",
            *_paragraphs(fitted.notes),
        ]
    lines += ["", *aligned(fitted.rows()), "*** p < 0.001, ** p < 0.01, * p < 0.05, . p < 0.1", ""]
    if math.isfinite(fitted.log_likelihood.value):
        pairs = network.dyads * count
        lines.append(f"log-likelihood  {fitted.log_likelihood}")
        lines.append(f"with every edge at even odds  {-pairs * math.log(2):.2f}, {pairs} pairs of vertices")
        lines.append(f"AIC {fitted.aic:.2f}   BIC {fitted.bic:.2f}   (smaller is better)")
    if "convergence_p_value" in fitted.diagnostics:
        p = fitted.diagnostics["convergence_p_value"]
        lines.append(f"mean statistics of fresh draws are the observed ones: p = {p:.3f}")
    if not lines[-1]:
        lines.pop()
    return [*lines, *_paragraphs(fitted.notes)]


def _paragraphs(notes: Sequence[str]) -> list[str]:
    return [line for note in notes for line in ("", f"Note: {note}")]
