"""What the command line says of a plan's runs: before them, and after."""

from typing import TYPE_CHECKING

from isotropy import report, tables
from isotropy.errors import SettingError, SourceError
from isotropy.experiments.plan import Plan
from isotropy.experiments.spec import Place
from isotropy.output import Progress

if TYPE_CHECKING:
    from isotropy.experiments.execution import Runs

_PAYS = "does-it-pay"


def preview(
    plan: Plan,
    *,
    place: Place,
    only: str | None = None,
    workers: int | None = None,
    threads: int | None = None,
    device: str = "auto",
    progress: Progress | None = None,
) -> str:
    """The runs of a plan and how long they would take, from a short probe of each kind.

    Args:
        plan: the plan; what of it is not here is named.
        place: where data are.
        only: which runs, as in `execution.run`.
        workers: runs at a time.
        threads: of each run.
        device: `auto`, `cpu` or `cuda`.
        progress: is told of the probes.

    Raises:
        SettingError: `only` names no run.
        SourceError: none of the runs has its model and data here.
    """
    from isotropy.experiments._only import chosen
    from isotropy.experiments.engines.local import worker_count
    from isotropy.experiments.estimate import estimate

    specs, missing = plan.available(place, device=device, threads=threads)
    if missing and not specs:
        raise SourceError(f"{plan.where}: {'; '.join(missing)}")
    specs = chosen(specs, only)
    found = estimate(
        specs,
        place=place,
        workers=worker_count(workers, 1 if threads is None else threads),
        progress=progress,
    )
    lines = [tables.wrapped(f"not here: {what}") for what in missing]
    return "\n\n".join([str(found), *(["\n".join(lines)] if lines else [])])


def summary(runs: "Runs") -> str:
    """The table of what came out and, of a user's own data, whether a method pays."""
    parts = [report.table(runs)]
    if runs.plan is not None and runs.plan.name == _PAYS:
        from isotropy.experiments.pays import sentence

        parts.append(tables.wrapped(sentence(runs)))
    return "\n\n".join(parts)


def study(plan: Plan, progress: Progress | None = None) -> str:
    """The plan's study without training, as text.

    Raises:
        SettingError: the plan has none.
    """
    from isotropy.experiments.stability import simulate

    if plan.stability is None:
        raise SettingError(
            f"got plan {plan.name!r}, which has no [stability], expected one that has, such as "
            "'i-star'"
        )
    return f"{plan.name}: measures of small samples\n\n{simulate(plan.stability, progress)}"


def failures(runs: "Runs") -> str:
    """One line of what failed or could not be done, and what to do."""
    failed, left = runs.failed, runs.left
    if not failed:
        return (
            f"error: got {len(left)} of {len(runs)} runs whose processes ended each time, such as "
            f"{left[0].spec.label}, expected a result; give the same command again, where memory "
            "was short with fewer --workers"
        )
    first = failed[0]
    said = (first.error or "no word").strip().splitlines()[0]
    return (
        f"error: got {len(failed)} failed of {len(runs)} runs, the first {first.spec.label} "
        f"({said}), expected none; mend that and run it again with --retry-failed"
    )
