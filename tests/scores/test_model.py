from dataclasses import replace
from random import Random

import pytest
import torch
from torch import nn

import initio
from initio.errors import InputError
from initio.metrics import Options, evaluate
from initio.scores.measure import measure
from initio.scores.model import as_batch, score
from initio.spaces import get_space


def small():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 10))


def batch(m=4):
    return initio.noise((3, 8, 8), classes=10, batch_size=m, seed=0)


def test_any_module_is_scored_and_what_does_not_apply_says_why():
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.GELU(), nn.Flatten(), nn.LazyLinear(10))
    scores = score(model, batch())
    assert scores["trace"].value > 0
    assert scores["naswot"].value is None
    text = str(scores)
    assert all(name in text for name in scores)
    assert "the network has no ReLU" in text
    assert isinstance(model[3], nn.LazyLinear)  # the user's own model still waits for its first input


def test_lazy_layers_do_not_move_torch_s_generator():
    state = torch.get_rng_state()
    score(nn.Sequential(nn.Flatten(), nn.LazyLinear(10)), batch(), "trace")
    assert torch.equal(state, torch.get_rng_state())


def test_repeats_over_seeds_have_a_spread():
    arch = "|nor_conv_3x3~0|+|skip_connect~0|none~1|+|none~0|nor_conv_1x1~1|avg_pool_3x3~2|"
    scores = score(arch, batch(), "trace,params", channels=4, cells=1, repeats=3)
    assert len(scores["trace"].values) == 3
    assert scores["trace"].spread > 0
    assert scores["params"].spread == 0
    alone = score(arch, batch(), "trace", channels=4, cells=1, seed=2)
    assert alone["trace"].values[0] == scores["trace"].values[2]


def test_a_module_s_first_repeat_is_itself():
    one, three = (score(small(), batch(), "trace", repeats=r) for r in (1, 3))
    assert one["trace"].values[0] == three["trace"].values[0]
    assert len(set(three["trace"].numbers)) == 3


def test_costs_are_counted_on_the_architecture_as_written():
    arch = "|none~0|+|none~0|nor_conv_3x3~1|+|skip_connect~0|none~1|none~2|"
    written = initio.build(arch, channels=4, cells=1, shape=(3, 8, 8), prune=False)
    params = sum(p.numel() for p in written.parameters())
    assert score(arch, batch(), "params", channels=4, cells=1)["params"].value == params


@pytest.mark.parametrize("space", ["nb201", "nb101", "darts"])
def test_counts_from_the_graph_are_those_of_the_built_network(space):
    space = get_space(space)
    settings = initio.NetworkSettings(cells=2, channels=4, classes=3, shape=(3, 32, 32), prune=False)
    data = initio.noise((3, 16, 16), classes=3, batch_size=2, seed=0)  # the counts are those on the batch
    names = ["params", "flops", "layers"]
    for seed in range(3):
        arch = space.sample(Random(seed))
        built = evaluate(space.build(arch, settings), data, names)
        assert measure(arch, data, names, network=replace(settings, prune=True)) == built


def test_batches_come_as_pairs_and_from_loaders():
    b = batch()
    pair = (torch.from_numpy(b.x.copy()), torch.from_numpy(b.y.copy()))
    dataset = torch.utils.data.TensorDataset(*pair)
    loader = torch.utils.data.DataLoader(dataset, batch_size=4)
    whole = score(small(), b, "trace")["trace"].value
    assert score(small(), pair, "trace")["trace"].value == whole
    assert score(small(), loader, "trace")["trace"].value == whole


def test_what_is_no_batch_is_refused():
    with pytest.raises(InputError, match="must be a Batch, a pair"):
        as_batch(3)
    with pytest.raises(InputError, match="labels must be whole numbers"):
        as_batch((torch.zeros(2, 3), torch.zeros(2)))
    with pytest.raises(InputError, match="there is no metric 'kapa': did you mean 'kappa'"):
        score(small(), batch(), "kapa")


def test_options_reach_the_metrics():
    plain, ntk = (
        score(small(), batch(), "trace", options=Options(parameterisation=p))["trace"].value
        for p in ("standard", "ntk")
    )
    assert ntk < plain


def test_parameters_that_cannot_be_drawn_again_have_no_spread():
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale, self.linear = nn.Parameter(torch.randn(10)), nn.Linear(192, 10)

        def forward(self, x):
            return self.scale * self.linear(x.flatten(1))

    assert score(Scaled(), batch(), "trace")["trace"].value > 0
    with pytest.raises(InputError, match=r"the model \(Scaled\) has parameters but no reset_parameters"):
        score(Scaled(), batch(), "trace", repeats=2)


def test_classes_and_shape_of_the_network_are_those_of_the_batch():
    arch, three = get_space("nb201").sample(Random(0)), initio.noise((1, 8, 8), classes=3, batch_size=4, seed=0)
    given, plain = score(arch, three, "params", classes=10, shape=(3, 32, 32)), score(arch, three, "params")
    assert given["params"].value == plain["params"].value


def test_a_published_cell_by_name():
    scores = score(
        "nasnet", initio.noise((3, 16, 16), classes=10, batch_size=2, seed=0), "grad,params", channels=4, cells=3
    )
    assert scores["grad"].value > 0
    built = initio.build("nasnet", channels=4, cells=3, shape=(3, 16, 16))
    assert scores["params"].value == sum(p.numel() for p in built.parameters())


def test_a_module_is_not_built_again():
    with pytest.raises(InputError, match="channels: a module has its size already"):
        score(small(), batch(), "trace", channels=8)


def test_scores_in_a_notebook():
    scores = score(nn.Sequential(nn.Flatten(), nn.Linear(192, 10)), batch(), "trace,naswot", repeats=2)
    assert repr(scores) == str(scores)
    html = scores._repr_html_()
    assert html.count("<tr>") == 3
    assert "the network has no ReLU" in html
    frame = scores.to_frame()
    assert frame.index.names == ["metric", "seed"]
    assert frame.loc[("trace", 1), "value"] == scores["trace"].numbers[1]
    assert frame["value"].isna().tolist() == [False, False, True, True]
    assert frame.loc[("naswot", 0), "flag"] == scores["naswot"].flag
