import math

import numpy as np
import pytest

from initio.kernels.spectrum import Spectrum


def test_eigenvalues_add_up_to_the_trace():
    J = np.random.default_rng(0).normal(size=(6, 20))
    K = J @ J.T
    spectrum = Spectrum(K)
    assert spectrum.eigenvalues.sum() == pytest.approx(np.trace(K))
    assert spectrum.kappa == pytest.approx(np.linalg.cond(K))
    assert not spectrum.flag


def test_a_singular_matrix_has_no_finite_condition_number_and_says_why():
    J = np.random.default_rng(0).normal(size=(6, 20))
    J[3] = J[2]  # two identical samples
    spectrum = Spectrum(J @ J.T)
    assert spectrum.kappa == math.inf
    assert "is zero beside the largest" in spectrum.flag


def test_what_float32_cannot_tell_from_zero_is_zero():
    K = np.diag([1.0, 1e-7])
    assert Spectrum(K).kappa == pytest.approx(1e7)
    assert Spectrum(K, precision=float(np.finfo(np.float32).eps)).kappa == math.inf
