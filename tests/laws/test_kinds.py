"""Rows of every structure go through the whole house: split, fit, killed and resumed, stored, drawn from, reported.

Each toy has a model whose maximum likelihood is a closed form of its training rows: means of pictures by label, a
regression, shares and means of columns of two kinds, shares of ones. Controls know nothing of the condition.
"""

import json
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small_runs import Killed, kill_at_save, same, saved

import unnorm as un
from unnorm.data.kinds import Dataset, count_of
from unnorm.data.points import dataset_of
from unnorm.data.recognise import kind_named
from unnorm.energies import AbstractEnergy, AbstractNormalised
from unnorm.estimate import OutcomeCode
from unnorm.objectives import MLE
from unnorm.report import write_report
from unnorm.runs import Assessment, Named, Run, RunSettings, Training, assess, ready
from unnorm.runs.given import conditioned_at
from unnorm.spaces import AbstractSpace, Binary, Categorical, Conditioned, Mixed, Real, WithCondition

KEY = jax.random.key(0)
RNG = np.random.default_rng(0)


class Labelled(AbstractNormalised):
    """p(x | c) = N(x; mean_c, I): pictures around one of their label."""

    means: jax.Array
    space: AbstractSpace = eqx.field(static=True)

    def __call__(self, row: Any) -> jax.Array:
        apart = row.x - self.means[row.condition]
        return 0.5 * jnp.sum(apart**2) + 0.5 * apart.size * jnp.log(2 * jnp.pi)

    def sample(self, *, key: Any) -> Any:
        raise NotImplementedError


class Regression(AbstractNormalised):
    """p(theta | x) = N(theta; a x + b, 1)."""

    weights: jax.Array
    space: AbstractSpace = eqx.field(static=True)

    def __call__(self, row: Any) -> jax.Array:
        apart = row.x - self.weights[0] * row.condition - self.weights[1]
        return 0.5 * jnp.sum(apart**2) + 0.5 * jnp.log(2 * jnp.pi)

    def sample(self, *, key: Any) -> Any:
        raise NotImplementedError


class Columns(AbstractNormalised):
    """p(k) = softmax(logits)_k, p(x | k) = N(x; mean_k, 1): a number and a category."""

    logits: jax.Array
    means: jax.Array
    space: AbstractSpace = eqx.field(static=True)

    def __call__(self, row: Any) -> jax.Array:
        x, k = row
        return -jax.nn.log_softmax(self.logits)[k] + 0.5 * jnp.sum((x - self.means[k]) ** 2) + 0.5 * jnp.log(2 * jnp.pi)

    def sample(self, *, key: Any) -> Any:
        one, two = jax.random.split(key)
        k = jax.random.categorical(one, self.logits)
        return self.means[k] + jax.random.normal(two, (1,)), k


class Coins(AbstractNormalised):
    """p(x) = prod_i sigmoid(a_i)^x_i (1 - sigmoid(a_i))^(1 - x_i)."""

    logits: jax.Array
    space: AbstractSpace = eqx.field(static=True)

    def __call__(self, row: Any) -> jax.Array:
        return jnp.sum(jax.nn.softplus(self.logits) - row * self.logits)

    def sample(self, *, key: Any) -> Any:
        return jax.random.bernoulli(key, jax.nn.sigmoid(self.logits)).astype(float)


PICTURES = WithCondition(Real((4, 4, 1)), Categorical((), 2))
PAIRS = WithCondition(Real((1,)), Real((1,)))
MIXED = Mixed((Real((1,)), Categorical((), 3)))
BITS = Binary((5,))


def pictures() -> Dataset:
    labels = np.arange(160) % 2
    x = RNG.normal(size=(160, 4, 4, 1)) + np.where(labels == 1, 2.0, -1.0)[:, None, None, None]
    return dataset_of(Conditioned(x.astype(np.float32), labels), PICTURES, condition="label")


def pairs() -> Dataset:
    x = RNG.normal(size=(200, 1))
    theta = 0.7 * x - 0.2 + RNG.normal(size=(200, 1))
    return dataset_of(Conditioned(theta.astype(np.float32), x.astype(np.float32)), PAIRS, condition="x")


def columns() -> Dataset:
    k = RNG.choice(3, size=300, p=[0.5, 0.3, 0.2])
    return dataset_of(((RNG.normal(size=(300, 1)) + 3.0 * k[:, None]).astype(np.float32), k), MIXED)


