"""Whether data can tell every parameter: a covariance of parameters exists only then."""

from typing import Any

import numpy as np

from unnorm.errors import require


def require_identified(information: Any) -> None:
    """Refuse a matrix (a Fisher information, the Hessian of a loss) that is singular but for rounding.

    >>> require_identified(np.eye(2))
    """
    matrix = np.asarray(information, np.float64)
    require(
        bool(np.all(np.isfinite(matrix))),
        "the model's derivatives are not finite at some of the points; pass points inside the model",
    )
    values = np.linalg.eigvalsh(0.5 * (matrix + matrix.T))
    require(
        bool(values[0] > 1e-5 * values[-1]),
        "the data do not determine every parameter (an additive constant, an unused entry): the eigenvalues of the "
        f"information go from {values[0]:.3g} to {values[-1]:.3g}; use a model of the parameters that matter",
    )
