"""Draws that are made in lots, each kept in a folder as it is done, so that a command that was killed goes on."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from unnorm.training.checkpoint import load_arrays, save_arrays


@dataclass(frozen=True)
class Lots:
    """The lots of draws that lie in a folder; without one nothing is kept.

    `own` says how they were made: lots that were made otherwise are made again.
    """

    folder: Path | None
    own: Mapping[str, Any]

    def _file(self, lot: int) -> Path | None:
        return None if self.folder is None else self.folder / f"lot-{lot + 1}.safetensors"

    def found(self, lot: int, size: int) -> tuple[np.ndarray, dict[str, Any]] | None:
        """The draws of a lot and its notes, if it is there, is of this size and was made like this."""
        file = self._file(lot)
        if file is None or not file.exists():
            return None
        arrays, notes = load_arrays(file)
        same = all(notes.get(name) == value for name, value in self.own.items()) and len(arrays["draws"]) == size
        return (arrays["draws"], notes) if same else None

    def keep(self, lot: int, draws: np.ndarray, notes: Mapping[str, Any]) -> None:
        """Save a lot, whole or not at all."""
        file = self._file(lot)
        if file is not None:
            file.parent.mkdir(parents=True, exist_ok=True)
            save_arrays(file, {"draws": draws}, {**notes, **self.own})
