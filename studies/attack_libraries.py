"""Our attacks against those of the libraries that are installed: foolbox, torchattacks, adversarial-robustness-toolbox.

    python -m studies.attack_libraries [LIBRARY ...]

One small network with a bend, the same samples and bounds for all. For each attack: how many samples it turns, the mean
L2 of their changes, and whether PGD turns all that FGSM turns; and whether the library moves global random states.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version

import numpy as np
import torch
from torch import Tensor, nn

from initio.networks.attacks import EPSILON, STEP, STEPS, Bounds, answers, cw, fgsm, pgd
from initio.networks.autoattack import autoattack

Attack = Callable[[nn.Module, Tensor, Tensor], Tensor]
SAMPLES, CLASSES = 100, 10


def network() -> nn.Module:
    """Random features and a classifier fitted to smooth labels: some samples turn within ε, others do not."""
    torch.manual_seed(0)
    return (
        nn.Sequential(nn.Flatten(), nn.Linear(192, 64), nn.Tanh(), nn.Linear(64, CLASSES)).requires_grad_(False).eval()
    )


def _foolbox(name: str) -> Attack:
    import foolbox

    def run(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        wrapped = foolbox.PyTorchModel(model, bounds=(0, 1), device="cpu")
        attacks = {
            "fgsm": foolbox.attacks.LinfFastGradientAttack(random_start=False),
            "pgd": foolbox.attacks.LinfPGD(abs_stepsize=STEP, steps=STEPS),
            "cw": foolbox.attacks.L2CarliniWagnerAttack(
                binary_search_steps=3, steps=50, stepsize=0.01, initial_const=0.1
            ),
        }
        epsilon = {"cw": None}.get(name, EPSILON)
        return attacks[name](wrapped, x, y, epsilons=epsilon)[1]

    return run


def _torchattacks(name: str) -> Attack:
    import torchattacks

    def run(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        attacks = {
            "fgsm": lambda: torchattacks.FGSM(model, eps=EPSILON),
            "pgd": lambda: torchattacks.PGD(model, eps=EPSILON, alpha=STEP, steps=STEPS, random_start=True),
            "cw": lambda: torchattacks.CW(model, c=10, kappa=0, steps=50, lr=0.01),
            "autoattack": lambda: torchattacks.AutoAttack(model, eps=EPSILON, n_classes=CLASSES, seed=0),
        }
        return attacks[name]()(x, y)

    return run


def _art(name: str) -> Attack:
    from art.attacks.evasion import AutoAttack, CarliniL2Method, FastGradientMethod, ProjectedGradientDescent
    from art.estimators.classification import PyTorchClassifier

    def run(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        shape = tuple(x.shape[1:])
        wrapped = PyTorchClassifier(model, nn.CrossEntropyLoss(), shape, CLASSES, clip_values=(0.0, 1.0))
        attacks = {
            "fgsm": lambda: FastGradientMethod(wrapped, eps=EPSILON),
            "pgd": lambda: ProjectedGradientDescent(wrapped, eps=EPSILON, eps_step=STEP, max_iter=STEPS, verbose=False),
            "cw": lambda: CarliniL2Method(
                wrapped, binary_search_steps=3, max_iter=50, learning_rate=0.01, initial_const=0.1, verbose=False
            ),
            "autoattack": lambda: AutoAttack(wrapped, eps=EPSILON, eps_step=STEP),
        }
        return torch.from_numpy(attacks[name]().generate(x.numpy(), y.numpy()))

    return run


def _ours(name: str) -> Attack:
    attacks = {"fgsm": fgsm, "pgd": pgd, "cw": cw, "autoattack": autoattack}
    return lambda model, x, y: attacks[name](model, x, y, Bounds())


LIBRARIES: dict[str, tuple[Callable[[str], Attack], tuple[str, ...]]] = {
    "initio": (_ours, ("fgsm", "pgd", "cw", "autoattack")),
    "foolbox": (_foolbox, ("fgsm", "pgd", "cw")),
    "torchattacks": (_torchattacks, ("fgsm", "pgd", "cw", "autoattack")),
    "adversarial-robustness-toolbox": (_art, ("fgsm", "pgd", "cw", "autoattack")),
}


def _states() -> tuple[np.ndarray, np.ndarray]:
    """Of torch's and numpy's global generators."""
    return torch.get_rng_state().numpy().copy(), np.array(np.random.get_state()[1])  # noqa: NPY002


def main() -> None:
    model = network()
    x = torch.rand(SAMPLES, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    y = answers(model, x)
    for library, (make, names) in LIBRARIES.items():
        if sys.argv[1:] and library not in sys.argv[1:]:
            continue
        try:
            told = version(library)
            attacks = {name: make(name) for name in names}
        except (PackageNotFoundError, ImportError) as error:
            print(f"{library}: left out, {error}")
            continue
        print(f"{library} {told}")
        turned: dict[str, Tensor] = {}
        for name, attack in attacks.items():
            before, began = _states(), time.process_time()
            changed = attack(model, x.clone(), y.clone()).detach()
            seconds = time.process_time() - began
            moved = any((a != b).any() for a, b in zip(before, _states(), strict=True))
            turned[name] = answers(model, changed) != y
            distance = (changed - x)[turned[name]].flatten(1).norm(dim=1).mean()
            print(
                f"  {name:<10} turns {int(turned[name].sum()):>3} of {SAMPLES}, L2 {distance:.4f}, "
                f"L∞ {(changed - x).abs().max():.4f}, {seconds:.1f} s" + ", moves global random states" * moved
            )
        lost = int((turned["fgsm"] & ~turned["pgd"]).sum())
        print(f"  turned by FGSM and not by PGD: {lost}")


if __name__ == "__main__":
    main()
