"""Pairwise Markov networks on zeros and ones or on categories: which columns of a table go together.

Fitted by maximum pseudo-likelihood with a penalty on each pair, chosen by what rows that were held out say (Besag
1975; Höfling and Tibshirani 2009; Ekeberg et al. 2013).
"""

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, Int, Shaped

from unnorm.compiling import compiled
from unnorm.energies.base import Point, Scalar
from unnorm.energies.factorised import AbstractFactorised, AbstractSitewise, array_space, values_of
from unnorm.energies.site_graph import SiteGraph
from unnorm.errors import require
from unnorm.spaces import AbstractArray, AbstractSpace

#: Steps of the solver for each penalty.
STEPS = 300
#: Penalties that are tried, as shares of the one under which no pair is kept.
SHARES = (1.0, 0.5, 0.25, 0.12, 0.06, 0.03, 0.015, 0.007, 0.003, 0.001, 0.0)

Penalty = Literal["l1", "l2"]
#: Fields and couplings.
Parameters = tuple[Array, Array]


def indicators(x: Point, k: int) -> Float[Array, "sites {k}-1"]:
    """1[x_i = c] of every site i and every value c but the first."""
    flat = x.reshape(-1)
    if k == 2:
        return flat.astype(float)[:, None]
    return jax.nn.one_hot(flat.astype(int) - 1, k - 1)


class MarkovNetwork(AbstractFactorised, AbstractSitewise):
    """E(x) = -(sum_ic b_ic f_ic + sum_{i<j} sum_cd J_ic,jd f_ic f_jd) with f_ic = 1[x_i = c], c = 1 .. k - 1.

    The law of any pair of columns given the others is free; for zeros and ones it is the fully visible Boltzmann
    machine. `fields` holds b, sites x (k - 1), and `couplings` J, sites x (k - 1) x sites x (k - 1): its symmetric part
    counts, without couplings of a site to itself, and with `sites` given only those along edges of that graph.

    >>> from unnorm.spaces import Binary
    >>> model = MarkovNetwork(Binary((2,)), jnp.zeros((2, 1)), 2.0 * jnp.ones((2, 1, 2, 1)))
    >>> float(model(jnp.ones(2)))
    -2.0
    """

    fields: Float[Array, "sites values"]
    couplings: Float[Array, "sites values sites values"]
    space: AbstractArray = eqx.field(static=True)
    sites: SiteGraph | None = eqx.field(static=True)

    def __init__(self, space: AbstractSpace, fields: Any, couplings: Any, sites: SiteGraph | None = None):
        self.space, self.sites = array_space(space), sites
        self.fields, self.couplings = jnp.asarray(fields, float), jnp.asarray(couplings, float)
        n, free = space.size, values_of(space) - 1
        require(
            self.fields.shape == (n, free) and self.couplings.shape == (n, free, n, free),
            f"{n} sites of {free + 1} values have fields of shape {(n, free)} and couplings of shape "
            f"{(n, free, n, free)}, not {self.fields.shape} and {self.couplings.shape}",
        )
        require(sites is None or sites.size == n, f"the graph has {sites.size if sites else 0} sites, and points {n}")

    def _tied(self) -> np.ndarray:
        """1 where two sites have a coupling."""
        n = self.space.size
        if self.sites is None:
            return 1.0 - np.eye(n)
        tied = np.zeros((n, n))
        tied[tuple(self.sites.edges.T)] = 1.0
        return tied + tied.T

    def __call__(self, x: Point) -> Scalar:
        f = indicators(x, self.fields.shape[1] + 1)
        pairs = jnp.einsum("ic,icjd,jd->ij", f, self.couplings, f)
        return -(jnp.sum(self.fields * f) + 0.5 * jnp.sum(self._tied() * pairs))

    @property
    def blocks(self) -> tuple[np.ndarray, ...]:
        if self.sites is None:
            return tuple(np.arange(self.space.size)[:, None])
        return self.sites.colours

    def _logits(self, which: Any, x: Point) -> Float[Array, "... k"]:
        f = indicators(x, self.fields.shape[1] + 1)
        tied = jnp.asarray(self._tied())[which]
        ours = jnp.einsum("...cjd,...j,jd->...c", self.couplings[which], tied, f)
        theirs = jnp.einsum("jd...c,...j,jd->...c", self.couplings[:, :, which], tied, f)
        free = self.fields[which] + 0.5 * (ours + theirs)
        return jnp.concatenate([jnp.zeros_like(free[..., :1]), free], axis=-1)

    def conditional_logits(self, block: int, x: Point) -> Float[Array, "sites k"]:
        return self._logits(self.blocks[block], x)

    def site_logits(self, site: int | Int[Array, ""], x: Point) -> Float[Array, " k"]:
        return self._logits(site, x)

    def strengths(self) -> Float[Array, "sites sites"]:
        """How strongly each pair is tied: the norm of its couplings, 0 where there are none."""
        both = 0.5 * (self.couplings + self.couplings.transpose(2, 3, 0, 1))
        return jnp.asarray(self._tied()) * jnp.sqrt(jnp.sum(both**2, axis=(1, 3)))


