"""Rows that are more than one array, rows on disk, and rows that are changed each time they are met."""

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from harness import breaks, holds
from small_runs import Killed, kill_at_save, same, saved

import unnorm as un
from unnorm.data import AbstractTransform, Blocks, Dequantise, DropLabel, Flip, InTurn, ParquetRows, Shift
from unnorm.errors import InputError
from unnorm.objectives import AbstractObjective
from unnorm.spaces import AbstractOnRows, Categorical, Conditioned, Mixed, Real, WithCondition

KEY = jax.random.key(0)
CLASSES = 3


class ClassMeans(AbstractOnRows):
    """N(means[label], I): the smallest model with a condition."""

    means: jax.Array

    def rows_space(self) -> WithCondition:
        return WithCondition(Real((2,)), Categorical((), CLASSES))


class Squares(AbstractObjective):
    """The mean of |x - means[label]|^2, whose minimum is known: the means of the classes."""

    comparable: ClassVar[bool] = True
    #: The wrong variant: each point with the condition of its neighbour in the batch.
    crossed: bool = False

    def init(self, model: Any, data: Any, *, key: Any) -> None:
        return None

    def __call__(self, model, state, batch, *, key):
        labels = jnp.roll(batch.condition, 1) if self.crossed else batch.condition
        return jnp.mean((batch.x - model.means[labels]) ** 2), (None, {})


def conditioned(n: int = 600):
    labels = np.arange(n) % CLASSES
    points = np.random.default_rng(1).normal(size=(n, 2)) + 3.0 * labels[:, None]
    return points.astype(np.float32), labels


def class_means(objective, data, **options):
    done = un.fit(
        ClassMeans(jnp.zeros((CLASSES, 2))), objective, data, steps=300, batch=100, rate=0.1, average=0.9,
        key=jax.random.key(2), progress=False, **options,
    )  # fmt: skip
    return np.asarray(done.model.means)


@pytest.fixture(scope="module")
def rows():
    return conditioned()


def test_a_condition_stays_with_its_point(rows):
    truth = np.stack([rows[0][rows[1] == k].mean(0) for k in range(CLASSES)])
    assert np.abs(class_means(Squares(), rows) - truth).max() < 0.05
    assert np.abs(class_means(Squares(crossed=True), rows) - truth).max() > 1


def test_a_condition_that_is_missing_is_refused(rows):
    with pytest.raises(InputError, match="points and a condition beside each"):
        class_means(Squares(), rows[0])


class Pair(AbstractOnRows):
    """One mean for each of two columns of different kinds."""

    number: jax.Array
    share: jax.Array

    def rows_space(self) -> Mixed:
        return Mixed((Real((2,)), Categorical((), 2)))


class PairSquares(AbstractObjective):
    """Squares of both columns, whose minimum are the two means."""

    comparable: ClassVar[bool] = True

    def init(self, model: Any, data: Any, *, key: Any) -> None:
        return None

    def __call__(self, model, state, batch, *, key):
        number, coin = batch
        return jnp.mean((number - model.number) ** 2) + jnp.mean((coin - model.share) ** 2), (None, {})


def test_a_row_may_be_a_tuple_of_columns():
    chance = np.random.default_rng(3)
    numbers, coins = chance.normal(2.0, 1, (400, 2)).astype(np.float32), (chance.random(400) < 0.3).astype(int)
    done = un.fit(
        Pair(jnp.zeros(2), jnp.zeros(())), PairSquares(), (numbers, coins), valid=(numbers, coins),
        steps=300, batch=400, rate=0.05, average=0.0, key=KEY, progress=False,
    )  # fmt: skip
    np.testing.assert_allclose(done.model.number, numbers.mean(0), atol=0.01)
    np.testing.assert_allclose(done.model.share, coins.mean(), atol=0.01)
    with pytest.raises(InputError, match="are a tuple of 2 parts"):
        un.fit(
            Pair(jnp.zeros(2), jnp.zeros(())), PairSquares(), (numbers, coins), valid=numbers, key=KEY, progress=False
        )


