"""No language: a classifier of handwritten digits, with persistent entropy on its hidden layer.

    python examples/digits.py --epochs 30

The penalty is that of any point cloud: the hidden layer's rows, with the digits for classes. Both
classifiers begin with the same weights and see the same batches.
"""

import argparse
from collections.abc import Sequence

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor, nn

import isotropy
from isotropy import penalties

MEASURES = ("iso_score", "effective_rank")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=30, help="passes over 1200 digits (30)")
    parser.add_argument("--weight", type=float, default=0.5, help="of the penalty (0.5)")
    settings = parser.parse_args(arguments)

    images, digits = load_digits(return_X_y=True)
    train_x, test_x, train_y, test_y = (
        torch.from_numpy(part)
        for part in train_test_split(images / 16, digits, train_size=1200, random_state=0)
    )
    train_x, test_x = train_x.float(), test_x.float()
    for weight in (0.0, settings.weight):
        hidden, head = train(train_x, train_y, settings.epochs, weight)
        with torch.no_grad():
            cloud = hidden(test_x)
            accuracy = (head(cloud).argmax(dim=1) == test_y).float().mean()
        report = isotropy.measure(cloud, measures=list(MEASURES))
        numbers = ", ".join(f"{name} {report[name].value:.3f}" for name in MEASURES)
        print(f"weight {weight:g}: accuracy {accuracy:.3f}, {numbers}")
    return 0


def train(x: Tensor, y: Tensor, epochs: int, weight: float) -> tuple[nn.Module, nn.Module]:
    """The hidden layer and the head, after a training."""
    torch.manual_seed(0)
    hidden, head = nn.Sequential(nn.Linear(64, 32), nn.Tanh()), nn.Linear(32, 10)
    optimizer = torch.optim.Adam([*hidden.parameters(), *head.parameters()], lr=3e-3)
    penalty = penalties.PersistentEntropy(weight=weight)
    for _ in range(epochs):
        for rows in torch.randperm(len(x)).split(100):
            cloud = hidden(x[rows])
            shown = isotropy.Representations.from_cloud(cloud, labels=y[rows])
            loss = nn.functional.cross_entropy(head(cloud), y[rows]) + penalty(shown)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return hidden, head


if __name__ == "__main__":
    raise SystemExit(main())
