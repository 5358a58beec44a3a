"""What a trained network expects of its inputs, as a part of the exported network and as code."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Preprocessing:
    """From stored values to what the network reads: cut and resized to a shape, divided by `scale`, normalised.

    Args:
        shape: of one input of the network.
        scale: what stored values are divided by: 255 for 8-bit images, else 1.
        mean: taken off, by channel or feature; empty where nothing is.
        std: then divided by.
    """

    shape: tuple[int, ...]
    scale: float = 1.0
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()

    @property
    def dtype(self) -> torch.dtype:
        """Of stored values."""
        return {255.0: torch.uint8}.get(self.scale, torch.float32)

    def said(self) -> tuple[str, ...]:
        """Its steps in words."""
        steps = []
        if len(self.shape) == 3:
            size = f"{self.shape[1]}x{self.shape[2]}"
            rounded = ", rounded to 8 bits again" * (self.scale == 255)
            steps.append(f"cut an image around its centre to the proportions of {size} (height x width)")
            steps.append(f"resize it to {size} pixels by averaging over areas{rounded}")
        if self.scale != 1:
            steps.append(f"divide by {self.scale:g}")
        if self.mean:
            steps.append("subtract the mean and divide by the deviation, by channel or feature")
        return tuple(steps)


class Preprocessed(nn.Module):
    """A network that reads stored values of the right size: it divides and normalises them itself."""

    mean: Tensor
    std: Tensor

    def __init__(self, network: nn.Module, how: Preprocessing) -> None:
        super().__init__()
        self.network = network
        self.scale = how.scale
        channels = (-1,) + (1,) * (len(how.shape) - 1)
        mean, std = how.mean or (0.0,), how.std or (1.0,)
        for name, values in (("mean", mean), ("std", std)):
            self.register_buffer(name, torch.tensor(values, dtype=torch.float32).reshape(channels))

    def forward(self, x: Tensor) -> Tensor:
        """Logits of bytes, or of other stored values as float32."""
        values = x.to(torch.float32) / self.scale
        outputs: Tensor = self.network((values - self.mean) / self.std)
        return outputs


def trained_code(how: Preprocessing, classes: tuple[str, ...]) -> str:
    """What a Python file has behind its network: class names, the preprocessing, a loader, and a use of all three."""
    images = len(how.shape) == 3
    constants, about = f"CLASSES = {_tuple(classes)}\n", "Inputs as they are stored"
    steps = [f"x = x.double() / {how.scale:g}"] * (how.scale != 1)
    if images:
        kind = {255.0: "8-bit images"}.get(how.scale, "Images")
        about = f"{kind} (m, {how.shape[0]}, height, width) of any size, cut and resized"
        steps.insert(0, f"x = resize(x, {how.shape[1]}, {how.shape[2]})")
    if how.mean:
        constants += f"MEAN = {_tuple(how.mean)}\nSTD = {_tuple(how.std)}\n"
        by_channel = ", ".join(["-1"] + ["1"] * (len(how.shape) - 1))
        steps.append(f"mean, std = (torch.tensor(v, dtype=torch.float64).reshape({by_channel}) for v in (MEAN, STD))")
        steps.append("x = (x - mean) / std")
    body = "\n".join(
        f"    {step}" for step in (f'"""{about}, as the network reads them."""', *steps, "return x.float()")
    )
    preprocess = f"def preprocess(x: Tensor) -> Tensor:\n{body}\n"
    main = MAIN
    if images and how.scale == 255 and how.shape[0] in MODES:
        main += PICTURES.replace("MODE", MODES[how.shape[0]]).replace("CHANNELS", str(how.shape[0]))
    return "\n\n".join([constants, *[RESIZE] * images, preprocess, LOAD, main])


def _tuple(values: tuple[object, ...]) -> str:
    """A tuple as code, on one line where it is short."""
    texts = [repr(value) for value in values]
    if sum(map(len, texts)) < 90:
        return f"({', '.join(texts)}{',' * (len(texts) == 1)})"
    return "(\n" + "".join(f"    {text},\n" for text in texts) + ")"


RESIZE = '''\
def resize(x: Tensor, height: int, width: int) -> Tensor:
    """Cut to the asked proportions around the centre; then each pixel is the mean over the area that it covers."""
    h, w = x.shape[-2:]
    tall, wide = min(h, max(1, w * height // width)), min(w, max(1, h * width // height))
    top, left = (h - tall) // 2, (w - wide) // 2
    x = x[..., top : top + tall, left : left + wide]
    if (tall, wide) == (height, width):
        return x
    means = areas(tall, height) @ x.double() @ areas(wide, width).T
    return torch.floor(means + (0.5 + 1e-9)).to(x.dtype) if x.dtype == torch.uint8 else means.to(x.dtype)


def areas(n: int, m: int) -> Tensor:
    """(m, n): the share of each of n old pixels in each of m new ones."""
    new, old = torch.arange(m)[:, None] * n, torch.arange(n)[None, :] * m
    overlap = torch.minimum(new + n, old + m) - torch.maximum(new, old)
    return overlap.clamp(min=0).double() / n
'''

LOAD = '''\
def load(weights: str | Path = Path(__file__).with_suffix(".pt")) -> Network:
    """The trained network in evaluation mode; a file of weights cannot run code."""
    network = Network()
    network.load_state_dict(torch.load(weights, map_location="cpu", weights_only=True))
    return network.eval()
'''

MAIN = """\
if __name__ == "__main__":
    network = load()
    print(f"{sum(p.numel() for p in network.parameters()):,} parameters")
"""

MODES = {1: "L", 3: "RGB"}  # Pillow's, by channels
PICTURES = """\
    for path in sys.argv[1:]:
        from PIL import Image  # Pillow reads pictures; nothing else needs it

        with Image.open(path) as picture:
            width, height = picture.size
            pixels = torch.frombuffer(bytearray(picture.convert("MODE").tobytes()), dtype=torch.uint8)
        image = pixels.reshape(1, height, width, CHANNELS).permute(0, 3, 1, 2)
        with torch.inference_mode():
            p = network(preprocess(image)).softmax(1)[0]
        print(f"{path}: {CLASSES[int(p.argmax())]}, {100 * float(p.max()):.1f} %")
"""
