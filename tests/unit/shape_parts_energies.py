"""Energies of real numbers, each once; those of the catalogue on every space that they work on."""

from collections.abc import Iterator
from typing import Any

import jax.numpy as jnp
import numpy as np
from shape_parts import (
    CONTEXTS,
    DATA,
    FREE,
    GAUSSIAN,
    KEY,
    LABELLED_CONTEXT,
    PICTURES_CONTEXT,
    ROWS,
    SPACE,
    Piece,
    X,
    built_model,
    dkef,
    held,
    mixture,
    mlp,
    nice,
    traced,
    walk_energy,
)
from shape_parts_scores import walk_score
from shape_parts_sites import walk_sites

from unnorm import catalogue, energies, networks
from unnorm.energies.committee import judged
from unnorm.scores import AbstractScore, Given
from unnorm.spaces import Real


def made_again(chosen: Any) -> None:
    """A reference by its recipe, from plain data and from where it was."""
    recipe = energies.Recipe.from_dict(chosen.recipe.to_dict())
    walk_energy(recipe.fit(ROWS[:30], key=KEY))
    walk_energy(recipe.refit(chosen.density, ROWS[:29]))


def of_catalogue(entry: catalogue.Entry[Any]) -> None:
    """The model of this entry on every space that it works on."""
    conditional = (PICTURES_CONTEXT, LABELLED_CONTEXT) if entry.conditional else ()
    for context in (*CONTEXTS, *conditional):
        if not entry.works(context.space):
            continue
        model = built_model(entry.name, context)
        if isinstance(model, AbstractScore):
            x = jnp.zeros(context.space.struct().shape)
            walk_score(model if context.condition is None else Given(model, 1), x)
        elif context.space == SPACE:
            walk_energy(model)
        else:
            walk_sites(model)


def models() -> Iterator[Piece]:
    for entry in catalogue.MODELS:
        yield f"models/{entry.name}", lambda entry=entry: of_catalogue(entry)
    yield "models/DKEF", lambda: walk_energy(dkef())
    yield "models/NICE", lambda: (walk_energy(nice()), walk_energy(energies.NICE(Real((2, 2)), width=4, key=KEY)))
    yield "models/LatentPrior", lambda: walk_energy(energies.latent_prior(2, width=4, key=KEY))
    yield "models/Shifted", lambda: walk_energy(energies.Shifted(FREE, 1.0))

    def fitted() -> None:
        walk_energy(energies.gaussian([0.0, 0.0], [[1.0, 0.5], [0.5, 1.0]]))
        walk_energy(energies.fit_gaussian(ROWS))
        traced(GAUSSIAN.fixing({np.int64(0): 1.0}), X[:1])
        traced(lambda: (GAUSSIAN.covariance, mixture().assign(X), mixture().weights, mixture().means))
        GAUSSIAN.entropy()
        mixture().entropy(20, key=KEY)
        walk_energy(energies.KDE(DATA, 0.5))
        walk_energy(energies.KDE(DATA, 0.5, shape=jnp.eye(2), block=7))
        walk_energy(energies.LatentPosterior(networks.GaussianDecoder(mlp(2, 2)), X, GAUSSIAN))
        walk_energy(energies.Blend((GAUSSIAN, mixture()), jnp.zeros(2)))
        walk_energy(energies.fit_mixture(DATA, 2, steps=2, key=KEY))
        walk_energy(energies.committee(DATA, 2, members=2, key=KEY))
        walk_energy(energies.NeuralEnergy(SPACE, mlp(), scale=2, confinement=1))
        walk_energy(energies.MLPEnergy(SPACE, width=4, depth=1, key=KEY))
        walk_energy(energies.ResNetEnergy(SPACE, width=4, blocks=1, key=KEY))

    def dequantisers() -> None:
        uneven = energies.dequantiser(2, 0.5, couplings=2, width=4, depth=1, key=KEY)
        for dequantiser in (energies.UniformDequantiser(0.5), uneven):
            traced(lambda q, x, key: q(x, key=key), held(dequantiser), X, KEY)

    yield "models/fitted", fitted
    yield "models/dequantisers", dequantisers
    yield (
        "models/chosen",
        lambda: (
            energies.best_mixture(ROWS[:30], ROWS[30:], sizes=(1, 2), key=KEY),
            energies.best_committee(DATA[:30], DATA[30:], key=KEY),
            walk_energy(energies.best_reference(ROWS[:30], ROWS[30:], key=KEY)),
            energies.stacked([judged(GAUSSIAN, DATA), judged(mixture(), DATA)]),
            made_again(energies.choose_reference(ROWS[:30], ROWS[30:], key=KEY)),
        ),
    )
