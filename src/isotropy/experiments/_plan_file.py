"""What a plan file says: its records, as TOML has them."""

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field

from isotropy.experiments.spec import (
    Count,
    DataSettings,
    JsonValue,
    MeasureSettings,
    MethodSettings,
    Record,
    Seed,
    Share,
    TrainSettings,
)


def _one_or_more(given: Any) -> Any:
    """A pattern by itself stands for a list of one."""
    return [given] if isinstance(given, str) else given


def _seeds(given: Any) -> Any:
    """A number of seeds stands for that many, from 0 up."""
    if isinstance(given, int) and not isinstance(given, bool):
        given = range(given)
    if not isinstance(given, list | tuple | range):
        raise ValueError(_SEEDS)
    for seed in given:
        if not isinstance(seed, int) or isinstance(seed, bool) or not 0 <= seed < 2**32:
            raise ValueError(_SEEDS)
    return tuple(given)


def _methods(given: Any) -> Any:
    """A name by itself stands for a method with its own settings."""
    if not isinstance(given, list | tuple):
        return given
    return [{"name": method} if isinstance(method, str) else method for method in given]


def _whole(given: Any) -> Any:
    """Settings where 1.0 is 1, so that a run has one identity however a number is written."""
    if isinstance(given, dict):
        return {name: _whole(value) for name, value in given.items()}
    if isinstance(given, list):
        return [_whole(value) for value in given]
    return int(given) if isinstance(given, float) and given.is_integer() else given


_SEEDS = "a number of seeds, or a list of whole numbers from 0 up"
Names = tuple[str, ...]
Patterns = Annotated[Names, BeforeValidator(_one_or_more)]
Seeds = Annotated[tuple[Seed, ...], BeforeValidator(_seeds)]
Settings = Annotated[dict[str, JsonValue], BeforeValidator(_whole)]


class Method(Record):
    """A method of a plan: what `MethodSettings` has, and what the plan calls it.

    Attributes:
        name: `"none"`, or a name that `isotropy list methods` shows.
        label: how `when` and tables call it; its name by default.
        settings: keyword arguments of the component.
        accumulate: of a penalty under gradient accumulation: what is one cloud.
        refresh_points: of a penalty that has one: rows of a refresh.
        stage: of the isotropy layer: settings of its second stage.
    """

    name: str
    label: str = ""
    settings: Settings = Field(default_factory=dict)
    accumulate: Literal["separate", "cached"] = "separate"
    refresh_points: Annotated[int, Field(ge=2)] = 250_000
    stage: Settings = Field(default_factory=dict)

    @property
    def called(self) -> str:
        """What a plan calls it."""
        return self.label or self.name

    def with_settings(self, settings: dict[str, JsonValue], stage: dict[str, JsonValue]) -> Self:
        """The method with some settings replaced."""
        changed = {
            "settings": {**self.settings, **settings},
            "stage": {**self.stage, **stage},
        }
        return self.model_copy(update=changed)

    @property
    def of_a_run(self) -> MethodSettings:
        """What a run's spec says of it."""
        return MethodSettings.read(self.model_dump(exclude={"label"}))


Methods = Annotated[tuple[Method, ...], BeforeValidator(_methods)]


class Grid(Record):
    """Models × tasks × methods × seeds; what it does not say, the plan says."""

    name: str
    models: Names | None = None
    tasks: Names | None = None
    methods: Methods | None = None
    seeds: Seeds | None = None
    train: TrainSettings = TrainSettings()
    data: DataSettings = DataSettings()
    measure: MeasureSettings = MeasureSettings()


class When(Record):
    """The cells that an override is for: all that match every pattern, with `*` for anything."""

    grid: Patterns | None = None
    model: Patterns | None = None
    task: Patterns | None = None
    method: Patterns | None = None

    def matches(self, *, grid: str, model: str, task: str, method: Sequence[str]) -> bool:
        """Whether a cell is meant; a method is meant by its label and by its name.

        Example:
            >>> when = When(task="sst*", method=["i-star", "cosine"])
            >>> when.matches(grid="", model="minilm", task="sst2", method=["cosine"])
            True
        """
        pairs = [
            (self.grid, [grid]),
            (self.model, [model]),
            (self.task, [task]),
            (self.method, method),
        ]
        return all(
            patterns is None
            or any(fnmatchcase(name, pattern) for name in names for pattern in patterns)
            for patterns, names in pairs
        )

    def is_of(self, grids: Sequence[Grid]) -> bool:
        """Whether any cell of filled-in grids is meant."""
        return any(
            self.matches(
                grid=grid.name, model=model, task=task, method=[method.called, method.name]
            )
            for grid in grids
            for model in grid.models or ()
            for task in grid.tasks or ()
            for method in grid.methods or ()
        )


