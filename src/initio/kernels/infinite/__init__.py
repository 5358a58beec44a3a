"""The neural tangent kernel of infinitely wide networks with mixed activations and skips, and at finite width."""

from initio.kernels.infinite.duals import ETA, Dual, dual
from initio.kernels.infinite.finite import finite_ntk
from initio.kernels.infinite.recursion import GAIN, Form, WideKernel, ntk

__all__ = ["ETA", "GAIN", "Dual", "Form", "WideKernel", "dual", "finite_ntk", "ntk"]
