"""The verb behind `initio study sharing`: what became of a network that shares weights.

Three signs of trouble: skips that take over, a held-out loss that is sharp in α (its largest eigenvalue, by power
iteration), and shared weights that do not rank architectures as trainings of their own do. Each architecture is kept
on disk as soon as it is judged, so that a diagnosis that was killed goes on with the next.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, cast

from initio.autodiff.devices import apart, find_device
from initio.errors import InputError
from initio.records import decode, to_json
from initio.report.sharing import SharedCell, SharingResult, save_sharing
from initio.runs.folders.base import add_record, read_lines, write_record
from initio.runs.folders.run import RunFolder
from initio.runs.search import make_problem, make_search
from initio.system.leases import leased
from initio.tables import open_table, table_of

if TYPE_CHECKING:
    from torch import Tensor

    from initio.searches.oneshot import OneShotSearch, SharedEpoch, SharedTraining

BATCH = 128  # samples of which the Hessian is taken
ITERATIONS = 20

OnDone = Callable[[str, int, int], None]


def sharing(
    run: str | Path,
    tables: str | None = None,
    *,
    cells: int = 200,
    samples: int = 500,
    seed: int = 0,
    device: str = "cpu",
    folder: str | Path | None = None,
    on_done: OnDone = lambda task, done, total: None,
) -> SharingResult:
    """Diagnoses a finished run of a search that shares weights; one process at a time works in the folder.

    Args:
        run: its folder.
        tables: folder with the benchmark of its space; by default that of INITIO_DATA.
        cells: random architectures that are compared with the table; 0 for none.
        samples: held-out samples that each is judged on with the shared weights.
        seed: of these architectures.
        device: what computes: cpu, cuda, cuda:1, or auto, a GPU where there is one.
        folder: where sharing.json and pictures go; by default into the run.
        on_done: hears of each architecture.
    """
    if cells and cells < 3:
        raise InputError(f"a correlation needs at least 3 cells, not {cells}")
    find_device(device, measured=True)  # which refuses what cannot be
    kept, home = RunFolder.open(Path(run)), Path(folder or run)
    home.mkdir(parents=True, exist_ok=True)
    with leased(home):
        return _diagnosed(kept, home, tables, cells, samples, seed, device, on_done)


def _diagnosed(
    kept: RunFolder, home: Path, tables: str | None, cells: int, samples: int, seed: int, device: str, on_done: OnDone
) -> SharingResult:
    from scipy.stats import kendalltau, spearmanr

    search, at = trained_weights(kept, device)
    steps = cast("Sequence[SharedEpoch]", kept.steps(search.step_types))
    same = (to_json(kept.plan()), samples, seed, *apart(str(at.device)).values())
    key = hashlib.sha256(" ".join(map(str, same)).encode()).hexdigest()[:8]
    journal = home / f"unfinished-sharing-{key}.jsonl"
    found: list[SharedCell] = []
    if cells:
        found = _compared(search, at, tables, cells, samples, seed, journal, on_done)
    shared, alone = [cell.shared for cell in found], [cell.alone for cell in found]
    varied = len(set(shared)) > 1 and len(set(alone)) > 1
    eigenvalue, residual = _sharpness(search, at)
    entropies = [step.entropy for step in steps if step.entropy is not None]
    result = SharingResult(
        run=str(kept.folder),
        method=search.name,
        skips=tuple(step.skips for step in steps),
        skip_weights=_skip_weights(search, at, steps),
        entropies=tuple(entropies) if len(entropies) == len(steps) else None,
        eigenvalue=eigenvalue,
        residual=residual,
        cells=tuple(found),
        spearman=float(spearmanr(shared, alone).statistic) if varied else None,
        kendall=float(kendalltau(shared, alone).statistic) if varied else None,
    )
    write_record(home / "sharing.json", result)
    for suffix in ("svg", "png"):
        save_sharing(result, home / f"sharing.{suffix}")
    journal.unlink(missing_ok=True)
    return result


def trained_weights(kept: RunFolder, device: str = "cpu") -> tuple[OneShotSearch, SharedTraining]:
    """A finished run's search, and its network with its weights on a device, whichever it was trained on."""
    from initio.searches.oneshot import OneShotSearch

    plan = kept.plan()
    home = kept.result()._space
    search = make_search(plan.method, home, plan.settings)
    if not isinstance(search, OneShotSearch):
        raise InputError(f"{plan.method} shares no weights: diagnose a run of rsps, darts, gdas or their like")
    problem = make_problem(
        home, plan.data, batch_size=plan.batch_size, channels=plan.channels, cells=plan.cells, pixels=plan.pixels
    )
    problem = replace(problem, epochs=(plan.epochs or search.usual_epochs,), folder=kept.folder, device=plan.device)
    steps = cast("Sequence[SharedEpoch]", kept.steps(search.step_types))
    return search, search.trained(problem, plan.seed, steps, device)


