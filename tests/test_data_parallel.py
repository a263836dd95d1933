"""Penalties on several ranks beside one process with all rows; as a script, this is one rank."""

import sys
from contextlib import nullcontext
from datetime import timedelta
from pathlib import Path

import pytest
import torch
from torch import distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from isotropy import Representations
from isotropy.errors import SettingError
from isotropy.penalties import SPECS, IStar

FEATURES = 12
MATRIX = torch.diag(torch.linspace(2, 0.5, FEATURES))
# Every penalty as it comes, and settings that change what is computed.
PENALTIES = {name: (name, {}) for name in SPECS} | {
    "i-star, identity": ("i-star", {"shrinkage": "identity", "zeta": 0.3}),
    "i-star, a matrix": ("i-star", {"shrinkage": MATRIX}),
    "i-star, no more rows than tokens": ("i-star", {"tokens": 1000}),
    "persistent-entropy, one cloud": ("persistent-entropy", {"by_class": False}),
    "persistent-entropy, within": ("persistent-entropy", {"within": 0.5, "normalize": True}),
}
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-10}


# ----------------------------------------------------------------------------- clouds on many ranks


def part(n, *, seed, classes=(0, 1, 2), equal=False, masked=None):
    """n rows with their classes; those that are masked hold anything."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, FEATURES, generator=generator, dtype=torch.float64)
    x = x * torch.linspace(2, 0.2, FEATURES) + 0.5
    labels = torch.tensor(classes)[torch.randint(len(classes), (n,), generator=generator)]
    if equal:
        x = torch.ones_like(x)
    mask = None
    if masked is not None:
        mask = torch.arange(n) >= masked
        x[~mask] = torch.nan
    return {"x": x, "labels": labels, "mask": mask}


def with_nan(rows):
    rows["x"][3, 2] = torch.nan
    return rows


# For each rank its parts of a step, one after the other; more than one is gradient accumulation.
LAYOUTS = {
    "halves": [[part(32, seed=0)], [part(32, seed=1)]],
    "a class on one rank only": [
        [part(32, seed=0, classes=(0, 1))],
        [part(32, seed=1, classes=(1, 2))],
    ],
    "padding on one rank": [[part(32, seed=0, masked=5)], [part(32, seed=1)]],
    "nothing but padding on one rank": [[part(40, seed=0)], [part(24, seed=1, masked=24)]],
    "different numbers of rows": [[part(50, seed=0)], [part(14, seed=1)]],
    "no rows on one rank": [[part(0, seed=0)], [part(40, seed=1)]],
    "one row on one rank": [[part(1, seed=0)], [part(40, seed=1)]],
    "equal rows on one rank": [[part(32, seed=0, equal=True)], [part(32, seed=1)]],
    "accumulation": [
        [part(16, seed=0), part(20, seed=2)],
        [part(16, seed=1), part(12, seed=3, masked=4)],
    ],
    "three ranks": [[part(20, seed=0)], [part(21, seed=1)], [part(23, seed=2)]],
    "three ranks, two of them without a row": [
        [part(16, seed=0, masked=16)],
        [part(40, seed=1)],
        [part(0, seed=2)],
    ],
    "three ranks, a class each": [[part(18, seed=i, classes=(i,))] for i in range(3)],
    # Undefined for some or for all.
    "nothing but padding": [[part(8, seed=0, masked=8)], [part(8, seed=1, masked=8)]],
    "no rows": [[part(0, seed=0)], [part(0, seed=1)]],
    "equal rows": [[part(8, seed=0, equal=True)], [part(8, seed=1, equal=True)]],
    "one row in all": [[part(1, seed=0)], [part(4, seed=1, masked=4)]],
    "a row in each": [[part(1, seed=0)], [part(1, seed=1)]],
    "a row that is not finite": [[with_nan(part(32, seed=0))], [part(32, seed=1)]],
    "a step that is undefined, then one that is not": [
        [part(8, seed=0, masked=8), part(16, seed=2)],
        [part(8, seed=1, masked=8), part(16, seed=3)],
    ],
}
UNDEFINED = {"nothing but padding", "no rows", "a row that is not finite"}


def steps_of(parts, penalty, dtype):
    """The values and the gradients of one rank's parts, as equal parts of a step's loss."""
    values, grads = [], []
    for given in parts:
        x = given["x"].to(dtype).requires_grad_()
        value = penalty(Representations.from_cloud(x, given["labels"], given["mask"]))
        grads.append(*torch.autograd.grad(value / len(parts), x))
        values.append(value.detach())
    return {"values": values, "grads": grads, "skipped": int(penalty.skipped)}


def together(layout):
    """The parts of all ranks as those of one."""
    steps = []
    for parts in zip(*LAYOUTS[layout], strict=True):
        masks = [
            torch.ones(len(p["x"]), dtype=torch.bool) if p["mask"] is None else p["mask"]
            for p in parts
        ]
        steps.append(
            {
                "x": torch.cat([p["x"] for p in parts]),
                "labels": torch.cat([p["labels"] for p in parts]),
                "mask": torch.cat(masks),
            }
        )
    return steps


def make(penalty, **settings):
    name, own = PENALTIES[penalty]
    return SPECS[name].make(**own, **settings)


def clouds_on(rank, size):
    """What this rank finds for every penalty and every layout of this many ranks."""
    return {
        (penalty, layout, dtype): steps_of(parts[rank], make(penalty), dtype)
        for penalty in PENALTIES
        for layout, parts in LAYOUTS.items()
        for dtype in TOLERANCE
        if len(parts) == size
    }


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("penalty", PENALTIES)
def test_ranks_give_what_one_process_gives(ranks_of, penalty, layout):
    size = len(LAYOUTS[layout])
    exact = steps_of(together(layout), make(penalty), torch.float64)
    for dtype, tolerance in TOLERANCE.items():
        answers = [found["clouds"][penalty, layout, dtype] for found in ranks_of(size)]
        alone = steps_of(together(layout), make(penalty), dtype)
        assert all(answer["skipped"] == alone["skipped"] for answer in answers)
        if layout in UNDEFINED:
            assert alone["skipped"] == 1
        for step, expected in enumerate(alone["grads"]):
            for answer in answers:
                torch.testing.assert_close(
                    answer["values"][step], alone["values"][step], rtol=tolerance, atol=1e-6
                )
            # Data-parallel training divides by the ranks.
            grad = torch.cat([answer["grads"][step] for answer in answers]) / size
            if layout in UNDEFINED:
                assert not grad.any()
            size_in_float64 = float(exact["grads"][step].norm())
            if size_in_float64 < 1e-9:  # the terms of a gradient cancel, but for their rounding
                assert float(grad.norm()) < 1e-4
            else:
                assert float((grad - expected).norm()) <= tolerance * float(expected.norm())


# ------------------------------------------------------------------- a model in data-parallel hands


class Tiny(nn.Module):
    """As little as a Hugging Face model of two layers has to be."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        embedding = nn.Embedding(20, FEATURES)
        layers = nn.ModuleList(nn.Linear(FEATURES, FEATURES) for _ in range(2))
        self.body = nn.ModuleDict({"embedding": embedding, "layers": layers})
        self.head = nn.Linear(FEATURES, 7)

    @property
    def base_model(self):
        return self.body

    def get_input_embeddings(self):
        return self.body["embedding"]

    def forward(self, input_ids, attention_mask, output_hidden_states=True):
        states = [self.body["embedding"](input_ids)]
        shares = attention_mask / attention_mask.sum(dim=1, keepdim=True)
        for layer in self.body["layers"]:
            mean = torch.einsum("bt,btd->bd", shares.to(states[-1]), states[-1])
            states.append(torch.tanh(layer(states[-1]) + mean[:, None]))
        return {"logits": self.head(states[-1][:, 0]), "hidden_states": tuple(states)}


