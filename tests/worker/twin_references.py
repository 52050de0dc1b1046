#!/usr/bin/env python3
"""Compares twin_networks.py with torchvision and timm themselves: names, shapes, seeded weights and outputs.

usage: twin_references.py [FOLDER]

FOLDER is one into which the wheels of torchvision and timm were unpacked, where they are not installed: only what they
have in Python is used, so that any release goes with any PyTorch.
Exit codes: 0 they agree, 1 they differ, 77 torchvision or timm is not there.
"""

import sys
import types

import torch
from twin_networks import make_twin

MODELS = {"resnet18": 224, "resnet34": 224, "resnet50": 224, "efficientnet_b0": 224, "vit_tiny": 224, "vit_small": 224,
          "vit_base": 224}
TIMM = {"vit_tiny": "vit_tiny_patch16_224", "vit_small": "vit_small_patch16_224", "vit_base": "vit_base_patch16_224"}


def find_references(folder):
    sys.path.insert(0, folder)
    # What torchvision has in C++, and registers with one release of PyTorch, is not needed.
    library = torch.library.Library("torchvision", "DEF")
    library.define("nms(Tensor boxes, Tensor scores, float iou_threshold) -> Tensor")
    sys.modules["torchvision._meta_registrations"] = types.ModuleType("torchvision._meta_registrations")
    import timm
    import torchvision.models
    return torchvision.models, timm


def make_reference(references, kind):
    models, timm = references
    return timm.create_model(TIMM[kind]) if kind in TIMM else getattr(models, kind)()


def differences(references, kind, side):
    torch.manual_seed(11)
    reference = make_reference(references, kind).eval()
    torch.manual_seed(11)
    twin = make_twin(kind, reference.state_dict()).eval()
    found, expected = twin.state_dict(), reference.state_dict()
    if sorted(found) != sorted(expected):
        yield f"names: {sorted(set(found) ^ set(expected))[:4]}"
        return
    if [k for k, _ in twin.named_parameters()] != [k for k, _ in reference.named_parameters()]:
        yield "the order of parameters"
    for key, value in expected.items():
        if not torch.allclose(found[key], value, rtol=0, atol=1e-7):
            yield f"{key} as seeded, by {(found[key] - value).abs().max():.2g}"
    reference.load_state_dict(found, strict=True)
    images = torch.randn(2, 3, side, side)
    with torch.no_grad():
        if not torch.allclose(twin(images), reference(images), rtol=1e-4, atol=1e-4):
            yield "outputs"


def main():
    try:
        references = find_references(sys.argv[1] if len(sys.argv) > 1 else ".")
    except ImportError as error:
        print(f"skipped: {error}")
        return 77
    code = 0
    for kind, side in MODELS.items():
        found = list(differences(references, kind, side))
        print(f"{kind}: " + ("agrees" if not found else "differs in " + "; ".join(found[:3])), flush=True)
        code = 1 if found else code
    return code


if __name__ == "__main__":
    sys.exit(main())
