"""Draws that go to disk as they come: memory does not grow with their number, and a run that was killed goes on.

A folder holds two files. `draws.npy` has its full size from the beginning and is filled from the front; numpy reads it,
memory-mapped if asked. `state.safetensors` says how much of it is filled, by which arguments, with which checksums, and
where the chains stood: it is written beside its place and renamed over the old one after every chunk, so that a kill at
any moment leaves a whole one. Draws beyond what the state knows of are drawn again, from the same keys.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from unnorm.errors import InputError, require
from unnorm.files import alone, is_key, numbers_of, packed, unpacked, write_atomically
from unnorm.fingerprint import require_same

FORMAT = "unnorm draws 2"
DRAWS, STATE, LOCK = "draws.npy", "state.safetensors", ".lock"

T = TypeVar("T")


class Stream:
    """The folder of one run; `done` draws of every chain are safe."""

    def __init__(self, folder: Path | str, arguments: Mapping[str, Any], steps: int, parts: int):
        """Begin in a new or empty folder, or go on in one with the same arguments; anything else is refused.

        A run that goes on has its chains in the `parts` it began with, however many cores there are now.
        """
        self.folder, self.steps, self.parts = Path(folder), steps, parts
        self.done: int = 0
        self.chunks: list[list[Any]] = []
        self._arguments = json.loads(json.dumps(dict(arguments)))
        self._arrays: dict[str, np.ndarray] | None = None
        self._counts: dict[str, Any] = {}
        state = self.folder / STATE
        if state.exists():
            self._read(state)
            return
        require(not self.folder.is_file(), f"{self.folder} is a file; name a new folder for the draws")
        blocked = next((str(above) for above in self.folder.parents if above.is_file()), None)
        require(blocked is None, f"{self.folder} cannot be made: {blocked} is a file; name a new folder for the draws")
        strange = sorted(os.listdir(self.folder)) if self.folder.is_dir() else []
        # What a kill may have left of a state that was never whole.
        strange = [n for n in strange if n != LOCK and not (n.startswith(f".{STATE}") and n.endswith(".part"))]
        require(
            not strange,
            f"the folder {self.folder} holds {strange[0] if strange else ''} and no draws of unnorm; "
            "name a new or an empty folder",
        )
        self.folder.mkdir(parents=True, exist_ok=True)
        self._write({}, {})

    def alone(self) -> AbstractContextManager[None]:
        """Within it no other process may add draws."""
        return alone(self.folder / LOCK, self.folder)

    @property
    def prepared(self) -> bool:
        """Whether chains that have been warmed up are saved."""
        return self._arrays is not None

    @property
    def _damaged(self) -> str:
        return f"the draws in {self.folder} are damaged (truncated or edited); delete the folder and draw again"

    def _read(self, path: Path) -> None:
        content = path.read_bytes()
        try:
            arrays, notes, labels = unpacked(content)
        except ValueError as error:
            raise InputError(self._damaged) from error
        require(labels.get("format") == FORMAT, f"{path} was not written by this release; name a new folder")
        advice = "give the arguments they were made with, or name a new folder"
        require_same(self._arguments, notes["arguments"], f"the folder {self.folder} holds draws", advice)
        self.done, self.chunks, self._counts = notes["done"], notes["chunks"], notes["counts"]
        self.parts = notes["parts"]
        self._arrays = arrays if notes["prepared"] else None
        if self.done:
            self._check_draws()

    def _check_draws(self) -> None:
        draws = self._mapped()
        require(len(draws) == self.steps, self._damaged)
        for first, count, known in self.chunks:
            found = hashlib.sha256(draws[first : first + count].tobytes()).hexdigest()
            require(found == known, self._damaged)

    def _mapped(self) -> np.ndarray:
        try:
            return np.load(self.folder / DRAWS, mmap_mode="r", allow_pickle=False)
        except (OSError, ValueError) as error:
            raise InputError(self._damaged) from error

    def _write(self, arrays: dict[str, np.ndarray], counts: dict[str, Any]) -> None:
        notes = {
            "arguments": self._arguments,
            "parts": self.parts,
            "prepared": bool(arrays),
            "done": self.done,
            "chunks": self.chunks,
            "counts": counts,
        }
        write_atomically(self.folder / STATE, packed(arrays, notes, {"format": FORMAT}))

    def save(self, tree: Any, counts: Mapping[str, Any], draws: np.ndarray | None = None) -> None:
        """Add draws (steps x chains x point) to the file, and then say so, with the state of the chains after them."""
        if draws is not None:
            path, draws = self.folder / DRAWS, np.ascontiguousarray(draws)
            if self.done == 0:
                shape = (self.steps, *draws.shape[1:])
                np.lib.format.open_memmap(path, mode="w+", dtype=draws.dtype, shape=shape)
            file = np.lib.format.open_memmap(path, mode="r+")
            file[self.done : self.done + len(draws)] = draws
            file.flush()
            self.chunks.append([self.done, len(draws), hashlib.sha256(draws.tobytes()).hexdigest()])
            self.done += len(draws)
        leaves = jax.tree.leaves(eqx.filter(tree, eqx.is_array))
        self._arrays = {f"{i:04d}": numbers_of(leaf) for i, leaf in enumerate(leaves)}
        self._counts = dict(counts)
        self._write(self._arrays, self._counts)

    def restore(self, template: T) -> tuple[T, dict[str, Any]]:
        """The tree and the counts that `save` was given last; the template has shapes where the tree has arrays."""
        assert self._arrays is not None
        saved = iter(self._arrays[name] for name in sorted(self._arrays))

        def place(leaf: Any) -> Any:
            if not isinstance(leaf, jax.ShapeDtypeStruct):
                return leaf
            array = jnp.asarray(next(saved))
            return jax.random.wrap_key_data(array) if is_key(leaf) else array

        return jax.tree.map(place, template), self._counts

    def draws(self) -> np.ndarray:
        """All draws, chains x steps x point, read from the file as they are needed."""
        return np.moveaxis(self._mapped(), 0, 1)
