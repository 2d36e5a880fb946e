"""Averages of densities: committees of mixtures, and the blend that held-out rows like best.

An average of densities is a density, and its log is at least the average of theirs (Jensen), so fits that err in
different places are better together than the best of them. The weights that maximise the likelihood of held-out rows
are found by EM, a concave problem (stacking: Smyth and Wolpert 1999).
"""

from collections.abc import Sequence
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray
from scipy import special

from unnorm.compiling import compiled
from unnorm.energies.base import AbstractNormalised, Point, Scalar
from unnorm.energies.em import FULL, Covariance, fit_on, fit_padded, trimmed
from unnorm.energies.kde import KDE
from unnorm.energies.mixture import GaussianMixture
from unnorm.errors import require
from unnorm.progress import Advance, silent
from unnorm.spaces import AbstractSpace

#: Added to the covariance that shapes kernels, as a share of its mean variance: what `fit_gaussian` adds.
RIDGE = 1e-6


class Blend(AbstractNormalised):
    """p(x) = sum_i w_i p_i(x), with w = softmax(logits).

    >>> import jax.numpy as jnp, unnorm as un
    >>> narrow, wide = un.energies.standard_gaussian(1), un.energies.standard_gaussian(1, 2.0)
    >>> round(float(jnp.exp(Blend((narrow, wide), jnp.zeros(2)).log_prob(jnp.zeros(1)))), 4)
    0.2992
    """

    parts: tuple[AbstractNormalised, ...]
    logits: Float[Array, " parts"]
    space: AbstractSpace = eqx.field(static=True)

    def __init__(self, parts: tuple[AbstractNormalised, ...], logits: Float[Array, " parts"]):
        require(len(parts) > 0, "a blend needs at least one density")
        require(logits.shape == (len(parts),), f"{len(parts)} densities need as many weights, not {logits.shape}")
        require(all(part.space == parts[0].space for part in parts), "densities can be blended only on one space")
        self.parts = parts
        self.logits = logits
        self.space = parts[0].space

    @property
    def weights(self) -> Float[Array, " parts"]:
        return jax.nn.softmax(self.logits)

    def __call__(self, x: Point) -> Scalar:
        logs = jnp.stack([part.log_prob(x) for part in self.parts])
        return -jax.nn.logsumexp(jax.nn.log_softmax(self.logits) + logs)

    def sample(self, *, key: PRNGKeyArray) -> Point:
        which, *keys = jax.random.split(key, len(self.parts) + 1)
        draws = jnp.stack([part.sample(key=k) for part, k in zip(self.parts, keys, strict=True)])
        return draws[jax.random.categorical(which, self.logits)]


def _joined(mixtures: list[GaussianMixture], weights: Float[ArrayLike, " mixtures"]) -> GaussianMixture:
    """The average of mixtures, which is a mixture."""
    # By NumPy, which has no program to compile for each size.
    logits = [special.log_softmax(m.logits) + np.log(w) for m, w in zip(mixtures, np.asarray(weights), strict=True)]
    parts = (logits, [m.means for m in mixtures], [m.components.factor for m in mixtures])
    dtype = mixtures[0].logits.dtype
    return GaussianMixture(*(jnp.asarray(np.concatenate(part), dtype) for part in parts))


def _members(
    data: Float[Array, "n d"], k: int, members: int, ridge: float, covariance: Covariance, key: PRNGKeyArray
) -> list[GaussianMixture]:
    """Mixtures of k components (and empty ones behind them), climbed to from as many seeds."""
    require(members >= 1, f"a committee needs at least one member, not {members}")
    # One after another: at a time they would need as many times the memory, and are no faster.
    keys = jax.random.split(key, members)
    return [fit_padded(data, k, ridge=ridge, covariance=covariance, key=one) for one in keys]


def components(mixture: GaussianMixture, first: int, end: int) -> GaussianMixture:
    """The components from one number up to another, as a mixture."""
    parts = (special.log_softmax(np.asarray(mixture.logits)[first:end]), mixture.means, mixture.components.factor)
    arrays = (parts[0], *(np.asarray(part)[first:end] for part in parts[1:]))
    return GaussianMixture(*(jnp.asarray(part, mixture.logits.dtype) for part in arrays))


def _average(members: list[GaussianMixture], k: int) -> GaussianMixture:
    return _joined([trimmed(member, k) for member in members], np.full(len(members), 1 / len(members)))


