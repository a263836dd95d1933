"""A plan: models × tasks × methods × seeds under one protocol, read from TOML."""

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

from isotropy.errors import SettingError, SourceError, unknown_name
from isotropy.experiments import _plan_checks as checks, _toml
from isotropy.experiments._plan_changes import changed
from isotropy.experiments._plan_file import (
    PARTS,
    Grid,
    Method,
    PlanFile,
    Report,
    Reproduced,
    Stability,
    said,
)
from isotropy.experiments.spec import JsonValue, Place, RunSpec

Device = Literal["cpu", "cuda"]


def built_in() -> tuple[str, ...]:
    """The names of the plans that come with the package.

    Example:
        >>> "demo" in built_in()
        True
    """
    there = files("isotropy.experiments").joinpath("plans").iterdir()
    names = sorted(file.name.removesuffix(".toml") for file in there if file.name.endswith(".toml"))
    return tuple(names)


@dataclass(frozen=True)
class Planned:
    """A run and its place in a plan.

    Attributes:
        grid: the name of its grid.
        method: what the plan calls its method; its settings may differ between tasks.
        spec: the run, without what only a place knows: revisions, threads, device.
    """

    grid: str
    method: str
    spec: RunSpec


@dataclass(frozen=True)
class Plan:
    """A plan that has been checked; `Plan.load` and `Plan.parse` make one.

    Attributes:
        file: what is written in it.
        text: the TOML.
        where: what errors name it.

    Example:
        >>> plan = Plan.load("demo").override({"seeds": 1, "train.max_steps": 10})
        >>> [cell.method for cell in plan.cells]
        ['none', 'persistent-entropy', 'i-star', 'isotropy-layer']
        >>> plan.cells[0].spec.train.max_steps
        10
    """

    file: PlanFile
    text: str
    where: str

    @classmethod
    def load(cls, name_or_path: str | Path) -> "Plan":
        """The plan of that name, or of a TOML file.

        Raises:
            SettingError: there is no such plan, or something in it makes no sense; nothing has run
                then.
        """
        given = str(name_or_path)
        if given in built_in():
            file = files("isotropy.experiments").joinpath("plans", f"{given}.toml")
            return cls.parse(file.read_text(encoding="utf-8"), where=file.name)
        path = Path(given)
        if not (path.suffix == ".toml" or path.exists()):
            raise unknown_name("plan", given, built_in())
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
            raise SettingError(
                f"got plan {given!r}, which cannot be read ({reason}); expected a TOML file, or a "
                f"name: {', '.join(built_in())}"
            ) from None
        return cls.parse(text, where=path.name)

    @classmethod
    def parse(cls, text: str, *, where: str = "plan.toml") -> "Plan":
        """The plan that a text holds.

        Args:
            text: TOML.
            where: the file's name, for errors and as the name of a plan without one.
        """
        try:
            table = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise SettingError(f"{where}: got no TOML: {error}; mend that line") from None
        table.setdefault("name", Path(where).stem)
        plan = cls(PlanFile.read(table, where=where), text, where)
        plan._check(installed=False)  # a plan can be listed and described where it cannot run
        return plan

    def override(self, pairs: Mapping[str, JsonValue]) -> "Plan":
        """The plan with something changed for all of its runs.

        Args:
            pairs: a dotted name, such as `train.max_steps`, `settings.weight` or `report.score`, to
                its value, where None takes a setting out. `models`, `tasks`, `methods` and `seeds`
                choose among what the plan has; what it does not have stands in for all of it.

        Raises:
            SettingError: there is no such setting, or the plan makes no sense with it.
        """
        if not pairs:
            return self
        table = {"name": self.name, **tomllib.loads(self.text)}
        try:
            text = _toml.write(changed(table, pairs))
        except SettingError as error:
            raise SettingError(f"{self.where}: {error}") from None
        return Plan.parse(text, where=self.where)

    @property
    def name(self) -> str:
        """Its name."""
        return self.file.name

    @property
    def summary(self) -> str:
        """One line."""
        return self.file.summary

    @property
    def reference(self) -> str:
        """Where its protocol comes from."""
        return self.file.reference

    @property
    def report(self) -> Report:
        """How its runs are reported: score, centre, baseline, metrics."""
        return self.file.report

    @property
    def tables(self) -> tuple[Reproduced, ...]:
        """What of a paper it reproduces, and what not."""
        return self.file.report.tables

    @property
    def tuning(self) -> dict[str, dict[str, Any]]:
        """By method, the settings that are searched: lists of choices, or `{low, high, log}`."""
        return self.file.tuning

    @property
    def stability(self) -> Stability | None:
        """Its study without training, where it has one."""
        return self.file.stability

    @property
    def grids(self) -> tuple[Grid, ...]:
        """Its grids, everything filled in but overrides."""
        return self.file.grids

    @cached_property
    def cells(self) -> tuple[Planned, ...]:
        """Every cell with every seed; all methods of a seed stand together."""
        return tuple(cell for grid in self.grids for cell in self._cells(grid))

    def runs(
        self, place: Place, *, device: str = "auto", threads: int | None = None
    ) -> list[RunSpec]:
        """The runs, each once, with the revisions of their models and data.

        Args:
            place: where data is.
            device: `auto` for `cuda` where there is one.
            threads: of each run; 1 by default.

        Raises:
            SettingError: something that cannot run on that device.
            SourceError: data or models that are not here; all of them are named.
            MissingExtraError: a method needs a package that is not installed.
        """
        specs, missing = self.available(place, device=device, threads=threads)
        if missing:
            raise SourceError(f"{self.where}: {'; '.join(missing)}")
        return specs

    def available(
        self, place: Place, *, device: str = "auto", threads: int | None = None
    ) -> tuple[list[RunSpec], tuple[str, ...]]:
        """The runs that can run here, and a line for each kind of thing that is missing."""
        from isotropy.experiments._revisions import Revisions

        self._check(installed=True)
        chosen = choose_device(device)
        self._check_device(chosen)
        revisions = Revisions(place)
        specs: dict[str, RunSpec] = {}
        for cell in self.cells:
            # A fresh record: a spec keeps its identity once it has been asked for.
            found = revisions.filled(cell.spec)
            if found is not None:
                placed = {"threads": 1 if threads is None else threads, "device": chosen}
                spec = RunSpec.read({**said(found), **placed}, where=self.where)
                specs.setdefault(spec.id, spec)
        return list(specs.values()), revisions.missing()

    def _cells(self, grid: Grid) -> Iterator[Planned]:
        for task in grid.tasks or ():
            for model in grid.models or ():
                for seed in grid.seeds or ():
                    for method in grid.methods or ():
                        yield self._cell(grid, model, task, method, seed)

    def _cell(self, grid: Grid, model: str, task: str, method: Method, seed: int) -> Planned:
        parts = {part: said(getattr(grid, part)) for part in PARTS}
        for override in self.file.override:
            names = [method.called, method.name]
            if override.when.matches(grid=grid.name, model=model, task=task, method=names):
                for part in PARTS:
                    parts[part] |= said(getattr(override, part))
                # Settings are of methods: where none is named, of all that can have some.
                if method.name != "none":
                    method = method.with_settings(override.settings, override.stage)
        spec = RunSpec.read(
            {"model": model, "task": task, "method": method.of_a_run, "seed": seed, **parts},
            where=self.where,
        )
        return Planned(grid.name, method.called, spec)

    def _check(self, *, installed: bool) -> None:
        cells = [(cell.grid, cell.method, cell.spec) for cell in self.cells]
        try:
            checks.check_file(self.file)
            checks.check_cells(cells, installed=installed)
            checks.check_report(self.file, [cell.spec for cell in self.cells])
        except SettingError as error:
            message = str(error)
            here = message if message.startswith(f"{self.where}: ") else f"{self.where}: {message}"
            raise SettingError(here) from None

    def _check_device(self, device: Device) -> None:
        from isotropy.experiments import validation

        for cell in self.cells:
            try:
                validation.check_device(cell.spec.model_copy(update={"device": device}))
            except SettingError as error:
                raise SettingError(f"{self.where}: {error}") from None


def choose_device(device: str) -> Device:
    """The device that runs are for: `auto` is `cuda` where there is one.

    Raises:
        SettingError: no such device, or none here.
    """
    if device not in ("auto", "cpu", "cuda"):
        raise unknown_name("device", device, ("auto", "cpu", "cuda"))
    if device == "cpu":
        return "cpu"
    import torch

    if torch.cuda.is_available():
        return "cuda"
    if device == "cuda":
        raise SettingError("got device='cuda', but torch sees none here; give --device cpu")
    return "cpu"
