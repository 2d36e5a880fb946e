"""The one training loop: compiled chunks, validation, a guard against divergence, checkpoints that resume exactly."""

import math
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import NamedSharding, PartitionSpec
from jaxtyping import Array, PRNGKeyArray

from unnorm.data.sources import InMemory
from unnorm.data.transforms import AbstractTransform
from unnorm.devices import device_mesh, require_divisible
from unnorm.errors import require
from unnorm.estimate import Outcome, OutcomeCode
from unnorm.files import alone
from unnorm.fingerprint import fingerprint, require_same
from unnorm.objectives import AbstractObjective
from unnorm.objectives.base import remarks_of
from unnorm.objectives.checks import require_kind
from unnorm.progress import progress as progress_bar
from unnorm.spaces import AbstractSpace
from unnorm.training import checkpoint as checkpoints
from unnorm.training.feed import Feed, as_source
from unnorm.training.optimisers import Schedule, adam, rates, require_descent
from unnorm.training.points import checked_points, structs
from unnorm.training.state import (
    RECORDED,
    Judge,
    Recipe,
    Steps,
    TrainState,
    all_finite,
    held_out_loss,
    run_steps,
    split,
    start,
)
from unnorm.words import Facts, lines, model_words, table

Model = TypeVar("Model", bound=eqx.Module)

#: How often a diverged run is rolled back, at half the rate each time, before it is given up.
MAX_RETRIES = 5
#: The learning rate of the default optimiser.
USUAL_RATE = 1e-3


@dataclass(frozen=True)
class Fit(Generic[Model]):
    """A trained model and how it came about.

    `history` has a row for each evaluation: `step`, mean `loss` since the one before, `held_out`, `rate_factor` (below
    1 after roll-backs), and under their own names the means of what the objective says beside its loss, such as the
    `accuracy` of noise contrasts, each over the steps at which it was finite.
    """

    model: Model
    outcome: Outcome
    history: Mapping[str, np.ndarray]
    events: tuple[str, ...]
    state: TrainState
    seconds: float

    def _words(self) -> tuple[str, Facts]:
        at = len(self.history["step"])
        figures = [(name, f"{values[-1]:.4g}") for name, values in self.history.items() if at and name != "step"]
        facts = [
            ("outcome", str(self.outcome)),
            *[(name.replace("_", " "), value) for name, value in figures],
            ("evaluations", f"{at:,}, the figures above are of the last"),
            ("seconds", f"{self.seconds:.1f}"),
            *[("event", sentence) for sentence in self.events],
        ]
        return f"Fit of {model_words(self.model)}", facts

    def __str__(self) -> str:
        return lines(*self._words())

    def _repr_html_(self) -> str:
        return table(*self._words())


def _recipe(
    model: Any, objective: AbstractObjective, batch: int, steps: int, rate: float | None, average: float,
    schedule: Schedule | None, optimiser: optax.GradientTransformation | None,
    transform: AbstractTransform | None = None, direction: optax.GradientTransformation | None = None,
) -> Recipe:  # fmt: skip
    require(steps >= 1, f"training needs at least one step, not {steps}")
    require(batch >= 1, f"a batch needs at least one row, not {batch}")
    require(0 <= average < 1, f"the averaging decay lies in [0, 1), not {average}")
    weights, skeleton = split(model)
    require(len(jax.tree.leaves(weights)) > 0, f"{type(model).__name__} has no parameters, so nothing to learn")
    _require_objective(objective)
    if optimiser is not None:
        require_descent(optimiser, weights)
    return Recipe(
        skeleton, objective, optimiser or direction or adam(), schedule, batch,
        None if rate is None else jnp.asarray(rate, float), jnp.asarray(steps, jnp.int32), jnp.asarray(average, float),
        transform,
    )  # fmt: skip