class Override(Record):
    """Settings of some cells; of several overrides the last one holds."""

    when: When
    train: TrainSettings = TrainSettings()
    data: DataSettings = DataSettings()
    measure: MeasureSettings = MeasureSettings()
    settings: Settings = Field(default_factory=dict)
    stage: Settings = Field(default_factory=dict)


class Reproduced(Record):
    """A table or figure of a paper.

    Attributes:
        where: which, such as `table 2`.
        what: what it shows.
        grid: the grid whose cells it is; None for all.
        numbers: the scores and measures it prints, by their keys; `score` is the task's metric.
        cannot: why it is not reproduced; None where it is.
    """

    where: str
    what: str
    grid: str | None = None
    numbers: Names = ()
    cannot: str | None = None


class Report(Record):
    """How the runs of a plan are reported.

    Attributes:
        score: that of the end, that of the best evaluation on the tuning split, or the mean over
            the last 30 % of training.
        centre: of the seeds.
        baseline: the method with which the others are compared.
        metrics: of a task; its main one by default.
        tables: what of a paper the plan reproduces.
    """

    score: Literal["last", "best", "late"] = "last"
    centre: Literal["mean", "median"] = "mean"
    baseline: str = "none"
    metrics: dict[str, str] = Field(default_factory=dict)
    tables: tuple[Reproduced, ...] = ()


class Stability(Record):
    """A study of how measures do on small samples, without training; see `stability`.

    Attributes:
        variances: the first of the Gaussian's; all others are 1.
        features: its dimensions.
        sizes: numbers of points in a sample.
        zetas: shares of the shrinkage matrix.
        shrinkage_points: from which that matrix is estimated.
        draws: samples of each size.
        seed: of the samples.
    """

    variances: tuple[Annotated[float, Field(gt=0)], ...] = (10, 6, 4, 4)
    features: Annotated[int, Field(ge=2)] = 768
    sizes: tuple[Annotated[int, Field(ge=4)], ...] = (16, 64, 256, 700, 768, 2048)
    zetas: tuple[Share, ...] = (0, 0.2, 0.4, 0.6, 0.8)
    shrinkage_points: Annotated[int, Field(ge=2)] = 75_000
    draws: Count = 5
    seed: Seed = 0


class PlanFile(Record):
    """A plan as it is written.

    Attributes:
        name: lower-case with hyphens; that of the file by default.
        summary: one line, for tables.
        reference: where the protocol comes from.
        models: `minilm`, hub names and local folders.
        tasks: names that `isotropy list tasks` shows.
        methods: names that `isotropy list methods` shows, `none`, or tables with settings.
        seeds: a list, or how many.
        train: how models are trained.
        data: which data runs see.
        measure: what is measured.
        grid: several grids in one plan; without any, the plan itself is one.
        override: settings of some cells.
        report: how the runs are reported.
        from_code: settings that the paper's text leaves unsaid and its code has, with a word why.
        inferred: settings that follow from what the paper prints, likewise.
        ours: settings that are this project's choice, likewise.
        tuning: by method, what `isotropy tune` searches: a setting such as `settings.weight` to a
            list of choices, or to a range `{low, high, log}`.
        stability: a study without training.
    """

    name: str = ""
    summary: str = ""
    reference: str = ""
    models: Names = ()
    tasks: Names = ()
    methods: Methods = ()
    seeds: Seeds = ()
    train: TrainSettings = TrainSettings()
    data: DataSettings = DataSettings()
    measure: MeasureSettings = MeasureSettings()
    grid: tuple[Grid, ...] = ()
    override: tuple[Override, ...] = ()
    report: Report = Report()
    from_code: dict[str, str] = Field(default_factory=dict)
    inferred: dict[str, str] = Field(default_factory=dict)
    ours: dict[str, str] = Field(default_factory=dict)
    tuning: dict[str, dict[str, Any]] = Field(default_factory=dict)
    stability: Stability | None = None

    @property
    def grids(self) -> tuple[Grid, ...]:
        """The grids, with what they leave to the plan filled in."""
        return tuple(self._filled(grid) for grid in self.grid or (Grid(name="main"),))

    def _filled(self, grid: Grid) -> Grid:
        lists = {
            part: getattr(self, part)
            for part in ("models", "tasks", "methods", "seeds")
            if getattr(grid, part) is None
        }
        merged = {
            part: type(getattr(self, part)).read(
                {**said(getattr(self, part)), **said(getattr(grid, part))}
            )
            for part in PARTS
        }
        return grid.model_copy(update={**lists, **merged})


PARTS = ("train", "data", "measure")


def said(record: Record) -> dict[str, Any]:
    """What was given of a record's settings, without those that are only defaults."""
    return {name: getattr(record, name) for name in sorted(record.model_fields_set)}
