"""What every search promises: the whole list, a search of one's own, and restarts."""

from collections.abc import Sequence
from dataclasses import fields, replace
from functools import lru_cache
from pathlib import Path
from random import Random
from typing import Any

import pytest

import initio
from initio.cli.options import merged
from initio.cli.search import SearchCommand
from initio.data import load
from initio.errors import InputError
from initio.records import Observation, Query, from_json, to_json
from initio.runs.search import make_search
from initio.scores.table import ScoreTable
from initio.searches import (
    SEARCHES,
    Budget,
    Limits,
    Problem,
    Restarts,
    Search,
    SearchResult,
    SearchStep,
    drive,
    find_search,
)
from initio.searches.methods.nasi_fit import NasiFit
from initio.spaces import NB201, NetworkSettings, get_space

OWN = "examples.own_search:Mine"
NAMES = [*SEARCHES, OWN]
DOCS = Path(__file__).parents[2] / "docs" / "searches.md"
SMALL: dict[str, dict[str, Any]] = {  # settings that make a run short
    "votes": {"first": 6, "rounds": 2, "each": 2},
    "nasi-fit": {"steps": 4},
    "nasi": {"steps": 3, "nu": "50"},
    "eigen-darts": {"width": 8, "samples": 30, "steps": 4, "batch": 8},
    "te-nas": {"images": 2, "width": 1, "prunes": 3},
    "rsps": {"samples": 30, "candidates": 3},
    "enas": {"samples": 30, "candidates": 3, "steps": 1, "batch": 2},
    **{name: {"samples": 30} for name in ("darts", "darts-2nd", "gdas", "snas", "drnas", "sdarts-rs", "sdarts-adv")},
    "pc-darts": {"samples": 30, "parts": 2},
    "p-darts": {"samples": 30, "growth": 0},
    "nesbs": {"samples": 60, "posterior_epochs": 2, "posterior_updates": 1},
}
MLP = ("lambda-min", "eigen-darts")
POOL = tuple(Random(0).sample(list(NB201.architectures()), 60))
METRICS = ("trace", "kappa", "naswot", "knas", "lambda_relative")
SCORES = ScoreTable.of(POOL, {m: [Random(f"{m} {k}").random() for k in range(len(POOL))] for m in METRICS})


def value(query: Query) -> Observation:
    """A number that depends on all choices; some fail."""
    total = sum((place + 1) * choice for place, choice in enumerate(query.architecture.choices))
    if total % 13 == 0:
        return Observation(None, 2.0, "diverged")
    return Observation(float(total % 17), 2.0)


def problem_for(name: str) -> Problem:
    if name in MLP:
        return Problem(get_space("mlp-3"), load("digits"), batch_size=12)
    if name in SEARCHES and find_search(name).learns:
        thin = NetworkSettings(channels=2, cells=1, shape=(1, 8, 8))
        return Problem(NB201, load("digits"), thin, thin, batch_size=15, epochs=(2,))
    small = NetworkSettings(channels=2, cells=1, shape=(3, 8, 8))
    problem = Problem(NB201, load("noise:3x8x8:10"), small, small, batch_size=8)
    return replace(problem, budget=Budget(queries=9), pool=POOL, scores=SCORES, evaluate=value)


def search_for(name: str) -> Search[Any]:
    if name == "restarts":
        return Restarts(NasiFit(steps=3), restarts=2, repeats=2)
    return find_search(name)(**SMALL.get(name, {}))


@lru_cache
def whole(name: str) -> tuple[SearchResult, tuple[SearchStep, ...]]:
    """A run, and the steps that were heard."""
    heard: list[SearchStep] = []
    result = drive(search_for(name), problem_for(name), seed=3, on_step=heard.append)
    return result, tuple(heard)


each = pytest.mark.parametrize("name", [*NAMES, "restarts"])
each_class = pytest.mark.parametrize("name", NAMES)


@each
def test_the_same_seed_gives_the_same_answer_by_name_too_and_every_step_is_heard(name: str) -> None:
    result, heard = whole(name)
    assert result.steps == heard
    problem, again = problem_for(name), search_for(name)
    if name != "restarts":
        again = make_search(name, problem.space, SMALL.get(name, {}))
    assert drive(again, problem, seed=3) == result
    assert result.best.space == problem_for(name).space.name
    assert result.why.count("\n") == 0 < len(result.why)
    expected = search_for(name).n_steps(problem_for(name))
    assert expected is None or len(heard) <= expected


@each
def test_any_prefix_of_the_steps_resumes_to_the_same_result(name: str) -> None:
    result, heard = whole(name)
    search = search_for(name)
    if not search.resumes:
        return  # starts over, which the test above is about
    prefixes = range(1, len(heard) + 1)  # none at all is the test above
    if search.learns:  # which takes long
        prefixes = range(1, len(heard) + 1, max(1, len(heard) - 1))
    for kept in prefixes:
        more: list[SearchStep] = []
        assert drive(search, problem_for(name), seed=3, done=heard[:kept], on_step=more.append) == result
        assert tuple(more) == heard[kept:]


