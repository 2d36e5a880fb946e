"""What is found out about a score over noise levels: likelihoods, draws, and how good pictures are."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from unnorm.catalogue.diffusion import LAST
from unnorm.data.kinds import count_of, taken
from unnorm.data.pictures import PictureSchema
from unnorm.estimate import Estimate
from unnorm.evaluation import bits_per_dimension, flow_log_likelihood, frechet, likelihood_bound, nearest
from unnorm.runs.finding import THINNED, AbstractDraws, AbstractPlainFinding, Arrays
from unnorm.runs.generating import Walked, conditions_for, walked
from unnorm.runs.prepare import Prepared, points_of
from unnorm.scores import AbstractLevelledScore
from unnorm.spaces import AbstractSpace, Conditioned

#: Rows whose likelihood is computed: of many coordinates each costs some hundred network evaluations and derivatives.
ROWS = 100
#: Levels of a row's bound.
LEVELS = 200
#: Draws of an assessment.
DRAWS = 500


@dataclass(frozen=True, eq=False)
class FlowLikelihood(AbstractPlainFinding):
    """Log-likelihood of held-out rows by the probability flow and its lower bound, in nats per row of own units.

    `bits` are those of a coordinate, where values were rounded to levels.
    """

    name: ClassVar[str] = "flow_likelihood"
    flow: Estimate
    bound: Estimate
    rows: int
    bits: Estimate | None = None
    bits_bound: Estimate | None = None

    def fields(self) -> dict[str, Any]:
        return {
            "flow_log_likelihood": self.flow.to_dict(),
            "log_likelihood_bound": self.bound.to_dict(),
            "likelihood_rows": self.rows,
            "bits_per_dimension": None if self.bits is None else self.bits.to_dict(),
            "bits_per_dimension_bound": None if self.bits_bound is None else self.bits_bound.to_dict(),
        }

    @classmethod
    def restored(cls, fields: Mapping[str, Any], arrays: Arrays, space: AbstractSpace) -> "FlowLikelihood":
        bits, bound = fields["bits_per_dimension"], fields["bits_per_dimension_bound"]
        return FlowLikelihood(
            Estimate.from_dict(fields["flow_log_likelihood"]),
            Estimate.from_dict(fields["log_likelihood_bound"]),
            fields["likelihood_rows"],
            None if bits is None else Estimate.from_dict(bits),
            None if bound is None else Estimate.from_dict(bound),
        )


@dataclass(frozen=True, eq=False)
class Generated(AbstractDraws):
    """Draws that a solver made from noise."""

    name: ClassVar[str] = "generated"
    walked: Walked

    @property
    def sampled(self) -> Walked:
        return self.walked

    @property
    def points(self) -> np.ndarray:
        return self.walked.points

    def thinned(self) -> np.ndarray:
        return self.walked.points[:THINNED]

    @property
    def warnings(self) -> tuple[str, ...]:
        return self.walked.warnings

    def fields(self) -> dict[str, Any]:
        return {"sampler": self.walked.figures(), "sampler_warnings": list(self.walked.warnings)}

    def arrays(self) -> dict[str, np.ndarray]:
        return {"draws": np.ascontiguousarray(self.walked.points)}

    @classmethod
    def restored(cls, fields: Mapping[str, Any], arrays: Arrays, space: AbstractSpace) -> "Generated":
        told = fields["sampler"]
        said = tuple(fields["sampler_warnings"])
        return Generated(Walked(arrays["draws"], told["solver"], told["steps"], told["lost"], None, said))


@dataclass(frozen=True, eq=False)
class Fidelity(AbstractPlainFinding):
    """How near draws of pictures are to held-out ones, and whether they are copies of training pictures.

    Frechet distances in pixels from the draws, and from as many training pictures, to the held-out ones; and the median
    distance to the nearest training picture, of draws over that of held-out pictures.
    """

    name: ClassVar[str] = "fidelity"
    draws: Estimate
    train: Estimate
    nearness: float

    def fields(self) -> dict[str, Any]:
        return {
            "frechet": self.draws.to_dict(), "frechet_of_training": self.train.to_dict(), "nearness": self.nearness
        }  # fmt: skip

    @classmethod
    def restored(cls, fields: Mapping[str, Any], arrays: Arrays, space: AbstractSpace) -> "Fidelity":
        draws, train = (Estimate.from_dict(fields[name]) for name in ("frechet", "frechet_of_training"))
        return Fidelity(draws, train, fields["nearness"])


def find_flow(
    score: AbstractLevelledScore, prepared: Prepared, rows: Any, groups: np.ndarray | None, *, seed: int
) -> FlowLikelihood:
    """Likelihood of held-out rows, at most `ROWS` of them, as they were learnt from."""
    some = taken(rows, slice(ROWS))
    points, conditions = jnp.asarray(points_of(some)), _conditions(some)
    key = jax.random.key(seed)
    rounding = prepared.schema.rounding
    if rounding is not None:
        keys = jax.random.split(jax.random.fold_in(key, 0), len(points))
        points = jax.vmap(lambda x, k: rounding(x, key=k))(points, keys)
    told: dict[str, Any] = {
        "conditions": conditions, "last": LAST, "log_volume": prepared.schema.log_volume,
        "groups": None if groups is None else groups[:ROWS],
    }  # fmt: skip
    flow = flow_log_likelihood(score, points, tolerance=1e-4, key=jax.random.fold_in(key, 1), **told)
    bound = likelihood_bound(score, points, levels=LEVELS, key=jax.random.fold_in(key, 2), **told)
    bits = bits_bound = None
    if isinstance(prepared.schema, PictureSchema) and prepared.schema.levels is not None:
        # In the values as they were written, which are one apart.
        size = prepared.space.size
        bits, bits_bound = (bits_per_dimension(found, size, 2) for found in (flow, bound))
    return FlowLikelihood(flow, bound, len(points), bits, bits_bound)


def _conditions(rows: Any) -> Any:
    return jax.tree.map(jnp.asarray, rows.condition) if isinstance(rows, Conditioned) else None


def find_generated(score: AbstractLevelledScore, prepared: Prepared, *, seed: int, progress: bool) -> Generated:
    """Draws by the default solver, under conditions as they come in the training rows."""
    conditions = conditions_for(prepared, DRAWS, {}, seed=seed)
    return Generated(walked(score, DRAWS, conditions=conditions, key=jax.random.key(seed), progress=progress))


def find_fidelity(prepared: Prepared, rows: Any, draws: AbstractDraws, *, seed: int) -> Fidelity | None:
    """Distances of pictures; None of points that are none, or where draws were lost."""
    if not isinstance(prepared.schema, PictureSchema):
        return None
    drawn, held, train = draws.thinned(), points_of(rows), points_of(prepared.train)
    sound = np.isfinite(drawn).reshape(len(drawn), -1).all(axis=1)
    if sound.sum() < 4 or count_of(held) < 8:
        return None
    drawn = drawn[sound]
    chosen = np.random.default_rng(seed).permutation(len(train))[: len(drawn)]
    key = jax.random.key(seed)
    of_draws, of_rows = (float(np.median(nearest(part, train).distances)) for part in (drawn, held))
    return Fidelity(
        frechet(drawn, held, key=key), frechet(train[chosen], held, key=key), of_draws / max(of_rows, 1e-12)
    )
