"""The command line: each command parses, calls the library and prints.

torch and everything that needs it is imported inside the commands, so that `isotropy --help`
answers at once.
"""

import errno
import io
import os
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from isotropy import _experiment_commands, _transform_commands
from isotropy._command_options import (
    Device,
    Format,
    Key,
    NoProgress,
    Overwrite,
    SourceArgument,
    examples,
    value,
)
from isotropy._version import __version__
from isotropy.errors import IsotropyError, unknown_name

# A full disk, a limit, a device that has gone.
_CANNOT_PRINT = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


class _Commands(TyperGroup):
    """The commands, with one line for an error of ours and one for an interruption."""

    def invoke(self, ctx: Any) -> Any:
        try:
            result = super().invoke(ctx)
            if sys.stdout is not None:  # somebody may have closed it
                sys.stdout.flush()  # here, where typer handles a reader that has gone away
        except IsotropyError as error:
            typer.echo(f"error: {error}", err=True)
            raise typer.Exit(1) from None
        except OSError as error:
            if error.errno not in _CANNOT_PRINT or error.filename is not None:
                raise
            # What is left in the buffer would be tried again at the end, with a traceback.
            sys.stdout = open(os.devnull, "w")  # noqa: SIM115, PTH123 # open until the end
            typer.echo(
                f"error: got a standard output that takes no more ({error.strerror}), expected "
                "one with room; nothing is lost but what was not printed",
                err=True,
            )
            raise typer.Exit(1) from None
        except KeyboardInterrupt:
            typer.echo("interrupted", err=True)
            raise typer.Exit(130) from None
        return result


app = typer.Typer(
    cls=_Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,  # any other exception is a bug and keeps its traceback
    rich_markup_mode=None,  # plain text in a pipe too, and a faster --help
    context_settings={"help_option_names": ["-h", "--help"]},
)


def main() -> None:
    """Run the command line."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a character that it does not know is no error
            stream.reconfigure(errors="replace")
    try:
        app(prog_name="isotropy")
    except KeyboardInterrupt:  # while the command was being found, or at its very end
        typer.echo("interrupted", err=True)
        sys.exit(130)


def _show_version(asked: bool) -> None:
    if asked:
        typer.echo(f"isotropy {__version__}")
        raise typer.Exit


@app.callback(
    epilog=examples(
        "isotropy measure embeddings.npy",
        "isotropy run demo",
    )
)
def _isotropy(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Measure, shape and test the isotropy of embeddings."""


@app.command(
    "measure",
    epilog=examples(
        "isotropy measure embeddings.npy",
        "isotropy measure shards/ --measures iso_score_unbiased,two_nn --interval .95",
        "isotropy measure layers.parquet --by layer --json scores.json",
        "isotropy measure embeddings.npy --set mle_dimension.k=10",
        "isotropy measure - --format jsonl < embeddings.jsonl",
    ),
)
def _measure(
    source: SourceArgument,
    measures: Annotated[
        str | None,
        typer.Option(metavar="A,B", help="What to measure; see `isotropy list measures`."),
    ] = None,
    by: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="Measure each value of this column by itself too."),
    ] = None,
    interval: Annotated[
        float | None, typer.Option(metavar="LEVEL", help="Add intervals of this level, say .95.")
    ] = None,
    json: Annotated[
        str | None, typer.Option(metavar="FILE", help="Write JSON; - prints it, and no table.")
    ] = None,
    html: Annotated[
        str | None, typer.Option(metavar="FILE", help="Write HTML; - prints it, and no table.")
    ] = None,
    key: Key = None,
    format: Format = None,
    sample: Annotated[
        int, typer.Option(metavar="N", help="Rows drawn for measures that cannot take them all.")
    ] = 20_000,
    seed: Annotated[int, typer.Option(metavar="N", help="Seed of everything random.")] = 0,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="M.OPTION=VALUE", help="An option of measure M; repeatable."),
    ] = None,
    device: Device = None,
    no_progress: NoProgress = False,
) -> None:
    """Measure a file, a folder of shards or standard input.

    SOURCE is a .npy, .npz, .safetensors, .parquet, .jsonl, .csv or .pt file, a folder of such
    files (shards of one cloud), or - for standard input. It may be far larger than memory.
    """
    from isotropy import tables
    from isotropy.output import progress_bars, reserved

    names = None if measures is None else _split(measures)
    options = _options(set_ or [])
    if json is not None and json == html:
        raise typer.BadParameter(
            f"only one of --json and --html can be {json}", param_hint="--html"
        )
    with (
        reserved(None if json == "-" else json, source=source) as write_json,
        reserved(None if html == "-" else html, source=source) as write_html,
    ):
        with progress_bars(show=not no_progress) as progress:
            from isotropy.measurement import measure

            result = measure(
                source,
                names,
                by=by,
                interval=interval,
                key=key,
                format=format,
                options=options,
                sample=sample,
                seed=seed,
                device=device,
                progress=progress,
            )
        # First of all the numbers: they are there even if a file then cannot be written.
        as_json, as_html = _json(result.to_dict()), result.to_html()
        if json == "-":
            typer.echo(as_json)
        elif html == "-":
            typer.echo(as_html, nl=False)
        else:
            typer.echo(tables.measurement(result))
        write_json(as_json + "\n")
        write_html(as_html)