def markov_network(space: AbstractSpace, sites: SiteGraph | None = None) -> MarkovNetwork:
    """The network in which all points are alike, to be learnt.

    >>> from unnorm.spaces import Categorical
    >>> markov_network(Categorical((4,), 3)).couplings.shape
    (4, 2, 4, 2)
    """
    n, free = space.size, values_of(space) - 1
    return MarkovNetwork(space, jnp.zeros((n, free)), jnp.zeros((n, free, n, free)), sites)


class MarkovFit(NamedTuple):
    """A network, the strength of its penalty, and what every strength was worth: held-out pseudo-likelihood per row."""

    model: MarkovNetwork
    strength: float
    strengths: tuple[float, ...]
    held_out: tuple[float, ...]


def _pseudo_likelihood(at: Parameters, rows: Float[Array, "n sites values"]) -> Scalar:
    """Minus its mean over rows."""
    fields, couplings = at
    free = fields[None] + jnp.einsum("nic,icjd->njd", rows, couplings)
    constant = jax.nn.logsumexp(jnp.concatenate([jnp.zeros_like(free[..., :1]), free], axis=-1), axis=-1)
    return jnp.mean(jnp.sum(constant - jnp.sum(rows * free, axis=-1), axis=-1))


@compiled
def _solve(start: Any, rows: Array, tied: Array, strength: Array, lipschitz: Array, penalty: Penalty, steps: int):
    """Accelerated proximal gradients (Beck and Teboulle 2009) from a start; fields bear no penalty."""

    def slopes(at):
        fields, couplings = jax.grad(lambda p: _pseudo_likelihood(p, rows))(at)
        both = 0.5 * (couplings + couplings.transpose(2, 3, 0, 1))
        return fields, tied[:, None, :, None] * both

    def shrunk(couplings):
        if penalty == "l2":
            return couplings / (1 + strength / lipschitz)
        norm = jnp.sqrt(jnp.sum(couplings**2, axis=(1, 3), keepdims=True))
        return couplings * jnp.maximum(0.0, 1 - strength / lipschitz / jnp.maximum(norm, 1e-30))

    def step(carry, _):
        at, ahead, momentum = carry
        fields, couplings = slopes(ahead)
        new = (ahead[0] - fields / lipschitz, shrunk(ahead[1] - couplings / lipschitz))
        later = 0.5 * (1 + jnp.sqrt(1 + 4 * momentum**2))
        share = (momentum - 1) / later
        # Momentum that leads uphill is forgotten (O'Donoghue and Candès 2015).
        uphill = sum(jnp.sum((a - n) * (n - o)) for a, n, o in zip(ahead, new, at, strict=True)) > 0
        share, later = jnp.where(uphill, 0.0, share), jnp.where(uphill, 1.0, later)
        ahead = jax.tree.map(lambda n, o: n + share * (n - o), new, at)
        return (new, ahead, later), None

    (at, _, _), _ = jax.lax.scan(step, (start, start, jnp.ones(())), None, length=steps)
    return at


def _steepness(rows: Float[Array, "n sites values"]) -> Float[Array, ""]:
    """A bound of the curvature: every pair bears on two sites, and that of a softmax is 1/2, of a logistic law 1/4."""
    flat = np.asarray(rows, np.float64).reshape(len(rows), -1)
    largest = float(np.linalg.norm(flat, 2) ** 2 / len(flat))
    return jnp.asarray((0.5 if rows.shape[2] == 1 else 1.0) * (1 + largest))


