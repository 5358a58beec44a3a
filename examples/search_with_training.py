"""Random search on the embedded digits: four cells, each trained for one epoch. Run it again and it goes on."""

from pathlib import Path

import initio
from initio.records import Observation, Query, SearchResult
from initio.searches.methods.random_search import RandomSearch
from initio.searches.queries import Budget, Task, run_queries
from initio.training import Training, TrainingSettings


def main(folder: Path, queries: int = 4) -> SearchResult:
    space = initio.get_space("nb201")
    training = Training(
        space,
        initio.load_data("digits"),
        initio.NetworkSettings(channels=4, cells=1),
        TrainingSettings(epochs=1),
        folder=folder,
        on_note=print,
    )

    def evaluate(query: Query) -> Observation:
        seen = training(query)
        print(f"{seen.value:5.1f} % after {seen.seconds:.1f} s  {space.format(query.architecture)}")
        return seen

    result = run_queries(RandomSearch(), Task(space, Budget(queries=queries)), evaluate, seed=0)
    print(f"chosen: {space.format(result.chosen[0])}")
    return result


if __name__ == "__main__":
    main(Path("trainings"))
