"""The command that restores a black-and-white picture."""

import io
from pathlib import Path

import jax
import numpy as np
from jaxtyping import Float

from unnorm.cli.output import emit_json, note, require_new, warn
from unnorm.data.picture_files import read_picture
from unnorm.data.pictures import png_of
from unnorm.energies import Ising, lattice
from unnorm.errors import require
from unnorm.files import write_atomically
from unnorm.tasks import Restored, anneal, flipped_posterior, graph_cut, icm, marginal_modes
from unnorm.tasks.restoration import energy_of

METHODS = ("cut", "icm", "anneal", "modes")
FORMATS = (".png", ".npy")


def restore_command(
    path: Path,
    out: Path | None,
    flips: float,
    coupling: float,
    method: str,
    threshold: float | None,
    force: bool,
    seed: int,
    as_json: bool,
    quiet: bool,
) -> None:
    """Restore the picture, write it with the two shades that came in, and say what was assumed and what changed."""
    require(method in METHODS, f"--method is cut, icm or anneal, or modes, not {method!r}")
    require(0 < flips < 0.5, f"--flips is a share between 0 and 1/2, not {flips:g}")
    require(0 <= coupling < float("inf"), f"--coupling must be finite and not negative, not {coupling:g}")
    require(threshold is None or 0 < threshold < 1, f"--threshold is a brightness between 0 and 1, not {threshold}")
    place = path.with_name(f"{path.stem}-restored{'.npy' if path.suffix == '.npy' else '.png'}") if out is None else out
    require(place.suffix in FORMATS, f"{place} should end in one of {', '.join(FORMATS)}")
    found = read_picture(path)
    require_new(place, force=force)
    noisy, shades = black_and_white(found.values[0], threshold, repr(str(path)))
    for remark in found.remarks:
        note(remark, quiet=quiet)
    height, width = noisy.shape
    note(
        f"{width} x {height} pixels; assumed: {100 * flips:g}% of the pixels flipped, coupling {coupling:g} (--flips, "
        "--coupling)",
        quiet=quiet,
    )
    restored = _restored(flipped_posterior(Ising(lattice(noisy.shape), 0.0, coupling), noisy, flips), method, seed)
    ones = restored.picture > 0
    changed = float(np.mean(ones != (noisy > 0)))
    warnings = _doubts(changed, flips)
    warn(warnings)
    write_atomically(place, _bytes(shades[ones.astype(int)], place.suffix))
    content = {
        "out": str(place), "method": method, "flips": flips, "coupling": coupling, "changed": changed,
        "energy": restored.energy, "above": restored.above, "warnings": warnings,
    }  # fmt: skip
    if as_json:
        emit_json(content)
        return
    sure = f"no picture has a lower energy (but for {restored.above:.1g})" if method == "cut" else f"by {method}"
    print(f"{changed:.1%} of the pixels changed; energy {restored.energy:.2f}, {sure}\nPicture: {place}")


def black_and_white(
    picture: np.ndarray, threshold: float | None, shown: str
) -> tuple[Float[np.ndarray, "h w"], np.ndarray]:
    """The picture as zeros (the darker shade) and ones, and the two shades (2 x channels)."""
    height, width, channels = picture.shape
    if threshold is not None:
        most = np.iinfo(picture.dtype).max if picture.dtype.kind in "iu" else 1
        bright = picture.mean(axis=2, dtype=np.float64) > threshold * most
        return bright.astype(np.float64), np.array([[0], [most]], picture.dtype)
    shades, numbers = np.unique(picture.reshape(-1, channels), axis=0, return_inverse=True)
    require(len(shades) > 1, f"all of {shown} is of one shade, so that nothing tells its pixels apart")
    require(
        len(shades) == 2,
        f"{shown} has {len(shades):,} shades, not two; say from which brightness on it is white by --threshold 0.5",
    )
    order = np.argsort(shades.sum(axis=1, dtype=np.float64), kind="stable")
    return order.argsort()[numbers.ravel()].reshape(height, width).astype(np.float64), shades[order]


def _restored(posterior: Ising, method: str, seed: int) -> Restored:
    key = jax.random.key(seed)
    if method == "modes":
        modes = marginal_modes(posterior, key=key).picture
        return Restored(modes, energy_of(posterior, modes), float("inf"), 0)
    if method == "anneal":
        return anneal(posterior, key=key)
    return icm(posterior) if method == "icm" else graph_cut(posterior)


def _doubts(changed: float, flips: float) -> list[str]:
    """What is wrong with the assumed share of flips, if the picture says so."""
    if flips / 2 <= changed <= 2 * flips:
        return []
    advice = "a lower --coupling, if fine lines are gone, or " if changed > flips else ""
    return [f"{changed:.1%} of the pixels changed, and --flips says {flips:.1%}; try {advice}another --flips"]


def _bytes(picture: np.ndarray, ending: str) -> bytes:
    """The file's content: a .png of 8 bits, or an .npy array with the numbers that came in."""
    if ending == ".npy":
        buffer = io.BytesIO()
        np.save(buffer, picture[..., 0] if picture.shape[-1] == 1 else picture)
        return buffer.getvalue()
    if picture.dtype != np.uint8:
        # Numbers that are no levels of 8 bits are two shades all the same.
        picture = np.where(picture == picture.max(), 255, 0).astype(np.uint8)
    return png_of(picture)
