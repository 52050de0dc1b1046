"""The networks themselves, in plain PyTorch, for twin.py. Layers are made, and drawn, in their references' order, so that
a seed gives the weights that torchvision and timm give under it; references.py compares with these where they are installed.
"""

import math

import torch
from torch import nn


class Mlp(nn.Module):
    """inputs - hidden... - classes, ReLU between."""

    def __init__(self, inputs, hidden, classes):
        super().__init__()
        widths = [inputs, *hidden, classes]
        for i in range(len(widths) - 1):
            self.add_module(f"fc{i + 1}", nn.Linear(widths[i], widths[i + 1]))

    def forward(self, x):
        layers = list(self.children())
        x = x.flatten(1)
        for layer in layers[:-1]:
            x = torch.relu(layer(x))
        return layers[-1](x)


class Cnn(nn.Module):
    """Two of (convolution 3x3, batch normalisation where wanted, ReLU, pooling 2x2), then an Mlp's layers."""

    def __init__(self, filters, flat, hidden, classes, batch_norm):
        super().__init__()
        self.conv1 = nn.Conv2d(1, filters[0], 3, padding=1)
        self.conv2 = nn.Conv2d(filters[0], filters[1], 3, padding=1)
        self.bn1 = nn.BatchNorm2d(filters[0]) if batch_norm else nn.Identity()
        self.bn2 = nn.BatchNorm2d(filters[1]) if batch_norm else nn.Identity()
        self.linears = len(hidden) + 1
        widths = [flat, *hidden, classes]
        for i in range(self.linears):
            self.add_module(f"fc{i + 1}", nn.Linear(widths[i], widths[i + 1]))

    def forward(self, x):
        x = torch.max_pool2d(torch.relu(self.bn1(self.conv1(x))), 2)
        x = torch.max_pool2d(torch.relu(self.bn2(self.conv2(x))), 2).flatten(1)
        for i in range(1, self.linears):
            x = torch.relu(self.get_submodule(f"fc{i}")(x))
        return self.get_submodule(f"fc{self.linears}")(x)


