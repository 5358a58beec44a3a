"""Kernels: only tensors."""
