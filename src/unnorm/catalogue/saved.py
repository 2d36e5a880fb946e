"""Fitted densities on disk: a spec, which says of what kind and size each part is, and its arrays.

A spec is plain data. From it a frame is built, a density of zeros with the same structure, and the arrays are put into
their places: nothing is fitted again and nothing is guessed, and loading runs no code.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from unnorm.energies import (
    KDE,
    AbstractEnergy,
    AbstractNormalised,
    Blend,
    GaussianDensity,
    GaussianMixture,
    MarkovNetwork,
    SiteGraph,
    SiteMixture,
    markov_network,
    standard_gaussian,
)
from unnorm.errors import InputError
from unnorm.spaces import AbstractArray, Binary, Categorical
from unnorm.training.checkpoint import load_arrays, restore, save_arrays, to_arrays


def spec_of(density: AbstractEnergy) -> dict[str, Any]:
    """Kind and sizes of a density, part by part.

    >>> spec_of(standard_gaussian(3))
    {'kind': 'gaussian', 'dimension': 3}
    """
    match density:
        case GaussianDensity():
            return {"kind": "gaussian", "dimension": len(density.mean)}
        case GaussianMixture():
            k, d = density.means.shape
            return {"kind": "mixture", "components": k, "dimension": d}
        case KDE():
            n, d = density.centres.shape
            return {
                "kind": "kernel density", "centres": n, "dimension": d, "block": density.blocks.shape[2],
                "shaped": density.shape is not None,
            }  # fmt: skip
        case Blend():
            return {"kind": "blend", "parts": [spec_of(part) for part in density.parts]}
        case SiteMixture():
            return {"kind": "mixture of products", "components": len(density.logits), **_sites(density.space)}
        case MarkovNetwork():
            graph = density.sites
            edges = None if graph is None else {"shape": list(graph.shape), "edges": graph.edges.tolist()}
            return {"kind": "pairwise network", "graph": edges, **_sites(density.space)}
    raise InputError(f"a {type(density).__name__} cannot be saved, only a Gaussian, a mixture, a KDE and a blend")


def _sites(space: AbstractArray) -> dict[str, Any]:
    """Shape and categories of a Binary or Categorical space."""
    return {
        "shape": list(space.shape),
        "categories": space.categories if isinstance(space, Categorical) else None,
    }


def _space_of(spec: Mapping[str, Any]) -> Binary | Categorical:
    shape, k = tuple(spec["shape"]), spec["categories"]
    return Binary(shape) if k is None else Categorical(shape, k)


def frame_of(spec: Mapping[str, Any]) -> AbstractEnergy:
    """A density of this kind and these sizes, for arrays to be put into."""
    kind = spec["kind"]
    if kind == "gaussian":
        return standard_gaussian(spec["dimension"])
    if kind == "mixture":
        k, d = spec["components"], spec["dimension"]
        return GaussianMixture(jnp.zeros(k), jnp.zeros((k, d)), jnp.zeros((k, d, d)))
    if kind == "kernel density":
        n, d = spec["centres"], spec["dimension"]
        return KDE(jnp.zeros((n, d)), 1.0, shape=jnp.eye(d) if spec["shaped"] else None, block=spec["block"])
    if kind == "blend":
        parts = tuple(part for part in map(frame_of, spec["parts"]) if isinstance(part, AbstractNormalised))
        return Blend(parts, jnp.zeros(len(parts)))
    if kind == "mixture of products":
        m, space = spec["components"], _space_of(spec)
        return SiteMixture(space, jnp.zeros(m), jnp.zeros((m, space.size, spec["categories"] or 2)))
    if kind == "pairwise network":
        graph = spec["graph"]
        sites = None if graph is None else SiteGraph(tuple(graph["shape"]), np.asarray(graph["edges"], np.int64))
        return markov_network(_space_of(spec), sites)
    raise InputError(f"no density of the kind {kind!r} is known to this release")


def save_density(path: Path, density: AbstractEnergy, notes: Mapping[str, Any] | None = None) -> None:
    """Write a density, atomically and with a checksum, and notes of one's own."""
    save_arrays(path, to_arrays(density), {"spec": spec_of(density), "notes": dict(notes or {})})


def load_density(path: Path) -> tuple[AbstractEnergy, dict[str, Any]]:
    """The density that was saved, bit for bit, and the notes."""
    arrays, notes = load_arrays(path)
    if "spec" not in notes:
        raise InputError(f"{path} holds no density")
    return restore(frame_of(notes["spec"]), arrays, str(path)), notes["notes"]
