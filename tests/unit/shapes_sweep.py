"""Every name of the library once, on two coordinates and a few rows, with all annotations enforced.

Run as a program: the hook must be there before the library is imported, and other tests are better off without it.
Prints one JSON document: `exercised` names the pieces that ran, `false` says of the others which annotation is not
true, `refusals` what became of calls that are wrong on purpose, `untouched` lists public names of which nothing was
called, and `lapack` what was handed to LAPACK: by which pieces batches, and by which single matrices.
"""

import importlib.util
import inspect
import json
import pkgutil
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import checking
import equinox as eqx
import jax
import jax.numpy as jnp
import jaxtyping
import watching

#: Modules of functions that numba compiles, which it can only do to functions as they were written.
COMPILED = {
    f"unnorm.graphs.{name}"
    for name in (
        "changes", "changes_counts", "changes_directed", "features", "layout", "walking", "walking_constrained",
    )
}  # fmt: skip


def checkable() -> set[str]:
    """All of the library that can be checked: packages, by a name that stands for all that is in them, and modules."""
    (root,) = importlib.util.find_spec("unnorm").submodule_search_locations
    inside = {f"unnorm.{part.name}" for part in pkgutil.iter_modules([root])}
    of_graphs = {f"unnorm.graphs.{part.name}" for part in pkgutil.iter_modules([str(Path(root) / "graphs")])}
    assert of_graphs > COMPILED
    return inside - {"unnorm.graphs"} | of_graphs - COMPILED


jaxtyping.install_import_hook(sorted(checkable()), "checking.checked")

import shape_parts_data as data  # noqa: E402
import shape_parts_energies as energies  # noqa: E402
import shape_parts_evaluation as evaluation  # noqa: E402
import shape_parts_generators as generators  # noqa: E402
import shape_parts_graphs as graphs  # noqa: E402
import shape_parts_networks as networks  # noqa: E402
import shape_parts_noises as corruptions  # noqa: E402
import shape_parts_objectives as objectives  # noqa: E402
import shape_parts_samplers as samplers  # noqa: E402
import shape_parts_scores as scores  # noqa: E402
import shape_parts_sites as sites  # noqa: E402
from shape_parts import DATA, GAUSSIAN, KEY, X, built_model, mixture, traced  # noqa: E402

import unnorm as un  # noqa: E402
from unnorm import noises  # noqa: E402

GROUPS = (
    networks.nets,
    energies.models,
    sites.discrete,
    corruptions.corruptions,
    scores.slopes,
    objectives.losses,
    samplers.walks,
    generators.generators,
    evaluation.training,
    evaluation.judgements,
    evaluation.works,
    data.data,
    graphs.random_graphs,
)


def refusals() -> dict[str, str]:
    """What must not pass, and how it was refused."""

    @jaxtyping.jaxtyped(typechecker=checking.checked)
    class Liar(eqx.Module):
        """Says that it gives a number, and gives two."""

        scale: jaxtyping.Float[jax.Array, ""]

        @jaxtyping.jaxtyped(typechecker=checking.checked)
        def __call__(self, x: jaxtyping.Float[jax.Array, " d"]) -> jaxtyping.Float[jax.Array, ""]:
            return self.scale * x

    wrong: dict[str, Callable[[], Any]] = {
        "a batch where an energy takes a point": lambda: GAUSSIAN(DATA),
        "a batch where a traced mixture takes a point": lambda: traced(mixture(), DATA),
        "a batch where a network takes a point": lambda: built_model("mlp")(DATA),
        "points of another rank where a noise takes rows": lambda: noises.DataJump(DATA).sample(0.0, DATA, key=KEY),
        "levels along an axis where a noise takes one": lambda: noises.Gaussian(1.0).sample(jnp.zeros(2), X, key=KEY),
        "whole numbers where an energy takes real ones": lambda: GAUSSIAN(jnp.zeros(2, int)),
        "two lengths under one name": lambda: noises.KDEJump(DATA, 0.5).log_prob(0.0, jnp.zeros(2), jnp.zeros(3)),
        "a field that is not what it says": lambda: Liar(jnp.zeros(2)),
        "a result that is not what it says": lambda: Liar(jnp.ones(()))(jnp.ones(2)),
    }
    found = {}
    for name, attempt in wrong.items():
        try:
            attempt()
            found[name] = "passed"
        except jaxtyping.TypeCheckError:
            found[name] = "TypeCheckError"
    return found


def untouched() -> list[str]:
    """Public classes and functions of which nothing was called."""
    missing = []
    public = {package: vars(importlib.import_module(f"unnorm.{package}")) for package in un._MODULES}
    for package, names in {**public, "unnorm": {name: getattr(un, name) for name in un._NAMES}}.items():
        for name, value in names.items():
            home, own = getattr(value, "__module__", ""), getattr(value, "__qualname__", "")
            if name.startswith("_") or not str(home).startswith("unnorm.") or not callable(value):
                continue
            # An abstract class is never made; tuples and dictionaries with names are made without the hook's knowing.
            if inspect.isclass(value):
                if name.startswith("Abstract") or issubclass(value, tuple | dict | BaseException):
                    continue
                called = any(m == home and q.startswith(f"{own}.") for m, q in checking.CALLED)
            else:
                called = (home, own) in checking.CALLED
            if not called:
                missing.append(f"{package}.{name}")
    return missing


def lapack() -> dict[str, list[str]]:
    """Calls of LAPACK that were traced, by piece, and those of a program that holds batches on purpose."""
    own = set(watching.CALLS)
    watching.begin("control")
    square = jax.ShapeDtypeStruct((5, 2, 2), float)
    jax.eval_shape(jax.jit(jax.vmap(jnp.linalg.cholesky)), square)
    jax.eval_shape(jax.jit(jax.vmap(lambda a: jax.scipy.linalg.solve_triangular(a, a[0]))), square)
    jax.eval_shape(lambda a: jax.lax.map(lambda a: jnp.linalg.eigh(jnp.stack([a, a])), a), square)
    jax.eval_shape(jax.jit(jnp.linalg.qr), square)

    def told(calls: set[tuple[str, str, int]], batch: bool) -> list[str]:
        return sorted({f"{piece}: {name}" for piece, name, count in calls if (count > 1) == batch})

    return {
        "batched": told(own, True),
        "single": told(own, False),
        "control": told(watching.CALLS - own, True),
    }


def main() -> None:
    watching.watch()
    # Of a list or a tuple one element is checked, drawn at random.
    random.seed(0)
    exercised, false = [], {}
    for group in GROUPS:
        for name, piece in group():
            watching.begin(name)
            try:
                piece()
                exercised.append(name)
            except (jaxtyping.TypeCheckError, jaxtyping.AnnotationError) as error:
                false[name] = str(error)
    found = {
        "exercised": exercised,
        "false": false,
        "refusals": refusals(),
        "untouched": untouched(),
        "lapack": lapack(),
    }
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
