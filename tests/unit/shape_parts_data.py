"""Data, spaces and runs, each function once."""

import gzip
import tempfile
from collections.abc import Iterator
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from shape_parts import KEY, ROWS, SPACE, Piece, traced

import unnorm as un
from unnorm import runs
from unnorm.data import PROBLEMS
from unnorm.data.named_pictures import NAMED
from unnorm.runs.stages import Stages, learn
from unnorm.spaces import Binary, Categorical, Graph, Mixed, Real


def write_pictures(path: Path) -> None:
    """A few pictures with labels where a set of pictures is looked for, as an idx file or an array."""
    values = np.random.default_rng(0).integers(0, 256, (40, 4, 4)).astype(np.uint8)
    if path.suffix == ".npz":
        np.savez(path, x=values)
        return
    labels = np.arange(40, dtype=np.uint8) % 2
    for name, array in ((path.name, values), (path.name.replace("images-idx3", "labels-idx1"), labels)):
        header = bytes([0, 0, 8, array.ndim]) + b"".join(size.to_bytes(4, "big") for size in array.shape)
        with gzip.open(path.with_name(name), "wb") as file:
            file.write(header + array.tobytes())


def data() -> Iterator[Piece]:
    def load(name: str) -> None:
        problem = un.data.load(name, n_train=4, n_valid=4, n_test=4)
        assert problem.truth is not None
        x = jnp.asarray(problem.train[0])
        traced(problem.truth, x)

    for name in PROBLEMS:
        yield f"data/{name}", lambda name=name: load(name)

    def pictures(name: str) -> None:
        with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
            patch.setenv("UNNORM_DATA", folder)
            if file := NAMED[name].file:
                (Path(folder) / file).parent.mkdir(parents=True)
                write_pictures(Path(folder) / file)
            assert isinstance(runs.prepare(name, 0).schema.space, Real)

    for name in NAMED:
        yield f"data/{name}", lambda name=name: pictures(name)

    def tables() -> None:
        un.data.split(ROWS, seed=0, groups=np.arange(len(ROWS)))
        standardiser = un.data.Standardiser.fit(ROWS)
        standardiser.to_raw(standardiser.to_unit(ROWS))
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "rows.csv"
            np.savetxt(path, ROWS, delimiter=",", header="a,b", comments="")
            un.data.read_table(path)

    def fitted() -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "rows.csv"
            np.savetxt(path, ROWS, delimiter=",", header="a,b", comments="")
            prepared = runs.prepare(str(path), 0)
            model = runs.Named(name="tilted", options={"reference": "gaussian", "width": 4, "depth": 1})
            settings = runs.settings_of(prepared, model, runs.Named(name="tilt"), runs.Training(steps=2, batch=4), 0)
            run = runs.Run.create(Path(folder) / "run", settings, prepared)
            learn(run, Stages(2, show=False), resume=False, checkpoint_seconds=1e9, begun=False)
            found = un.load(run.path)
            new = {"a": [0.5, 2.0], "b": [1.0, -1.0]}
            assert found.log_prob(new).shape == found.outliers(new, progress=False).shape == (2,)
            assert found.sample(3, progress=False).shape == (3, 2)
            assert str(found) and found._repr_html_()

    def sources() -> None:
        un.data.Blocks(ROWS, block_rows=8).block(1, seed=0)
        assert un.data.InMemory(ROWS).rows == len(ROWS)
        with tempfile.TemporaryDirectory() as folder:
            frame = pyarrow.table({"a": ROWS[:, 0], "b": ROWS[:, 1]})
            pyarrow.parquet.write_table(frame, Path(folder) / "rows.parquet")
            assert un.data.ParquetRows(Path(folder) / "rows.parquet")[2:5].shape == (3, 2)
        picture = jnp.zeros((4, 4, 1))
        changes = (un.data.Flip(), un.data.Turn(), un.data.Shift(1), un.data.Dequantise(0.1), un.data.DropLabel(3))
        row = un.spaces.Conditioned(picture, jnp.asarray(1))
        traced(lambda key: un.data.InTurn(changes)(row, key=key), KEY)

    yield "data/tables", tables
    yield "data/sources", sources
    yield "data/fitted", fitted

    def spaces() -> None:
        space = Mixed((Binary((2,)), Categorical((2,), 3), Graph(3), Graph(3, directed=True), SPACE))
        points = space.start(5, KEY)
        traced(lambda key: space.start(5, key), KEY)
        both = un.spaces.WithCondition(SPACE, Categorical((), 3))
        assert un.spaces.AnyNumbers().cast(both.cast(both.start(5, KEY), "starting"), "starting").x.shape == (5, 2)
        assert space.cast(points, "starting")[1].shape == (5, 2) and space.accepts(space.struct()) and space.size == 15

    yield "data/spaces", spaces
