"""Options that several commands have, and how their values are read; imports nothing heavy."""

from typing import Annotated, Any

import typer

Device = Annotated[
    str | None, typer.Option(metavar="NAME", help="Where to compute, such as cpu or cuda.")
]
Format = Annotated[
    str | None, typer.Option(metavar="NAME", help="npy, jsonl, ..., where the name does not tell.")
]
Key = Annotated[
    str | None, typer.Option(metavar="NAME", help="Which array or column, where there are several.")
]
NoProgress = Annotated[bool, typer.Option("--no-progress", help="Show no progress bars.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace an existing file.")]
SourceArgument = Annotated[
    str, typer.Argument(metavar="SOURCE", help="A file, a folder of shards, or - for stdin.")
]


def examples(*lines: str) -> str:
    """The end of a command's --help: example calls, kept as they are."""
    return "\n".join(
        ["\b", "Example:" if len(lines) == 1 else "Examples:", *(f"  {line}" for line in lines)]
    )


def settings(given: list[str]) -> dict[str, Any]:
    """What was given as `--set`, by name.

    Example:
        >>> settings(["k=3", "method=zca"])
        {'k': 3, 'method': 'zca'}
    """
    parts = [setting.partition("=") for setting in given]
    for setting, (name, equals, _) in zip(given, parts, strict=True):
        if not (name.strip() and equals):
            raise typer.BadParameter(
                f"got {setting!r}, expected OPTION=VALUE such as k=256", param_hint="--set"
            )
    return {name.strip(): value(text.strip()) for name, _, text in parts}


def value(text: str) -> Any:
    """A value as it is meant: true, false, null, a number, a list or table in JSON, else text.

    Example:
        >>> value("true"), value("3"), value("0.5"), value("zca"), value("[1, 2]")
        (True, 3, 0.5, 'zca', [1, 2])
    """
    if text.lower() in ("true", "false", "null"):
        return {"true": True, "false": False, "null": None}[text.lower()]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    if text.startswith(("[", "{")):
        from json import JSONDecodeError, loads

        try:
            return loads(text)
        except (JSONDecodeError, RecursionError) as error:
            reason = getattr(error, "msg", "too deep").lower()
            raise typer.BadParameter(
                f"got {text[:80]!r}, expected a list or table in JSON such as [1, 2] or "
                f'["a", "b"] ({reason})',
                param_hint="--set",
            ) from None
    return text