def bits() -> Dataset:
    return dataset_of((RNG.random((300, 5)) < [0.1, 0.3, 0.5, 0.7, 0.9]).astype(np.float32), BITS, repeats=True)


def best_pictures(rows: Any) -> np.ndarray:
    return np.stack([rows.x[rows.condition == c].mean(0) for c in (0, 1)])


def best_pairs(rows: Any) -> np.ndarray:
    return np.polyfit(rows.condition[:, 0], rows.x[:, 0], 1)


def best_columns(rows: Any) -> np.ndarray:
    x, k = rows
    return np.stack([[np.mean(k == c), x[k == c].mean()] for c in range(3)])


def found_columns(model: Any) -> np.ndarray:
    return np.stack([jax.nn.softmax(model.logits), model.means[:, 0]], axis=1)


#: The data, the model before it has learnt, what is read off it, and what maximum likelihood makes of training rows.
TOYS: dict[str, Any] = {
    "a label beside a picture": (
        pictures(), Labelled(jnp.zeros((2, 4, 4, 1)), PICTURES), lambda m: m.means, best_pictures
    ),
    "parameters and an observation": (pairs(), Regression(jnp.zeros(2), PAIRS), lambda m: m.weights, best_pairs),
    "a number and a category": (
        columns(), Columns(jnp.zeros(3), jnp.zeros((3, 1)), MIXED), found_columns, best_columns
    ),
    "bits": (bits(), Coins(jnp.zeros(5), BITS), lambda m: jax.nn.sigmoid(m.logits), lambda rows: rows.mean(0)),
}  # fmt: skip
STEPS = 600


def learnt(model: AbstractEnergy, prepared: Any, path: Path, *, resume: bool = False) -> Any:
    """Full batches, so that the optimum is that of all training rows."""
    return un.fit(
        model, MLE(), prepared.train, steps=STEPS, batch=count_of(prepared.train), rate=0.1,
        average=0.0, evaluations=4, checkpoint=path, checkpoint_seconds=0.0, resume=resume, key=KEY, progress=False,
    )  # fmt: skip


@pytest.fixture(scope="module", params=TOYS)
def toy(request, tmp_path_factory):
    dataset, model, _, _ = TOYS[request.param]
    prepared, path = ready(dataset, 0), tmp_path_factory.mktemp("toy")
    return request.param, prepared, learnt(model, prepared, path / "checkpoint"), path


def test_the_optimum_is_that_of_the_training_rows(toy):
    name, prepared, fit, _ = toy
    _, before, read, best = TOYS[name]
    truth = best(prepared.train)
    np.testing.assert_allclose(read(fit.model), truth, atol=2e-3)
    # Controls: an untrained model, and the optimum of other rows.
    assert np.abs(read(before) - truth).max() > 0.1
    assert np.abs(best(prepared.test) - truth).max() > 0.02


def test_a_fit_that_was_killed_ends_bit_identical(toy, tmp_path, monkeypatch):
    name, prepared, _, path = toy
    model = TOYS[name][1]
    with monkeypatch.context() as patched:
        kill_at_save(patched, 2)
        with pytest.raises(Killed):
            learnt(model, prepared, tmp_path / "checkpoint")
    whole, halfway = saved(path / "checkpoint")[0], saved(tmp_path / "checkpoint")[0]
    assert not same(whole, halfway)
    assert learnt(model, prepared, tmp_path / "checkpoint", resume=True).outcome.code is OutcomeCode.COMPLETED
    assert same(whole, saved(tmp_path / "checkpoint")[0])


def settings_for(prepared: Any) -> RunSettings:
    return RunSettings(
        model=Named(name="mlp"), objective=Named(name="pcd"), training=Training(), seed=0, source=prepared.source,
        fingerprint=prepared.fingerprint, kind=prepared.kind.name, data=prepared.schema.to_dict(), scales=None,
        conditions=prepared.schema.conditions,
    )  # fmt: skip


