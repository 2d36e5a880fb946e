"""Checkpoints: every array of a run in one file that is whole or not there.

A checkpoint is a safetensors file (no pickle, so loading runs no code), written beside its place, flushed to disk and
renamed over the old one: a kill at any moment leaves the old file or the new one. Its header carries a version and a
SHA-256 of every name, type, shape and byte, so that a truncated or edited file is refused rather than used.
"""

import contextlib
import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load as parse
from safetensors.numpy import save as serialise

from unnorm.errors import InputError, require

FORMAT = "unnorm checkpoint"
VERSION = 1

T = TypeVar("T")


def write_atomically(path: Path, content: bytes) -> None:
    """Replace the file's content as a whole; on any failure (a full disk, say) the old content stays."""
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with open(temporary, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _is_key(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def to_arrays(tree: Any) -> dict[str, np.ndarray]:
    """Every array of a tree under the name of its path; random keys as their data."""
    leaves = jax.tree_util.tree_leaves_with_path(eqx.filter(tree, eqx.is_array))
    return {
        jax.tree_util.keystr(path): np.asarray(jax.random.key_data(leaf) if _is_key(leaf) else leaf, order="C")
        for path, leaf in leaves
    }


def _digest(arrays: Mapping[str, np.ndarray], notes: str) -> str:
    digest = hashlib.sha256(notes.encode())
    for name in sorted(arrays):
        array = arrays[name]
        digest.update(f"{name}|{array.dtype.str}|{array.shape}|".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def save_arrays(path: Path, arrays: Mapping[str, np.ndarray], notes: Mapping[str, Any]) -> None:
    """Write named arrays and a JSON note, atomically and with a checksum."""
    text = json.dumps(notes, sort_keys=True)
    header = {"format": FORMAT, "version": str(VERSION), "notes": text, "sha256": _digest(arrays, text)}
    write_atomically(path, serialise(dict(arrays), metadata=header))


def _header(content: bytes) -> dict[str, str]:
    length = int.from_bytes(content[:8], "little")
    return json.loads(content[8 : 8 + length]).get("__metadata__", {})


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
        arrays = parse(content)
        header = _header(content)
    except (SafetensorError, ValueError) as error:
        raise InputError(damaged) from error
    require(header.get("format") == FORMAT, f"{path} is not a checkpoint of unnorm")
    require(
        header.get("version") == str(VERSION),
        f"{path} has checkpoint version {header.get('version')}, and this release reads version {VERSION}; "
        "use the release that wrote it",
    )
    require(header.get("sha256") == _digest(arrays, header.get("notes", "")), damaged)
    return arrays, json.loads(header["notes"])


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
        data = jax.random.key_data(leaf) if _is_key(leaf) else leaf
        require(
            array.shape == data.shape and array.dtype == data.dtype,
            f"{where} holds {name} as {array.dtype}{list(array.shape)} where the model has "
            f"{data.dtype}{list(data.shape)}; give the settings it was made with",
        )
        return jax.random.wrap_key_data(jnp.asarray(array)) if _is_key(leaf) else jnp.asarray(array)

    placed = [place(name, leaf) for name, (_, leaf) in zip(names, leaves, strict=True)]
    return eqx.combine(jax.tree_util.tree_unflatten(structure, placed), static)
