"""What every test shares."""

import gc
import os

import jax
import pytest

# As many workers as cores run at once: each keeps to one core, where it does not wait for the threads of the others.
# JAX has not started yet, and starts as many threads as it then has cores.
if hasattr(os, "sched_setaffinity") and (worker := os.environ.get("PYTEST_XDIST_WORKER", "").removeprefix("gw")):
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[int(worker) % len(cores)]})


def pytest_collection_modifyitems(items):
    """The longest test goes first, so that at the end no worker waits for it."""
    items.sort(key=lambda item: item.path.name != "test_shapes.py")


def pytest_collection_finish():
    """What has been imported stays to the end: looking through it for garbage takes a third of a second each time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


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


@pytest.fixture(scope="module", autouse=True)
def axes_are_spelt_out(request):
    """In unit tests no array is stretched over one of more axes without a word: such a line is often a mistake.

    Laws are formulas, and read better with n x d minus d.
    """
    before = jax.config.values["jax_numpy_rank_promotion"]
    jax.config.update("jax_numpy_rank_promotion", "raise" if request.path.parent.name == "unit" else before)
    yield
    jax.config.update("jax_numpy_rank_promotion", before)
