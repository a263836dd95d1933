"""One search for the settings of a method with a model on a task, kept in Optuna's storage."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from isotropy.experiments._search_space import Dimension, every_choice, with_settings
from isotropy.experiments.spec import JsonValue, RunResult, RunSpec

_INTERRUPTED = "interrupted"
_SCORES = "scores"
_REASON = "reason"
_METRIC = "metric"


@dataclass(frozen=True)
class Search:
    """What is searched, and what its trials run.

    Attributes:
        method: what the plan calls it.
        grids: those of the plan that have these runs.
        base: the run without what is chosen.
        dimensions: what is chosen.
        metric: that is to be high, on the tuning split; None for the task's main one.
        seeds: of the runs of a trial, whose mean counts.
        seed: of the choices.
    """

    method: str
    grids: tuple[str, ...]
    base: RunSpec
    dimensions: tuple[Dimension, ...]
    metric: str | None
    seeds: tuple[int, ...]
    seed: int

    @property
    def label(self) -> str:
        """The search in a few words."""
        return f"{self.base.model} {self.base.task} {self.method}"

    @property
    def id(self) -> str:
        """A name that another search does not have: what was tried for one tells of no other."""
        parts = [
            self.base.id,
            [repr(dimension) for dimension in self.dimensions],
            self.metric,
            self.seeds,
            self.seed,
        ]
        digest = hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]
        return f"{self.label} {digest}"

    def settings(self, params: Mapping[str, Any]) -> dict[str, JsonValue]:
        """Values of the settings for what Optuna chose."""
        return {one.name: one.value(params[one.name]) for one in self.dimensions}

    def specs(self, params: Mapping[str, Any]) -> list[RunSpec]:
        """The runs of a trial, one a seed."""
        changed = with_settings(self.base, self.settings(params))
        return [changed.model_copy(update={"seed": seed}) for seed in self.seeds]


@dataclass(frozen=True)
class Trial:
    """What a search has tried.

    Attributes:
        settings: by dotted name.
        score: the mean over seeds of the metric on the tuning split; None where it has none.
        scores: by seed.
        reason: why there is no score.
    """

    settings: Mapping[str, JsonValue]
    score: float | None
    scores: Mapping[int, float | None]
    reason: str = ""


class Trials:
    """The trials of a search, in a storage that outlives this process.

    What is chosen depends on the search's seed and on the trials that have ended, so that a search
    that was interrupted goes on as it would have. Several trials at a time see less of one another.

    Args:
        search: the search.
        storage: Optuna's.
        limit: how many trials there may be, None for any number.
    """

    def __init__(self, search: Search, storage: Any, limit: int | None) -> None:
        import optuna

        self.search = search
        self._states = optuna.trial.TrialState
        self._study = optuna.create_study(
            storage=storage, study_name=search.id, direction="maximize", load_if_exists=True
        )
        self._distributions = {one.name: one.distribution for one in search.dimensions}
        grid = every_choice(search.dimensions)
        # Where all combinations can be tried, each is, in an order that a small budget samples.
        self._grid = None
        if grid is not None and (limit is None or limit >= len(grid)):
            order = np.random.default_rng(search.seed).permutation(len(grid))
            self._grid = [grid[i] for i in order]
            limit = len(grid)
        self.limit = limit
        self._again()

    @property
    def metric(self) -> str:
        """By which trials are compared."""
        return str(self.search.metric or self._study.user_attrs.get(_METRIC, "score"))

    @property
    def ended(self) -> int:
        """How many have ended, with a score or without."""
        return len(self._ended())

    @property
    def begun(self) -> int:
        """How many have ended or are being tried."""
        return self.ended + len(self._study.get_trials(states=(self._states.RUNNING,)))

    def next(self) -> Any:
        """Another trial of Optuna's, or None if there is none left.

        A combination that has been tried already has its score at once, and is passed over.
        """
        import optuna

        while self.limit is None or self.begun < self.limit:
            waiting = self._study.get_trials(deepcopy=False, states=(self._states.WAITING,))
            if self._grid is not None and not waiting:
                known = [trial.params for trial in self._known()]
                left = [params for params in self._grid if params not in known]
                if not left:
                    return None
                self._study.enqueue_trial(left[0])
            # A generator for each trial: one that starts anew after an interruption would repeat
            # the first choices.
            self._study.sampler = optuna.samplers.TPESampler(
                seed=(self.search.seed + 7919 * self.begun) % 2**32, constant_liar=True
            )
            trial = self._study.ask(self._distributions)
            twin = next((t for t in self._ended() if t.params == trial.params), None)
            if twin is None:
                return trial
            scores = {int(seed): value for seed, value in twin.user_attrs[_SCORES].items()}
            self.end(trial, scores, twin.user_attrs[_REASON])
        return None

    def score(self, result: RunResult) -> float | None:
        """What a run's result says: of the tuning split alone."""
        if self.search.metric is None and _METRIC not in self._study.user_attrs:
            self._study.set_user_attr(_METRIC, result.metric)
        return result.tuning.get(self.metric)

    def end(self, trial: Any, scores: Mapping[int, float | None], reason: str = "") -> None:
        """Write down what came out of a trial; without a score of every seed it has none."""
        values = [value for value in scores.values() if value is not None]
        if not reason and len(values) < len(self.search.seeds):
            reason = f"{self.metric} is undefined"
        trial.set_user_attr(_SCORES, {str(seed): value for seed, value in scores.items()})
        trial.set_user_attr(_REASON, reason)
        if reason:
            self._study.tell(trial, state=self._states.FAIL)
        else:
            self._study.tell(trial, float(np.mean(values)))

    def found(self) -> tuple[Trial, ...]:
        """All that have ended, each combination once, in the order in which they began."""
        trials: dict[str, Trial] = {}
        for one in self._ended():
            scores = {int(seed): value for seed, value in one.user_attrs[_SCORES].items()}
            settings = self.search.settings(one.params)
            trials.setdefault(
                json.dumps(settings), Trial(settings, one.value, scores, one.user_attrs[_REASON])
            )
        return tuple(trials.values())

    def _ended(self) -> list[Any]:
        states = (self._states.COMPLETE, self._states.FAIL)
        trials = self._study.get_trials(deepcopy=False, states=states)
        return [trial for trial in trials if _INTERRUPTED not in trial.user_attrs]

    def _known(self) -> list[Any]:
        return self._ended() + self._study.get_trials(states=(self._states.RUNNING,))

    def _again(self) -> None:
        """Put what a process that is gone has left to be tried first."""
        for trial in self._study.get_trials(states=(self._states.RUNNING,)):
            if set(trial.params) == set(self._distributions):
                self._study.enqueue_trial(trial.params)
            storage = self._study._storage  # an ended trial takes no more words
            storage.set_trial_user_attr(trial._trial_id, _INTERRUPTED, True)
            self._study.tell(trial.number, state=self._states.FAIL)
