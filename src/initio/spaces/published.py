"""Published cells, as their papers draw them (in the notation of DARTS)."""

from __future__ import annotations

from initio.spaces.genotype import Genotype

FOUR, FIVE = (2, 3, 4, 5), (2, 3, 4, 5, 6)


def _cell(text: str) -> tuple[tuple[str, int], ...]:
    """`sep_conv_3x3 0, skip_connect 1` as pairs."""
    return tuple((op, int(source)) for op, source in (pair.split() for pair in text.split(",")))


ZOO: dict[str, Genotype] = {
    # Zoph et al., "Learning transferable architectures for scalable image recognition", 2018
    "nasnet": Genotype(
        _cell(
            "sep_conv_5x5 1, sep_conv_3x3 0, sep_conv_5x5 0, sep_conv_3x3 0, avg_pool_3x3 1, skip_connect 0, "
            "avg_pool_3x3 0, avg_pool_3x3 0, sep_conv_3x3 1, skip_connect 1"
        ),
        FIVE,
        _cell(
            "sep_conv_5x5 1, sep_conv_7x7 0, max_pool_3x3 1, sep_conv_7x7 0, avg_pool_3x3 1, sep_conv_5x5 0, "
            "skip_connect 3, avg_pool_3x3 2, sep_conv_3x3 2, max_pool_3x3 1"
        ),
        (4, 5, 6),
    ),
    # Real et al., "Regularized evolution for image classifier architecture search", 2019: AmoebaNet-A
    "amoebanet": Genotype(
        _cell(
            "avg_pool_3x3 0, max_pool_3x3 1, sep_conv_3x3 0, sep_conv_5x5 2, sep_conv_3x3 0, avg_pool_3x3 3, "
            "sep_conv_3x3 1, skip_connect 1, skip_connect 0, avg_pool_3x3 1"
        ),
        (4, 5, 6),
        _cell(
            "avg_pool_3x3 0, sep_conv_3x3 1, max_pool_3x3 0, sep_conv_7x7 2, sep_conv_7x7 0, avg_pool_3x3 1, "
            "max_pool_3x3 0, max_pool_3x3 1, conv_7x1_1x7 0, sep_conv_3x3 5"
        ),
        (3, 4, 6),
    ),
    # Pham et al., "Efficient neural architecture search via parameter sharing", 2018;
    # nodes that no other node reads are concatenated
    "enas": Genotype(
        _cell(
            "sep_conv_3x3 1, skip_connect 1, sep_conv_5x5 1, skip_connect 0, avg_pool_3x3 0, sep_conv_3x3 1, "
            "sep_conv_3x3 0, avg_pool_3x3 1, sep_conv_5x5 1, avg_pool_3x3 0"
        ),
        FIVE,
        _cell(
            "sep_conv_5x5 0, avg_pool_3x3 1, sep_conv_3x3 1, avg_pool_3x3 1, sep_conv_3x3 1, avg_pool_3x3 1, "
            "sep_conv_5x5 4, avg_pool_3x3 1, sep_conv_3x3 5, sep_conv_5x5 0"
        ),
        (2, 3, 6),
    ),
    # Liu et al., "DARTS: differentiable architecture search", 2019: first and second order
    "darts_v1": Genotype(
        _cell(
            "sep_conv_3x3 1, sep_conv_3x3 0, skip_connect 0, sep_conv_3x3 1, skip_connect 0, sep_conv_3x3 1, "
            "sep_conv_3x3 0, skip_connect 2"
        ),
        FOUR,
        _cell(
            "max_pool_3x3 0, max_pool_3x3 1, skip_connect 2, max_pool_3x3 0, max_pool_3x3 0, skip_connect 2, "
            "skip_connect 2, avg_pool_3x3 0"
        ),
        FOUR,
    ),
    "darts_v2": Genotype(
        _cell(
            "sep_conv_3x3 0, sep_conv_3x3 1, sep_conv_3x3 0, sep_conv_3x3 1, sep_conv_3x3 1, skip_connect 0, "
            "skip_connect 0, dil_conv_3x3 2"
        ),
        FOUR,
        _cell(
            "max_pool_3x3 0, max_pool_3x3 1, skip_connect 2, max_pool_3x3 1, max_pool_3x3 0, skip_connect 2, "
            "skip_connect 2, max_pool_3x3 1"
        ),
        FOUR,
    ),
    # Xie et al., "SNAS: stochastic neural architecture search", 2019: mild constraint
    "snas": Genotype(
        _cell(
            "sep_conv_3x3 0, sep_conv_3x3 1, skip_connect 0, dil_conv_3x3 1, skip_connect 0, skip_connect 1, "
            "skip_connect 0, sep_conv_3x3 1"
        ),
        FOUR,
        _cell(
            "max_pool_3x3 0, max_pool_3x3 1, skip_connect 2, max_pool_3x3 1, max_pool_3x3 1, skip_connect 2, "
            "dil_conv_5x5 2, max_pool_3x3 0"
        ),
        FOUR,
    ),
    # Dong and Yang, "Searching for a robust neural architecture in four GPU hours", 2019
    "gdas": Genotype(
        _cell(
            "skip_connect 0, skip_connect 1, skip_connect 0, sep_conv_5x5 2, sep_conv_3x3 3, skip_connect 0, "
            "sep_conv_5x5 4, sep_conv_3x3 3"
        ),
        FOUR,
        _cell(
            "sep_conv_5x5 0, sep_conv_3x3 1, sep_conv_5x5 2, sep_conv_5x5 1, dil_conv_5x5 2, sep_conv_3x3 1, "
            "sep_conv_5x5 0, sep_conv_5x5 1"
        ),
        FOUR,
    ),
    # Xu et al., "PC-DARTS: partial channel connections for memory-efficient architecture search", 2020: CIFAR-10 cell
    "pc_darts": Genotype(
        _cell(
            "sep_conv_3x3 1, skip_connect 0, sep_conv_3x3 0, dil_conv_3x3 1, sep_conv_5x5 0, sep_conv_3x3 1, "
            "avg_pool_3x3 0, dil_conv_3x3 1"
        ),
        FOUR,
        _cell(
            "sep_conv_5x5 1, max_pool_3x3 0, sep_conv_5x5 1, sep_conv_5x5 2, sep_conv_3x3 0, sep_conv_3x3 3, "
            "sep_conv_3x3 1, sep_conv_3x3 2"
        ),
        FOUR,
    ),
    # Chen et al., "Progressive differentiable architecture search", 2019: CIFAR-10 cell
    "p_darts": Genotype(
        _cell(
            "skip_connect 0, dil_conv_3x3 1, skip_connect 0, sep_conv_3x3 1, sep_conv_3x3 1, sep_conv_3x3 3, "
            "sep_conv_3x3 0, dil_conv_5x5 4"
        ),
        FOUR,
        _cell(
            "avg_pool_3x3 0, sep_conv_5x5 1, sep_conv_3x3 0, dil_conv_5x5 2, max_pool_3x3 0, dil_conv_3x3 1, "
            "dil_conv_3x3 1, dil_conv_5x5 3"
        ),
        FOUR,
    ),
}
