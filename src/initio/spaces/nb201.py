"""NAS-Bench-201, the topology space of NATS-Bench: 6 edges between 4 nodes, 5 operations, 15,625 cells."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from itertools import permutations, product

from initio.errors import InputError, did_you_mean
from initio.graphs import CONCAT, SUM, ZERO, Builder, Graph, Op, prune
from initio.records import Architecture
from initio.spaces.base import Cell, Decision, Edge, NetworkSettings, Space

OPS = ("none", "skip_connect", "nor_conv_1x1", "nor_conv_3x3", "avg_pool_3x3")
EDGES = ((0, 1), (0, 2), (1, 2), (0, 3), (1, 3), (2, 3))  # the order of the text form