class _Run:
    """The mutable side of a run: what has been recorded so far, and where it is saved."""

    def __init__(self, state: TrainState, path: Path | None, every: float, arguments: Mapping[str, Any]):
        self.state = state
        self.good = state
        self.history: dict[str, list[float]] = {name: [] for name in RECORDED}
        self.events: list[str] = []
        self.path = path
        self.every = every
        # Data can be large, and without a path nobody asks what they were.
        self.arguments = {} if path is None else {name: fingerprint(value) for name, value in arguments.items()}
        self.fixed = "" if path is None else checkpoints.fixed_identity(arguments["model"])
        self.saved_at = -math.inf

    def record(self, loss: float, held_out: float, info: Mapping[str, Array]) -> None:
        row = (int(self.state.step), loss, held_out, float(self.state.rate_factor))
        row = dict(zip(RECORDED, row, strict=True)) | {name: float(value) for name, value in info.items()}
        for name, value in row.items():
            self.history.setdefault(name, []).append(value)

    def save(self, *, final: bool = False) -> None:
        if self.path is None or (not final and time.monotonic() - self.saved_at < self.every):
            return
        arrays = {f"state{name}": array for name, array in checkpoints.to_arrays(self.state).items()}
        arrays |= {f"history/{name}": np.asarray(column, np.float64) for name, column in self.history.items()}
        notes = {"events": self.events, "finished": final, "arguments": self.arguments, "fixed": self.fixed}
        checkpoints.save_arrays(self.path, arrays, notes)
        self.saved_at = time.monotonic()

    def alone(self) -> AbstractContextManager[None]:
        """Within it no other process may train into the same file."""
        return nullcontext() if self.path is None else alone(self.path.with_name(f".{self.path.name}.lock"), self.path)

    def load(self) -> bool:
        """Take up a saved run where it stopped; says whether it had finished."""
        assert self.path is not None
        arrays, notes = checkpoints.load_arrays(self.path)
        saved = {name.removeprefix("state"): a for name, a in arrays.items() if name.startswith("state")}
        advice = "give the settings it was made with"
        require_same(self.arguments, notes.get("arguments", {}), f"{self.path} holds a run", advice)
        self.state = self.good = checkpoints.restore(self.state, saved, str(self.path))
        # What the objective says stands behind the rest, in the order of the alphabet, as when it was recorded.
        said = sorted({name.removeprefix("history/") for name in arrays if name.startswith("history/")} - set(RECORDED))
        self.history = {name: list(arrays[f"history/{name}"]) for name in (*RECORDED, *said)}
        self.events = list(notes["events"])
        return bool(notes["finished"])


def _on_every_device(state: TrainState) -> TrainState:
    """The state, whole, on each device: chunks return it split in some way, and another way is another program."""
    if jax.device_count() == 1:
        return state
    arrays, static = eqx.partition(state, eqx.is_array)
    return eqx.combine(jax.device_put(arrays, NamedSharding(device_mesh(), PartitionSpec())), static)


def _judge(objective: AbstractObjective, model: Any, data: Any, state: TrainState) -> Judge:
    """A loss other than the one trained by, which begins afresh."""
    begin, key = jax.random.split(jax.random.fold_in(state.key, 0))
    return Judge(objective, objective.init(model, data, key=begin), key)


def _held_out(recipe: Recipe, judge: Judge | None, state: TrainState, rows: Any) -> float:
    """By the judge, or by the objective with what it remembers at this step."""
    own = Judge(recipe.objective, state.objective, jax.random.fold_in(state.key, 0))
    return float(held_out_loss(recipe, own if judge is None else judge, state.average, rows))


def _roll_back(run: _Run, failed_at: int) -> None:
    """Return to the last good state with half the rate."""
    good = run.good
    run.state = eqx.tree_at(
        lambda s: (s.rate_factor, s.retries), good, (run.good.rate_factor / 2, run.good.retries + 1)
    )
    run.good = run.state
    retry = int(run.state.retries)
    consequence = (
        f"and halved the learning rate (retry {retry} of {MAX_RETRIES})"
        if retry <= MAX_RETRIES
        else f"and given up after {MAX_RETRIES} retries"
    )
    run.events.append(
        f"The loss stopped being finite at step {failed_at}: rolled back to step {int(good.step)} {consequence}."
    )


def _outcome(run: _Run, diverged: bool, stopped: bool) -> Outcome:
    # The retry that was not made, because one more would have been too many, does not count.
    step, retries = int(run.state.step), min(int(run.state.retries), MAX_RETRIES)
    if diverged:
        return Outcome(
            OutcomeCode.DIVERGED,
            step,
            f"the loss was not finite after {retries} roll-backs, each at half the learning rate",
            "Try a smaller learning rate, wider noise, or a smaller sampler step.",
            retries,
        )
    if stopped:
        message = f"the held-out loss had not improved for {int(run.state.stale)} evaluations"
        return Outcome(OutcomeCode.STOPPED_EARLY, step, message, retries=retries)
    return Outcome(OutcomeCode.COMPLETED, step, "all steps were taken", retries=retries)


