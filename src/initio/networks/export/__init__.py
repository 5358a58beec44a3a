"""Networks as files that other programs read: Python source, ONNX, TorchScript; `initio.spaces.exports` writes them."""
