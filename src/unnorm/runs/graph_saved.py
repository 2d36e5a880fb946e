"""A network, and a fit of it, as arrays and plain data, bit for bit; a loaded file runs no code."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from unnorm.estimate import Estimate, Outcome
from unnorm.graphs import Coefficient, Evidence, FittedGraph, Model, Network, parse
from unnorm.graphs.constraints import CONSTRAINTS, Unconstrained
from unnorm.graphs.curved import with_decays
from unnorm.runs.graph_data import PreparedGraph

Arrays = dict[str, np.ndarray]


def network_arrays(prepared: PreparedGraph) -> tuple[Arrays, dict[str, Any]]:
    """Edges, attributes and covariates as arrays, and what has words as plain data."""
    network = prepared.network
    arrays = {"edges": np.ascontiguousarray(network.edges, np.int32)}
    arrays["missing"] = np.ascontiguousarray(prepared.missing, np.int32)
    words: dict[str, list[Any]] = {}
    for name, values in network.attributes.items():
        if values.dtype.kind == "f":
            arrays[f"attribute/{name}"] = np.ascontiguousarray(values)
        else:
            words[name] = values.tolist()
    arrays |= {f"covariate/{name}": np.ascontiguousarray(matrix) for name, matrix in prepared.covariates.items()}
    return arrays, {
        "n": network.n,
        "directed": network.directed,
        "labels": list(network.labels),
        "words": words,
        "order": list(network.attributes),
        "notes": list(network.notes),
    }


def network_from_arrays(arrays: Mapping[str, np.ndarray], notes: Mapping[str, Any]) -> tuple[Network, Arrays]:
    """The inverse: the network, and the covariates."""
    attributes: Arrays = {}
    for name in notes["order"]:
        if name in notes["words"]:
            column = np.empty(notes["n"], object)
            column[:] = notes["words"][name]
            attributes[name] = column
        else:
            attributes[name] = arrays[f"attribute/{name}"]
    labels, remarks = tuple(notes["labels"]), tuple(notes["notes"])
    network = Network(notes["n"], notes["directed"], arrays["edges"], labels, attributes, remarks)
    return network, {
        name.removeprefix("covariate/"): array for name, array in arrays.items() if name.startswith("covariate/")
    }


def fit_arrays(fitted: FittedGraph) -> tuple[Arrays, dict[str, Any]]:
    """What was found out, without the network."""
    return {"covariance": np.ascontiguousarray(fitted.covariance, np.float64)}, {
        "pinned": [[k, *held] for k, held in fitted.model.pinned.items()],
        "coefficients": [dataclasses.asdict(row) for row in fitted.coefficients],
        "method": fitted.method,
        "outcome": fitted.outcome.to_dict(),
        "log_likelihood": fitted.log_likelihood.to_dict(),
        "notes": list(fitted.notes),
        "diagnostics": {name: float(value) for name, value in fitted.diagnostics.items()},
        "evidence": None if fitted.evidence is None else fitted.evidence.to_dict(),
    }


def fit_from_arrays(
    arrays: Mapping[str, np.ndarray],
    notes: Mapping[str, Any],
    network: Network,
    covariates: Mapping[str, np.ndarray],
    terms: str,
    constraint: str | None,
    seed: int,
) -> FittedGraph:
    """The inverse, on the network that was fitted."""
    pinned = {int(k): (float(coefficient), float(held)) for k, coefficient, held in notes["pinned"]}
    rows = tuple(Coefficient(**row) for row in notes["coefficients"])
    # Decays that were learnt are given now: the model is one to draw from.
    decays = [row.estimate if math.isfinite(row.estimate) else 0.5 for row in rows if row.kind == "decay"]
    over = Unconstrained() if constraint is None else CONSTRAINTS[constraint]
    return FittedGraph(
        Model(with_decays(parse(terms, covariates), decays), network, pinned, over),
        (network.edges,),
        rows,
        arrays["covariance"],
        notes["method"],
        Outcome.from_dict(notes["outcome"]),
        Estimate.from_dict(notes["log_likelihood"]),
        seed,
        tuple(notes["notes"]),
        notes["diagnostics"],
        None if notes["evidence"] is None else Evidence.from_dict(notes["evidence"]),
    )
