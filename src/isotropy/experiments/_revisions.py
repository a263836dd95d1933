"""Names the content of models and data that runs will see, and says what is not here."""

from isotropy.errors import MissingExtraError, SourceError
from isotropy.experiments.spec import Place, RunSpec

CUSTOM = "custom"
"""The task of a user's own files."""


class Revisions:
    """Looks at each model and each task's data once.

    Args:
        place: where data is.
    """

    def __init__(self, place: Place) -> None:
        self.place = place
        self._models: dict[str, str | None] = {}
        self._data: dict[tuple[str, str], str | None] = {}
        self._missing_models: dict[str, str] = {}
        self._missing_tasks: dict[str, str] = {}

    def filled(self, spec: RunSpec) -> RunSpec | None:
        """The spec with the revisions of its model and data; None if one of them is not here."""
        model, data = self._model(spec), self._of_data(spec)
        if model is None or data is None:
            return None
        changed = {"revision": data}
        return spec.model_copy(
            update={"model_revision": model, "data": spec.data.model_copy(update=changed)}
        )

    def missing(self) -> tuple[str, ...]:
        """A line for missing models and one for missing data, each with what to do."""
        lines = []
        if self._missing_models:
            names, why = ", ".join(self._missing_models), next(iter(self._missing_models.values()))
            lines.append(f"got no model {names} ({why}); choose others with --set models=[...]")
        if self._missing_tasks:
            names, why = ", ".join(self._missing_tasks), next(iter(self._missing_tasks.values()))
            if names == CUSTOM:
                lines.append(why)  # which says what to do: no folder has a user's own data
                return tuple(lines)
            lines.append(
                f"got no data for {names} ({why}); name its folder with --data-dir, or leave it "
                "out with --set tasks=[...]"
            )
        return tuple(lines)

    def _model(self, spec: RunSpec) -> str | None:
        from isotropy.experiments.models import model_revision

        if spec.model not in self._models:
            try:
                self._models[spec.model] = model_revision(spec.model)
            except MissingExtraError:
                raise
            except SourceError as error:
                self._models[spec.model] = None
                self._missing_models[spec.model] = str(error)
        return self._models[spec.model]

    def _of_data(self, spec: RunSpec) -> str | None:
        from isotropy.experiments.tasks import find_task

        key = (spec.task, spec.data.model_dump_json())
        if key not in self._data:
            task = find_task(spec.task)
            try:
                self._data[key] = task.revision(spec.data, self.place)
                if (
                    spec.task == CUSTOM
                ):  # nobody has read these rows before: better now than in runs
                    task.load(spec.data, self.place)
            except MissingExtraError:
                raise
            except SourceError as error:
                self._data[key] = None
                self._missing_tasks.setdefault(spec.task, str(error))
        return self._data[key]
