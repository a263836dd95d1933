"""What one run is, and what came out of it: plain records that are checked, hashed and stored."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, Self, get_args

from isotropy.errors import MissingExtraError, SettingError

try:
    from pydantic import BaseModel, ConfigDict, Field, ValidationError
except ImportError:
    raise MissingExtraError("pydantic", "train") from None

Positive = Annotated[float, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0)]
Count = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(ge=0, le=1)]
Seed = Annotated[int, Field(ge=0, lt=2**32)]
JsonValue = bool | int | float | str | None | list[Any] | dict[str, Any]


class Record(BaseModel):
    """A record that cannot change, has no unknown fields, and says in one line what is wrong."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, strict=False)

    @classmethod
    def read(cls, given: Any, *, where: str = "") -> Self:
        """The record of a mapping or of JSON.

        Args:
            given: a mapping, or JSON as text.
            where: what an error names it, such as a file.

        Raises:
            SettingError: an unknown name, a wrong type, a value that makes no sense.
        """
        try:
            if isinstance(given, str | bytes):
                return cls.model_validate_json(given)
            return cls.model_validate(given)
        except ValidationError as error:
            raise SettingError(_one_line(error, cls, where)) from None


class TrainSettings(Record):
    """How a model is trained.

    Attributes:
        epochs: passes over the training data; `max_steps`, where given, counts instead.
        batch_size: texts in a micro-batch.
        accumulation: micro-batches in a step.
        optimizer: AdamW or Adam as torch has them.
        warmup: the share of steps over which the learning rate rises from 0.
        schedule: of the learning rate after that.
        precision: of forward and backward pass; the weights are float32 (mixed precision).
        evaluations: how often the model is evaluated in an epoch.
        patience: training stops after this many evaluations without a better score on the tuning
            split, and the model is measured as it was at the best; None for never.
        group_by_length: whether texts of alike length share batches.
        peft: None, or `"lora"`.
        peft_settings: those of peft's `LoraConfig`, such as `r`.
    """

    epochs: Positive = 3
    max_steps: Count | None = None
    batch_size: Count = 32
    eval_batch_size: Count = 64
    accumulation: Count = 1
    learning_rate: Positive = 2e-5
    weight_decay: NotNegative = 0.0
    optimizer: Literal["adamw", "adam", "sgd"] = "adamw"
    schedule: Literal["constant", "linear", "cosine", "polynomial"] = "linear"
    warmup: Share = 0.0
    max_grad_norm: NotNegative = 1.0
    label_smoothing: Share = 0.0
    precision: Literal["float32", "bfloat16", "float16"] = "float32"
    gradient_checkpointing: bool = False
    evaluations: Count = 1
    patience: Count | None = None
    group_by_length: bool = True
    peft: Literal["lora"] | None = None
    peft_settings: dict[str, JsonValue] = Field(default_factory=dict)


class DataSettings(Record):
    """Which part of a task's data a run sees.

    Attributes:
        revision: names the data's content: a hash of local files, or a revision on the hub.
        train_rows: only so many rows of train, drawn with `split_seed`; None for all.
        eval_rows: only so many rows of each evaluation set.
        tune: the share of train that is split off; early stopping and "best" scores look at it, and
            nothing that is reported is measured on it.
        split_seed: of that split, the same for all seeds of a plan.
        reported: whether the evaluation sets are looked at; where not, as in a search for settings,
            the split of train stands in for them, and is all that scores are of.
        max_length: tokens of a text (source) that are kept; None for the model's limit.
        columns: for tasks on a user's own files, which column is what.
        options: settings of the task itself, such as `stride` or `beams`.
    """

    revision: str = ""
    train_rows: Count | None = None
    eval_rows: Count | None = None
    tune: Annotated[float, Field(ge=0, lt=1)] = 0.0
    split_seed: Seed = 0
    reported: bool = True
    max_length: Count | None = None
    columns: dict[str, str] = Field(default_factory=dict)
    options: dict[str, JsonValue] = Field(default_factory=dict)


