"""The commands and their options. Each imports what it needs when it runs."""

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    help="Learn, sample and evaluate unnormalised models, p(x) = exp(-E(x)) / Z.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

# JAX makes keys of the last 32 bits of a seed: larger ones would repeat smaller ones.
Seed = Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Seed of every random number.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout and nothing else.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress and no remarks on stderr.")]
Data = Annotated[
    str, typer.Argument(help="A .csv, .npy, .npz or .parquet file, or a built-in name (unnorm list data).")
]
FitData = Annotated[
    str,
    typer.Argument(
        help="A .csv, .npy, .npz or .parquet file, a network (.graphml, .gml, .edges, .json ...), or a built-in name "
        "(unnorm list data, unnorm list networks)."
    ),
]
RunPath = Annotated[Path, typer.Argument(metavar="RUN", help="A folder made by `unnorm fit`.")]
Out = Annotated[Path | None, typer.Option("--out", "-o", help="Where to write.")]
Set = Annotated[
    list[str] | None, typer.Option("--set", help="An option of the model or objective, e.g. objective.share=0.75.")
]
Steps = Annotated[int, typer.Option(min=1, help="Training steps.")]
Batch = Annotated[int, typer.Option(min=1, help="Rows per step.")]
Rate = Annotated[float, typer.Option(help="Learning rate at its peak.")]
OwnSteps = Annotated[
    int | None, typer.Option("--steps", min=1, help="Training steps; default 3000, or what suits the model.")
]
OwnBatch = Annotated[
    int | None, typer.Option("--batch", min=1, help="Rows per step; default 256, or what suits the model.")
]
OwnRate = Annotated[
    float | None, typer.Option("--rate", help="Learning rate at its peak; default 0.001, or what suits the model.")
]
ModelName = Annotated[
    str | None,
    typer.Option("--model", help="Which energy (unnorm list models), or graph for a network; default by the data."),
]
Kind = Annotated[
    str | None, typer.Option(help="Read DATA as this kind (table, bits, ...), and not as what it looks like.")
]
Group = Annotated[
    str | None, typer.Option(help="A column whose equal values (a person's rows) stay in one part of the split.")
]
RunSeed = Annotated[
    int | None, typer.Option("--seed", min=0, max=2**32 - 1, help="Seed of every random number; default the run's.")
]
Force = Annotated[bool, typer.Option("--force", help="Overwrite the output file.")]


@app.command()
def demo(out: Out = None, seed: Seed = 0, json: Json = False, quiet: Quiet = False, steps: Steps = 2000) -> None:
    """Two modes, unequal weights: which objective finds them? Fits, compares and writes a report (about a minute)."""
    from unnorm.cli.learn import demo_command

    demo_command(out or Path("unnorm-demo"), seed, steps, json, quiet)


