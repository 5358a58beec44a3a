from random import Random

import pytest
import torch

import initio
from initio import InputError, space, space_of_modules
from tests.spaces.own import LISTED, OWN, Net


def test_the_builder_gets_the_values_themselves() -> None:
    arch = OWN.architecture(1, 2)
    assert OWN.choices_of(arch) == {"kernel": 3, "width": 16}
    assert OWN.build(arch)[0].weight.shape == (16, 3, 3, 3)


def test_an_architecture_of_a_space_made_here_is_built_and_scored() -> None:
    arch, batch = OWN.sample(Random(0)), initio.noise((3, 8, 8), classes=10, batch_size=4, seed=0)
    with pytest.raises(InputError, match="there is no search space"):
        initio.build(arch)
    for text in (arch, OWN.format(arch)):
        built = initio.build(text, space=OWN)
        found = initio.score(text, batch, "params", space=OWN)
        assert found["params"].value == sum(p.numel() for p in built.parameters())
    with pytest.raises(InputError, match="is of space 'nb201', not of"):
        initio.build(initio.get_space("nb201").architecture(3, 3, 3, 3, 3, 3), space=OWN)
    with pytest.raises(InputError, match="a module needs no space: leave it out"):
        initio.score(built, batch, "params", space=OWN)


def test_a_list_of_modules_is_a_space() -> None:
    assert [LISTED.build(arch)[0].out_channels for arch in LISTED.architectures()] == [4, 8]


def test_spaces_of_one_name_but_other_choices_have_other_names() -> None:
    assert space("own", Net, kernel=[1, 3], width=[4, 8]).name != OWN.name
    assert space("own", Net, kernel=[1, 3], width=[4, 8, 16]).name == OWN.name


def test_the_global_generator_is_left_alone() -> None:
    before = torch.random.get_rng_state()
    OWN.build(OWN.architecture(0, 0), seed=1)
    assert torch.equal(before, torch.random.get_rng_state())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("kernel=3,width=4", "begins with 'own-"),
        (f"{OWN.name}:kernel=3", "needs the choice 'width' as well"),
        (f"{OWN.name}:kernel=3,width=4,depth=1", "has no choice 'depth'"),
        (f"{OWN.name}:kernel=3,width=5", "width of own-.* cannot be '5'"),
        (f"{OWN.name}:kernel=3,kernel=1", "must be one choice as in 'kernel=1,width=4'"),
    ],
)
def test_errors_name_the_place(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        OWN.parse(text)


def test_bad_spaces_are_refused() -> None:
    with pytest.raises(InputError, match="needs at least one choice"):
        space("own", Net)
    with pytest.raises(InputError, match="needs different values"):
        space("own", Net, kernel=[3, 3])
    with pytest.raises(InputError, match="avoid ':', ',' and '='"):
        space("own", Net, kernel=["a,b"])
    with pytest.raises(InputError, match="choice 'kernel' needs a list of values, not 3"):
        space("own", Net, kernel=3)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="must be named functions"):
        space_of_modules("bad", [Net])  # type: ignore[arg-type]
    with pytest.raises(InputError, match="must be a function that builds it, not the module itself"):
        space_of_modules("bad", {"made": Net(3, 4)})
    bad = space_of_modules("bad", {"nothing": lambda: None})  # type: ignore[dict-item, return-value]
    with pytest.raises(InputError, match="must return a torch.nn.Module, not NoneType"):
        bad.build(bad.architecture(0))