# For each rank its batches: how many texts, how many tokens, and how many of them in the last text.
BATCHES = [[(9, 7, 3), (6, 4, 4)], [(7, 5, 1), (8, 6, 2)]]
SITES = ("cls@last", "mean@1", "tokens@all", "first-last-mean", "vocabulary", "head")


def batch_of(rank, step):
    texts, tokens, last = BATCHES[rank][step]
    generator = torch.Generator().manual_seed(10 * rank + step)
    mask = torch.ones(texts, tokens, dtype=torch.int64)
    mask[-1, last:] = 0
    return {
        "input_ids": torch.randint(20, (texts, tokens), generator=generator),
        "attention_mask": mask,
        "labels": torch.randint(3, (texts,), generator=generator),
    }


def as_one(batches):
    """The texts of several batches, padded to the longest."""
    longest = max(batch["input_ids"].shape[1] for batch in batches)

    def padded(table):
        return nn.functional.pad(table, (0, longest - table.shape[1]))

    return {
        "input_ids": torch.cat([padded(batch["input_ids"]) for batch in batches]),
        "attention_mask": torch.cat([padded(batch["attention_mask"]) for batch in batches]),
        "labels": torch.cat([batch["labels"] for batch in batches]),
    }


def trained(penalty, batches, model, wrapped=None):
    """The gradients of a model's parameters after a step over some batches."""
    call = wrapped or model
    for step, batch in enumerate(batches):
        waits = wrapped is None or step == len(batches) - 1
        with nullcontext() if waits else wrapped.no_sync():
            output = call(batch["input_ids"], batch["attention_mask"])
            shown = Representations.from_output(
                output, batch["attention_mask"], batch["labels"], model=model
            )
            # Every parameter has a part in the loss, as with a task.
            loss = penalty(shown) + 0 * output["logits"].sum()
            (loss / len(batches)).backward()
    return {name: parameter.grad for name, parameter in model.named_parameters()}