def committee(
    data: Float[ArrayLike, "n d"],
    k: int,
    *,
    members: int = 4,
    ridge: float = 1e-2,
    covariance: Covariance = FULL,
    key: PRNGKeyArray,
) -> GaussianMixture:
    """The average density of `members` mixtures of k components, each climbed to from other seeds.

    Where one mixture overfits or misses, the others do not: on held-out rows it is often above the best of its members
    by a wide margin. It is a mixture itself, of members x k components.

    >>> import jax
    >>> points = jax.random.normal(jax.random.key(0), (500, 2))
    >>> len(committee(points, 2, members=3, key=jax.random.key(1)).weights)
    6
    """
    return _average(_members(jnp.asarray(data), k, members, ridge, covariance, key), k)


class Candidate(NamedTuple):
    """A density, and its log at every held-out row."""

    density: AbstractNormalised
    logs: Float[np.ndarray, " m"]

    @property
    def score(self) -> float:
        """What held-out rows make of it on average."""
        return float(np.mean(self.logs))


_log_probs = compiled(lambda density, rows: jax.vmap(density.log_prob)(rows))


def judged(density: AbstractNormalised, valid: Float[Array, "m d"]) -> Candidate:
    """A density before its judges."""
    return Candidate(density, np.asarray(_log_probs(density, valid), np.float64))


class Committee(NamedTuple):
    """How a committee was made, so that it can be made again of other rows."""

    size: int
    ridge: float
    members: int
    covariance: Covariance

    def fit(self, train: Float[Array, "n d"], *, key: PRNGKeyArray) -> GaussianMixture:
        """A committee like this one, of these rows."""
        # Fewer rows than the committee was chosen for may be too few for its size.
        size = min(self.size, len(train))
        fits = _members(train, size, self.members, self.ridge, self.covariance, jax.random.fold_in(key, size))
        return _average(fits, size)

    @property
    def components(self) -> int:
        """How many components all members have together."""
        return self.size * self.members

    def refit(self, together: GaussianMixture, train: Float[Array, "n d"]) -> GaussianMixture:
        """The committee as it was made, each member fitted on to these rows (`em.fit_on`)."""
        ends = range(self.size, self.components + 1, self.size)
        members = [components(together, end - self.size, end) for end in ends]
        fits = [fit_on(one, train, ridge=self.ridge, covariance=self.covariance) for one in members]
        return _average(fits, self.size)


def committees(
    train: Float[Array, "n d"],
    valid: Float[Array, "m d"],
    covariance: Covariance,
    *,
    sizes: tuple[int, ...] = (1, 2, 4, 8, 16, 32, 64),
    ridges: tuple[float, ...] = (1e-2, 1e-3, 1e-4),
    members: int = 4,
    key: PRNGKeyArray,
    advance: Advance = silent,
) -> list[tuple[Committee, Candidate]]:
    """Committees of growing size, and how each was made.

    Sizes are tried upwards and given up once two in a row have not improved, or when a component would have fewer rows
    than numbers to hold; at each size the ridge falls for as long as that helps.
    """
    enough = max(5, train.shape[1] + 2) if covariance == FULL else 5
    sizes = tuple(k for k in sizes if k * enough <= len(train)) or (1,)
    found: list[tuple[Committee, Candidate]] = []
    highest, worse = -np.inf, 0
    for k in sizes:
        of_size = -np.inf
        # One Gaussian has nothing to disagree about.
        jury = 1 if k == 1 else members
        for ridge in ridges:
            fits = _members(train, k, jury, ridge, covariance, jax.random.fold_in(key, k))
            # The members are judged, not their average, whose size would be one more program to compile.
            logs = np.stack([judged(member, valid).logs for member in fits])
            together = Candidate(_average(fits, k), np.logaddexp.reduce(logs, axis=0) - np.log(jury))
            found.append((Committee(k, ridge, jury, covariance), together))
            advance(1, f"{k} components")
            if not together.score > of_size:
                break
            of_size = together.score
        worse = 0 if of_size > highest else worse + 1
        highest = max(highest, of_size)
        if worse == 2:
            break
    return found


def best_committee(
    train: Float[ArrayLike, "n d"],
    valid: Float[ArrayLike, "m d"],
    *,
    covariance: Covariance = FULL,
    key: PRNGKeyArray,
) -> tuple[GaussianMixture, int]:
    """The committee, and its members' size, with the highest held-out log-likelihood."""
    tried = committees(jnp.asarray(train), jnp.asarray(valid), covariance, key=key)
    made, best = max(tried, key=lambda one: one[1].score)
    assert isinstance(best.density, GaussianMixture)
    return best.density, made.size