def _compared(
    search: OneShotSearch,
    at: SharedTraining,
    tables: str | None,
    count: int,
    samples: int,
    seed: int,
    journal: Path,
    on_done: OnDone,
) -> list[SharedCell]:
    from initio.networks.shared import Blend

    table = open_table(table_of(at.space), tables)
    if not at.examples.validated:
        raise InputError(f"{search.name} held nothing out: there is nothing to judge cells on, so ask for 0 cells")
    batches = list(at.held_out(0, -(-samples // at.settings.batch_size), 4))
    before: list[SharedCell] = read_lines(journal, partial(decode, SharedCell))
    judged = {cell.notation: cell for cell in before}
    rng, found = Random(f"sharing {seed}"), dict[str, SharedCell]()
    column, pool = table.report.columns[0], table.architectures
    for _ in range(100 * count):
        if len(found) == count:
            break
        arch = rng.choice(pool) if pool else at.space.sample(rng)
        notation = at.space.format(arch)
        if notation in found or not at.space.connected(arch):
            continue
        if notation not in judged:
            shared = at.accuracy(Blend.path(at.space, arch), batches)
            judged[notation] = SharedCell(notation, shared, table.report(arch)[column])
            add_record(journal, judged[notation])
        found[notation] = judged[notation]
        on_done("cells", len(found), count)
    return list(found.values())


def _skip_weights(search: OneShotSearch, at: SharedTraining, steps: Sequence[SharedEpoch]) -> tuple[float, ...] | None:
    import torch

    from initio.searches.alpha import AlphaSearch, spread
    from initio.searches.oneshot import SKIP

    if not isinstance(search, AlphaSearch) or search.stages > 1:
        return None
    out = []
    for step in steps:
        rows = spread(at, search.probabilities(at, torch.tensor(step.alpha)))
        weights = [
            row[decision.options.index(SKIP)]
            for decision, row in zip(at.space.relaxation, rows, strict=True)
            if SKIP in decision.options
        ]
        out.append(sum(weights) / max(1, len(weights)))
    return tuple(out)


def _sharpness(search: OneShotSearch, at: SharedTraining) -> tuple[float | None, float | None]:
    """The eigenvalue of the largest size of ∇²_α L_val at the mean blend, and its residual."""
    import torch.nn.functional as F  # noqa: N812

    from initio.searches.alpha import AlphaSearch

    if not isinstance(search, AlphaSearch) or not at.examples.validated:
        return None, None
    [(x, y)] = at.held_out(0, 1, 5)
    x, y = x[:BATCH], y[:BATCH]
    return dominant(lambda values: F.cross_entropy(at.network(x, search.mean(at, values)), y), at.knows.values)


def dominant(loss: Callable[[Tensor], Tensor], at: Tensor, iterations: int = ITERATIONS) -> tuple[float, float]:
    """The Hessian's eigenvalue of the largest size at a point by power iteration, and ‖Hv − λv‖.

    >>> import torch
    >>> value, residual = dominant(lambda v: 3 * v[0] ** 2 - 5 * v[1] ** 2, torch.zeros(2), 40)
    >>> round(value, 4), residual < 1e-3
    (-10.0, True)
    """
    import torch

    leaf = at.detach().clone().requires_grad_()
    [slope] = torch.autograd.grad(loss(leaf), [leaf], create_graph=True)
    v = torch.randn(len(leaf), generator=torch.Generator().manual_seed(0)).to(leaf)
    value = residual = 0.0
    for _ in range(iterations):
        v = v / v.norm()
        [moved] = torch.autograd.grad(slope @ v, [leaf], retain_graph=True)
        value = float(v @ moved)
        residual = float((moved - value * v).norm())
        if float(moved.norm()) == 0:
            break
        v = moved
    return value, residual
