"""Data sets, noise included, and the one seeded way to draw a `Batch` from them.

`load` takes one text, as typed after `--data`: `noise`, `digits`, a file, a folder, `hf:NAME`, a source of your own
(docs/data.md).
"""

from initio.data.arrays import from_arrays
from initio.data.dataset import Dataset, Images
from initio.data.gaussian import Noise, noise
from initio.data.sources import Data, load

__all__ = ["Data", "Dataset", "Images", "Noise", "from_arrays", "load", "noise"]