class MethodSettings(Record):
    """A method and its settings.

    Attributes:
        name: `"none"`, or a name that `isotropy list methods` shows.
        settings: keyword arguments of the component, such as `weight`.
        accumulate: of a penalty under gradient accumulation: what is one cloud.
        refresh_points: of a penalty that has one: rows of a refresh.
        stage: of the isotropy layer: settings of its second stage, such as `learning_rate`.
    """

    name: str = "none"
    settings: dict[str, JsonValue] = Field(default_factory=dict)
    accumulate: Literal["separate", "cached"] = "separate"
    refresh_points: Annotated[int, Field(ge=2)] = 250_000
    stage: dict[str, JsonValue] = Field(default_factory=dict)

    @property
    def label(self) -> str:
        """The name with its settings, for tables.

        Example:
            >>> MethodSettings(name="i-star", settings={"weight": -1, "zeta": 0.2}).label
            'i-star weight=-1 zeta=0.2'
        """
        parts = {**self.settings, **self.stage}
        if self.accumulate != "separate":
            parts["accumulate"] = self.accumulate
        return " ".join([self.name, *(f"{key}={_short(value)}" for key, value in parts.items())])


class MeasureSettings(Record):
    """What is measured, where and when.

    Attributes:
        track: measures along training.
        on: of a fixed held-out sample, or of the training batch itself (as paper A has it).
        every: after how many steps; None for at each evaluation.
        rows: of the held-out sample.
        site: which rows of states; see `isotropy.sites.Site`. Or `embedding`: what a classifier's
            head reads, behind a layer where there is one.
        final: measures after training, of the evaluation data.
        final_rows: at most so many texts of it.
        each_layer: measures after training at each layer by itself, at the pool of `site`.
        arrays: also keep the spectrum, the mean of each dimension and the bars' lengths.
    """

    track: tuple[str, ...] = ()
    on: Literal["held-out", "batch"] = "held-out"
    every: Count | None = None
    rows: Count = 512
    site: str = "cls@last"
    final: tuple[str, ...] = ("iso_score_unbiased", "anisotropy", "mean_cosine")
    final_rows: Count = 2000
    each_layer: tuple[str, ...] = ()
    arrays: bool = False


