"""The density that a tilted model starts from: what it is made of is chosen once, and can be made again of other rows.

Committees of mixtures and kernel densities are fitted to the training rows and blended as the validation rows like
best; on zeros and ones and on categories a mixture of products is, of as many components as they like best. What was
chosen is a `Recipe`: rows that were fitted are judged by a density made by the same recipe without them.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray

from unnorm.energies.base import AbstractEnergy, AbstractNormalised
from unnorm.energies.committee import (
    SHARES,
    Blend,
    Candidate,
    Committee,
    Kernels,
    blended,
    committees,
    components,
    judged,
    stacking_weights,
)
from unnorm.energies.em import FULL, SPHERICAL, Covariance, fit_gaussian
from unnorm.energies.gaussian import GaussianDensity
from unnorm.energies.markov import (
    MarkovNetwork,
    Penalty,
    fit_markov_network,
    markov_network,
    refit_markov_network,
    sparse,
)
from unnorm.energies.mixture import GaussianMixture
from unnorm.energies.site_mixture import SiteMixture, best_site_mixture, fit_site_mixture, refit_site_mixture
from unnorm.errors import require
from unnorm.progress import progress as progress_bar
from unnorm.spaces import AbstractSpace, Binary, Categorical

#: From this many dimensions on round components are tried.
MANY = 5


class OneGaussian(NamedTuple):
    """The Gaussian with the rows' mean and covariance."""

    ridge: float = 1e-6

    def fit(self, train: Float[Array, "n d"], *, key: PRNGKeyArray | None = None) -> GaussianDensity:
        """The Gaussian of these rows."""
        return fit_gaussian(train, self.ridge)


class Products(NamedTuple):
    """A mixture of products on zeros and ones (no number of categories), or on so many categories."""

    components: int
    categories: int | None = None

    def space(self, rows: Array) -> Binary | Categorical:
        """The space of these rows."""
        shape = tuple(int(n) for n in rows.shape[1:])
        return Binary(shape) if self.categories is None else Categorical(shape, self.categories)

    def fit(self, train: Array, *, key: PRNGKeyArray | None = None) -> SiteMixture:
        """The mixture of these rows, from starts of its own."""
        key = jax.random.key(0) if key is None else key
        return fit_site_mixture(self.space(train), train, self.components, key=key)

    def refit(self, density: AbstractEnergy, train: Array) -> SiteMixture:
        """The mixture fitted on to other rows, from where it is."""
        assert isinstance(density, SiteMixture)
        return refit_site_mixture(density, train)


class Pairs(NamedTuple):
    """A pairwise Markov network with a penalty of this strength: no density, but an energy that learning begins at."""

    penalty: Penalty
    strength: float
    categories: int | None = None

    def fit(self, train: Array, *, key: PRNGKeyArray | None = None) -> MarkovNetwork:
        """The network of these rows."""
        space = Products(1, self.categories).space(train)
        return sparse(refit_markov_network(markov_network(space), train, self.strength, penalty=self.penalty))

    def refit(self, network: AbstractEnergy, train: Array) -> MarkovNetwork:
        """The network fitted on to other rows, on the graph that was found."""
        assert isinstance(network, MarkovNetwork)
        return refit_markov_network(network, train, self.strength, penalty=self.penalty)


Ingredient = OneGaussian | Committee | Kernels | Products | Pairs
_KINDS: Mapping[str, type[Ingredient]] = {
    "gaussian": OneGaussian, "committee": Committee, "kernels": Kernels, "products": Products, "pairs": Pairs,
}  # fmt: skip


class Recipe(NamedTuple):
    """What a reference is made of, and with which weights."""

    ingredients: tuple[Ingredient, ...]
    weights: tuple[float, ...]

    def fit(self, train: ArrayLike, *, key: PRNGKeyArray) -> AbstractEnergy:
        """A reference by this recipe, of these rows."""
        return self._made([one.fit(jnp.asarray(train), key=key) for one in self.ingredients])

    def _made(self, fits: list[Any]) -> AbstractEnergy:
        """The blend of what was fitted; a network stands alone."""
        return fits[0] if isinstance(fits[0], MarkovNetwork) else blended(fits, self.weights)

    def refit(self, density: AbstractEnergy, train: ArrayLike) -> AbstractEnergy:
        """The reference that was made by this recipe, fitted on to other rows.

        Mixtures go on from where they are: begun afresh they would end at other maxima of the likelihood, half a nat
        apart on some tables, which would be taken for what the rows that are left out are worth. Kernels are set anew.
        """
        rows, first, fits = jnp.asarray(train), 0, list[Any]()
        mixture = _mixture_in(density)
        for one in self.ingredients:
            if isinstance(one, Committee):
                assert mixture is not None
                fits.append(one.refit(components(mixture, first, first + one.components), rows))
                first += one.components
            elif isinstance(one, Products | Pairs):
                fits.append(one.refit(density, rows))
            else:
                fits.append(one.fit(rows))
        return self._made(fits)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        names = {kind: name for name, kind in _KINDS.items()}
        parts = []
        for one, weight in zip(self.ingredients, self.weights, strict=True):
            fields = one._asdict()
            if isinstance(one, Committee):
                fields["covariance"] = [float(share) for share in one.covariance]
            parts.append({"kind": names[type(one)], "weight": weight, **fields})
        return {"parts": parts}

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> "Recipe":
        """The inverse of `to_dict`."""
        ingredients, weights = [], []
        for part in data["parts"]:
            fields = {name: value for name, value in part.items() if name not in ("kind", "weight")}
            if "covariance" in fields:
                fields["covariance"] = Covariance(*fields["covariance"])
            ingredients.append(_KINDS[part["kind"]](**fields))
            weights.append(part["weight"])
        return Recipe(tuple(ingredients), tuple(weights))