def fit(
    model: Model,
    objective: AbstractObjective,
    data: Any,
    *,
    valid: Any = None,
    steps: int = 5000,
    batch: int = 256,
    rate: float | None = None,
    average: float = 0.999,
    schedule: Schedule | None = None,
    optimiser: optax.GradientTransformation | None = None,
    direction: optax.GradientTransformation | None = None,
    evaluations: int = 50,
    patience: int | None = None,
    judge: AbstractObjective | None = None,
    transform: AbstractTransform | None = None,
    checkpoint: str | Path | None = None,
    checkpoint_seconds: float = 10.0,
    resume: bool = False,
    key: PRNGKeyArray,
    progress: bool = True,
) -> Fit[Model]:
    """Train a model by an objective.

    `data` are rows along a leading axis: an array, or a PyTree of arrays such as `(pictures, labels)` where model and
    objective want that (`objective.rows(model)`), or a source such as `data.Blocks`, of which one block at a time is in
    memory. `transform` changes each row every time it is met (`data.Flip()`); `valid` rows too.

    Every 1/`evaluations` of the run the loss is recorded and, with `valid` data, the held-out loss of the averaged
    weights; the best so far are kept, and `patience` evaluations without improvement end the run. That loss is the
    objective's, or with `judge` that of another one: trained by an estimate, chosen by an exact loss. A loss that is
    not finite rolls the run back to its last good state and halves the rate; after five such retries it ends
    `DIVERGED`.
    With `checkpoint` the whole state is saved at most every `checkpoint_seconds`, and `resume` continues from it to
    the same bits an undisturbed run ends with; arguments other than the run began with are refused, but for more
    steps, evaluations or patience.

    `average` is the decay of the exponential moving average of the weights (0 turns it off). Without an `optimiser`
    weights move in a `direction` (default `training.adam()`; `training.muon()` for convolutions) at a `rate` (default
    0.001) times `schedule`, a function of the share of steps done (default `training.cosine`). An `optimiser` is any of optax's, such as `optax.adamw(1e-3)`, with its own rate and schedule;
    after a roll-back its updates are halved. Runs with one and the same optimiser share their compiled programs.

    >>> import jax, unnorm as un
    >>> points = jax.random.normal(jax.random.key(0), (500, 2))
    >>> model = un.energies.standard_gaussian(2)
    >>> un.fit(model, un.objectives.DSM(un.noises.Gaussian(0.5)), points, steps=10, key=jax.random.key(1)).outcome.ok
    True
    """
    began = time.monotonic()
    space, who = _rows(objective, model), type(model).__name__
    source = as_source(data)
    if isinstance(source, InMemory):
        source = InMemory(checked_points(who, space, source.data, "training"))
    valid = None if valid is None else checked_points(who, space, valid, "validation")
    batch = min(batch, source.block_length)
    require(batch >= 1, f"a batch needs at least one row, not {batch}")
    feed = Feed(source, lambda rows: checked_points(who, space, rows, "training"), batch, key)
    data, _ = feed.at(0)
    _require_alike(data, valid)
    require_divisible(batch, "rows of a batch")
    require(evaluations >= 1, f"at least one evaluation is needed, not {evaluations}")
    require(patience is None or valid is not None, "early stopping (patience) needs validation data")
    require(patience is None or patience >= 1, f"patience is a number of evaluations, at least 1, not {patience}")
    require(judge is None or valid is not None, "a judge needs validation data")
    require(
        judge is None or judge.comparable, f"{type(judge).__name__} cannot judge: its value does not tell models apart"
    )
    rate, schedule = rates(rate, schedule, optimiser, USUAL_RATE, direction)
    recipe = _recipe(model, objective, batch, steps, rate, average, schedule, optimiser, transform, direction)
    # Steps, evaluations and patience may be others when a run is taken up again: that is how one is prolonged.
    arguments = {
        "model": model, "objective": objective, "data": source.identity, "valid": valid, "batch": batch, "rate": rate,
        "average": average, "schedule": schedule, "optimiser": recipe.optimiser, "judge": judge, "key": key,
    }  # fmt: skip
    arguments |= {} if transform is None else {"transform": transform}
    path = None if checkpoint is None else Path(checkpoint)
    run = _Run(start(model, recipe, data, key), path, checkpoint_seconds, arguments)
    require(not resume or run.path is not None, "resume needs the path of a checkpoint")
    require(
        run.path is None or run.path.parent.is_dir(),
        f"the folder of the checkpoint {run.path} does not exist; make it first",
    )
    finished = resume and run.path is not None and run.path.exists() and run.load()
    chunk = max(1, -(-steps // evaluations))
    judged = valid is not None and (objective if judge is None else judge).comparable
    other = None if judge is None else _judge(judge, model, data, run.state)
    diverged = int(run.state.retries) > MAX_RETRIES
    # A run may have been killed after it decided to stop and before it said so.
    stopped = patience is not None and judged and int(run.state.stale) >= patience
    resumed_at = int(run.state.step)
    with run.alone(), progress_bar("training", steps, show=progress) as advance:
        advance(int(run.state.step))
        while not (diverged or stopped) and int(run.state.step) < steps:
            before = int(run.state.step)
            # Chunks end at multiples of `chunk`, wherever a resumed run begins.
            count = min(chunk - before % chunk, steps - before)
            moved, loss, info, bad = _steps(recipe, run.state, feed, count)
            held_out = math.nan if valid is None else _held_out(recipe, other, moved, valid)
            # An optimiser whose memory overflowed would stand still from then on, with every loss finite.
            finite = bool(all_finite((moved.weights, moved.optimiser)))
            sound = int(bad) < 0 and finite and (valid is None or math.isfinite(held_out))
            if not sound:
                _roll_back(run, int(bad) if int(bad) >= 0 else int(moved.step))
                diverged = int(run.state.retries) > MAX_RETRIES
                advance(int(run.state.step) - before)
                continue
            run.state = _keep_best(moved, held_out if judged else -float(moved.step))
            stopped = patience is not None and judged and int(run.state.stale) >= patience
            run.good = run.state
            run.record(float(loss), held_out, info)
            run.save()
            advance(count, f"loss {float(loss):.4f}  held out {held_out:.4f}")
        feed.close()
        if not finished or int(run.state.step) > resumed_at:
            run.save(final=True)
    trained = eqx.combine(run.state.best, recipe.skeleton)
    history = {name: np.asarray(column) for name, column in run.history.items()}
    outcome = _outcome(run, diverged, stopped)
    # From the state rather than remembered, so that a run taken up again says the same.
    events = (*run.events, *remarks_of(objective, run.state.objective))
    return Fit(trained, outcome, history, events, run.state, time.monotonic() - began)


def _rows(objective: AbstractObjective, model: Any) -> AbstractSpace | None:
    """What a row is, asked only of what is an objective."""
    _require_objective(objective)
    return objective.rows(model)


def _require_objective(objective: Any) -> None:
    require_kind(objective, AbstractObjective, "a model is trained by an objective such as objectives.SSM(), not by {}")


def _require_alike(data: Any, valid: Any) -> None:
    """Refuse validation rows that look different from training rows."""
    if valid is None:
        return
    one, other = structs(data), structs(valid)
    same = jax.tree.structure(one) == jax.tree.structure(other) and all(
        a.shape == b.shape for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    )
    shapes = [[leaf.shape for leaf in jax.tree.leaves(tree)] for tree in (one, other)]
    first, second = (found[0] if len(found) == 1 else found for found in shapes)
    require(
        same,
        f"a point of the training data has shape {first}, and one of the validation data {second}; "
        "give both the same columns",
    )


def _steps(recipe: Recipe, state: TrainState, feed: Feed, count: int) -> Steps:
    """`count` steps, block after block of the rows."""
    done: list[tuple[int, Steps]] = []
    while count > 0 and not (done and int(done[-1][1].bad) >= 0):
        rows, end = feed.at(int(state.step))
        some = int(min(count, end - int(state.step)))
        steps = run_steps(recipe, _on_every_device(state), rows, jnp.asarray(some))
        state, count = steps.state, count - some
        done.append((some, steps))
    if len(done) == 1:
        return done[0][1]
    shares = np.array([some for some, _ in done], float) / sum(some for some, _ in done)
    loss = sum((float(share) * steps.loss for share, (_, steps) in zip(shares, done, strict=True)), jnp.zeros(()))
    info = {
        name: jnp.asarray(np.average([steps.info[name] for _, steps in done], weights=shares))
        for name in done[0][1].info
    }
    return Steps(state, loss, info, done[-1][1].bad)


def _keep_best(state: TrainState, held_out: float) -> TrainState:
    """The averaged weights become the best if their held-out loss is the lowest so far."""
    improved = held_out < float(state.best_loss)
    if not improved:
        return eqx.tree_at(lambda s: s.stale, state, state.stale + 1)
    best_loss = jnp.asarray(held_out, state.best_loss.dtype)
    return eqx.tree_at(
        lambda s: (s.best, s.best_loss, s.stale),
        state,
        (state.average, best_loss, jnp.zeros_like(state.stale)),
        is_leaf=lambda leaf: leaf is None,
    )
