"""Checkpoints: every array of a run in one file that is whole or not there.

A kill at any moment leaves the old file or the new one (`files.write_atomically`), and a truncated or edited file is
refused rather than used.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from unnorm.errors import InputError, require
from unnorm.files import is_key, labels_of, numbers_of, packed, unpacked, write_atomically
from unnorm.fingerprint import fingerprint
from unnorm.parts import trainable

FORMAT = "unnorm checkpoint"
VERSION = 3

T = TypeVar("T")


def to_arrays(tree: Any) -> dict[str, np.ndarray]:
    """Every array of a tree under the name of its path; random keys as their data."""
    leaves = jax.tree_util.tree_leaves_with_path(eqx.filter(tree, eqx.is_array))
    return {jax.tree_util.keystr(path): numbers_of(leaf) for path, leaf in leaves}


def save_arrays(path: Path, arrays: Mapping[str, np.ndarray], notes: Mapping[str, Any]) -> None:
    """Write named arrays and a JSON note, atomically and with a checksum."""
    write_atomically(path, packed(arrays, notes, {"format": FORMAT, "version": str(VERSION)}))


def load_arrays(path: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Read what `save_arrays` wrote, refusing anything that is not exactly that."""
    path = Path(path)
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise InputError(f"there is no checkpoint at {path}; fit a model first") from None
    except OSError as error:
        raise InputError(f"the checkpoint {path} cannot be read: {error.strerror}") from error
    damaged = f"the checkpoint {path} is damaged (truncated or edited); restore it from a copy or fit again"
    try:
        labels = labels_of(content)
    except ValueError as error:
        raise InputError(damaged) from error
    require(labels.get("format") == FORMAT, f"{path} is not a checkpoint of unnorm")
    require(
        labels.get("version") == str(VERSION),
        f"{path} has checkpoint version {labels.get('version')}, and this release reads version {VERSION}; "
        "use the release that wrote it",
    )
    try:
        arrays, notes, _ = unpacked(content)
    except ValueError as error:
        raise InputError(damaged) from error
    return arrays, notes


def restore(template: T, arrays: Mapping[str, np.ndarray], where: str) -> T:
    """The template with its arrays replaced by the named ones, which must fit it exactly."""
    dynamic, static = eqx.partition(template, eqx.is_array)
    leaves, structure = jax.tree_util.tree_flatten_with_path(dynamic)
    names = [jax.tree_util.keystr(path) for path, _ in leaves]
    strange = sorted(set(names) ^ set(arrays))
    require(
        not strange,
        f"{where} belongs to another model or objective (it differs in {strange[0] if strange else ''}); "
        "give the settings it was made with",
    )

    def place(name: str, leaf: jax.Array) -> jax.Array:
        array = arrays[name]
        data = jax.random.key_data(leaf) if is_key(leaf) else leaf
        require(
            array.shape == data.shape and array.dtype == data.dtype,
            f"{where} holds {name} as {array.dtype}{list(array.shape)} where the model has "
            f"{data.dtype}{list(data.shape)}; give the settings it was made with",
        )
        return jax.random.wrap_key_data(jnp.asarray(array)) if is_key(leaf) else jnp.asarray(array)

    placed = [place(name, leaf) for name, (_, leaf) in zip(names, leaves, strict=True)]
    return eqx.combine(jax.tree_util.tree_unflatten(structure, placed), static)


def fixed_identity(model: Any) -> str:
    """What tells the arrays of a model that are not learnt from others; a checkpoint does not hold them."""
    return fingerprint(to_arrays(eqx.partition(model, trainable(model))[1]))


def best_model(model: T, path: str | Path) -> T:
    """The model of a checkpoint: the one given, as it was before training, with the best weights of the run.

    A checkpoint holds what is learnt (`training.trainable`) and no more. The given model brings the rest: its structure
    and its fixed parts, and those of another run are refused. Its own weights count for nothing but their shapes.

    >>> import tempfile, unnorm as un
    >>> rows, start = jax.random.normal(jax.random.key(0), (100, 2)), un.energies.standard_gaussian(2)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "run"
    ...     done = un.fit(start, un.objectives.SSM(), rows, steps=2, checkpoint=path, key=jax.random.key(1))
    ...     bool(jnp.all(best_model(start, path).mean == done.model.mean))
    True
    """
    path = Path(path)
    arrays, notes = load_arrays(path)
    require("fixed" in notes, f"{path} holds no run of training")
    weights, skeleton = eqx.partition(model, trainable(model))
    # A run keeps the loss of its best weights beside them.
    best = {name.removeprefix("state.best"): a for name, a in arrays.items() if name.startswith("state.best")}
    best.pop("_loss")
    found = restore(weights, best, str(path))
    require(
        fixed_identity(model) == notes["fixed"],
        f"{path} belongs to a {type(model).__name__} with other fixed parts (such as a reference); "
        "give the model that the run began with",
    )
    return eqx.combine(found, skeleton)
