"""Networks: from a graph to a plain PyTorch module."""

from initio.networks.build import GraphModule, build
from initio.networks.cost import NetworkCost, count
from initio.networks.initialise import initialise
from initio.networks.operations import OPERATIONS, DropPath, set_drop_path

__all__ = [
    "OPERATIONS",
    "DropPath",
    "GraphModule",
    "NetworkCost",
    "build",
    "count",
    "initialise",
    "set_drop_path",
]