def _mixture_in(density: AbstractEnergy) -> GaussianMixture | None:
    """The mixture that a reference is, or that is part of it."""
    parts = density.parts if isinstance(density, Blend) else (density,)
    return next((part for part in parts if isinstance(part, GaussianMixture)), None)


class Chosen(NamedTuple):
    """A reference and how it was made; of a Markov network no density, but the network that learning begins at."""

    density: AbstractEnergy
    recipe: Recipe


def choose_reference(
    train: Float[ArrayLike, "n d"], valid: Float[ArrayLike, "m d"], *, key: PRNGKeyArray, progress: bool = False
) -> Chosen:
    """Committees of mixtures and kernel densities, blended as held-out rows like best, and the recipe of the blend.

    One Gaussian, if they do not prefer the blend by two standard errors.

    >>> import jax
    >>> train, valid = jax.random.normal(jax.random.key(0), (2, 60, 3))
    >>> choose_reference(train, valid, key=jax.random.key(1)).recipe.ingredients
    (OneGaussian(ridge=1e-06),)
    """
    train, valid = jnp.asarray(train), jnp.asarray(valid)
    require(len(train) >= 2 and len(valid) >= 1, "a reference needs rows to be fitted to and rows to be judged on")
    simple = judged(fit_gaussian(train), valid)
    tried: list[tuple[Ingredient, Candidate]] = [(OneGaussian(), simple)]
    with progress_bar("reference", 32, show=progress) as advance:
        tried += committees(train, valid, FULL, key=key, advance=advance)
        if train.shape[1] >= MANY:
            # Round components have few numbers to learn, which pays where each has few rows for a covariance.
            tried += committees(train, valid, SPHERICAL, sizes=(4, 16, 64), ridges=(1e-4,), key=key, advance=advance)
        for share in SHARES:
            made = Kernels(share)
            tried.append((made, judged(made.fit(train), valid)))
            advance(1, "kernel densities")
    weights = stacking_weights([candidate for _, candidate in tried])
    kept = np.flatnonzero(weights)
    logs = np.stack([tried[i][1].logs for i in kept], axis=1) + np.log(weights[kept])
    gain = np.logaddexp.reduce(logs, axis=1) - simple.logs
    error = gain.std(ddof=1) / np.sqrt(len(gain)) if len(gain) > 1 else np.inf
    if not gain.mean() > 2 * error:
        return Chosen(simple.density, Recipe((OneGaussian(),), (1.0,)))
    shares = [float(w) for w in weights[kept]]
    density = blended([tried[i][1].density for i in kept], shares)
    return Chosen(density, Recipe(tuple(tried[i][0] for i in kept), tuple(shares)))


def choose_products(
    space: AbstractSpace, train: ArrayLike, valid: ArrayLike, *, key: PRNGKeyArray, progress: bool = False
) -> Chosen:
    """A mixture of products of the number of components that held-out rows like best, and its recipe.

    >>> rows = jnp.concatenate([jnp.zeros((50, 4)), jnp.ones((50, 4))])
    >>> choose_products(Binary((4,)), rows[::2], rows[1::2], key=jax.random.key(0)).recipe.ingredients
    (Products(components=2, categories=None),)
    """
    with progress_bar("reference", 1, show=progress) as advance:
        found = best_site_mixture(space, jnp.asarray(train), jnp.asarray(valid), key=key)
        advance(1, f"a mixture of {len(found.logits)} products")
    categories = space.categories if isinstance(space, Categorical) else None
    return Chosen(found, Recipe((Products(len(found.logits), categories),), (1.0,)))


def choose_pairs(space: AbstractSpace, train: ArrayLike, valid: ArrayLike, *, penalty: Penalty = "l1") -> Chosen:
    """A Markov network with the penalty that held-out rows like best, on the graph of the pairs that it ties.

    >>> rows = jnp.array([[0.0, 0.0], [1.0, 1.0]] * 40)
    >>> choose_pairs(Binary((2,)), rows, rows).density.sites.edges.tolist()
    [[0, 1]]
    """
    fit = fit_markov_network(space, jnp.asarray(train), jnp.asarray(valid), penalty=penalty)
    categories = space.categories if isinstance(space, Categorical) else None
    return Chosen(sparse(fit.model), Recipe((Pairs(penalty, fit.strength, categories),), (1.0,)))


def best_reference(
    train: Float[ArrayLike, "n d"], valid: Float[ArrayLike, "m d"], *, key: PRNGKeyArray
) -> AbstractNormalised:
    """The density to start from: that of `choose_reference`.

    >>> import jax
    >>> train, valid = jax.random.normal(jax.random.key(0), (2, 60, 3))
    >>> type(best_reference(train, valid, key=jax.random.key(1))).__name__
    'GaussianDensity'
    """
    density = choose_reference(train, valid, key=key).density
    assert isinstance(density, AbstractNormalised)
    return density