class Block(nn.Module):
    """F(x) + x of He et al. 2016, figures 2 and 5: of plain blocks two convolutions, of bottlenecks three. `width` is that
    inside. Layers are made in torchvision's order.
    """

    def __init__(self, inputs, width, stride, bottleneck):
        sizes = [(inputs, width, 3, stride), (width, width, 3, 1)]
        if bottleneck:
            sizes = [(inputs, width, 1, 1), (width, width, 3, stride), (width, 4 * width, 1, 1)]
        outputs = sizes[-1][1]
        downsample = None
        if stride != 1 or inputs != outputs:
            downsample = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))
        super().__init__()
        self.convolutions = len(sizes)
        for i, (before, after, window, step) in enumerate(sizes, 1):
            convolution = nn.Conv2d(before, after, window, step, padding=window // 2, bias=False)
            self.add_module(f"conv{i}", convolution)
            self.add_module(f"bn{i}", nn.BatchNorm2d(after))
        self.downsample = downsample
        self.outputs = outputs

    def forward(self, x):
        residual = x
        for i in range(1, self.convolutions + 1):
            residual = self.get_submodule(f"bn{i}")(self.get_submodule(f"conv{i}")(residual))
            residual = torch.relu(residual) if i < self.convolutions else residual
        return torch.relu(residual + (x if self.downsample is None else self.downsample(x)))


class Resnet(nn.Module):
    """He et al. 2016, table 1, with projections where the shape changes (option B)."""

    def __init__(self, blocks, bottleneck, channels, classes):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, 64, 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        inputs = 64
        for i, count in enumerate(blocks):
            rows = []
            for j in range(count):
                rows.append(Block(inputs, 64 * 2**i, 2 if i > 0 and j == 0 else 1, bottleneck))
                inputs = rows[-1].outputs
            self.add_module(f"layer{i + 1}", nn.Sequential(*rows))
        self.fc = nn.Linear(inputs, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x):
        x = nn.functional.max_pool2d(torch.relu(self.bn1(self.conv1(x))), 3, stride=2, padding=1)
        for layer in (self.layer1, self.layer2, self.layer3, self.layer4):
            x = layer(x)
        return self.fc(x.mean((2, 3)))


def normed(inputs, outputs, window=1, stride=1, groups=1, activation=True):
    layers = [nn.Conv2d(inputs, outputs, window, stride, window // 2, groups=groups, bias=False), nn.BatchNorm2d(outputs)]
    return nn.Sequential(*layers, *([nn.SiLU()] if activation else []))


class SqueezeExcitation(nn.Module):
    def __init__(self, inputs, squeezed):
        super().__init__()
        self.fc1 = nn.Conv2d(inputs, squeezed, 1)
        self.fc2 = nn.Conv2d(squeezed, inputs, 1)

    def forward(self, x):
        scale = self.fc2(nn.functional.silu(self.fc1(nn.functional.adaptive_avg_pool2d(x, 1))))
        return x * torch.sigmoid(scale)


class MobileBlock(nn.Module):
    def __init__(self, inputs, outputs, expansion, window, stride):
        super().__init__()
        inner = inputs * expansion
        layers = [normed(inputs, inner)] if expansion > 1 else []
        layers += [normed(inner, inner, window, stride, inner), SqueezeExcitation(inner, inputs // 4),
                   normed(inner, outputs, activation=False)]
        self.block = nn.Sequential(*layers)
        self.adds_input = stride == 1 and inputs == outputs

    def forward(self, x):
        return self.block(x) + x if self.adds_input else self.block(x)


class EfficientnetB0(nn.Module):
    """Tan and Le 2019, table 1; without stochastic depth and dropout."""

    STAGES = [(1, 3, 1, 16, 1), (6, 3, 2, 24, 2), (6, 5, 2, 40, 2), (6, 3, 2, 80, 3), (6, 5, 1, 112, 3), (6, 5, 2, 192, 4),
              (6, 3, 1, 320, 1)]  # expansion, window, stride, outputs, blocks

    def __init__(self, channels, classes):
        super().__init__()
        layers, inputs = [normed(channels, 32, 3, 2)], 32
        for expansion, window, stride, outputs, blocks in self.STAGES:
            row = []
            for i in range(blocks):
                row.append(MobileBlock(inputs, outputs, expansion, window, stride if i == 0 else 1))
                inputs = outputs
            layers.append(nn.Sequential(*row))
        self.features = nn.Sequential(*layers, normed(320, 1280))
        self.classifier = nn.Sequential(nn.Identity(), nn.Linear(1280, classes))
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out")
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
            elif isinstance(module, nn.Linear):
                bound = 1 / math.sqrt(module.out_features)
                nn.init.uniform_(module.weight, -bound, bound)
                nn.init.zeros_(module.bias)

    def forward(self, x):
        return self.classifier(self.features(x).mean((2, 3)))


def timm_trunc_normal_(tensor, deviation):
    """timm's, which differs from today's torch.nn.init.trunc_normal_ in what it draws."""
    inside = math.erf(2 / deviation / math.sqrt(2))
    with torch.no_grad():
        tensor.uniform_(-inside, inside).erfinv_().mul_(deviation * math.sqrt(2)).clamp_(-2, 2)


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)

    def forward(self, x):
        count, tokens, width = x.shape
        mixed = self.qkv(x).reshape(count, tokens, 3, self.heads, width // self.heads)
        query, key, value = mixed.permute(2, 0, 3, 1, 4)
        weights = (query @ key.transpose(-2, -1) / math.sqrt(width // self.heads)).softmax(-1)
        return self.proj((weights @ value).transpose(1, 2).reshape(count, tokens, width))


class Feedforward(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.fc1 = nn.Linear(width, 4 * width)
        self.fc2 = nn.Linear(4 * width, width)

    def forward(self, x):
        return self.fc2(nn.functional.gelu(self.fc1(x)))


class TransformerBlock(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norm1 = nn.LayerNorm(width, eps=1e-6)
        self.attn = Attention(width, heads)
        self.norm2 = nn.LayerNorm(width, eps=1e-6)
        self.mlp = Feedforward(width)

    def forward(self, x):
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Patches(nn.Module):
    def __init__(self, channels, width, side):
        super().__init__()
        self.proj = nn.Conv2d(channels, width, side, side)

    def forward(self, x):
        return self.proj(x).flatten(2).transpose(1, 2)


class Vit(nn.Module):
    """Dosovitskiy et al. 2021 as timm has it: pre-norm, class token, 12 blocks; without dropout."""

    def __init__(self, channels, side, tokens, width, classes):
        super().__init__()
        self.cls_token = nn.Parameter(torch.zeros(1, 1, width))
        self.patch_embed = Patches(channels, width, side)
        self.pos_embed = nn.Parameter(torch.zeros(1, tokens, width))
        self.blocks = nn.Sequential(*[TransformerBlock(width, width // 64) for _ in range(12)])
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.head = nn.Linear(width, classes)
        timm_trunc_normal_(self.pos_embed, 0.02)
        nn.init.normal_(self.cls_token, std=1e-6)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                timm_trunc_normal_(module.weight, 0.02)
                nn.init.zeros_(module.bias)

    def forward(self, x):
        x = self.patch_embed(x)
        x = torch.cat([self.cls_token.expand(len(x), -1, -1), x], 1) + self.pos_embed
        return self.head(self.norm(self.blocks(x))[:, 0])


class TextureCnn2(nn.Module):
    """T-CNN-2 of Andrearczyk and Whelan 2016 (see texture_layout.h for what differs); without dropout."""

    def __init__(self, channels, hidden, classes):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, 96, 11, stride=4, padding=2)
        self.conv2 = nn.Conv2d(96, 256, 5, padding=2)
        widths = [256, *hidden, classes]
        self.linears = len(widths) - 1
        for i in range(self.linears):
            self.add_module(f"fc{i + 1}", nn.Linear(widths[i], widths[i + 1]))

    def forward(self, x):
        x = nn.functional.max_pool2d(torch.relu(self.conv1(x)), 3, stride=2)
        x = torch.relu(self.conv2(x)).mean((2, 3))
        for i in range(1, self.linears):
            x = torch.relu(self.get_submodule(f"fc{i}")(x))
        return self.get_submodule(f"fc{self.linears}")(x)


RESNETS = {"resnet18": ([2, 2, 2, 2], False), "resnet34": ([3, 4, 6, 3], False), "resnet50": ([3, 4, 6, 3], True)}


def make_twin(kind, state):
    """Only the widths are taken from the file; load_state_dict(strict=True) judges the names and the rest."""
    if kind in RESNETS:
        return Resnet(*RESNETS[kind], state["conv1.weight"].shape[1], state["fc.weight"].shape[0])
    if kind == "efficientnet_b0":
        return EfficientnetB0(state["features.0.0.weight"].shape[1], state["classifier.1.weight"].shape[0])
    if kind.startswith("vit_"):
        width, channels, side, _ = state["patch_embed.proj.weight"].shape
        return Vit(channels, side, state["pos_embed"].shape[1], width, state["head.weight"].shape[0])
    linears = [state[f"fc{i}.weight"] for i in range(1, 100) if f"fc{i}.weight" in state]
    hidden, classes = [w.shape[0] for w in linears[:-1]], linears[-1].shape[0]
    if kind == "mlp":
        return Mlp(linears[0].shape[1], hidden, classes)
    if kind == "texture_cnn_2":
        return TextureCnn2(state["conv1.weight"].shape[1], hidden, classes)
    filters = [state["conv1.weight"].shape[0], state["conv2.weight"].shape[0]]
    return Cnn(filters, linears[0].shape[1], hidden, classes, "bn1.weight" in state)


KINDS = ["mlp", "cnn", *RESNETS, "efficientnet_b0", "vit_tiny", "vit_small", "vit_base", "texture_cnn_2"]
