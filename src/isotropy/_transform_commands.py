"""The commands `fit` and `apply`."""

from typing import Annotated

import typer

from isotropy._command_options import (
    Device,
    Format,
    Key,
    NoProgress,
    Overwrite,
    SourceArgument,
    examples,
    settings,
)


def add_to(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    app.command("fit", epilog=_FIT_EXAMPLES)(_fit)
    app.command("apply", epilog=_APPLY_EXAMPLES)(_apply)


_FIT_EXAMPLES = examples(
    "isotropy fit whitening embeddings.npy --out white.safetensors --set k=256",
    "isotropy fit all-but-the-top words.parquet --out t.safetensors --weights frequency",
)
_APPLY_EXAMPLES = examples(
    "isotropy apply white.safetensors embeddings.npy --out white.npy",
    "isotropy apply white.safetensors shards/ --out white.parquet",
)


def _fit(
    transform: Annotated[
        str, typer.Argument(metavar="TRANSFORM", help="Its name; see `isotropy list methods`.")
    ],
    source: SourceArgument,
    out: Annotated[str, typer.Option(metavar="FILE", help="The .safetensors file to write.")],
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="OPTION=VALUE", help="A setting; repeatable."),
    ] = None,
    weights: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="The column that says what a row counts.")
    ] = None,
    key: Key = None,
    format: Format = None,
    overwrite: Overwrite = False,
    device: Device = None,
    no_progress: NoProgress = False,
) -> None:
    """Fit a transform to a file, a folder of shards or standard input.

    The source may be far larger than memory. `isotropy apply` then maps embeddings with it.
    """
    from isotropy.output import progress_bars

    given = settings(set_ or [])
    with progress_bars(show=not no_progress) as progress:
        from isotropy import transforms

        summary = transforms.fit_file(
            transform,
            source,
            out,
            settings=given,
            weights=weights,
            key=key,
            format=format,
            overwrite=overwrite,
            device=device,
            progress=progress,
        )
    typer.echo(str(summary))


def _apply(
    transform: Annotated[
        str, typer.Argument(metavar="FILE", help="What `isotropy fit` has written.")
    ],
    source: SourceArgument,
    out: Annotated[
        str, typer.Option(metavar="FILE", help=".safetensors, .parquet or .npy, to write.")
    ],
    key: Key = None,
    format: Format = None,
    overwrite: Overwrite = False,
    no_progress: NoProgress = False,
) -> None:
    """Map embeddings with a fitted transform.

    Other columns go along: all to .parquet, those of numbers without a gap to .safetensors, none to
    .npy.
    """
    from isotropy.output import progress_bars

    with progress_bars(show=not no_progress) as progress:
        from isotropy import transforms

        summary = transforms.apply(
            transform,
            source,
            out,
            key=key,
            format=format,
            overwrite=overwrite,
            progress=progress,
        )
    typer.echo(str(summary))