@each
def test_steps_and_results_survive_json(name: str) -> None:
    result = replace(whole(name)[0], method={"restarts": "nasi-fit"}.get(name, name))
    again = from_json(SearchResult, to_json(result))
    assert again == result
    assert [type(step) for step in again.steps] == [type(step) for step in result.steps]
    assert all(isinstance(step, search_for(name).step_types) for step in result.steps)


@each
def test_limits_are_kept_or_refused_in_a_sentence(name: str) -> None:
    search, problem = search_for(name), problem_for(name)
    if search.limited:
        large = NB201.architecture(*[3] * 6)
        cost = problem._cost(large)
        smaller = replace(problem, limits=Limits(max_params=cost.parameters // 2, max_flops=cost.flops // 3))
        assert not smaller.accepts(large)
        kept = smaller.accepts
        if search.trains:  # which may train a cell with a `none`
            kept = smaller.within
        assert kept(drive(search, smaller, seed=0).best)
        return
    with pytest.raises(InputError, match=f"max_params is not an option of {search.name}: it keeps no limits"):
        initio.search(problem.space, search, "digits", limits={"max_params": 600})


@each
def test_a_limit_that_nothing_keeps_is_a_sentence_before_anything_is_done(name: str, tmp_path: Path) -> None:
    search = search_for(name)
    if not search.limited:
        return  # refuses every limit, as the test above says
    data = ("noise", "digits")[search.trains or search.learns]
    with pytest.raises(
        InputError, match=r"^no architecture of nb201 was found that has at most 1 FLOPs: the smallest "
    ):
        initio.search("nb201", search, data, limits={"max_flops": 1}, folder=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", ["random", "rea", "reinforce", "bohb", OWN])
def test_a_space_of_two_cells_and_no_pool_is_searched_too(name: str) -> None:
    space = get_space("darts")
    problem = replace(problem_for(name), space=space, pool=(), scores=None)
    heard: list[SearchStep] = []
    result = drive(search_for(name), problem, seed=1, on_step=heard.append)
    space.check(result.best)
    assert len(heard) == result.cost.queries == 9
    assert drive(search_for(name), problem, seed=1, done=heard[:4]) == result


@each
def test_a_space_that_cannot_be_searched_is_refused_in_a_sentence(name: str) -> None:
    search, refused, sentences = search_for(name), [], []
    plain = initio.space("plain", lambda width: None, width=[1, 2])  # type: ignore[arg-type, return-value]
    for space in (NB201, get_space("nb101"), get_space("mlp-3"), plain):
        try:
            search.resolved(space).check(replace(problem_for(name), space=space))
        except InputError as error:
            refused.append(space.name)
            sentences.append(str(error))
    assert not any("\n" in sentence for sentence in sentences)
    assert search.trains or plain.name in refused
    assert problem_for(name).space.name not in refused


@each_class
def test_every_setting_is_explained_and_can_be_typed(name: str) -> None:
    kind = find_search(name)
    options = merged(SearchCommand, kind)  # a name that the command has itself would be refused
    for item in fields(kind):
        assert options[item.name].help, f"{item.name} of {name} has no line in the docstring"
    assert (kind.__doc__ or "").splitlines()[0].endswith((".", ":", "along"))


@each_class
@pytest.mark.parametrize("space", ["nb201", "darts", "nb1shot1-s2"])
def test_a_name_and_an_object_are_the_same_search(name: str, space: str) -> None:
    kind, home = find_search(name), get_space(space)
    named = make_search(name, home, SMALL.get(name, {}))
    assert make_search(kind(**SMALL.get(name, {})), home, {}) == named
    assert None not in [getattr(named, item.name) for item in fields(kind) if "by space" in item.metadata]
    assert named.resolved(NB201) == named  # once and for all


@each_class
def test_it_goes_by_its_name_and_is_documented(name: str) -> None:
    kind = find_search(name)
    assert name in (kind.name, OWN)
    if name != OWN:
        assert f"`{name}`" in DOCS.read_text(), f"docs/searches.md does not tell of {name}"


def test_a_name_that_nobody_has() -> None:
    with pytest.raises(InputError, match="there is no search 'nassi': did you mean 'nasi'?"):
        find_search("nassi")
    with pytest.raises(InputError, match="the search 'nasi-literal' is called 'nasi' now"):
        find_search("nasi-literal")


def steps_told(steps: Sequence[SearchStep]) -> list[str]:
    return [step.told() for step in steps]


@each
def test_steps_have_few_words_for_those_who_wait(name: str) -> None:
    assert all(len(text) < 80 and "\n" not in text for text in steps_told(whole(name)[0].steps))
