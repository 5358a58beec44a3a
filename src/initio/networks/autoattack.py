"""AutoAttack, standard (Croce and Hein, 2020): four attacks without parameters to tune, each on what the others left.

APGD on the cross-entropy, APGD on the targeted DLR loss, targeted FAB (Croce and Hein, 2020b), Square (Andriushchenko
et al., 2020). Square looks at outputs alone, so a network without gradients may be turned all the same. All start from
one seed, whatever else is drawn anywhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from initio.networks.attacks import EPSILON, Bounds, answers, wide

STEPS, TARGETS, QUERIES = 100, 9, 5000  # of APGD and FAB, of classes they aim at, of Square
MOMENTUM, RHO = 0.75, 0.75  # of APGD
FIRST, LEAST, SHORTER = 0.22, 0.06, 0.03  # shares of its steps: to the first check, between checks, less each time
ALPHA, ETA, BETA = 0.1, 1.05, 0.9  # of FAB
PATCH = 0.8  # share of the pixels in Square's first squares
HALVINGS = (10, 50, 200, 500, 1000, 2000, 4000, 6000, 8000)  # of 10,000 queries: when the squares' area halves
SEED = 0
BOX = Bounds()

Loss = Callable[[Tensor], Tensor]  # of logits, one a sample
Part = Callable[[Tensor, Tensor], Tensor]  # from inputs and labels to changed inputs


def autoattack(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    bounds: Bounds = BOX,
    steps: int = STEPS,
    queries: int = QUERIES,
) -> Tensor:
    """Each attack on the samples that are answered rightly still; those that no attack turns stay as they were."""
    rng = torch.Generator().manual_seed(SEED)
    attacks: tuple[Part, ...] = (
        lambda a, b: apgd(model, a, bounds, lambda z: F.cross_entropy(z, b, reduction="none"), b, rng, steps),
        lambda a, b: _targeted(
            model, a, b, lambda a, b, t: apgd(model, a, bounds, partial(dlr, y=b, target=t), b, rng, steps)
        ),
        lambda a, b: _targeted(model, a, b, lambda a, b, t: fab(model, a, b, t, bounds, steps)),
        lambda a, b: square(model, a, b, bounds, rng, queries),
    )
    found = x.clone()
    for attack in attacks:
        right = answers(model, found) == y
        if right.any():
            tried = attack(x[right], y[right])
            turned = answers(model, tried) != y[right]
            found[right] = torch.where(wide(turned, x), tried, found[right])
    return found


def _targeted(model: nn.Module, x: Tensor, y: Tensor, aimed: Callable[[Tensor, Tensor, Tensor], Tensor]) -> Tensor:
    """One attempt for each of the other classes, the likeliest first; the first that errs is kept."""
    with torch.no_grad():
        logits = model(x)
    order = logits.scatter(1, y[:, None], -math.inf).argsort(dim=1, descending=True, stable=True)
    found, left = x.clone(), torch.arange(len(x), device=x.device)
    for place in range(min(TARGETS, logits.shape[1] - 1)):
        if not len(left):
            break
        found[left] = aimed(x[left], y[left], order[left, place])
        left = left[answers(model, found[left]) == y[left]]
    return found


def dlr(logits: Tensor, y: Tensor, target: Tensor) -> Tensor:
    """The targeted difference of logits ratio, −(z_y − z_t)/(z_π1 − (z_π3 + z_π4)/2), π sorting downwards.

    With fewer than four classes the least likely stands for those that are not there.
    """
    ordered = logits.sort(1, descending=True).values
    third, fourth = (ordered[:, min(place, logits.shape[1] - 1)] for place in (2, 3))
    return -(_of(logits, y) - _of(logits, target)) / (ordered[:, 0] - (third + fourth) / 2 + 1e-12)


def apgd(
    model: nn.Module, x: Tensor, bounds: Bounds, loss: Loss, y: Tensor, rng: torch.Generator, steps: int = STEPS
) -> Tensor:
    """Projected gradient ascent with momentum, whose step halves where it gains no more; the last attempt that errs."""
    epsilon = EPSILON * bounds.size
    low, high = (x - epsilon).clamp(min=bounds.low), (x + epsilon).clamp(max=bounds.high)
    start = 2 * torch.rand(x.shape, generator=rng, dtype=x.dtype).to(x.device) - 1
    at = torch.clamp(x + epsilon * start / wide(start.flatten(1).abs().amax(1), x), low, high)
    value, slope, wrong = _valued(model, at, loss, y)
    found = torch.where(wide(wrong, x), at, x)
    best, best_value, best_slope, before = at, value, slope, at
    step = x.new_full((len(x),), 2 * epsilon)
    every, checked, rises = max(1, int(FIRST * steps)), 0, x.new_zeros(len(x))
    best_then, halved = best_value, torch.ones_like(wrong)
    for number in range(steps):
        share = MOMENTUM if number else 1.0
        ahead = torch.clamp(at + wide(step, x) * slope.sign(), low, high)
        moved = torch.clamp(at + share * (ahead - at) + (1 - share) * (at - before), low, high)
        before, at, last = at, moved, value
        value, slope, wrong = _valued(model, at, loss, y)
        found = torch.where(wide(wrong, x), at, found)
        rises += value > last
        better = value > best_value
        best, best_slope = torch.where(wide(better, x), at, best), torch.where(wide(better, x), slope, best_slope)
        best_value = torch.maximum(value, best_value)
        if number + 1 - checked == every:
            stuck = (rises <= RHO * every) | (~halved & (best_then >= best_value))
            step = torch.where(stuck, step / 2, step)
            at, slope = torch.where(wide(stuck, x), best, at), torch.where(wide(stuck, x), best_slope, slope)
            best_then, halved, checked, rises = best_value, stuck, number + 1, torch.zeros_like(rises)
            every = max(every - max(1, int(SHORTER * steps)), max(1, int(LEAST * steps)))
    return found


def fab(model: nn.Module, x: Tensor, y: Tensor, target: Tensor, bounds: Bounds, steps: int = STEPS) -> Tensor:
    """Steps to the linearised boundary between y and the target, drawn back to x: the nearest that errs within L∞ ε."""
    at, found = x.clone(), x.clone()
    least = x.new_full((len(x),), math.inf)
    for _ in range(steps):
        lead, slope, _ = _valued(model, at, lambda z: _of(z, y) - _of(z, target), y)
        there, back = (to_plane(point, slope, lead + _dot(slope, point - at), bounds) for point in (at, x))
        far, near = (change.flatten(1).abs().amax(1) for change in (there, back))
        share = wide((far / (far + near).clamp(min=1e-12)).clamp(0, ALPHA), x)
        at = ((at + ETA * there) * (1 - share) + (x + ETA * back) * share).clamp(bounds.low, bounds.high)
        wrong = answers(model, at) != y
        distance = (at - x).flatten(1).abs().amax(1)
        better = wrong & (distance <= EPSILON * bounds.size) & (distance < least)
        found, least = torch.where(wide(better, x), at, found), torch.where(better, distance, least)
        at = torch.where(wide(wrong, x), x + BETA * (at - x), at)
    return found


def to_plane(x: Tensor, w: Tensor, c: Tensor, bounds: Bounds) -> Tensor:
    """The change d of least L∞ with c + w·d = 0 that stays within the bounds; as near as they allow where none is.

    |d_i| is the smaller of a radius r and the room that i has; the radius is found among the sorted rooms.
    """
    shape, x, w = x.shape, x.flatten(1), w.flatten(1)
    way = -c.sign()[:, None] * w.sign()
    room = torch.where(way > 0, bounds.high - x, x - bounds.low).clamp(min=0) * (way != 0)
    ordered, places = room.sort(1)
    sizes = w.abs().gather(1, places)
    filled = (sizes * ordered).cumsum(1)  # by coordinates that have no more room
    left = sizes.flip(1).cumsum(1).flip(1)  # weight of those that have, this one included
    reach = filled - sizes * ordered + ordered * left
    first = (reach < c.abs()[:, None]).sum(1, keepdim=True).clamp(max=x.shape[1] - 1)
    rest = c.abs()[:, None] - (filled - sizes * ordered).gather(1, first)
    radius = rest / left.gather(1, first).clamp(min=1e-12)
    return (way * torch.minimum(radius.clamp(min=0), room)).reshape(shape)


def square(
    model: nn.Module, x: Tensor, y: Tensor, bounds: Bounds, rng: torch.Generator, queries: int = QUERIES
) -> Tensor:
    """Random squares of ±ε, kept where the margin of the right class falls; asks for outputs alone."""
    epsilon, shape = EPSILON * bounds.size, x.shape
    low, high = (x - epsilon).clamp(min=bounds.low), (x + epsilon).clamp(max=bounds.high)
    if len(shape) != 4:  # features: a row of pixels
        x, low, high = (part.reshape(len(part), 1, 1, -1) for part in (x, low, high))
    m, c, h, w = x.shape

    def signs(*size: int) -> Tensor:
        return 2 * torch.randint(2, size, generator=rng).to(x) - 1

    def margin(changed: Tensor, labels: Tensor) -> Tensor:
        with torch.no_grad():
            logits: Tensor = model(changed.reshape(-1, *shape[1:]))
        return _of(logits, labels) - logits.scatter(1, labels[:, None], -math.inf).amax(1)

    at = torch.clamp(x + epsilon * signs(m, c, 1, w), low, high)  # stripes
    lead = margin(at, y)
    for query in range(1, queries):
        open_ = torch.nonzero(lead >= 0)[:, 0]
        if not len(open_):
            break
        halvings = sum(query / queries * 10_000 > limit for limit in HALVINGS)
        side = max(1, round(math.sqrt(PATCH / 2**halvings * h * w)))
        rows, lines = (_segments(size, side, len(open_), rng).to(x.device) for size in (h, w))
        patch = rows[:, None, :, None] & lines[:, None, None]
        tried = torch.clamp(at[open_] + 2 * epsilon * patch * signs(len(open_), c, 1, 1), low[open_], high[open_])
        now = margin(tried, y[open_])
        better = now < lead[open_]
        at[open_[better]], lead[open_[better]] = tried[better], now[better]
    return at.reshape(shape)


def _segments(size: int, length: int, count: int, rng: torch.Generator) -> Tensor:
    """Where `count` random segments of a length lie on a line; (count, size)."""
    length = min(length, size)
    first = torch.randint(size - length + 1, (count, 1), generator=rng)
    at = torch.arange(size)
    return (at >= first) & (at < first + length)


def _valued(model: nn.Module, x: Tensor, loss: Loss, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The loss of each sample in x's precision, its gradient by x (or zeros), and who is answered wrongly."""
    x = x.detach().requires_grad_()
    logits = model(x)
    values = loss(logits)
    slope = None
    if values.requires_grad:
        [slope] = torch.autograd.grad(values.sum(), [x], allow_unused=True)
    if slope is None:
        slope = torch.zeros_like(x)
    return values.detach().to(x.dtype), slope, logits.argmax(1) != y


def _of(logits: Tensor, classes: Tensor) -> Tensor:
    return logits.gather(1, classes[:, None])[:, 0]


def _dot(a: Tensor, b: Tensor) -> Tensor:
    return (a * b).flatten(1).sum(1)
