"""Metrics of the neural tangent kernel at initialisation: its size and its eigenvalues [HNAS 4, Thm 2; Eigen 5.2]."""

from __future__ import annotations

import math

from initio.metrics.base import DEEP_SPACES, Measurement, Metric, UndefinedValue, Value, needs

ZERO = "the kernel is zero: the output does not depend on any parameter"


def trace(at: Measurement) -> Value:
    """√(‖Θ0‖_tr / m)."""
    return at.with_doubt(math.sqrt(at.kernel.trace / at.m), *_notes(at))


def kappa(at: Measurement) -> Value:
    """λ_max / λ_min; infinite, with the reason, when λ_min cannot be told from zero."""
    _nonzero(at)
    spectrum = at.kernel.spectrum
    return at.with_doubt(spectrum.kappa, spectrum.flag, _single(at, "κ"), *_notes(at))


def lambda_min(at: Measurement) -> Value:
    """The smallest eigenvalue."""
    spectrum = at.kernel.spectrum
    return at.with_doubt(spectrum.lambda_min, spectrum.flag, *_notes(at))


def lambda_relative(at: Measurement) -> Value:
    """The smallest eigenvalue over the mean one: the kernel's size, which a learning rate undoes, does not count."""
    _nonzero(at)
    spectrum = at.kernel.spectrum
    return at.with_doubt(
        at.m * spectrum.lambda_min / at.kernel.trace, spectrum.flag, _single(at, "λ_min / mean λ"), *_notes(at)
    )


def eigen(at: Measurement) -> Value:
    """The mean of the diagonal: an upper bound of λ_min."""
    return at.with_doubt(at.kernel.trace / at.m, *_notes(at))


def knas(at: Measurement) -> Value:
    """The mean of all entries: ‖mean gradient‖²."""
    return at.with_doubt(float(at.kernel.gram.mean()), *_notes(at))


def _notes(at: Measurement) -> tuple[str, ...]:
    zero = ""
    if at.kernel.trace == 0 and not at.doubt:
        zero = ZERO
    return at.kernel.note, at.together, zero


def _nonzero(at: Measurement) -> None:
    if at.kernel.trace == 0:
        raise UndefinedValue(ZERO)


def _single(at: Measurement, name: str) -> str:
    return f"a batch of one has {name} = 1 whatever the network" if at.m == 1 else ""


KERNEL = (
    Metric("trace", "√(‖Θ0‖_tr / m)", "HNAS, Eq. 4", True, needs("labels", "kernel"), trace,
           "The size of the neural tangent kernel.",
           reversed_on=DEEP_SPACES),
    Metric("kappa", "λ_max(Θ0) / λ_min(Θ0)", "HNAS, Theorem 2; TE-NAS",
           False, needs("precision", "labels", "kernel"), kappa,
           "The condition number of the kernel: how unevenly directions are learnt."),
    Metric("lambda_min", "λ_min(Θ0)", "Eigen-NAS, section 5.2",
           True, needs("precision", "labels", "kernel"), lambda_min, "The slowest direction of learning.",
           reversed_on=DEEP_SPACES),
    Metric("lambda_relative", "m λ_min(Θ0) / ‖Θ0‖_tr", "after Eigen-NAS, section 5.2",
           True, needs("precision", "labels", "kernel"),
           lambda_relative, "λ_min in units of the mean eigenvalue: what Eigen-NAS ranks by here."),
    Metric("eigen", "(1/m) Σ_i Θ0_ii", "Eigen-NAS, section 5.2", True, needs("precision", "labels", "kernel"), eigen,
           "Eigen-NAS's surrogate: the mean of the diagonal, an upper bound of λ_min; trace squared.",
           reversed_on=DEEP_SPACES),
    Metric("knas", "(1/m²) Σ_ij Θ0_ij", "KNAS; thesis 7.6", True, needs("labels", "kernel"), knas,
           "The mean of the gradients' Gram matrix. The thesis takes its square root, which ranks the same.",
           reversed_on=DEEP_SPACES),
)  # fmt: skip