@app.command(
    "embed",
    epilog=examples(
        "isotropy embed minilm --text sentences.txt --out embeddings.safetensors",
        "isotropy embed ./my-bert --text train.jsonl --column sentence \\",
        "  --site mean@all --out layers.parquet",
        "isotropy measure layers.parquet --by layer",
    ),
)
def _embed(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="minilm, a model folder, or a name on the hub.")
    ],
    text: Annotated[
        str,
        typer.Option(metavar="FILE", help=".txt, .jsonl, .csv, .tsv, .parquet, or - for stdin."),
    ],
    out: Annotated[str, typer.Option(metavar="FILE", help=".safetensors or .parquet, to write.")],
    site: Annotated[
        str, typer.Option(help="cls, mean or tokens at last, all or a layer's number.")
    ] = "mean@last",
    column: Annotated[
        str, typer.Option(metavar="NAME", help="The column with the text, where there are columns.")
    ] = "text",
    batch_size: Annotated[int, typer.Option(metavar="N", help="Texts in one batch.")] = 64,
    max_length: Annotated[
        int | None, typer.Option(metavar="N", help="Tokens to keep; else the model's limit.")
    ] = None,
    dtype: Annotated[
        str, typer.Option(metavar="DTYPE", help="What to store: float32 or float16.")
    ] = "float32",
    model_dtype: Annotated[
        str, typer.Option(metavar="DTYPE", help="In what to run: float32, bfloat16, float16, auto.")
    ] = "float32",
    overwrite: Overwrite = False,
    device: Device = None,
    no_progress: NoProgress = False,
) -> None:
    """Embed the texts of a file with a Hugging Face encoder.

    One pass gives every layer. The file holds the embeddings and, as columns, each row's number in
    the text, its layer and its token, for `isotropy measure --by`.
    """
    from isotropy.output import progress_bars

    with progress_bars(show=not no_progress) as progress:
        from isotropy.sources import embed

        summary = embed(
            model,
            text,
            out,
            site=site,
            column=column,
            batch_size=batch_size,
            max_length=max_length,
            device=device,
            dtype=dtype,
            model_dtype=model_dtype,
            overwrite=overwrite,
            progress=progress,
        )
    typer.echo(str(summary))


_transform_commands.add_to(app)
_experiment_commands.add_to(app)


def _list_measures() -> str:
    from isotropy import tables
    from isotropy.measures import SPECS

    return tables.measures(SPECS.values())


def _list_methods() -> str:
    from isotropy import layers, penalties, tables, transforms

    kinds = (penalties.SPECS, layers.SPECS, transforms.SPECS)
    return tables.methods(spec for specs in kinds for spec in specs.values())


def _list_tasks() -> str:
    from isotropy import tables
    from isotropy.experiments.tasks import TASKS

    return tables.tasks(TASKS.values())


def _list_plans() -> str:
    from isotropy import tables
    from isotropy.experiments.plan import Plan, built_in

    return tables.plans(Plan.load(name) for name in built_in())


_LISTS = {
    "measures": _list_measures,
    "methods": _list_methods,
    "tasks": _list_tasks,
    "plans": _list_plans,
}


@app.command(
    "list",
    epilog=examples(
        "isotropy list measures",
        "isotropy list methods",
        "isotropy list tasks",
        "isotropy list plans",
    ),
)
def _list(
    kind: Annotated[
        str, typer.Argument(metavar="KIND", help=f"What to list: {', '.join(_LISTS)}.")
    ],
) -> None:
    """List what there is."""
    if kind not in _LISTS:
        raise unknown_name("kind of list", kind, _LISTS)
    typer.echo(_LISTS[kind]())


def _split(names: str) -> list[str]:
    """The names in a list with commas."""
    split = [name.strip() for name in names.split(",")]
    if not all(split):
        raise typer.BadParameter(
            f"got {names!r}, expected names with commas between them", param_hint="--measures"
        )
    return split


def _options(settings: list[str]) -> dict[str, dict[str, Any]]:
    """`["m.k=3"]` as `{"m": {"k": 3}}`."""
    options: dict[str, dict[str, Any]] = {}
    for setting in settings:
        path, equals, text = setting.partition("=")
        measure, dot, option = path.strip().replace("-", "_").partition(".")
        if not (measure and dot and option and equals):
            raise typer.BadParameter(
                f"got {setting!r}, expected MEASURE.OPTION=VALUE such as mle_dimension.k=10",
                param_hint="--set",
            )
        options.setdefault(measure, {})[option] = value(text.strip())
    return options


def _json(record: dict[str, Any]) -> str:
    from json import dumps

    return dumps(record, indent=2, allow_nan=False, ensure_ascii=False)
