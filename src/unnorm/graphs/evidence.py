"""Why a model is called degenerate: a statistic against its coefficient, from sparse graphs and from dense ones.

A model that fits moves a statistic smoothly with its coefficient. A degenerate one jumps, from graphs with next to none
to all but complete ones, and near the jump a walk stays wherever it began (Handcock 2003; Schweinberger 2011). Here
walks begin at the observed graph and at the complete one, for coefficients along a line from the model without
dependence through the maximum of the pseudo-likelihood.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from unnorm.errors import require
from unnorm.graphs.chains import Chains
from unnorm.graphs.model import Model

#: Places along the line, up to this far beyond the maximum of the pseudo-likelihood, draws at each, and what a walk at
#: one place may take.
PLACES, BEYOND, DRAWS, PROPOSALS = 13, 1.2, 64, 50_000
#: Only graphs of up to so many pairs are walked from the complete one; a change in a dense graph takes long.
MOST_DYADS = 5000


@dataclass(frozen=True, eq=False)
class Evidence:
    """Medians and 90% ranges of a statistic against a coefficient, from the observed graph and from the complete one.

    `left` says where a walk from the observed graph ran away to dense graphs; its draws there are those before it did.
    """

    name: str
    coefficients: np.ndarray
    observed: float
    sparse: np.ndarray
    dense: np.ndarray | None
    left: np.ndarray

    def to_dict(self) -> dict[str, Any]:
        """Plain data for a picture: rows low, median, high for each start; None where there is nothing."""

        def plain(rows: np.ndarray | None) -> Any:
            return None if rows is None else [[None if np.isnan(x) else float(x) for x in row] for row in rows]

        return {
            "name": self.name,
            "coefficients": self.coefficients.tolist(),
            "observed": self.observed,
            "sparse": plain(self.sparse),
            "dense": plain(self.dense),
            "left": self.left.tolist(),
        }

    @staticmethod
    def from_dict(told: Mapping[str, Any]) -> "Evidence":
        """The inverse."""
        arrays = [None if told[name] is None else np.array(told[name], np.float64) for name in ("sparse", "dense")]
        sparse, dense = arrays
        require(sparse is not None, "there is no evidence without the walk from the observed graph")
        coefficients, left = np.array(told["coefficients"], np.float64), np.array(told["left"], bool)
        return Evidence(told["name"], coefficients, told["observed"], np.asarray(sparse), dense, left)

    @property
    def sentence(self) -> str:
        """What it shows, in words."""
        walks = self.sparse if self.dense is None else np.concatenate([self.sparse, self.dense])
        middles = walks[np.isfinite(walks[:, 1]), 1]
        below, above = middles[middles < self.observed], middles[middles >= self.observed]
        seen = f"{self.observed:,.5g} in the network"
        if above.size and below.size and above.min() - below.max() > 0.5 * max(self.observed, 1.0):
            return (
                f"The {self.name} statistic is {seen}, but in graphs drawn it is at most about {below.max():,.4g} or "
                f"at least about {above.min():,.4g}, whatever its coefficient: it leaps over what was observed."
            )
        if self.left.any():
            return (
                f"The {self.name} statistic is {seen}; graphs drawn with its coefficient at "
                f"{self.coefficients[self.left][0]:.3g} run away to be dense, and with less they have "
                f"{middles.min():,.4g} to {middles.max():,.4g}."
            )
        return (
            f"The {self.name} statistic is {seen} and {middles.min():,.4g} to {middles.max():,.4g} in graphs "
            "drawn along its coefficient: there is no leap in it, but another term moves with it, or the "
            "walk mixes too slowly."
        )


def evidence(
    model: Model,
    edges: np.ndarray,
    observed: np.ndarray,
    begin: np.ndarray,
    end: np.ndarray,
    *,
    key: Any,
) -> Evidence:
    """Along the line from `begin` (no dependence) to `end` and beyond; all are of the learnt statistics."""
    free = ~model.fixed
    names = np.array(model.learnt)
    dependent = [
        name
        for term, group in zip(model.terms, model.statistics_names, strict=True)
        for name in group
        if not term.independent and name in model.learnt
    ]
    which = max((int(np.flatnonzero(names == name)[0]) for name in dependent), key=lambda k: abs(end[k] - begin[k]))
    k = int(np.flatnonzero(free)[which])
    network = model.network
    interval = max(1, min(PROPOSALS // DRAWS, 4 * network.dyads))
    most = network.dyads + 1 if network.dyads <= MOST_DYADS else 4 * len(edges) + 50
    starts = [edges] + ([network.pairs()] if network.dyads <= MOST_DYADS else [])
    found = np.full((len(starts), PLACES, 3), np.nan)
    left = np.zeros(PLACES, bool)
    places = np.linspace(0.0, BEYOND, PLACES)
    for s, start in enumerate(starts):
        for place in range(PLACES):
            chains = Chains(model, [start], key=key, stream=200 + 20 * s + place, most=most)
            theta = model.full(begin + places[place] * (end - begin))
            chains.draw(theta, DRAWS // 4, interval)
            drawn = chains.draw(theta, DRAWS, interval)[0, :, k]
            if s == 0:
                left[place] = chains.lost or len(chains.edges_of(0)) > max(4 * len(edges), network.dyads // 2)
            if drawn.size:
                found[s, place] = np.quantile(drawn, [0.05, 0.5, 0.95])
    coefficients = begin[which] + places * (end[which] - begin[which])
    dense = found[1] if len(starts) > 1 else None
    return Evidence(str(names[which]), coefficients, float(observed[which]), found[0], dense, left)
