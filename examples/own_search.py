"""A search of one's own: a walk that keeps every step that helps.

initio search nb201 --method examples.own_search:Mine --data digits --queries 3 --epochs 1
"""

from dataclasses import dataclass
from random import Random

import initio
from initio.records import Query
from initio.searches import Problem, Proposals


@dataclass(frozen=True)
class Mine(initio.QuerySearch):
    """From a random architecture to a neighbour, and back where that is worse.

    Args:
        mutations: decisions that a step changes.
    """

    mutations: int = 1

    name = "mine"

    def propose(self, problem: Problem, seed: int) -> Proposals:
        """Asks for one training after the other; `QuerySearch` keeps the budget, and takes the best."""
        rng = Random(seed)
        here = problem.draw(rng)
        best = (yield Query(here)).value
        while True:
            there = problem.mutate(here, rng, mutations=self.mutations)
            value = (yield Query(there)).value
            if value > best:
                here, best = there, value


def main() -> initio.SearchResult:
    result = initio.search("nb201", Mine(mutations=2), "digits", queries=3, epochs=1)
    result.show()
    return result


if __name__ == "__main__":
    main()
