"""Glow on vectors from the parts of two libraries: the figures of docs/flow.md.

normflows is no peer of anything else here, so that it is in no list of packages; put it anywhere:

    pip install --no-deps --target somewhere normflows==1.7.3
    PYTHONPATH=somewhere python benchmarks/flow_libraries.py
"""

from importlib.metadata import version

import normflows
import torch
from harness import interleaved
from torch import Tensor, nn
from zuko.flows.coupling import GeneralCouplingTransform
from zuko.transforms import AdditiveTransform

from isotropy.layers import Flow

ROWS, D, LEVELS, STEPS, WIDTH = 64, 768, 3, 3, 32


class OfNormflows(nn.Module):
    """The same levels and steps from normflows' parts."""

    def __init__(self, d: int, levels: int = LEVELS, steps: int = STEPS) -> None:
        super().__init__()
        self.levels = nn.ModuleList()
        for _ in range(levels):
            parts: list[nn.Module] = []
            for _ in range(steps):
                sizes = [d // 2, WIDTH, WIDTH, d - d // 2]
                network = normflows.nets.MLP(sizes, init_zeros=True)
                parts += [
                    normflows.flows.ActNorm(d),
                    normflows.flows.Permute(d),
                    normflows.flows.AffineCouplingBlock(network, scale=False),
                ]
            self.levels.append(nn.ModuleList(parts))
            d //= 2

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The rows' z and the log-determinants."""
        aside, log_det = [], x.new_zeros(len(x))
        for number, level in enumerate(self.levels):
            if number:
                half = x.shape[1] // 2
                aside.append(x[:, half:])
                x = x[:, :half]
            for part in level:
                x, more = part(x)
                log_det = log_det + more
        return torch.cat((x, *reversed(aside)), dim=1), log_det


def with_own_coupling() -> nn.Module:
    """Ours with zuko's own coupling, which gathers and scatters."""
    glow = Flow(D, levels=LEVELS, steps=STEPS, width=WIDTH).glow
    for level in glow.levels:
        for i, part in enumerate(level):
            if isinstance(part, GeneralCouplingTransform):
                size = len(part.mask)
                level[i] = GeneralCouplingTransform(
                    size,
                    mask=part.mask.clone(),
                    univariate=AdditiveTransform,
                    shapes=((),),
                    hidden_features=(WIDTH, WIDTH),
                )
    return glow


def speed() -> None:
    x = torch.randn(ROWS, D)
    models = {
        "ours, on zuko": Flow(D, levels=LEVELS, steps=STEPS, width=WIDTH).glow,
        "zuko's own coupling": with_own_coupling(),
        "normflows": OfNormflows(D),
    }

    def step(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        z, log_det = model(x)
        optimizer.zero_grad()
        (z.square().sum(dim=1) / 2 - log_det).mean().backward()
        optimizer.step()

    steps = {}
    for name, model in models.items():
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        steps[name] = lambda m=model, o=optimizer: step(m, o)
    for name, seconds in interleaved(steps, rounds=9).items():
        count = sum(p.numel() for p in models[name].parameters())
        print(f"{name}: {1e3 * seconds:.1f} ms a step, {count} parameters")


def exactness() -> None:
    """The log-determinant in float64 beside that of the Jacobian."""
    x = torch.randn(5, 8, dtype=torch.float64) * torch.linspace(1, 9, 8)
    ours = Flow(8, levels=2).double()
    ours(torch.randn(50, 8, dtype=torch.float64) * torch.linspace(1, 9, 8))
    parts = [part for level in OfNormflows(8, levels=1).levels for part in level]
    theirs = normflows.NormalizingFlow(normflows.distributions.DiagGaussian(8), parts).double()
    theirs.forward(x)  # sets its scales
    for name, function in (("ours, on zuko", ours.glow), ("normflows", theirs.forward_and_log_det)):
        z_of = lambda row, function=function: function(row[None])[0][0]  # noqa: E731
        jacobians = [torch.autograd.functional.jacobian(z_of, row) for row in x]
        exact = torch.stack([torch.linalg.slogdet(j).logabsdet for j in jacobians])
        with torch.no_grad():
            found = function(x)[1]
        error = float((found - exact).abs().max())
        print(f"{name}: log-determinant in {found.dtype}, off by {error:.1g}")


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.manual_seed(0)
    print(f"zuko {version('zuko')}, normflows {normflows.__version__}, torch {torch.__version__}")
    print(f"{ROWS}×{D}, {LEVELS} levels × {STEPS} steps, width {WIDTH}, one thread")
    speed()
    exactness()
