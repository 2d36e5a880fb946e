"""What every test shares."""

import gc

import jax
import pytest


@pytest.fixture(scope="module", autouse=True)
def programs_are_let_go():
    """Forget compiled programs when a file of tests is done.

    Each holds mappings of memory of which a process may have some 65,000; a worker that kept those of all files would
    crash inside the compiler.
    """
    yield
    jax.clear_caches()
    gc.collect()


@pytest.fixture(scope="module", autouse=True)
def long_runs_are_optimised(request, programs_are_let_go):
    """Compile the programs of a file marked `optimised` as users' programs are, even where compiling is kept short."""
    short = jax.config.values["jax_disable_most_optimizations"]
    if request.node.get_closest_marker("optimised"):
        jax.config.update("jax_disable_most_optimizations", False)
    yield
    jax.config.update("jax_disable_most_optimizations", short)
