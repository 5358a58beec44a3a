"""A metric of your own: a function of a measurement. Compares two networks by it.

`initio score nb201 --sample 3 --metrics grad,examples.own_metric:Mine` scores a space.
"""

import initio
from initio.metrics import Metric, evaluate
from initio.metrics.base import Measurement


def weakest(at: Measurement) -> float:
    """The smallest gradient norm of a weight: how well the layer learns that learns worst."""
    return min(float(g.norm()) for g in at.g.values())


Mine = Metric(
    name="weakest",
    formula="min_layer ‖g_layer‖₂",
    source="this example",
    higher_is_better=True,
    needs=frozenset({"labels", "gradients"}),
    compute=weakest,
    about="A layer without gradient learns nothing.",
)


def main() -> None:
    batch = initio.noise((3, 16, 16), classes=10, batch_size=32, seed=0)
    for name in ("nasnet", "darts_v2"):
        model = initio.build(name, channels=4, cells=3, shape=batch.shape)
        for metric, value in evaluate(model, batch, ["grad", Mine]).items():
            print(f"{name:<9} {metric:<8} {value.value:.4f}")


if __name__ == "__main__":
    main()
