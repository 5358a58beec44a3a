"""`initio bounds ARCH`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from initio.cli.units import print_json
from initio.records import encode

if TYPE_CHECKING:
    from initio.analysis.eigen_bounds import EigenBounds
    from initio.kernels.spectrum import Spectrum


@dataclass(frozen=True)
class BoundsCommand:
    """Prints λ_min of an mlp's infinite-width NTK, the bounds of Eigen-NAS, and which assumptions the data violates.

    Args:
        architecture: an mlp, as in 'mlp:relu,tanh,relu;skips=1'.
        data: digits, noise, a file or a folder; docs/data.md lists all kinds.
        batch_size: how many inputs.
        seed: draws the inputs and the finite network.
        width: of the finite network for Theorem 2.
        delta: probability of failure in Theorem 3.
        unit_norm: divide every input by its norm, as the theorems assume.
        json: print JSON instead of a table.
    """

    architecture: str
    data: str = "digits"
    batch_size: int = 128
    seed: int = 0
    width: int = 1024
    delta: float = 0.05
    unit_norm: bool = True
    json: bool = False

    def run(self) -> None:
        """Prints the table."""
        import torch

        from initio.analysis.eigen_bounds import eigen_bounds, two_classes
        from initio.data import load
        from initio.spaces import get_space, parse
        from initio.spaces.mlp import as_mlp

        torch.set_num_threads(1)
        arch = parse(self.architecture)
        refusal = "the bounds hold for mlp architectures, such as 'mlp:relu,tanh,relu;skips=1'"
        space = as_mlp(get_space(arch.space), refusal)
        batch = load(self.data).batch(self.batch_size, self.seed)
        found = eigen_bounds(
            batch.x,
            two_classes(batch.y, batch.classes),
            space.activations(arch),
            space.skips(arch),
            width=self.width,
            delta=self.delta,
            seed=self.seed,
            unit_norm=self.unit_norm,
        )
        if self.json:
            print_json({"architecture": space.format(arch), "inputs": len(batch), "seed": self.seed} | encode(found))
            return
        inputs = f"{len(batch)} inputs of {self.data}" + ", scaled to norm 1" * self.unit_norm
        print(f"{space.format(arch)}, depth {space.depth}\n{inputs}, seed {self.seed}\n")
        print(table(found))


def table(found: EigenBounds) -> str:
    """The bounds as lines of text."""
    low_1, up_1 = found.theorem_1
    low_2, up_2 = found.theorem_2
    mean, norm = found.mean_diagonal, found.frobenius
    lines = [
        f"λ_min, infinite width         {_shown(found.spectrum)}",
        f"  mean diagonal               at most  {mean:.6g}{_verdict(found.spectrum, upper=mean)}",
        f"  Frobenius norm              at most  {norm:.6g}{_verdict(found.spectrum, upper=norm)}",
        f"  Theorem 1                   {low_1:.6g} to {up_1:.6g}{_verdict(found.spectrum, low_1, up_1)}",
        f"  Schur, no assumption        at least {found.schur:.6g}{_verdict(found.spectrum, found.schur)}",
        f"λ_min, one network of width {found.width}: {_shown(found.finite)}",
        f"  Theorem 2                   {low_2:.6g} to {up_2:.6g}{_verdict(found.finite, low_2, up_2)}",
        f"Theorem 3, 0-1 error at most  {_risk(found.theorem_3)}",
        f"  with the labels, yᵀK⁻¹y     {_risk(found.theorem_3_labels)}",
        "  (constants inside Θ and O are not given in the paper and taken as 1)",
        "",
        "constants     β1        β2        β3        μ1        Lipschitz",
    ]
    for name, c in found.table:
        numbers = (c.beta_1, c.beta_2, c.beta_3, c.mu_1, c.lipschitz)
        lines.append(f"  {name:<11} " + " ".join(f"{number:<9.5g}" for number in numbers).rstrip())
    lines += ["", "assumptions on the inputs as they came"]
    lines += [f"  {'holds   ' if a.holds else 'VIOLATED'}  {a.name}: {a.found}" for a in found.assumptions]
    lines += [f"note: {flag}" for flag in found.flags]
    return "\n".join(lines)


def _shown(spectrum: Spectrum) -> str:
    return spectrum.flag or f"{spectrum.lambda_min:.6g}"


def _risk(value: float | None) -> str:
    if value is None:
        return "none: λ_min is zero"
    if value >= 1:
        return f"{value:.4g}   (says nothing: above 1)"
    return f"{value:.4g}"


def _verdict(spectrum: Spectrum, lower: float = 0.0, upper: float = float("inf")) -> str:
    """Whether λ_min keeps the bound; the constants taken as 1 are why it may not."""
    value = 0.0 if spectrum.singular else spectrum.lambda_min
    if value > upper:
        return "   (λ_min is above)"
    if value < lower:
        return "   (λ_min is below)"
    return "   (kept)"