def models_on(rank):
    found = {}
    for penalty in PENALTIES:
        for site in SITES:
            for steps in (1, 2):
                batches = [batch_of(rank, step) for step in range(steps)]
                model = Tiny().double()
                found[penalty, site, steps] = trained(
                    make(penalty, site=site), batches, model, DistributedDataParallel(model)
                )
    return found


@pytest.mark.parametrize("site", SITES)
@pytest.mark.parametrize("penalty", PENALTIES)
def test_a_data_parallel_model_gets_the_gradients_of_one_process(ranks_of, penalty, site):
    for steps in (1, 2):
        batches = [as_one([batch_of(rank, step) for rank in range(2)]) for step in range(steps)]
        single = make(penalty, site=site)
        alone = trained(single, batches, Tiny().double())
        assert single.skipped == 0
        size = torch.cat([grad.flatten() for grad in alone.values()]).norm()
        assert size > 0
        for found in ranks_of(2):
            for parameter, grad in found["models"][penalty, site, steps].items():
                assert float((grad - alone[parameter]).norm()) <= 1e-9 * float(size), parameter


SHARDED = ("persistent-entropy", "i-star", "cosine", "spectrum-pol")


def sharded(rank):
    """The same of a model whose weights are divided among the ranks; of its vocabulary, an error.

    A part by itself keeps its weights divided between forward and backward; the others are whole.
    """
    found = {}
    mesh = init_device_mesh("cpu", (2,))
    for penalty in SHARDED:
        for site in ("cls@last", "tokens@all", "head", "vocabulary"):
            model = Tiny().double()
            fully_shard(model.body["embedding"], mesh=mesh)
            fully_shard(model, mesh=mesh)
            try:
                grads = trained(make(penalty, site=site), [batch_of(rank, 0)], model)
            except SettingError as error:
                found[penalty, site] = str(error)
            else:
                found[penalty, site] = {name: grad.full_tensor() for name, grad in grads.items()}
    return found