# ------------------------------------------------------------------------------------------------ blocks on disk


def test_a_pass_meets_every_row_once_and_what_is_left_over_in_other_passes():
    even, odd = Blocks(np.arange(12), block_rows=4), Blocks(np.arange(11), block_rows=4)
    met = [np.concatenate([even.block(3 * turn + i, 7) for i in range(3)]) for turn in range(3)]
    assert all(sorted(turn) == list(range(12)) for turn in met)
    assert any(not np.array_equal(met[0], turn) for turn in met[1:])
    passes = [np.concatenate([odd.block(2 * turn + i, 7) for i in range(2)]) for turn in range(40)]
    assert all(len(set(turn)) == 8 for turn in passes) and set(np.concatenate(passes)) == set(range(11))


def test_one_block_of_everything_is_the_same_run_as_in_memory(rows):
    whole = class_means(Squares(), rows)
    assert np.array_equal(class_means(Squares(), Blocks(rows, block_rows=600)), whole)
    # Another order of the rows, and the same answer but for that.
    pieces = class_means(Squares(), Blocks(rows, block_rows=200))
    assert not np.array_equal(pieces, whole) and np.abs(pieces - whole).max() < 0.1


class Watched:
    """An array that remembers how much of it was asked for at once."""

    def __init__(self, array: np.ndarray):
        self.array, self.shape, self.dtype, self.most = array, array.shape, array.dtype, 0

    def __getitem__(self, rows: slice) -> np.ndarray:
        found = self.array[rows]
        self.most = max(self.most, len(found))
        return found


def test_rows_on_disk_are_never_all_in_memory_and_resume_to_the_same_bits(tmp_path, monkeypatch):
    np.save(tmp_path / "rows.npy", np.random.default_rng(4).normal(size=(500, 2)).astype(np.float32))
    mapped = Watched(np.load(tmp_path / "rows.npy", mmap_mode="r"))

    def run(name, **options):
        return un.fit(
            un.energies.standard_gaussian(2), un.objectives.DSM(un.noises.Gaussian(0.5)), Blocks(mapped, 96),
            steps=60, batch=32, evaluations=6, checkpoint=tmp_path / name, checkpoint_seconds=0, key=KEY,
            progress=False, **options,
        )  # fmt: skip

    run("undisturbed")
    with monkeypatch.context() as patched:
        kill_at_save(patched, 3, after=True)
        with pytest.raises(Killed):
            run("killed")
    run("killed", resume=True)
    assert same(saved(tmp_path / "killed")[0], saved(tmp_path / "undisturbed")[0])
    assert mapped.most == 96
    mapped.array = mapped.array + 1
    with pytest.raises(InputError, match="another data"):
        run("killed", resume=True)


def test_what_cannot_be_sliced_makes_no_blocks():
    with pytest.raises(InputError, match="a set cannot be sliced"):
        Blocks({1, 2})
    with pytest.raises(InputError, match="have 2 and 3 rows"):
        Blocks((np.zeros(2), np.zeros(3)))


def test_slices_of_a_parquet_file_are_its_rows(tmp_path):
    parquet, table = pytest.importorskip("pyarrow.parquet"), pytest.importorskip("pyarrow")
    columns = {name: np.random.default_rng(i).normal(size=50) for i, name in enumerate("abc")}
    parquet.write_table(table.table(columns), tmp_path / "rows.parquet", row_group_size=7)
    there = ParquetRows(tmp_path / "rows.parquet", ("c", "a"), dtype=np.float64)
    truth = np.stack([columns["c"], columns["a"]], axis=1)
    assert there.shape == (50, 2)
    for begin, end in [(0, 50), (0, 7), (6, 8), (13, 29), (49, 50), (7, 7)]:
        assert np.array_equal(there[begin:end], truth[begin:end])
    with pytest.raises(InputError, match="has no column 'd'; its columns are a, b, c"):
        ParquetRows(tmp_path / "rows.parquet", ("d",))


