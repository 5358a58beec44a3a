"""Draws architectures of a space, groups equal ones, counts their cost, and saves a picture of one."""

from collections import Counter
from pathlib import Path
from random import Random

import initio
from initio.networks.cost import count
from initio.report import save_picture


def main(folder: Path) -> None:
    space = initio.get_space("nb201")
    rng = Random(0)
    archs = [space.sample(rng) for _ in range(200)]

    classes = Counter(space.canonical(arch) for arch in archs)
    print(f"{len(archs)} cells drawn, {len(classes)} different networks")

    settings = initio.NetworkSettings(prune=False)
    costs = {arch: count(space.network(arch, settings), settings) for arch in archs}
    largest = max(archs, key=lambda arch: costs[arch].parameters)
    print(f"the largest has {costs[largest].parameters:,} parameters: {space.format(largest)}")

    save_picture(space.cells(largest), folder / "largest.svg")


if __name__ == "__main__":
    main(Path())
