"""Random graphs: toggles a second of processor time, fits from their first call, and the memory of a large graph.

R is not run here. On this kind of machine ergm 4.12 makes about 2.3 million tie-no-tie proposals a second of processor
time on the school with edges and gwesp(0.25), 5.8 million with edges alone, and takes 32 s of processor time for the
school's fit, 1.2 s for the Bernoulli graph's.
"""

import subprocess
import sys
import time
from typing import Any

import numpy as np

from benchmarks.harness import Bar, Report, count, say, skipped
from unnorm.errors import InputError

#: ergm's proposals a second, and how many times as many ours should be on one core and on two.
ERGM, TIMES, TWICE = 2.3e6, 3.0, 1.8
PROPOSALS = 4_000_000

FIT = """
import time, networkx, unnorm
from unnorm.graphs.embedded import local_network
graph = {graph}
began = time.perf_counter()
fitted = unnorm.graphs.fit(graph, "{terms}")
print(time.perf_counter() - began, fitted.outcome.ok, max(row.monte_carlo_share for row in fitted.coefficients) ** 0.5)
"""
#: A graph, its terms, and the seconds from the first call in a running process.
FITS = {
    "schools": ('local_network("faux.magnolia.high")', "edges, nodematch(Grade), nodematch(Race), gwesp(0.25)", 10.0),
    "florentine with triangles": ("unnorm.graphs.florentine()", "edges, triangle", 3.0),
    "Bernoulli graph on 200 vertices": ("networkx.gnp_random_graph(200, 6 / 199, seed=0)", "edges, triangle", 3.0),
}


def _school() -> tuple[Any, Any, np.ndarray]:
    """The school's model with two terms, its edges, and its fitted coefficients."""
    from unnorm.graphs import fit
    from unnorm.graphs.embedded import local_network

    fitted = fit(local_network("faux.magnolia.high"), "edges, gwesp(0.25)", log_likelihood=False)
    return fitted.model, fitted.graphs[0], fitted.theta


def _rate(model: Any, edges: np.ndarray, theta: np.ndarray, chains: int, closing: float) -> tuple[float, float]:
    """Proposals a second: of processor time of all threads, and of time on the wall."""
    from unnorm.graphs.chains import Chains

    walks = Chains(model, [edges] * chains, key=1, closing=closing)
    walks.draw(theta, 1, 1000)
    wall, processor = time.perf_counter(), time.process_time()
    drawn = walks.draw(theta, 4, PROPOSALS // 4)
    wall, processor = time.perf_counter() - wall, time.process_time() - processor
    for c in range(chains):
        if not np.allclose(model.statistics(walks.edges_of(c)), drawn[c, -1], rtol=1e-9):
            raise RuntimeError("the statistics of the walk are not those of its graph")
    return chains * PROPOSALS / processor, chains * PROPOSALS / wall


def _toggles(repeats: int) -> list[Report]:
    try:
        model, edges, theta = _school()
    except InputError as error:
        return [skipped("toggles a second", str(error))]
    reports = []
    for label, closing in (("tie-no-tie", 0.0), ("with two-paths closed, as fits walk", 0.25)):
        rates = [_rate(model, edges, theta, 1, closing) for _ in range(repeats)]
        each = float(np.median([rate for rate, _ in rates]))
        say(f"{label}: {each / 1e6:.2f} million proposals a second of processor time, {each / ERGM:.2f} times ergm's")
        reports.append(count(f"{label}, proposals a second of processor time", each, bar=Bar(TIMES * ERGM)))
        ratios = []
        for _ in range(repeats):
            ratios.append(_rate(model, edges, theta, 2, closing)[1] / _rate(model, edges, theta, 1, closing)[1])
        reports.append(count(f"{label}, two chains against one", float(np.median(ratios)), bar=Bar(TWICE)))
    return reports


def _fits(repeats: int) -> list[Report]:
    """Each in a process of its own, which has done nothing but make the graph."""
    reports = []
    for name, (graph, terms, seconds) in FITS.items():
        found = []
        for _ in range(min(repeats, 3)):
            program = FIT.format(graph=graph, terms=terms)
            done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
            if done.returncode != 0:
                return [*reports, skipped(name, done.stderr.strip().splitlines()[-1])]
            found.append(done.stdout.split())
        times = [float(told[0]) for told in found]
        say(f"{name}: {', '.join(f'{t:.2f} s' for t in times)}; estimated: {found[0][1]}, Monte Carlo {found[0][2]}")
        reports.append(count(f"{name}, seconds", float(np.median(times)), bar=Bar(seconds, at_least=False)))
    return reports


def _memory() -> Report:
    """Bytes of a walked graph on 20,000 vertices with 4 times the edges, against one: at most 4 times."""
    from unnorm.graphs import Model, Network, parse
    from unnorm.graphs.chains import Chains

    n, sizes = 20_000, []
    for mean_degree in (4, 16):
        random = np.random.default_rng(0)
        pairs = np.sort(random.integers(n, size=(n * mean_degree // 2, 2)), axis=1)
        pairs = np.unique(pairs[pairs[:, 0] < pairs[:, 1]], axis=0).astype(np.int32)
        model = Model(parse("edges, gwesp(0.25)"), Network(n, False, pairs, tuple(range(n)), {}))
        odds = np.log(len(pairs) / (model.network.dyads - len(pairs)))
        walks = Chains(model, [pairs], key=0)
        walks.draw(np.array([odds, 0.0]), 1, 1_000_000)
        sizes.append(walks.graphs[0].nbytes + walks.edges[0].nbytes)
        say(f"{len(pairs)} edges on {n} vertices: {sizes[-1] / 1e6:.1f} MB after a million proposals")
    return count("bytes with four times the edges, over bytes", sizes[1] / sizes[0], bar=Bar(4.0, at_least=False))


def run(*, repeats: int) -> list[Report]:
    """Toggles, fits, memory."""
    return [*_toggles(repeats), *_fits(repeats), _memory()]
