"""A fitted transform as a module of a `SentenceTransformer`."""

from pathlib import Path
from typing import Any, Self

from torch import Tensor

from isotropy import transforms
from isotropy.errors import MissingExtraError, SettingError
from isotropy.transforms import Transform

try:
    from sentence_transformers.base.modules import Dense, Module
except ImportError:
    raise MissingExtraError("sentence-transformers", "sentence-transformers") from None

_FILE = "transform.safetensors"
_KEY = "sentence_embedding"


def transform_module(transform: Transform) -> "Dense | TransformModule":
    """A fitted transform as a module to append to a `SentenceTransformer`.

    Whitening, all-but-the-top and standard scores are affine maps and become sentence-transformers'
    own `Dense` module: the saved model is loaded anywhere, without this library. Its weights are
    frozen, until the model is saved and loaded. Any other transform becomes a `TransformModule`.
    Embeddings that must have unit length are normalised by a `Normalize` module after it.

    Example:
        >>> x = np.random.default_rng(0).normal(size=(100, 8))
        >>> transform_module(transforms.Whitening(k=4).fit(x)).get_embedding_dimension()
        4
    """
    affine = transform.as_affine() if isinstance(transform, Transform) else None
    if affine is None:
        return TransformModule(transform)
    matrix, mean = affine
    d, k = matrix.shape
    dense = Dense(
        d,
        k,
        activation_function=None,
        init_weight=matrix.T.float().contiguous(),
        init_bias=-(mean @ matrix).float(),
    )
    return dense.requires_grad_(False)


class TransformModule(Module):
    """Maps the sentence embeddings of a `SentenceTransformer` with a fitted transform.

    It is saved with the model, as safetensors. As its code is not sentence-transformers' own, a
    model that has it is loaded with `SentenceTransformer(path, trust_remote_code=True)` where this
    library is installed; the code that then runs is this library's, and none from the folder.

    Args:
        transform: the fitted transform.

    Raises:
        SettingError: it is no transform.
    """

    def __init__(self, transform: Transform) -> None:
        super().__init__()  # type: ignore[no-untyped-call] # without types there
        if not isinstance(transform, Transform):
            raise SettingError(
                f"got a transform of type {type(transform).__name__}, expected a fitted "
                "isotropy.transforms.Transform"
            )
        self.transform = transform

    def forward(self, features: dict[str, Tensor], **kwargs: Any) -> dict[str, Tensor]:
        """The same features with mapped sentence embeddings."""
        x = features[_KEY]
        features[_KEY] = self.transform.map_rows(x)
        return features

    def get_embedding_dimension(self) -> int:
        """How many features the mapped embeddings have."""
        return len(self.transform.get_feature_names_out())

    def save(self, output_path: str, *args: Any, **kwargs: Any) -> None:
        """Write the transform into the module's folder."""
        self.transform.save(Path(output_path) / _FILE)

    @classmethod
    def load(
        cls,
        model_name_or_path: str,
        subfolder: str = "",
        token: bool | str | None = None,
        cache_folder: str | None = None,
        revision: str | None = None,
        local_files_only: bool = False,
        init_defaults: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> Self:
        """Read what `save` wrote, from a folder or from the hub.

        Raises:
            SourceError: the file is missing or damaged.
        """
        path = cls.load_file_path(
            model_name_or_path,
            _FILE,
            subfolder=subfolder,
            token=token,
            cache_folder=cache_folder,
            revision=revision,
            local_files_only=local_files_only,
        )
        return cls(transforms.load(path or Path(model_name_or_path) / subfolder / _FILE))

    def extra_repr(self) -> str:
        """What `print` shows."""
        return repr(self.transform)


# The name under which saved models look for it.
TransformModule.__module__ = "isotropy.integrations.sentence_transformers"
