"""Imports point one way, and what is heavy or optional is imported late."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages

import pytest

import isotropy

ROOT = Path(isotropy.__file__).parent
MODULES = sorted(module.name for module in walk_packages([str(ROOT)], prefix="isotropy."))

# Lower to higher: a module imports from its own line and from the lines above it.
HOUSE = (
    ("_version", "errors", "settings"),
    ("output", "tables", "markup"),
    ("inputs", "directions", "sampling", "ranks", "sites", "_causal"),
    ("_factor", "covariance", "moments", "neighbours", "pooled"),
    (
        "_prim",
        "_boruvka",
        "_prominent",
        "_prominent_tensors",
        "_spanning_tree",
        "bars",
        "representations",
        "states",
    ),
    ("measures", "method"),
    ("penalties", "layers"),
    ("sources", "chunks", "transforms"),
    ("cloud_stream", "intervals", "reading", "scoring"),
    ("measurement", "testing"),
    ("integrations",),
    ("experiments", "report"),
    ("_command_options", "_transform_commands", "_experiment_commands"),
    ("cli",),
    ("__main__",),
)
RANK = {name: rank for rank, names in enumerate(HOUSE) for name in names}


def imports(tree: ast.AST) -> Iterator[str]:
    """Every `isotropy` module that is imported anywhere in the code, not only for type checkers."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            if node.module == "isotropy":
                yield from (f"isotropy.{alias.name}" for alias in node.names)
            elif node.module:
                yield node.module
        yield from imports(node)


def modules_after(code: str) -> set[str]:
    """The top-level modules that a fresh interpreter has loaded after running the code."""
    script = f"import sys\n{code}\nprint('\\n'.join(sys.modules), file=sys.stderr)"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return {name.partition(".")[0] for name in run.stderr.split()}


@pytest.mark.parametrize("file", sorted(ROOT.rglob("*.py")), ids=lambda f: str(f.relative_to(ROOT)))
def test_imports_point_one_way(file: Path) -> None:
    own = file.relative_to(ROOT).parts[0].removesuffix(".py")
    if own == "__init__":  # the lazy names of all the others
        return
    assert own in RANK, f"give {own!r} its place in the house"
    for name in imports(ast.parse(file.read_text(encoding="utf-8"))):
        package, _, rest = name.partition(".")
        other = rest.partition(".")[0]
        if package == "isotropy" and other in RANK:
            assert RANK[other] <= RANK[own], f"{own} imports {name}"


@pytest.mark.parametrize("module", MODULES)
def test_every_module_can_be_imported(module: str) -> None:
    import_module(module)


OPTIONAL = {"transformers", "tokenizers", "ray", "matplotlib", "plotly", "jinja2", "pandas"}
HEAVY = {"torch", "numpy", "scipy", "sklearn", "pyarrow", "safetensors", "rich"}


@pytest.mark.parametrize(
    "code",
    [
        "import isotropy; dir(isotropy); isotropy.__version__",
        "import isotropy.errors",
        "from typer.testing import CliRunner; from isotropy.cli import app; "
        "assert CliRunner().invoke(app, ['--help']).exit_code == 0",
        "from typer.testing import CliRunner; from isotropy.cli import app; "
        "assert CliRunner().invoke(app, ['measure', '--help']).exit_code == 0",
        "from typer.testing import CliRunner; from isotropy.cli import app; "
        "assert CliRunner().invoke(app, ['--version']).exit_code == 0",
    ],
    ids=["isotropy", "errors", "help", "measure-help", "version"],
)
def test_starting_is_light(code: str) -> None:
    assert not modules_after(code) & (OPTIONAL | HEAVY)


# torch itself imports jinja2 where it is installed, and pandas is imported by pyarrow and
# scikit-learn when they meet its data frames.
@pytest.mark.parametrize("module", ["measures", "bars", "measurement", "sources", "testing"])
def test_the_core_needs_no_optional_package(module: str) -> None:
    assert not modules_after(f"import isotropy.{module}") & (OPTIONAL - {"jinja2", "pandas"})


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'isotropy' has no attribute 'isoscore'"):
        _ = isotropy.isoscore
