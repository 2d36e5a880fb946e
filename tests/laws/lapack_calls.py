"""Calls of LAPACK in the text of a lowered program, and those that hand over more than one matrix.

On processors jaxlib 0.10 shares the matrices of such a call out over the threads of the pool that it runs on, and waits
for them; where every thread waits, the program stands still for good.
"""

import math
import re

#: A custom call to LAPACK, and the types of what goes into it and comes out of it.
_CALL = re.compile(r"custom_call @(lapack_\w+)\(.*?\} : (.*)")
_TYPE = re.compile(r"tensor<((?:\d+x)*)[a-z]\w*>")


def calls(text: str) -> list[tuple[str, int]]:
    """Name of every LAPACK call in StableHLO, and how many matrices it is given at once.

    >>> calls("%0 = stablehlo.custom_call @lapack_spotrf_ffi(%a) {uplo = 76 : ui8} : (tensor<5x2x2xf32>) -> ()")
    [('lapack_spotrf_ffi', 5)]
    """
    found = []
    for name, types in _CALL.findall(text):
        # What is there for each matrix (its rows, its eigenvalues, whether it went well) has the batch before it.
        shapes = [tuple(int(n) for n in sizes.split("x") if n) for sizes in _TYPE.findall(types.split("->")[0])]
        found.append((name, max((math.prod(shape[:-2]) for shape in shapes), default=1)))
    return found


def batched_calls(text: str) -> list[tuple[str, int]]:
    """Those that get more than one matrix."""
    return [(name, count) for name, count in calls(text) if count > 1]