@pytest.mark.parametrize("penalty", SHARDED)
@pytest.mark.parametrize("site", ["cls@last", "tokens@all", "head"])
def test_a_sharded_model_gets_the_gradients_of_one_process(ranks_of, penalty, site):
    alone = trained(
        make(penalty, site=site),
        [as_one([batch_of(rank, 0) for rank in range(2)])],
        Tiny().double(),
    )
    size = torch.cat([grad.flatten() for grad in alone.values()]).norm()
    assert size > 0
    for found in ranks_of(2):
        for parameter, grad in found["sharded"][penalty, site].items():
            assert float((grad - alone[parameter]).norm()) <= 1e-9 * float(size), parameter


@pytest.mark.parametrize("penalty", SHARDED)
def test_weights_that_are_sharded_are_an_error(ranks_of, penalty):
    for found in ranks_of(2):
        message = found["sharded"][penalty, "vocabulary"]
        assert message.startswith(
            "got site 'vocabulary' and weights that are sharded over ranks (FSDP, DeepSpeed ZeRO-3)"
        )


def test_a_rank_without_labels_leaves_one_cloud(ranks_of):
    """Ranks may have batches of different data sets."""
    x = torch.cat([part(20, seed=rank)["x"] for rank in range(2)])
    expected = make("persistent-entropy")(Representations.from_cloud(x))
    for found in ranks_of(2):
        torch.testing.assert_close(found["half-labelled"], expected)


# --------------------------------------------------------------------------- what is not a gradient


def refreshed(rank, size, points, *, some=True):
    """I-STAR's matrix from this rank's batches, or what it is told without any."""
    penalty = IStar(site="tokens@all")
    batches = [batch_of(rank, step) for step in range(2)] if some else []
    try:
        penalty.refresh(Tiny(), batches, points=points)
    except SettingError as error:
        return str(error)
    return penalty.shrinkage


def states_of(rank):
    """The rows that `refresh` looks at, in its order."""
    model = Tiny()
    with torch.no_grad():
        for step in range(2):
            batch = batch_of(rank, step)
            mask = batch["attention_mask"]
            output = model(batch["input_ids"], mask)
            yield from (states[mask.bool()] for states in output["hidden_states"][1:])


def test_refresh_gives_all_ranks_the_covariance_of_all_their_rows(ranks_of):
    rows = [row for rank in range(2) for row in states_of(rank)]
    expected = torch.cov(torch.cat(rows).double().T).float()
    first, second = (found["refreshed"][250_000] for found in ranks_of(2))
    assert torch.equal(first, second)
    torch.testing.assert_close(first, expected, rtol=1e-5, atol=1e-7)


LAYERS, WORDS = 3, 30


class OneHot(nn.Module):
    """Every word has a direction of its own at every layer, so that a covariance names its rows."""

    def __init__(self):
        super().__init__()
        self.words = nn.Parameter(torch.eye(LAYERS * WORDS))

    def forward(self, input_ids, attention_mask, **_):
        states = [self.words[layer * WORDS + input_ids] for layer in range(LAYERS)]
        return {"hidden_states": (states[0], *states)}


