"""Trains a small convolutional network on the handwritten digits that scikit-learn bundles and exports it.

    python examples/digits/train.py        # needs torch, scikit-learn, numpy; half a minute

Writes digits.pt2 (the program), and five test images that it never saw in training as digit_N.npy (float32 [1, 8, 8], grey
levels 0 to 16), N being the digit that is drawn.
"""
import pathlib
import re

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn

HERE = pathlib.Path(__file__).parent


class Digits(nn.Module):
    """Images [batch, 8, 8] with grey levels 0 to 16 -> the digit in each, and the probability of every digit."""

    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(),
            nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.25),
        )
        self.classes = nn.Sequential(nn.Linear(32 * 4 * 4, 10))

    def forward(self, image):
        x = self.features(image.unsqueeze(1) / 16)
        probability = self.classes(x.flatten(1)).softmax(-1)
        return {"digit": probability.argmax(-1), "probability": probability}


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    data = load_digits()
    images = torch.tensor(data.images, dtype=torch.float32)
    labels = torch.tensor(data.target)
    order = torch.randperm(len(images))
    train, test = order[:-360], order[-360:]
    model = Digits()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=1e-2)
    for epoch in range(30):
        for batch in train[torch.randperm(len(train))].split(64):
            loss = nn.functional.nll_loss(model(images[batch])["probability"].clamp_min(1e-9).log(), labels[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    model.eval()
    right = (model(images[test])["digit"] == labels[test]).float().mean()
    print(f"right on {right:.1%} of {len(test)} images it never saw")
    batch = torch.export.Dim("batch")
    program = torch.export.export(model, (images[:2].clone(),), dynamic_shapes={"image": {0: batch}})
    for node in program.graph.nodes:  # source lines without the folders of this machine
        if trace := node.meta.get("stack_trace"):
            node.meta["stack_trace"] = re.sub(r'"[^"]*?/(site-packages/|examples/digits/)', r'"\1', trace)
    torch.export.save(program, HERE / "digits.pt2")
    for digit in (2, 3, 5, 7, 8):
        first = next(i for i in test.tolist() if labels[i] == digit)
        np.save(HERE / f"digit_{digit}.npy", images[first : first + 1].numpy())


if __name__ == "__main__":
    main()
