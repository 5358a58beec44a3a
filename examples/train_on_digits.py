"""Trains a published cell, thin, on the embedded digits: a built network is a plain PyTorch module."""

import torch
from torch import nn

import initio


def main(epochs: int = 3) -> float:
    train, test = initio.load_data("digits"), initio.load_data("digits", split="test")
    model = initio.build("darts_v2", channels=4, cells=3, shape=train.shape, classes=train.classes, seed=0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for epoch in range(epochs):
        model.train()
        for batch in train.minibatches(64, seed=epoch):
            loss = nn.functional.cross_entropy(model(torch.tensor(batch.x)), torch.tensor(batch.y))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch + 1}: loss of the last batch {loss.item():.3f}")

    model.eval()
    with torch.no_grad():
        batches = list(test.minibatches(64, seed=0))
        correct = sum((model(torch.tensor(b.x)).argmax(1) == torch.tensor(b.y)).sum().item() for b in batches)
    accuracy = correct / sum(len(b) for b in batches)
    print(f"test accuracy {100 * accuracy:.1f} %")
    return accuracy


if __name__ == "__main__":
    main()