class Kernels(NamedTuple):
    """How a kernel density was made: `share` of the width that is right for one Gaussian, kernels shaped like the data.

    It stands on the first `most` rows.
    """

    share: float
    most: int = 10_000

    def fit(self, train: Float[Array, "n d"], *, key: PRNGKeyArray | None = None) -> KDE:
        """A kernel density like this one, of these rows."""
        centres = train[: self.most]
        n, d = centres.shape
        # In double precision all the way: an array of JAX in the difference would bring it back to single.
        offset = np.asarray(centres, np.float64)
        offset = offset - offset.mean(axis=0)
        covariance = offset.T @ offset / n
        # Columns that follow from one another have no volume of their own; the ridge gives them some.
        ridge = RIDGE * max(float(np.trace(covariance)) / d, 1e-12)
        shape = jnp.asarray(np.linalg.cholesky(covariance + ridge * np.eye(d)), train.dtype)
        # The width that is right for one Gaussian (Silverman 1986).
        rule = (4 / (d + 2)) ** (1 / (d + 4)) * n ** (-1 / (d + 4))
        return KDE(centres, self.share * rule, shape=shape)


#: Shares of the width that is right for one Gaussian which are tried.
SHARES = tuple(float(share) for share in np.geomspace(0.1, 1.2, 12))


def kernel_estimates(train: Float[Array, "n d"], valid: Float[Array, "m d"], *, most: int = 10_000) -> list[Candidate]:
    """Kernel densities of the rows (of the first `most`), their kernels shaped like the data, of twelve widths.

    >>> import jax
    >>> train, valid = jax.random.normal(jax.random.key(0), (2, 500, 2))
    >>> [round(float(c.density.bandwidth), 2) for c in kernel_estimates(train, valid)][::4]
    [0.04, 0.09, 0.22]
    """
    return [judged(Kernels(share, most).fit(train), valid) for share in SHARES]


@compiled
def _stacked_weights(logs: Float[Array, "m parts"], steps: int) -> Float[Array, " parts"]:
    """EM for the weights alone: w_i <- mean over rows of w_i p_i / sum_j w_j p_j."""

    def climb(_, log_w):
        shares = jax.nn.log_softmax(logs + log_w[None], axis=1)
        return jax.nn.logsumexp(shares, axis=0) - jnp.log(len(logs))

    start = jnp.full(logs.shape[1], -jnp.log(logs.shape[1]))
    return jnp.exp(jax.lax.fori_loop(0, steps, climb, start))


def stacking_weights(candidates: list[Candidate], *, least: float = 0.02, steps: int = 500) -> np.ndarray:
    """The weights that held-out rows like best; 0 for parts that would weigh less than `least`."""
    logs = jnp.asarray(np.stack([candidate.logs for candidate in candidates], 1), float)
    weights = np.asarray(_stacked_weights(logs, steps), np.float64)
    kept = (weights > 0) & (weights >= min(least, weights.max()))
    return np.where(kept, weights, 0.0) / weights[kept].sum()


def blended(parts: Sequence[AbstractNormalised], weights: Sequence[float] | np.ndarray) -> AbstractNormalised:
    """The average of densities by weights that sum to one; a blend of mixtures is a mixture."""
    mixtures = [(p, w) for p, w in zip(parts, weights, strict=True) if isinstance(p, GaussianMixture)]
    others = [(p, w) for p, w in zip(parts, weights, strict=True) if not isinstance(p, GaussianMixture)]
    if mixtures:
        shares = np.array([w for _, w in mixtures])
        others.append((_joined([m for m, _ in mixtures], shares / shares.sum()), shares.sum()))
    if len(others) == 1:
        return others[0][0]
    return Blend(tuple(p for p, _ in others), jnp.asarray(np.log([w for _, w in others]), float))


def stacked(candidates: list[Candidate], *, least: float = 0.02, steps: int = 500) -> Candidate:
    """The blend whose weights held-out rows like best; parts that weigh less than `least` are dropped.

    Mixtures are joined into one, so a blend of mixtures is a mixture.

    >>> import jax, unnorm as un
    >>> rows = jax.random.normal(jax.random.key(0), (400, 1))
    >>> near, far = (judged(un.energies.gaussian([m], [[1.0]]), rows) for m in (0.0, 9.0))
    >>> stacked([near, far]).density is near.density
    True
    """
    weights = stacking_weights(candidates, least=least, steps=steps)
    kept = np.flatnonzero(weights)
    logs = np.stack([candidates[i].logs for i in kept], axis=1) + np.log(weights[kept])
    density = blended([candidates[i].density for i in kept], weights[kept])
    return Candidate(density, np.logaddexp.reduce(logs, axis=1))
