"""Writes a GPT over the pixels of grey images as a module for model.kind: torchscript, and images to train it on.

    gpt.py FOLDER --width 1920 --layers 24 --heads 15      # 1.06 billion parameters
"""

import argparse
import json
import pathlib

import gradients
import torch
from torch import nn
from torch.nn import functional

PIXELS, SIDE, CLASSES = 256, 16, 10


class Block(nn.Module):
    """Of GPT-2: Radford et al. 2019."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention, self.projection = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        parts = self.attention(self.norm_1(x)).view(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        seen = functional.scaled_dot_product_attention(parts[0], parts[1], parts[2], is_causal=True)
        x = x + self.projection(seen.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(functional.gelu(self.up(self.norm_2(x))))


class PixelGpt(nn.Module):
    """Images (n, 1, 16, 16) to scores (n, 10): a token for each pixel, and the class after the last one."""

    def __init__(self, layers: int, width: int, heads: int) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(PIXELS, width), nn.Embedding(SIDE * SIDE, width)
        self.blocks = nn.ModuleList([Block(width, heads) for _ in range(layers)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, CLASSES)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        # The job has data.mean: 0.5 and data.deviation: 0.25.
        pixels = ((images * 0.25 + 0.5) * 255).round().clamp(0, 255).long().flatten(1)
        x = self.tokens(pixels) + self.places.weight
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x[:, -1]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    for name, value in (("width", 1920), ("layers", 24), ("heads", 15), ("images", 128)):
        parser.add_argument(f"--{name}", type=int, default=value)
    options = parser.parse_args()
    random = torch.Generator().manual_seed(5)
    images = torch.randint(256, (options.images, SIDE, SIDE), dtype=torch.uint8, generator=random)
    labels = torch.randint(CLASSES, (options.images,), dtype=torch.uint8, generator=random)
    gradients.write_idx(options.folder, images, labels, tests=4)
    torch.manual_seed(1)
    model = PixelGpt(options.layers, options.width, options.heads)
    torch.jit.script(model).save(str(options.folder / "gpt.pt"))
    print(json.dumps({"parameters": sum(one.numel() for one in model.parameters())}))


if __name__ == "__main__":
    main()