def sparse(network: MarkovNetwork) -> MarkovNetwork:
    """The same network on the graph of the pairs that are tied: what is learnt of it later leaves the others alone.

    >>> from unnorm.spaces import Binary
    >>> couplings = jnp.zeros((3, 1, 3, 1)).at[0, 0, 2, 0].set(1.0)
    >>> sparse(MarkovNetwork(Binary((3,)), jnp.zeros((3, 1)), couplings)).sites.edges.tolist()
    [[0, 2]]
    """
    edges = np.argwhere(np.triu(np.asarray(network.strengths()), 1) > 0)
    return MarkovNetwork(network.space, network.fields, network.couplings, SiteGraph((network.space.size,), edges))


def refit_markov_network(
    network: MarkovNetwork,
    rows: Shaped[ArrayLike, "n ..."],
    strength: float,
    *,
    penalty: Penalty = "l1",
    steps: int = STEPS,
) -> MarkovNetwork:
    """The network fitted on to other rows on its own graph, with a penalty of this strength.

    >>> from unnorm.spaces import Binary
    >>> rows = jnp.array([[0.0], [1.0], [1.0], [1.0]])
    >>> round(float(refit_markov_network(markov_network(Binary((1,))), rows, 0.0).fields[0, 0]), 3)
    1.099
    """
    require(strength >= 0, f"the strength of a penalty is not negative, so not {strength}")
    k = values_of(network.space)
    kept = jax.vmap(lambda x: indicators(x, k))(network.space.cast(rows, "training"))
    start = (network.fields, network.couplings)
    fields, couplings = _solve(
        start, kept, jnp.asarray(network._tied()), jnp.asarray(strength), _steepness(kept), penalty, steps
    )
    return MarkovNetwork(network.space, fields, couplings, network.sites)


def fit_markov_network(
    space: AbstractSpace,
    train: Shaped[ArrayLike, "n ..."],
    valid: Shaped[ArrayLike, "m ..."],
    *,
    penalty: Penalty = "l1",
    sites: SiteGraph | None = None,
    shares: Sequence[float] = SHARES,
    steps: int = STEPS,
) -> MarkovFit:
    """A network by maximum pseudo-likelihood with a penalty on its couplings, of the strength that suits held-out rows.

    "l1" charges every pair the norm of its couplings, so that pairs that do not matter have none (the group lasso);
    "l2" half the square of that norm. Strengths are `shares` of the one at which l1 keeps no pair, from strong to weak,
    each begun where the last one ended.

    >>> from unnorm.spaces import Binary
    >>> rows = jax.random.bernoulli(jax.random.key(0), 0.5, (400, 3)).astype(float).at[:, 1].set(1.0)
    >>> rows = rows.at[:200, 1].set(rows[:200, 0])
    >>> fit = fit_markov_network(Binary((3,)), rows[::2], rows[1::2])
    >>> bool(fit.model.strengths()[0, 1] > 5 * fit.model.strengths()[0, 2])
    True
    """
    require(penalty in ("l1", "l2"), f"a penalty is 'l1' or 'l2', not {penalty!r}")
    require(len(shares) >= 1 and min(shares) >= 0, "shares are at least one number, none of them negative")
    array, k = array_space(space), values_of(space)
    empty = markov_network(array, sites)
    kept, judged = (
        jax.vmap(lambda x: indicators(x, k))(array.cast(rows, what))
        for rows, what in ((train, "training"), (valid, "validation"))
    )
    tied, lipschitz = jnp.asarray(empty._tied()), _steepness(kept)
    means = jnp.clip(kept.mean(0), 0.5 / len(kept), None)
    first = jnp.clip(1 - kept.mean(0).sum(-1, keepdims=True), 0.5 / len(kept), None)
    at = (jnp.log(means) - jnp.log(first), empty.couplings)
    # Where no pair is kept, the slope of each is no steeper than the strength.
    slope = jax.grad(lambda p: _pseudo_likelihood(p, kept))(at)[1]
    slope = tied[:, None, :, None] * 0.5 * (slope + slope.transpose(2, 3, 0, 1))
    top = float(jnp.max(jnp.sqrt(jnp.sum(slope**2, axis=(1, 3)))))
    found, scores = [], []
    for share in shares:
        at = _solve(at, kept, tied, jnp.asarray(share * top), lipschitz, penalty, steps)
        found.append(at)
        scores.append(-float(_pseudo_likelihood(at, judged)))
    best = int(np.argmax(scores))
    strengths = tuple(share * top for share in shares)
    return MarkovFit(
        MarkovNetwork(array, found[best][0], found[best][1], sites), strengths[best], strengths, tuple(scores)
    )