class RunSpec(Record):
    """One run: everything that its scores depend on, and nothing else.

    Attributes:
        model: `minilm`, a hub name or a local folder.
        model_revision: names the model's content: a hash of a local folder's files, a revision.
        task: a name that `isotropy list tasks` shows.
        threads: of the processor; equal specs give bit-equal scores.
        device: `cpu` or `cuda`.

    Example:
        >>> spec = RunSpec(model="minilm", task="minimal-pairs", seed=3)
        >>> spec.id == RunSpec.read(spec.model_dump_json()).id
        True
    """

    model: str
    model_revision: str = ""
    task: str
    method: MethodSettings = MethodSettings()
    seed: Seed = 0
    data: DataSettings = DataSettings()
    train: TrainSettings = TrainSettings()
    measure: MeasureSettings = MeasureSettings()
    threads: Count = 1
    device: Literal["cpu", "cuda"] = "cpu"

    @property
    def id(self) -> str:
        """The run's identity: a hash of the whole spec, 16 hexadecimal digits."""
        # Not cached: `model_copy` would hand the old hash on to a spec that has changed.
        text = json.dumps(self.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def label(self) -> str:
        """The run in a few words, for progress and errors."""
        return f"{self.model} {self.task} {self.method.label} seed={self.seed}"


@dataclass(frozen=True, kw_only=True)
class Place:
    """What of a machine a run needs and its scores do not depend on.

    Attributes:
        data_dir: the folder of data sets, for tasks that are read from local files.
        files: files of a split (`train`, `dev`, `test`) that stand in for the task's own.
        scratch: a folder for checkpoints; a temporary one by default.
    """

    data_dir: str | None = None
    files: Mapping[str, str] = field(default_factory=dict)
    scratch: str | None = None


class Point(Record):
    """A number at a step of a training."""

    name: str
    step: int
    value: float


class RunResult(Record):
    """What came out of a run. A metric that is undefined, as of a constant predictor, is None.

    Attributes:
        metric: the task's main metric, a key of the scores.
        last: scores on the evaluation data after training, by metric; those of a second evaluation
            set have its name before them, as in `mismatched/accuracy`.
        best: the same at the evaluation whose score on the tuning split was best; empty without a
            tuning split. Of a method in two stages it is that after the second, as `last` is.
        late: means over the evaluations in the last 30 % of training.
        tuning: scores on the tuning split, at its best.
        measures: final measures by key; those of one layer as `two_nn@3`.
        arrays: longer things, such as `spectrum`, `dimension_means`, `bars`.
        series: along training: losses, tracked measures, scores (`dev/accuracy`), learning rate.
        notes: what a reader of the scores should know, such as a constant predictor.
        steps: optimizer steps taken.
        epochs: passes over the training data.
        seconds: of everything.
        train_seconds: of training, without evaluation and tracked measures.
        seconds_per_epoch: of training; what a method adds, such as a refresh, counts.
        peak_memory: bytes.
        versions: of packages that matter.
        machine: what it ran on.
        data: hashes of the rows of each split.
    """

    metric: str
    last: dict[str, float | None]
    best: dict[str, float | None] = Field(default_factory=dict)
    late: dict[str, float | None] = Field(default_factory=dict)
    tuning: dict[str, float | None] = Field(default_factory=dict)
    measures: dict[str, float] = Field(default_factory=dict)
    arrays: dict[str, list[float]] = Field(default_factory=dict)
    series: tuple[Point, ...] = ()
    notes: tuple[str, ...] = ()
    steps: int = 0
    epochs: float = 0.0
    seconds: float = 0.0
    train_seconds: float = 0.0
    seconds_per_epoch: float | None = None
    peak_memory: int = 0
    versions: dict[str, str] = Field(default_factory=dict)
    machine: dict[str, str] = Field(default_factory=dict)
    data: dict[str, str] = Field(default_factory=dict)


def _short(value: JsonValue) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


# What pydantic's kinds of errors say in the words of a TOML file.
_PLAIN = {
    **dict.fromkeys(("list_type", "tuple_type"), "a list"),
    **dict.fromkeys(("dict_type", "model_type", "model_attributes_type"), "a table"),
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), "a whole number"),
    **dict.fromkeys(("float_type", "float_parsing"), "a number"),
    **dict.fromkeys(("bool_type", "bool_parsing"), "true or false"),
    "finite_number": "a finite number",
    "string_type": "text",
}


def _one_line(error: ValidationError, record: type[BaseModel], where: str) -> str:
    """The first thing that is wrong, with the nearest known name where a name is unknown."""
    first, *others = error.errors()
    path = ".".join(str(part) for part in first["loc"])
    at = f"{where}: " if where else ""
    more = f"; {len(others)} more like this" if others else ""
    if first["type"] == "extra_forbidden":
        from difflib import get_close_matches

        known = _fields_at(record, first["loc"][:-1])
        near = get_close_matches(str(first["loc"][-1]), known, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"choose from: {', '.join(sorted(known))}"
        return f"{at}got an unknown setting {path!r}, expected a known one; {hint}{more}"
    if first["type"] == "json_invalid":
        return f"{at}got {first['msg']}, expected JSON of a {record.__name__}"
    if first["type"] == "missing":
        return f"{at}got no {path}, expected one; add it{more}"
    said = first["msg"].removeprefix("Input should be ").removeprefix("Value error, ")
    said = _PLAIN.get(first["type"], said)
    return f"{at}got {path}={first['input']!r}, expected {said}{more}"


def _fields_at(record: type[BaseModel], path: tuple[int | str, ...]) -> list[str]:
    """The names that may stand at a place in a record."""
    found: Any = record
    for part in path:
        fields = getattr(found, "model_fields", {})
        if part in fields:
            found = _record_in(fields[part].annotation)
    return list(getattr(found, "model_fields", {}))


def _record_in(annotation: Any) -> Any:
    """The record of an annotation, which may be one of several things or a tuple of records."""
    inside = get_args(annotation)
    if not inside:
        return annotation
    records = [found for found in map(_record_in, inside) if hasattr(found, "model_fields")]
    return records[0] if records else None