def test_a_run_gives_its_rows_back(toy, tmp_path):
    """Any structure as named arrays, and the schema as plain data; the fingerprint sees a condition that changed."""
    _, prepared, _, _ = toy
    run = Run.create(tmp_path / "run", settings_for(prepared), prepared)
    again = Run.open(run.path).prepared
    for part in ("train", "valid", "test"):
        one, other = getattr(prepared, part), getattr(again, part)
        assert jax.tree.structure(one) == jax.tree.structure(other)
        assert all(a.tobytes() == b.tobytes() for a, b in zip(*map(jax.tree.leaves, (one, other)), strict=True))
    assert again.fingerprint == prepared.fingerprint == again.fingerprint
    assert again.space == prepared.space and again.schema.rows_space == prepared.schema.rows_space
    last = jax.tree.leaves(again.train)[-1]
    last[0] = 1 - last[0]
    assert again.fingerprint != prepared.fingerprint


def test_what_was_found_out_comes_back(toy):
    """log Z is known; draws are made where the model or a chain can, and are those of the rows."""
    name, prepared, fit, _ = toy
    found = assess(fit.model, prepared, seed=0, progress=False)
    plain = json.loads(json.dumps(found.to_dict()))
    again = Assessment.restored(list(found), plain, found.arrays(), prepared.space)
    assert json.dumps(again.to_dict()) == json.dumps(found.to_dict()) and list(again) == list(found)
    if prepared.schema.condition is not None:
        assert list(found) == []
        return
    assert {"log_z", "likelihood"} <= found.keys() and found.log_z.value == 0.0
    draws = jax.tree.leaves(again.sampled if name == "a number and a category" else again.sampled.flat)
    rows = jax.tree.leaves(prepared.train)
    for drawn, given in zip(draws, rows, strict=True):
        error = np.sqrt(given.var(0) * (1 / len(given) + 10 / len(drawn)))
        assert np.all(np.abs(drawn.mean(0) - given.mean(0)) < 4.5 * error)
        assert np.any(np.abs(drawn.mean(0) - given.mean(0) - given.std(0)) > 4.5 * error)


def test_a_report_has_a_section_for_what_is_there(toy, tmp_path):
    _, prepared, fit, _ = toy
    found = assess(fit.model, prepared, seed=0, progress=False)
    page = write_report(
        tmp_path, None, prepared, history=fit.history, outcome=fit.outcome, events=fit.events, model=fit.model,
        assessment=found, seconds=fit.seconds,
    ).read_text()  # fmt: skip
    assert "What was fitted" in page and "Training" in page and "Do it again" not in page
    assert ("Draws and whether" in page) == ("Log-likelihood of held-out rows" in page) == ("likelihood" in found)
    assert ("Given" in page) == (prepared.schema.condition is not None)


def test_given_a_label_draws_are_pictures_of_it():
    dataset, model, _, best = TOYS["a label beside a picture"]
    prepared = ready(dataset, 0)
    right = eqx.tree_at(lambda m: m.means, model, jnp.asarray(best(prepared.train)))
    for label in (0, 1):
        given = conditioned_at(right, prepared.schema.given({"label": label}))
        assert given.space == Real((4, 4, 1))
        trace = un.sample(given, un.samplers.HMC(), chains=16, steps=300, key=KEY, progress=False)
        truth = right.means[label]
        error = np.sqrt(16 / np.maximum(trace.diagnostics.ess_bulk, 1).reshape(truth.shape)) / 4 + 1e-6
        assert np.all(np.abs(trace.flat.mean(0) - truth) < 4.5 * error)
        assert np.all(np.abs(trace.flat.mean(0) - right.means[1 - label]) > 4.5 * error)


def test_copies_with_the_same_condition_stay_together_and_others_do_not():
    x, c = np.repeat(RNG.normal(size=(60, 1)), 2, axis=0).astype(np.float32), np.arange(120) % 2
    apart = dataset_of(Conditioned(x, c), WithCondition(Real((1,)), Categorical((), 2)))
    assert len(np.unique(apart.together)) == 120
    same_label = dataset_of(Conditioned(x, c // 2 % 2), WithCondition(Real((1,)), Categorical((), 2)))
    assert len(np.unique(same_label.together)) == 60
    prepared = ready(same_label, 3)
    assert not set(prepared.train.x[:, 0].tolist()) & set(prepared.test.x[:, 0].tolist())
    # Negative control: points alone, without their labels, would be copies.
    torn = ready(apart, 3)
    assert set(torn.train.x[:, 0].tolist()) & set(torn.test.x[:, 0].tolist())


def test_kinds_are_known_by_name():
    assert kind_named("points").schema_from(pictures().schema.to_dict()).rows_space == PICTURES
