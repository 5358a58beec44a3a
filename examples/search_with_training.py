"""Random search on the embedded digits: four cells, each trained for one epoch. Run it again and it goes on."""

from pathlib import Path

import initio


def main(folder: Path, queries: int = 4) -> initio.SearchResult:
    def tell(step: initio.Trained) -> None:
        value = f"{step.value:5.1f} % after {step.seconds:.1f} s"
        print(value, initio.get_space("nb201").format(step.architecture), sep="  ")

    result = initio.search(
        "nb201", "random", "digits", queries=queries, epochs=1, folder=folder, resume=True, on_step=tell
    )
    result.show()
    return result


if __name__ == "__main__":
    main(Path("runs/random-digits"))
