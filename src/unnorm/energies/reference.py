"""The density that a tilted model starts from: what it is made of is chosen once, and can be made again of other rows.

Committees of mixtures and kernel densities are fitted to the training rows and blended as the validation rows like
best. What was chosen is a `Recipe`: rows that were fitted are judged by a density made by the same recipe without them.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray

from unnorm.energies.base import AbstractNormalised
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
from unnorm.energies.mixture import GaussianMixture
from unnorm.errors import require
from unnorm.progress import progress as progress_bar

#: From this many dimensions on round components are tried.
MANY = 5


class OneGaussian(NamedTuple):
    """The Gaussian with the rows' mean and covariance."""

    ridge: float = 1e-6

    def fit(self, train: Float[Array, "n d"], *, key: PRNGKeyArray | None = None) -> GaussianDensity:
        """The Gaussian of these rows."""
        return fit_gaussian(train, self.ridge)


Ingredient = OneGaussian | Committee | Kernels
_KINDS: Mapping[str, type[Ingredient]] = {"gaussian": OneGaussian, "committee": Committee, "kernels": Kernels}


class Recipe(NamedTuple):
    """What a reference is made of, and with which weights."""

    ingredients: tuple[Ingredient, ...]
    weights: tuple[float, ...]

    def fit(self, train: Float[ArrayLike, "n d"], *, key: PRNGKeyArray) -> AbstractNormalised:
        """A reference by this recipe, of these rows."""
        rows = jnp.asarray(train)
        return blended([one.fit(rows, key=key) for one in self.ingredients], self.weights)

    def refit(self, density: AbstractNormalised, train: Float[ArrayLike, "n d"]) -> AbstractNormalised:
        """The reference that was made by this recipe, fitted on to other rows.

        Mixtures go on from where they are: begun afresh they would end at other maxima of the likelihood, half a nat
        apart on some tables, which would be taken for what the rows that are left out are worth. Kernels are set anew.
        """
        rows, first, fits = jnp.asarray(train), 0, []
        mixture = _mixture_in(density)
        for one in self.ingredients:
            if isinstance(one, Committee):
                assert mixture is not None
                fits.append(one.refit(components(mixture, first, first + one.components), rows))
                first += one.components
            else:
                fits.append(one.fit(rows))
        return blended(fits, self.weights)

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


def _mixture_in(density: AbstractNormalised) -> GaussianMixture | None:
    """The mixture that a reference is, or that is part of it."""
    parts = density.parts if isinstance(density, Blend) else (density,)
    return next((part for part in parts if isinstance(part, GaussianMixture)), None)


class Chosen(NamedTuple):
    """A reference and how it was made."""

    density: AbstractNormalised
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


def best_reference(
    train: Float[ArrayLike, "n d"], valid: Float[ArrayLike, "m d"], *, key: PRNGKeyArray
) -> AbstractNormalised:
    """The density to start from: that of `choose_reference`.

    >>> import jax
    >>> train, valid = jax.random.normal(jax.random.key(0), (2, 60, 3))
    >>> type(best_reference(train, valid, key=jax.random.key(1))).__name__
    'GaussianDensity'
    """
    return choose_reference(train, valid, key=key).density