def words_of(rank):
    """Two batches of five texts of a rank's own words, the second of which have one token."""
    ids = (rank * WORDS // 2 + torch.arange(10)).reshape(5, 2)
    last = (rank * WORDS // 2 + 10 + torch.arange(5))[:, None].expand(5, 2)
    mask = torch.tensor([[0, 1]] * 5)
    return [
        {"input_ids": ids, "attention_mask": torch.ones_like(ids)},
        {"input_ids": last, "attention_mask": mask},
    ]


def named(rank, points):
    penalty = IStar(site="tokens@all")
    penalty.refresh(OneHot(), words_of(rank), points=points)
    return penalty.shrinkage


@pytest.mark.parametrize("points", [6, 20, 60, 72, 90, 1000])
def test_refresh_takes_the_same_tokens_of_all_layers_and_as_many_of_each_rank(ranks_of, points):
    first, second = (found["named"][points] for found in ranks_of(2))
    assert torch.equal(first, second)
    # The covariance of n different directions of length 1, where c is 1 for those among them.
    c = (first.diagonal() > 0).double()
    n = c.sum()
    expected = (torch.diag(c) - torch.outer(c, c) / n) / (n - 1)
    torch.testing.assert_close(first.double(), expected, rtol=1e-5, atol=1e-7)
    by_layer = c.reshape(LAYERS, 2, WORDS // 2)
    assert torch.equal(by_layer[0], by_layer[1])
    assert torch.equal(by_layer[0], by_layer[2])
    assert by_layer[0].sum(dim=1).tolist() == [min(points // 2 // LAYERS, WORDS // 2)] * 2


def test_refresh_when_only_one_rank_has_batches(ranks_of):
    expected = torch.cov(torch.cat(list(states_of(0))).double().T).float()
    for found in ranks_of(2):
        torch.testing.assert_close(found["refreshed"]["one"], expected, rtol=1e-5, atol=1e-7)


def test_refresh_without_a_batch_is_the_same_error_everywhere(ranks_of):
    for found in ranks_of(2):
        assert found["refreshed"]["none"].startswith("got 0 rows for the shrinkage matrix")


def test_sampled_tokens_give_the_same_value_everywhere(ranks_of):
    values = [found["sampled"] for found in ranks_of(2)]
    assert values[0] == values[1]
    assert len(set(values[0])) == 3, "other rows are drawn in every step"


def test_a_group_of_ranks_shares_a_batch_without_the_others(ranks_of):
    given = LAYOUTS["three ranks"]
    alone = [torch.cat([given[rank][0]["x"] for rank in (0, 2)]), given[1][0]["x"]]
    for rank, found in enumerate(ranks_of(3)):
        rows = alone[rank % 2]
        expected = SPECS["vicreg"].make()(Representations.from_cloud(rows))
        torch.testing.assert_close(found["group"], expected)


# ---------------------------------------------------------------------------------------- processes


@pytest.fixture(scope="session")
def ranks_of(in_ranks):
    """What the ranks found, by how many there are; they run when they are first asked for."""
    found = {}

    def run(size):
        if size not in found:
            found[size] = in_ranks(__file__, size, None)
        return found[size]

    return run


def main(folder, rank, size):
    distributed.init_process_group(
        "gloo",
        init_method=f"file://{folder}/meeting",
        rank=rank,
        world_size=size,
        timeout=timedelta(seconds=60),
    )
    found = {"clouds": clouds_on(rank, size)}
    if size == 2:
        found["models"] = models_on(rank)
        found["sharded"] = sharded(rank)
        given = part(20, seed=rank)
        labels = given["labels"] if rank else None
        cloud = Representations.from_cloud(given["x"], labels)
        found["half-labelled"] = make("persistent-entropy")(cloud)
        found["refreshed"] = {
            250_000: refreshed(rank, size, 250_000),
            "one": refreshed(rank, size, 250_000, some=rank == 0),
            "none": refreshed(rank, size, 250_000, some=False),
        }
        found["named"] = {points: named(rank, points) for points in (6, 20, 60, 72, 90, 1000)}
        sampled, cloud = (
            make("i-star", tokens=10),
            Representations.from_cloud(LAYOUTS["different numbers of rows"][rank][0]["x"]),
        )
        found["sampled"] = [float(sampled(cloud)) for _ in range(3)]
    else:
        groups = [distributed.new_group([0, 2]), distributed.new_group([1])]
        penalty = SPECS["vicreg"].make(group=groups[rank % 2])
        cloud = Representations.from_cloud(LAYOUTS["three ranks"][rank][0]["x"])
        found["group"] = penalty(cloud)
    torch.save(found, folder / f"rank-{rank}.pt")
    distributed.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
