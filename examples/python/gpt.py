"""Trains a small GPT on the bytes of a text. Needs PyTorch alone; any text will do.

slackline launch examples/python/gpt.py --workers 2 examples/python/gpt-ssp.yaml -- --text TEXT --size small

Names and shapes are those of GPT2LMHeadModel in transformers, which loads the weights: see gpt_lora.py.
"""

import argparse
import math
import pathlib

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset

import slackline

BYTES = 256
# Layers, width, heads and bytes of a block: 0.12, 0.84 and 10.8 million parameters.
SIZES = {"tiny": (2, 64, 2, 64), "small": (4, 128, 4, 128), "base": (6, 384, 6, 256)}


class Projection(nn.Module):
    """A linear layer whose weight has the inputs first, as GPT-2 has it."""

    def __init__(self, inputs, outputs, deviation=0.02):
        super().__init__()
        self.weight = nn.Parameter(deviation * torch.randn(inputs, outputs))
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, x):
        return x @ self.weight + self.bias


class Attention(nn.Module):
    def __init__(self, width, heads, deviation):
        super().__init__()
        self.heads = heads
        self.c_attn = Projection(width, 3 * width)
        self.c_proj = Projection(width, width, deviation)

    def forward(self, x):
        batch, length, width = x.shape
        query, key, value = self.c_attn(x).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        seen = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.c_proj(seen.transpose(1, 2).reshape(batch, length, width))


class Perceptron(nn.Module):
    def __init__(self, width, deviation):
        super().__init__()
        self.c_fc = Projection(width, 4 * width)
        self.c_proj = Projection(4 * width, width, deviation)

    def forward(self, x):
        return self.c_proj(functional.gelu(self.c_fc(x), approximate="tanh"))


class Layer(nn.Module):
    def __init__(self, width, heads, deviation):
        super().__init__()
        self.ln_1, self.attn = nn.LayerNorm(width), Attention(width, heads, deviation)
        self.ln_2, self.mlp = nn.LayerNorm(width), Perceptron(width, deviation)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    """Radford et al. 2019, over bytes: (batch, length) of int64 to scores (batch, length, 256) for the next byte."""

    def __init__(self, layers, width, heads, block):
        super().__init__()
        deviation = 0.02 / math.sqrt(2 * layers)  # of what is added to the residual path
        self.transformer = nn.ModuleDict({
            "wte": nn.Embedding(BYTES, width),
            "wpe": nn.Embedding(block, width),
            "h": nn.ModuleList([Layer(width, heads, deviation) for _ in range(layers)]),
            "ln_f": nn.LayerNorm(width),
        })  # fmt: skip
        for name in ("wte", "wpe"):
            nn.init.normal_(self.transformer[name].weight, std=0.02)

    def forward(self, tokens):
        parts = self.transformer
        x = parts["wte"](tokens) + parts["wpe"].weight[: tokens.shape[1]]
        for layer in parts["h"]:
            x = layer(x)
        return parts["ln_f"](x) @ parts["wte"].weight.T  # the embedding is the output layer, too


class Blocks(Dataset):
    """Sample i is block i of a text: its bytes, and for each of them the byte that follows."""

    def __init__(self, text, block):
        self.text, self.block = text, block

    def __len__(self):
        return (len(self.text) - 1) // self.block

    def __getitem__(self, index):
        begin = index * self.block
        tokens = self.text[begin : begin + self.block + 1].long()
        return tokens[:-1], tokens[1:]


def read(path, block, test_blocks=500):
    """Blocks to train on, and up to `test_blocks` of the last twentieth of the text to test with."""
    text = torch.frombuffer(bytearray(pathlib.Path(path).read_bytes()), dtype=torch.uint8)
    end = len(text) * 19 // 20
    return Blocks(text[:end], block), Blocks(text[end : end + test_blocks * block + 1], block)


def mean_loss(model, batch):
    """In nats per byte."""
    tokens, following = batch
    return functional.cross_entropy(model(tokens).flatten(0, 1), following.flatten())


def measure(model, test):
    """{"loss": ...} of the test blocks, and prints it in the units of language models."""
    loss = sum(len(batch[0]) * mean_loss(model, batch).item() for batch in DataLoader(test, batch_size=50)) / len(test)
    print(f"test: {loss / math.log(2):.3f} bits per byte, perplexity {math.exp(loss):.2f}", flush=True)
    return {"loss": loss}


def options_of(text):
    parser = argparse.ArgumentParser(description=text)
    parser.add_argument("--text", required=True, help="file to learn from, the same for all workers")
    parser.add_argument("--size", choices=SIZES, default="tiny", help="of the model")
    return parser


def main():
    options = options_of(__doc__).parse_args()
    train, test = read(options.text, SIZES[options.size][-1])
    with slackline.connect() as worker:
        torch.manual_seed(worker.seed)  # all workers begin alike
        model = GPT(*SIZES[options.size])
        optimizer = slackline.Optimizer(model, worker)
        worker.evaluation(lambda: measure(model, test), samples=len(test))
        loader = DataLoader(train, batch_size=worker.batch_size, sampler=worker.sampler(len(train)))
        for batch in worker.batches(loader):
            optimizer.zero_grad()
            loss = mean_loss(model, batch)
            loss.backward()
            worker.report(loss=loss.item())
            optimizer.step()
        print(f"{worker.name} took {worker.clock} steps: {worker.reason}")


if __name__ == "__main__":
    main()
