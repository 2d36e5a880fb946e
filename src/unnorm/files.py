"""Files that are whole or not there: written beside their place, flushed, renamed; arrays with a checksum.

Arrays are stored as safetensors (no pickle, so loading runs no code). The header carries a SHA-256 of every name, type,
shape and byte, so that a truncated or edited file is known for what it is.
"""

import contextlib
import fcntl
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from unnorm.errors import InputError


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


@contextlib.contextmanager
def alone(lock: Path, what: Path) -> Iterator[None]:
    """Nobody else writes `what` within the block: another process that tries is refused.

    The system frees the lock when its holder ends, however that happens; the file itself says nothing.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, alone(Path(folder) / ".lock", Path(folder)):
    ...     os.listdir(folder)
    ['.lock']
    """
    with contextlib.ExitStack() as stack:
        while True:
            file = stack.enter_context(open(lock, "wb"))
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise InputError(f"another process is writing {what}; wait for it, or name another place") from None
            # A holder that ended between the two lines above took the file away: the lock would be on nothing.
            with contextlib.suppress(FileNotFoundError):
                if os.stat(lock).st_ino == os.fstat(file.fileno()).st_ino:
                    break
        try:
            yield
        finally:
            # A folder that was deleted meanwhile took the lock with it.
            lock.unlink(missing_ok=True)


def is_key(leaf: Any) -> bool:
    """Whether this is an array of random keys, or stands for one."""
    return isinstance(leaf, jax.Array | jax.ShapeDtypeStruct) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def numbers_of(leaf: Any) -> np.ndarray:
    """An array as numbers; random keys as their data."""
    return np.asarray(jax.random.key_data(leaf) if is_key(leaf) else leaf, order="C")


def _checksum(arrays: Mapping[str, np.ndarray], notes: str) -> str:
    digest = hashlib.sha256(notes.encode())
    for name in sorted(arrays):
        array = arrays[name]
        digest.update(f"{name}|{array.dtype.str}|{array.shape}|".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def packed(arrays: Mapping[str, np.ndarray], notes: Mapping[str, Any], labels: Mapping[str, str]) -> bytes:
    """Named arrays, a JSON note and labels (what kind of file it is) as the content of a file.

    >>> arrays, notes, labels = unpacked(packed({"x": np.ones(2)}, {"step": 3}, {"format": "an example"}))
    >>> arrays["x"].tolist(), notes, labels["format"]
    ([1.0, 1.0], {'step': 3}, 'an example')
    """
    text = json.dumps(notes, sort_keys=True)
    return save(dict(arrays), metadata={**labels, "notes": text, "sha256": _checksum(arrays, text)})


def labels_of(content: bytes) -> dict[str, str]:
    """The labels of a packed file; ValueError if it is none."""
    length = int.from_bytes(content[:8], "little")
    return json.loads(content[8 : 8 + length]).get("__metadata__", {})


def unpacked(content: bytes) -> tuple[dict[str, np.ndarray], dict[str, Any], dict[str, str]]:
    """What `packed` was given; ValueError if the content is not exactly that."""
    try:
        arrays = load(content)
    except SafetensorError as error:
        raise ValueError(str(error)) from error
    labels = labels_of(content)
    notes = labels.get("notes", "")
    if labels.get("sha256") != _checksum(arrays, notes):
        raise ValueError("the checksum does not match")
    return arrays, json.loads(notes), labels
