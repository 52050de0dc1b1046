"""Learns to describe pictures: a convolutional network reads them, a recurrent one writes the words. Needs no download.

slackline launch examples/python/captions.py --workers 2 examples/python/captions.yaml

Pictures are drawn, each with its caption: "red disc above blue square".
"""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import slackline

SIDE = 24
COLOURS = {"red": (1, 0, 0), "green": (0, 1, 0), "blue": (0, 0, 1), "white": (1, 1, 1)}
SHAPES = ("square", "disc", "cross")
RELATIONS = ("above", "beside", "across")
# The first word begins and ends a caption.
WORDS = ("", *COLOURS, *SHAPES, *RELATIONS)
NUMBERS = {word: number for number, word in enumerate(WORDS)}
LENGTH = 5


def shape(kind, half):
    """A mask of (2 half + 1) pixels each way."""
    y, x = torch.meshgrid(*2 * [torch.arange(-half, half + 1)], indexing="ij")
    if kind == "square":
        return torch.ones_like(x, dtype=torch.bool)
    return x**2 + y**2 <= half**2 if kind == "disc" else (x.abs() <= half // 3) | (y.abs() <= half // 3)


def scenes(count, seed):
    """Pictures, 3 x SIDE x SIDE under noise, and their captions as numbers of words, the last one 0."""
    generator = torch.Generator().manual_seed(seed)

    def draw(words):
        return words[torch.randint(len(words), (), generator=generator)]

    pictures = 0.1 * torch.randn(count, 3, SIDE, SIDE, generator=generator)
    captions = torch.zeros(count, LENGTH + 1, dtype=torch.int64)
    near, far = SIDE // 4, SIDE - SIDE // 4
    centres = {"above": ((near, SIDE // 2), (far, SIDE // 2)), "beside": ((SIDE // 2, near), (SIDE // 2, far)),
               "across": ((near, near), (far, far))}  # fmt: skip
    for picture, caption in zip(pictures, captions):
        relation, words = draw(RELATIONS), []
        for y, x in centres[relation]:
            colour, kind, half = draw(tuple(COLOURS)), draw(SHAPES), 4 + int(torch.randint(2, (), generator=generator))
            area = picture[:, y - half : y + half + 1, x - half : x + half + 1]
            area += shape(kind, half) * torch.tensor(COLOURS[colour]).view(3, 1, 1)
            words.append((colour, kind))
        caption[:LENGTH] = torch.tensor([NUMBERS[word] for word in (*words[0], relation, *words[1])])
    return TensorDataset(pictures, captions)


class Captioner(nn.Module):
    """Scores of the next word, batch x words x vocabulary, given a picture and the words before."""

    def __init__(self, width=128):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Linear(32 * (SIDE // 4) ** 2, width), nn.Tanh(),
        )  # fmt: skip
        self.embedding = nn.Embedding(len(WORDS), width)
        self.decoder = nn.GRU(width, width, batch_first=True)
        self.scores = nn.Linear(width, len(WORDS))

    def forward(self, pictures, words):
        made, _ = self.decoder(self.embedding(words), self.encoder(pictures).unsqueeze(0))
        return self.scores(made)

    def write(self, pictures):
        """The likeliest next word, again and again."""
        state, word = self.encoder(pictures).unsqueeze(0), torch.zeros(len(pictures), 1, dtype=torch.int64)
        written = []
        for _ in range(LENGTH + 1):
            made, state = self.decoder(self.embedding(word), state)
            word = self.scores(made).argmax(2)
            written.append(word)
        return torch.cat(written, dim=1)


def mean_loss(model, pictures, captions):
    """Each word is learned from the true ones before it."""
    before = nn.functional.pad(captions[:, :-1], (1, 0))
    return nn.functional.cross_entropy(model(pictures, before).flatten(0, 1), captions.flatten())


def text(caption):
    return " ".join(WORDS[number] for number in caption).split("  ")[0].strip()


def measure(model, test):
    """The loss, and the share of captions that are right in every word."""
    pictures, captions = test.tensors
    written = model.write(pictures)
    print(f"{text(captions[0])}: {text(written[0])}", flush=True)
    return {"loss": mean_loss(model, pictures, captions).item(), "accuracy": (written == captions).all(1).float().mean().item()}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--pictures", type=int, default=4000, help="to train on")
    options = parser.parse_args()
    train, test = scenes(options.pictures, seed=1), scenes(500, seed=2)
    with slackline.connect() as worker:
        torch.manual_seed(worker.seed)  # all workers begin alike
        model = Captioner()
        optimizer = slackline.Optimizer(model, worker)
        worker.evaluation(lambda: measure(model, test), samples=len(test))
        for pictures, captions in worker.batches(DataLoader(train, batch_size=worker.batch_size, sampler=worker.sampler(len(train)))):
            optimizer.zero_grad()
            loss = mean_loss(model, pictures, captions)
            loss.backward()
            worker.report(loss=loss.item())
            optimizer.step()
        print(f"{worker.name} took {worker.clock} steps: {worker.reason}")


if __name__ == "__main__":
    main()