@app.command()
def fit(
    data: FitData,
    objective: Annotated[
        str | None,
        typer.Option(help="How to learn (unnorm list objectives); default what suits the model: tilt, pcd ..."),
    ] = None,
    model: ModelName = None,
    out: Out = None,
    steps: OwnSteps = None,
    batch: OwnBatch = None,
    rate: OwnRate = None,
    patience: Annotated[int | None, typer.Option(min=1, help="Stop after this many evaluations without gain.")] = None,
    evaluations: Annotated[int, typer.Option(min=1, help="How often the held-out loss is looked at.")] = 50,
    options: Set = None,
    group: Group = None,
    test: Annotated[str | None, typer.Option(help="Data to judge on, instead of a tenth of DATA.")] = None,
    condition: Annotated[
        str | None, typer.Option(help="Columns, with commas between, that the others are modelled given.")
    ] = None,
    kind: Kind = None,
    terms: Annotated[
        str | None,
        typer.Option(help="What to count in a network, e.g. 'edges,gwesp(0.5),nodematch(grade)' (unnorm list terms)."),
    ] = None,
    nodes: Annotated[
        str | None, typer.Option(help="A table of the vertices of a network and their attributes.")
    ] = None,
    directed: Annotated[
        bool | None,
        typer.Option(
            "--directed/--undirected", help="Whether edges of a network have directions, if its file is silent."
        ),
    ] = None,
    covariate: Annotated[
        list[str] | None, typer.Option(help="A number for each pair of vertices, for edgecov(NAME): NAME=FILE.")
    ] = None,
    method: Annotated[
        str | None, typer.Option(help="How a network is fitted: auto, exact, mcmc, or mple (pseudo-likelihood).")
    ] = None,
    constraint: Annotated[
        str | None,
        typer.Option(help="Compare a network only with those of as many edges (edges), or equal degrees (degrees)."),
    ] = None,
    hidden: Annotated[int | None, typer.Option(min=1, help="Hidden units of --model rbm.")] = None,
    lattice: Annotated[
        str | None, typer.Option(help="The sides of the lattice of --model ising, e.g. 4x5: its sites are the columns.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the run in --out where it stopped.")] = False,
    report: Annotated[bool, typer.Option(help="Assess the model and write report.html.")] = True,
    checkpoint_seconds: Annotated[float, typer.Option(min=0, help="Save at most this often.")] = 10.0,
    seed: Seed = 0,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Fit a model to a table, pictures or a network, and save the run."""
    from unnorm.cli.graphs import fit_graph_command, refuse_others, wants_graph

    training = {"steps": steps, "batch": batch, "rate": rate, "patience": patience, "evaluations": evaluations}
    asked = {
        "--terms": terms, "--nodes": nodes, "--directed": directed, "--covariate": covariate or None,
        "--method": method, "--constraint": constraint,
    }  # fmt: skip
    if wants_graph(data, model, kind, asked):
        rows = {
            "--objective": objective, "--steps": steps, "--batch": batch, "--rate": rate, "--patience": patience,
            "--set": options, "--group": group, "--test": test, "--condition": condition,
            "--hidden": hidden, "--lattice": lattice,
        }  # fmt: skip
        refuse_others(rows, "a network, which has no rows; its terms are fitted by likelihood")
        fit_graph_command(
            data, terms, nodes, directed, covariate or [], method, constraint, out, resume=resume, report=report,
            seed=seed, as_json=json, quiet=quiet,
        )  # fmt: skip
        return
    from unnorm.cli.learn import fit_command

    fit_command(
        data,
        model,
        objective,
        training,
        out,
        options or [],
        group=group,
        test=test,
        condition=condition,
        kind=kind,
        own={"hidden": hidden, "lattice": lattice},
        resume=resume,
        report=report,
        checkpoint_seconds=checkpoint_seconds,
        seed=seed,
        as_json=json,
        quiet=quiet,
    )


@app.command()
def compare(
    data: Data,
    objectives: Annotated[
        str | None,
        typer.Option(help="Names with commas between, or `all`; default cnce,cnce-local,dsm,pcd, as far as they work."),
    ] = None,
    model: Annotated[str | None, typer.Option("--model", help="Which energy; default mlp.")] = None,
    steps: Steps = 3000,
    batch: Batch = 256,
    rate: Rate = 1e-3,
    group: Group = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="A folder to keep the runs in; the same command goes on there.")
    ] = None,
    seed: Seed = 0,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train the same model by several objectives and judge each on the same held-out rows."""
    from unnorm.cli.learn import compare_command
    from unnorm.cli.options import training_settings

    training = training_settings(steps=steps, batch=batch, rate=rate, patience=None)
    compare_command(data, objectives, model, training, out, group=group, seed=seed, as_json=json, quiet=quiet)


@app.command()
def sample(
    run: RunPath,
    n: Annotated[int, typer.Option("-n", min=1, help="How many draws.")] = 1000,
    out: Out = None,
    sampler: Annotated[
        str | None,
        typer.Option(help="Which sampler (unnorm list samplers); default what suits model and data."),
    ] = None,
    given: Annotated[
        str | None, typer.Option(help="Values of the conditions of a conditional model, e.g. quality=8.")
    ] = None,
    solver: Annotated[
        str | None, typer.Option(help="How noise becomes data (unnorm list generators), for diffusions; default dpm++.")
    ] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Noise levels that the solver walks.")] = None,
    guidance: Annotated[float, typer.Option(help="How strongly draws are pushed towards a given label.")] = 1.0,
    temperature: Annotated[
        float | None, typer.Option(help="Below 1 draws are more typical and less varied, for diffusions.")
    ] = None,
    exact: Annotated[
        bool, typer.Option("--exact", help="Every digit, not rounded as the columns were recorded.")
    ] = False,
    options: Set = None,
    force: Force = False,
    seed: Seed = 0,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Draw from a fitted model, in the data's own units (.csv, .npy, .npz or .parquet; CSV on stdout without --out).

    Values are rounded as their column was recorded. An --out without an ending is a folder: draws go there as they
    come, and the same command resumes. Draws that are not finite are refused.
    """
    if _holds_graph(run):
        from unnorm.cli.graphs import refuse_others, sample_graph_command

        others = {
            "--sampler": sampler, "--given": given, "--solver": solver, "--steps": steps, "--set": options,
            "--exact": exact, "--guidance": guidance if guidance != 1.0 else None,
        }  # fmt: skip
        refuse_others(others, "the fit of a network, whose graphs are drawn by its own walk")
        sample_graph_command(run, n, out, force, seed, json, quiet)
        return
    from unnorm.cli.use import sample_command

    chosen = {name: value for name, value in (("steps", steps), ("temperature", temperature)) if value is not None}
    sample_command(
        run, n, out, sampler, options or [], given, solver, chosen, guidance, exact, force, seed, json, quiet
    )


@app.command()
def score(
    run: RunPath,
    data: Annotated[str, typer.Argument(help="A table with the run's columns.")],
    out: Out = None,
    force: Force = False,
    seed: RunSeed = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Energy, log density with its error, and outlier rank of each row of a table.

    Rows that the model was fitted to are scored by models that were fitted without them, which takes as long as five
    fits the first time.
    """
    if _holds_graph(run):
        from unnorm.cli.graphs import refuse_others

        refuse_others({"score": True}, "the fit of a network, which has no rows; unnorm evaluate tells how it fits")
    from unnorm.cli.use import score_command

    score_command(run, data, out, force, seed, json, quiet)


@app.command()
def evaluate(
    run: RunPath,
    data: Annotated[
        str | None, typer.Option("--data", help="Judge on this table instead of the held-out rows.")
    ] = None,
    seed: RunSeed = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Log-likelihood with its error against baselines, mode weights, sampler diagnostics."""
    if _holds_graph(run):
        from unnorm.cli.graphs import evaluate_graph_command, refuse_others

        refuse_others({"--data": data}, "the fit of a network; fit the other network and compare the two tables")
        refuse_others({"--seed": seed}, "the evaluation of a network's fit, which has the seed of its run")
        evaluate_graph_command(run, json, quiet)
        return
    from unnorm.cli.use import evaluate_command

    evaluate_command(run, data, seed, json, quiet)


@app.command()
def report(run: RunPath, seed: RunSeed = None, json: Json = False, quiet: Quiet = False) -> None:
    """Write report.html of a run again."""
    if _holds_graph(run):
        from unnorm.cli.graphs import refuse_others, report_graph_command

        refuse_others({"--seed": seed}, "the report of a network's fit, which has the seed of its run")
        report_graph_command(run, json, quiet)
        return
    from unnorm.cli.use import report_command

    report_command(run, seed, json, quiet)


@app.command()
def reproduce(
    name: Annotated[str, typer.Argument(help="Which table or figure (unnorm list experiments).")],
    scale: Annotated[str, typer.Option(help="quick: minutes; paper: the printed settings.")] = "quick",
    out: Out = None,
    seed: Seed = 0,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Repeat a table or figure of the literature, ours beside the published numbers. Run it again to go on."""
    from unnorm.cli.reproduce import reproduce_command

    reproduce_command(name, scale, out, seed, json, quiet)  # pyright: ignore[reportArgumentType]


@app.command()
def restore(
    picture: Annotated[
        Path, typer.Argument(help="A black-and-white picture (.png, .bmp, .gif ...), or an .npy array.")
    ],
    out: Out = None,
    flips: Annotated[float, typer.Option(help="The share of pixels that were flipped.")] = 0.1,
    coupling: Annotated[float, typer.Option(help="How strongly neighbours like to be equal.")] = 1.2,
    method: Annotated[
        str, typer.Option(help="cut: the exact optimum; icm: fast, and near the noisy picture; anneal; modes.")
    ] = "cut",
    threshold: Annotated[
        float | None, typer.Option(help="Make a grey picture black and white at this brightness, from 0 to 1.")
    ] = None,
    force: Force = False,
    seed: Seed = 0,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Restore a black-and-white picture with flipped pixels: the most probable one under an Ising prior.

    Without --out it is written beside the noisy one, as NAME-restored.png.
    """
    from unnorm.cli.restore import restore_command

    restore_command(picture, out, flips, coupling, method, threshold, force, seed, json, quiet)


@app.command(name="list")
def list_names(
    kind: Annotated[
        str | None, typer.Argument(help="objectives, models, samplers, generators, noises, data, networks, terms ...")
    ] = None,
    seed: Seed = 0,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Everything that has a name."""
    from unnorm.cli.use import list_command

    list_command(kind, json)


def _holds_graph(run: Path) -> bool:
    """Whether the folder is the run of a network."""
    from unnorm.runs.graphs import is_graph_run

    return is_graph_run(run)


@app.callback(invoke_without_command=True)
def version(
    show: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False,
) -> None:
    if show:
        from unnorm import __version__

        print(__version__)
        raise typer.Exit()
