"""From a plan's table `tuning` to searches."""

from collections.abc import Sequence
from dataclasses import replace

from isotropy.errors import SettingError, SourceError
from isotropy.experiments._revisions import Revisions
from isotropy.experiments._search import Search
from isotropy.experiments._search_space import Dimension
from isotropy.experiments.plan import Plan, Planned, choose_device
from isotropy.experiments.spec import MeasureSettings, Place, RunSpec


def searches_of(
    plan: Plan,
    place: Place,
    *,
    seeds: int,
    share: float,
    seed: int,
    device: str,
    threads: int | None,
) -> list[Search]:
    """A search for each model, task and method of the table `tuning`; grids may share one.

    Args:
        plan: the plan.
        place: where data are.
        seeds: runs of a trial; their seeds follow on those of the plan.
        share: of train that is split off where the plan does not say.
        seed: of what is chosen.
        device: `auto`, `cpu` or `cuda`.
        threads: of each run.

    Raises:
        SettingError: there is nothing to search, or something in it makes no sense.
        SourceError: models or data that are not here.
    """
    if not plan.tuning:
        raise SettingError(
            f"{plan.where}: got no table 'tuning', expected what is to be searched, such as "
            '[tuning.i-star] with "settings.weight" = [-1, 1]'
        )
    on, revisions = choose_device(device), Revisions(place)
    placed = {"threads": 1 if threads is None else threads, "device": on}
    first = max(cell.spec.seed for cell in plan.cells) + 1
    found: dict[tuple[str, str], Search] = {}
    for cell in plan.cells:
        if cell.method not in plan.tuning:
            continue
        spec = revisions.filled(_base(cell, share))
        if spec is None:
            continue
        base = RunSpec.read({**spec.model_dump(), **placed})
        key = cell.method, base.id
        if key in found:
            grids = dict.fromkeys((*found[key].grids, cell.grid))
            found[key] = replace(found[key], grids=tuple(grids))
            continue
        where = f"{plan.where}: tuning.{cell.method}: "
        found[key] = _search(plan, cell, base, where, range(first, first + seeds), seed)
    if lines := revisions.missing():
        raise SourceError(f"{plan.where}: {'; '.join(lines)}")
    return list(found.values())


def _search(
    plan: Plan, cell: Planned, base: RunSpec, where: str, seeds: Sequence[int], seed: int
) -> Search:
    from isotropy.experiments.tasks import find_task

    task = find_task(base.task)
    if not task.trains:
        raise SettingError(
            f"{where}got task {task.name!r}, which trains nothing and has no part of train to "
            "search on, expected others; leave it out with --set tasks=[...]"
        )
    try:
        dimensions = tuple(
            Dimension.parse(name, given) for name, given in plan.tuning[cell.method].items()
        )
    except SettingError as error:
        raise SettingError(f"{where}{error}") from None
    metric = plan.report.metrics.get(task.name)
    return Search(cell.method, (cell.grid,), base, dimensions, metric, tuple(seeds), seed)


def _base(cell: Planned, share: float) -> RunSpec:
    """A cell's run without its seed and measures, which sees nothing of what is reported."""
    data = cell.spec.data.model_copy(
        update={"tune": cell.spec.data.tune or share, "reported": False}
    )
    return RunSpec.read(
        {
            **cell.spec.model_dump(),
            "seed": 0,
            "data": data.model_dump(),
            "measure": MeasureSettings(final=()).model_dump(),
        }
    )
