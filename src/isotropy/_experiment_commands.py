"""The commands `train`, `run`, `tune`, `report`, `export` and `papers`."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from isotropy._command_options import NoProgress, Overwrite, examples, settings
from isotropy.errors import SettingError

if TYPE_CHECKING:
    from isotropy.experiments.plan import Plan

_ENGINES = ("local", "ray")

Store = Annotated[str, typer.Option(metavar="FILE", help="The runs database.")]
StoreArgument = Annotated[
    str,
    typer.Argument(metavar="RUNS.DB", help="The runs database that `isotropy run` has written."),
]
PlanArgument = Annotated[
    str, typer.Argument(metavar="PLAN", help="A plan's name (`isotropy list plans`) or TOML file.")
]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change a setting; repeatable."),
]
DataDir = Annotated[
    str | None,
    typer.Option(metavar="FOLDER", help="Where data sets lie, a folder each; else from the hub."),
]
Split = Annotated[
    list[str] | None,
    typer.Option("--split", metavar="NAME=FILE", help="A file for train, dev or test; repeatable."),
]
Data = Annotated[
    str | None, typer.Option(metavar="FILE", help="Your own CSV, JSONL or Parquet file.")
]
Text = Annotated[str | None, typer.Option(metavar="COLUMN", help="Its column with the text.")]
Pair = Annotated[str | None, typer.Option(metavar="COLUMN", help="One with a second text.")]
Label = Annotated[str | None, typer.Option(metavar="COLUMN", help="Its column with the label.")]
Model = Annotated[
    str | None,
    typer.Option(metavar="MODEL", help="minilm, a model folder, or a name on the hub."),
]
Threads = Annotated[
    int | None, typer.Option(metavar="N", help="Threads of a run; a part of what the run is.")
]
Where = Annotated[str, typer.Option(metavar="NAME", help="auto, cpu or cuda.")]
Workers = Annotated[
    int | None, typer.Option(metavar="N", help="Runs at a time; by default cores / threads.")
]
Engine = Annotated[str, typer.Option(metavar="NAME", help="Where runs run: local or ray.")]
Address = Annotated[
    str | None, typer.Option(metavar="ADDRESS", help="Of a Ray cluster; else one is started here.")
]


def add_to(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    app.command("train", epilog=_TRAIN_EXAMPLES)(_train)
    app.command("run", epilog=_RUN_EXAMPLES)(_run)
    app.command("tune", epilog=_TUNE_EXAMPLES)(_tune)
    app.command("report", epilog=_REPORT_EXAMPLES)(_report)
    app.command("export", epilog=_EXPORT_EXAMPLES)(_export)
    app.command("papers", epilog=_PAPERS_EXAMPLES)(_papers)


_TRAIN_EXAMPLES = examples(
    "isotropy train --model minilm --task minimal-pairs --method i-star --set weight=-1",
    "isotropy train --task cola --data-dir glue_data --set train.max_steps=100",
    "isotropy train --task custom --data my.csv --text text --label label",
)
_RUN_EXAMPLES = examples(
    "isotropy run demo",
    "isotropy run i-star-small --store runs.db --dry-run",
    "isotropy run my-plan.toml --only method=i-star --set seeds=[0,1]",
    "isotropy run does-it-pay --data my.csv --text text --label label --model ./my-bert",
)
_TUNE_EXAMPLES = examples(
    "isotropy tune i-star-small --trials 40",
    "isotropy tune my-plan.toml --seconds 3600 --out tuned.toml",
)
_REPORT_EXAMPLES = examples(
    "isotropy report runs.db",
    "isotropy report runs.db --csv cells.csv",
)
_EXPORT_EXAMPLES = examples(
    "isotropy export runs.db --out runs.csv",
    "isotropy export runs.db --out runs.parquet",
)
_PAPERS_EXAMPLES = examples("isotropy papers")


def _train(
    task: Annotated[
        str, typer.Option(metavar="TASK", help="Its name; see `isotropy list tasks`.")
    ] = "minimal-pairs",
    model: Annotated[
        str, typer.Option(metavar="MODEL", help="minilm, a model folder, or a name on the hub.")
    ] = "minilm",
    method: Annotated[
        str, typer.Option(metavar="METHOD", help="none, or see `isotropy list methods`.")
    ] = "none",
    seed: Annotated[int, typer.Option(metavar="N", help="Seed of everything random.")] = 0,
    set_: Set = None,
    peft: Annotated[
        str | None, typer.Option(metavar="NAME", help="lora: train few weights beside the model's.")
    ] = None,
    data_dir: DataDir = None,
    split: Split = None,
    data: Data = None,
    text: Text = None,
    pair: Pair = None,
    label: Label = None,
    store: Annotated[
        str | None, typer.Option(metavar="FILE", help="Keep the run in this runs database.")
    ] = None,
    json: Annotated[
        str | None, typer.Option(metavar="FILE", help="Write the result; - prints it alone.")
    ] = None,
    threads: Threads = None,
    device: Where = "auto",
    no_progress: NoProgress = False,
) -> None:
    """Train one model on one task with one method, and say what came out of it.

    A setting is a plan's: --set train.learning_rate=1e-4, --set method.refresh_points=20000; one
    without a dot is the method's own: --set weight=-1.
    """
    from isotropy.output import progress_bars, reserved

    given = settings(set_ or [])
    if peft is not None:
        given["train.peft"] = peft
    files = _files(split, data)
    columns = _columns(text, pair, label)
    with (
        reserved(None if json == "-" else json) as write,
        progress_bars(show=not no_progress) as progress,
    ):
        from isotropy.experiments.single import train_one

        run = train_one(
            model=model,
            task=task,
            method=method,
            seed=seed,
            settings=given,
            data_dir=data_dir,
            files=files,
            columns=columns,
            threads=threads,
            device=device,
            store=store,
            progress=progress,
        )
        as_json = run.result.model_dump_json(indent=2)
        if json == "-":
            typer.echo(as_json)
        write(as_json + "\n")
    if json != "-":
        typer.echo(run.summary)


def _run(
    plan: PlanArgument,
    store: Store = "runs.db",
    workers: Workers = None,
    threads: Threads = None,
    engine: Engine = "local",
    address: Address = None,
    only: Annotated[
        str | None,
        typer.Option(
            metavar="WHICH",
            help="Only some runs, such as method=i-star,seed=0; or stability, a plan's simulation.",
        ),
    ] = None,
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="Do runs that failed before again.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only list the runs, and estimate their time.")
    ] = False,
    set_: Set = None,
    model: Model = None,
    data_dir: DataDir = None,
    split: Split = None,
    data: Data = None,
    text: Text = None,
    pair: Pair = None,
    label: Label = None,
    device: Where = "auto",
    no_progress: NoProgress = False,
) -> None:
    """Carry out all runs of a plan, and say what came out of them.

    What is finished stays in the runs database: the same command again goes on where it stopped,
    and several may work on one database at the same time.
    """
    from isotropy.experiments import execution, outcome
    from isotropy.experiments.spec import Place
    from isotropy.output import progress_bars

    _known_engine(engine, address)
    place = Place(data_dir=data_dir, files=_files(split, data))
    chosen = _plan(plan, set_, model, _columns(text, pair, label))
    if only == "stability":
        with progress_bars(show=not no_progress) as progress:
            studied = outcome.study(chosen, progress)
        typer.echo(studied)
        return
    if dry_run:
        with progress_bars(show=not no_progress) as progress:
            listed = outcome.preview(
                chosen,
                place=place,
                only=only,
                workers=workers,
                threads=threads,
                device=device,
                progress=progress,
            )
        typer.echo(listed)
        return
    runs = execution.run(
        chosen,
        store=store,
        engine=engine,
        address=address,
        workers=workers,
        threads=threads,
        only=only,
        retry_failed=retry_failed,
        place=place,
        device=device,
        show=not no_progress,
    )
    typer.echo(outcome.summary(runs))
    if chosen.stability is not None and only is None:
        with progress_bars(show=not no_progress) as progress:
            studied = outcome.study(chosen, progress)
        typer.echo(f"\n\n{studied}")
    if runs.failed or runs.left:
        typer.echo(outcome.failures(runs), err=True)
        raise typer.Exit(1)


def _tune(
    plan: PlanArgument,
    trials: Annotated[
        int | None, typer.Option(metavar="N", help="At most so many trials a method.")
    ] = None,
    seconds: Annotated[
        float | None, typer.Option(metavar="S", help="At most so many seconds in all.")
    ] = None,
    store: Store = "tuning.db",
    out: Annotated[
        str | None, typer.Option(metavar="FILE", help="Write the plan with the best settings.")
    ] = None,
    workers: Workers = None,
    threads: Threads = None,
    engine: Engine = "local",
    address: Address = None,
    set_: Set = None,
    model: Model = None,
    data_dir: DataDir = None,
    split: Split = None,
    data: Data = None,
    text: Text = None,
    pair: Pair = None,
    label: Label = None,
    device: Where = "auto",
    no_progress: NoProgress = False,
) -> None:
    """Search for a plan's best settings on a split of its training data.

    The evaluation data, on which results are reported, is never looked at. What was tried stays in
    the database: the same command again goes on.
    """
    from isotropy.experiments.spec import Place
    from isotropy.experiments.tuning import tune
    from isotropy.output import progress_bars, reserved

    _known_engine(engine, address)
    chosen = _plan(plan, set_, model, _columns(text, pair, label))
    with reserved(out) as write, progress_bars(show=not no_progress) as progress:
        tuned = tune(
            chosen,
            store=store,
            trials=trials,
            seconds=seconds,
            engine=engine,
            address=address,
            workers=workers,
            threads=threads,
            place=Place(data_dir=data_dir, files=_files(split, data)),
            device=device,
            progress=progress,
        )
        write(tuned.plan.text)
    typer.echo(str(tuned))


def _report(
    runs: StoreArgument,
    plan: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only this plan of those in the database.")
    ] = None,
    csv: Annotated[
        str | None, typer.Option(metavar="FILE", help="Write every cell, with the printed numbers.")
    ] = None,
) -> None:
    """Show what came out of runs: scores, isotropy and cost, with what can be said of them."""
    from isotropy import report
    from isotropy.output import reserved

    with reserved(csv, source=runs) as write:
        typer.echo(report.table(runs, plan=plan))
        if csv is not None:
            write(report.csv(runs, plan=plan))


def _export(
    runs: StoreArgument,
    out: Annotated[
        str, typer.Option(metavar="FILE", help=".csv or .parquet to write; series beside it.")
    ],
    overwrite: Overwrite = False,
) -> None:
    """Write every run of a runs database, with its settings, scores and series, to tables."""
    from isotropy.experiments.store import export

    for path in export(runs, out, overwrite=overwrite):
        typer.echo(str(path))


def _papers() -> None:
    """Say what each built-in plan reproduces, table by table."""
    from isotropy.experiments import papers

    typer.echo(papers.listing())


def _plan(name: str, given: list[str] | None, model: str | None, columns: dict[str, Any]) -> "Plan":
    """The plan of that name or file, changed as the options say."""
    from isotropy.experiments.plan import Plan

    changes = settings(given or [])
    if model is not None:
        changes["models"] = [model]
    if columns:
        changes["data.columns"] = columns
    return Plan.load(name).override(changes)


def _known_engine(name: str, address: str | None) -> None:
    if name not in _ENGINES:
        from isotropy.errors import unknown_name

        raise unknown_name("engine", name, _ENGINES)
    if address is not None and name != "ray":
        raise SettingError(
            f"got --address {address!r} with the engine {name}, expected it with --engine ray alone"
        )


def _files(split: Iterable[str] | None, data: str | None) -> dict[str, str]:
    """The files of splits, by name; a user's own file is that of `train`."""
    found: dict[str, str] = {}
    for given in split or ():
        name, equals, path = given.partition("=")
        if name not in ("train", "dev", "test", "mismatched") or not equals or not path:
            raise SettingError(
                f"got --split {given!r}, expected NAME=FILE with the name train, dev or test"
            )
        found[name] = path
    if data is not None:
        if "train" in found:
            raise SettingError(
                "got --data and --split train=..., expected one of them; both name training data"
            )
        found["train"] = data
    return found


def _columns(text: str | None, pair: str | None, label: str | None) -> dict[str, Any]:
    given = {"text": text, "pair": pair, "label": label}
    return {name: column for name, column in given.items() if column is not None}
