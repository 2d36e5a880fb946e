"""Everything a training run is at one moment, and the step that moves it on."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax.extend.core import jaxpr_as_fun
from jaxtyping import Array, Float, Int, PRNGKeyArray

from unnorm.compiling import compiled
from unnorm.data.sources import row_count
from unnorm.data.transforms import AbstractTransform
from unnorm.devices import split_over_devices
from unnorm.errors import require
from unnorm.objectives import AbstractObjective
from unnorm.objectives.base import Info
from unnorm.parts import trainable
from unnorm.training.optimisers import Schedule, stepped

#: Held-out rows looked at per evaluation, in batches: enough to tell better from worse, few enough to do often.
HELD_OUT_BATCHES = 10
#: What is recorded of every run, beside what its objective says.
RECORDED = ("step", "loss", "held_out", "rate_factor")


class TrainState(eqx.Module):
    """All that persists from one step to the next; a checkpoint is exactly this.

    Weights, average and best hold what is learnt (`trainable`); the rest of the model is the recipe's.
    """

    weights: Any
    optimiser: Any
    average: Any
    best: Any
    best_loss: Float[Array, ""]
    objective: Any
    order: Int[Array, " n"]
    step: Int[Array, ""]
    key: PRNGKeyArray
    rate_factor: Float[Array, ""]
    retries: Int[Array, ""]
    stale: Int[Array, ""]


class Recipe(eqx.Module):
    """What does not change during a run. Without rate and schedule, the optimiser has its own."""

    skeleton: Any
    objective: AbstractObjective
    optimiser: optax.GradientTransformation = eqx.field(static=True)
    schedule: Schedule | None = eqx.field(static=True)
    batch: int = eqx.field(static=True)
    rate: Float[Array, ""] | None
    steps: Int[Array, ""]
    averaging: Float[Array, ""]
    transform: AbstractTransform | None = None


def split(model: Any) -> tuple[Any, Any]:
    """What is learnt of a model, and the rest of it; `equinox.combine` puts them together."""
    return eqx.partition(model, trainable(model))


def start(model: Any, recipe: Recipe, data: Any, key: PRNGKeyArray) -> TrainState:
    """The state before the first step."""
    weights, _ = split(model)
    objective_key, key = jax.random.split(key)
    state = TrainState(
        weights=weights,
        optimiser=recipe.optimiser.init(weights),
        average=weights,
        best=weights,
        best_loss=jnp.asarray(jnp.inf),
        objective=recipe.objective.init(model, data, key=objective_key),
        order=jnp.arange(row_count(data), dtype=jnp.int32),
        step=jnp.asarray(0, jnp.int32),
        key=key,
        rate_factor=jnp.asarray(1.0),
        retries=jnp.asarray(0, jnp.int32),
        stale=jnp.asarray(0, jnp.int32),
    )
    return jax.tree.map(_typed, state)


def _typed(leaf: Any) -> Any:
    """An array whose type is settled.

    A Python number leaves JAX's "weak" type behind; the first step would settle it, and the second chunk, with other
    types than the first, would be compiled anew.
    """
    plain = eqx.is_array(leaf) and not jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    return leaf.astype(leaf.dtype) if plain else leaf


def next_batch(state: TrainState, data: Any, batch: int) -> tuple[Int[Array, " n"], Any]:
    """The data order, reshuffled at the start of each pass, and the batch that this step takes from it."""
    place = state.step % (row_count(data) // batch)
    shuffle_key = jax.random.fold_in(jax.random.fold_in(state.key, 1), state.step)
    order = jax.lax.cond(
        place == 0, lambda order: jax.random.permutation(shuffle_key, order), lambda order: order, state.order
    )
    rows = jax.lax.dynamic_slice_in_dim(order, place * batch, batch)
    return order, split_over_devices(jax.tree.map(lambda leaf: leaf[rows], data))


def transformed(recipe: Recipe, batch: Any, key: PRNGKeyArray) -> Any:
    """The rows of a batch as they are learnt from, each changed by a random number of its own."""
    if recipe.transform is None:
        return batch
    # A number that no other use of the key counts up to.
    keys = jax.random.split(jax.random.fold_in(key, 2**31 - 1), row_count(batch))
    return jax.vmap(lambda row, k: recipe.transform(row, key=k))(batch, keys)  # pyright: ignore[reportOptionalCall]


def moved_by(recipe: Recipe, state: TrainState, updates: Any) -> Any:
    """The weights after an update, smaller by as much as a run that was rolled back goes slower."""
    if recipe.rate is None or recipe.schedule is None:
        slower = jax.tree.map(lambda u: (state.rate_factor * u).astype(u.dtype), updates)
        return optax.apply_updates(state.weights, slower)
    # By the share of steps done, not their number, so that a prolonged run falls to the end of all its steps.
    rate = recipe.rate * state.rate_factor * recipe.schedule(state.step / recipe.steps)
    return jax.tree.map(lambda w, d: w - (rate * d).astype(w.dtype), state.weights, updates)


def update(recipe: Recipe, state: TrainState, data: Any) -> tuple[TrainState, Float[Array, ""], Info]:
    """One step of stochastic gradient descent; returns the loss before it, and what the objective says beside it."""
    order, batch = next_batch(state, data, recipe.batch)
    # The retry count is part of the key: a step that blew up is not tried again with the same noise.
    key = jax.random.fold_in(jax.random.fold_in(state.key, state.step), 2 + state.retries)
    batch = transformed(recipe, batch, key)

    def loss_of(weights):
        return recipe.objective(eqx.combine(weights, recipe.skeleton), state.objective, batch, key=key)

    (loss, (objective, info)), gradient = eqx.filter_value_and_grad(loss_of, has_aux=True)(state.weights)
    updates, optimiser = stepped(
        recipe.optimiser, gradient, state.optimiser, state.weights, loss, lambda weights: loss_of(weights)[0]
    )
    weights = moved_by(recipe, state, updates)
    # Early on the average follows closely, or it would remember the random start for 1/(1-decay) steps.
    decay = jnp.minimum(recipe.averaging, (1.0 + state.step) / (10.0 + state.step))
    # Written as a step towards the weights: what does not move (a fixed reference) then has an average equal to it.
    average = jax.tree.map(lambda a, w: (a + (1 - decay) * (w - a)).astype(w.dtype), state.average, weights)
    moved = TrainState(
        weights, optimiser, average, state.best, state.best_loss, objective, order, state.step + 1, state.key,
        state.rate_factor, state.retries, state.stale,
    )  # fmt: skip
    return moved, loss, checked_info(recipe.objective, info)


def checked_info(objective: AbstractObjective, info: Info) -> Info:
    """What an objective says beside its loss: single numbers under names that the history has not."""
    for name, value in info.items():
        who = f"{type(objective).__name__} reports {name!r}"
        require(name not in RECORDED, f"{who}, which the history of every run has already; give it another name")
        require(jnp.shape(value) == (), f"{who} of shape {jnp.shape(value)}; what a history holds is single numbers")
    return {name: jnp.asarray(value, float) for name, value in info.items()}


class Steps(NamedTuple):
    """What came of some steps."""

    state: TrainState
    #: The mean over the steps.
    loss: Float[Array, ""]
    #: The means of what the objective says, each over the steps at which it was finite.
    info: Info
    #: The first step whose loss was not finite, or -1.
    bad: Int[Array, ""]


def many_steps(recipe: Recipe, state: TrainState, data: Any, count: Int[Array, ""]) -> Steps:
    """`count` steps in one compiled loop. `count` is an array, so chunks of any length share one program."""
    dynamic, static = eqx.partition(state, eqx.is_array)

    def step(dynamic):
        moved, loss, info = update(recipe, eqx.combine(dynamic, static), data)
        return eqx.filter(moved, eqx.is_array), loss, info

    # Traced once and for all: only then are the names known of what the objective says, whose sums begin at zero.
    traced, (_, _, says) = jax.make_jaxpr(step, return_shape=True)(dynamic)
    structure = jax.tree.structure((dynamic, 0.0, says))

    def body(_, carry):
        before, total, sums, finite, bad = carry
        dynamic, loss, info = jax.tree.unflatten(structure, jaxpr_as_fun(traced)(*jax.tree.leaves(before)))
        bad = jnp.where((bad < 0) & ~jnp.isfinite(loss), eqx.combine(before, static).step, bad)
        sums = {name: sums[name] + jnp.where(jnp.isfinite(value), value, 0) for name, value in info.items()}
        finite = {name: finite[name] + jnp.isfinite(value) for name, value in info.items()}
        return dynamic, total + loss, sums, finite, bad

    sums = {name: jnp.zeros((), value.dtype) for name, value in says.items()}
    finite = {name: jnp.zeros((), jnp.int32) for name in says}
    first = (dynamic, jnp.zeros(()), sums, finite, jnp.asarray(-1, jnp.int32))
    dynamic, total, sums, finite, bad = jax.lax.fori_loop(0, count, body, first)
    info = {name: value / finite[name] for name, value in sums.items()}
    return Steps(eqx.combine(dynamic, static), total / count, info, bad)


@compiled
def run_steps(recipe: Recipe, state: TrainState, data: Any, count: Int[Array, ""]) -> Steps:
    """`many_steps` as a program of its own."""
    return many_steps(recipe, state, data, count)


class Judge(eqx.Module):
    """The loss by which weights are compared on held-out rows, and what it remembers.

    Its noise is the same every time, so that evaluations compare.
    """

    objective: AbstractObjective
    memory: Any
    key: PRNGKeyArray


@compiled
def held_out_loss(recipe: Recipe, judge: Judge, weights: Any, data: Any) -> Float[Array, ""]:
    """The judge's mean over the first batches of held-out data."""
    model = eqx.combine(weights, recipe.skeleton)
    n = row_count(data)
    batch = min(recipe.batch, n)
    count = min(n // batch, HELD_OUT_BATCHES)
    batches = jax.tree.map(lambda leaf: leaf[: count * batch].reshape(-1, batch, *leaf.shape[1:]), data)
    keys = jax.random.split(judge.key, count)

    def one(_, inputs):
        rows, key = inputs
        rows = transformed(recipe, split_over_devices(rows), key)
        return None, judge.objective(model, judge.memory, rows, key=key)[0]

    return jnp.mean(jax.lax.scan(one, None, (batches, keys))[1])


@compiled
def all_finite(tree: Any) -> Array:
    """Whether every floating-point array of a tree is finite."""
    leaves = jax.tree.leaves(eqx.filter(tree, eqx.is_inexact_array))
    return jnp.all(jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in leaves]))