# ------------------------------------------------------------------------------------------ changed at every meeting


def many(transform, row, n=4000):
    return jax.vmap(lambda k: transform(row, key=k))(jax.random.split(KEY, n))


def test_a_fair_coin_flips_and_a_share_of_the_labels_is_dropped():
    picture = jnp.arange(4.0).reshape(2, 2)
    flipped = many(Flip(axis=1), picture)
    turned = jnp.all(flipped == picture[:, ::-1], axis=(1, 2))
    assert bool(jnp.all(turned | jnp.all(flipped == picture, axis=(1, 2)))) and holds(turned, 0.5)
    assert bool(jnp.any(many(Flip(axis=0), picture) != flipped))
    dropped = many(DropLabel(CLASSES, share=0.2), Conditioned(picture, jnp.asarray(1)))
    assert set(np.asarray(dropped.condition)) == {1, CLASSES} and holds(dropped.condition == CLASSES, 0.2)
    assert breaks(many(DropLabel(CLASSES, share=0.3), Conditioned(picture, jnp.asarray(1))).condition == CLASSES, 0.2)
    assert bool(jnp.all(dropped.x == picture))


def test_dequantised_values_are_uniform_on_their_step():
    values = many(Dequantise(0.25), jnp.zeros(()))
    assert holds(values, 0.0) and holds(values**2, 0.25**2 / 12)
    assert breaks(many(Dequantise(0.3), jnp.zeros(())) ** 2, 0.25**2 / 12)
    assert bool(jnp.all((values >= -0.125) & (values < 0.125)))


def test_a_shift_moves_by_at_most_its_places_and_repeats_the_edge():
    picture = jnp.arange(9.0).reshape(3, 3)
    found = {tuple(np.asarray(one).reshape(-1)) for one in many(Shift(1), picture, 400)}
    padded = np.pad(np.asarray(picture), 1, mode="edge")
    assert found == {tuple(padded[i : i + 3, j : j + 3].reshape(-1)) for i in range(3) for j in range(3)}


class Raised(AbstractTransform):
    """The point, higher by a uniform number below `most`."""

    most: float = eqx.field(static=True)

    def __call__(self, row, *, key):
        return row + self.most * jax.random.uniform(key, row.shape)


def test_training_meets_a_row_changed_anew_each_time():
    """A single row, raised at random: the Gaussian fitted to it has the mean of the uniform law."""
    rows = jnp.zeros((32, 1))

    def fitted(transform):
        done = un.fit(
            un.energies.standard_gaussian(1), un.objectives.DSM(un.noises.Gaussian(1.0)), rows, transform=transform,
            steps=1500, batch=32, rate=0.05, key=KEY, progress=False,
        )  # fmt: skip
        return float(done.model.mean[0])

    assert abs(fitted(Raised(4.0)) - 2.0) < 0.15
    assert abs(fitted(None)) < 0.15
    assert abs(fitted(InTurn((Raised(2.0), Raised(4.0)))) - 3.0) < 0.2


def test_a_transform_is_part_of_what_a_run_was_asked(tmp_path):
    def run(transform, **options):
        return un.fit(
            un.energies.standard_gaussian(1), un.objectives.DSM(un.noises.Gaussian(1.0)), jnp.zeros((8, 1)), steps=2,
            transform=transform, checkpoint=tmp_path / "run", key=KEY, progress=False, **options,
        )  # fmt: skip

    run(Dequantise(4.0))
    with pytest.raises(InputError, match="another transform"):
        run(Dequantise(2.0), resume=True)


def test_labels_are_dropped_only_where_there_are_some():
    with pytest.raises(InputError, match="leaves out the label beside a point"):
        DropLabel(CLASSES)(jnp.zeros(2), key=KEY)
    with pytest.raises(InputError, match="has no axis 1"):
        Flip()(jnp.zeros(2), key=KEY)
    assert eqx.tree_equal(Shift(1), Shift(1))
