"""Fine-tunes a ViT of Hugging Face that begins with the weights of a run: new head, new classes, few images.

pip install "transformers>=5" accelerate safetensors
slackline train examples/images/vit.yaml --run-folder runs/vit
slackline launch examples/python/vit_fine_tuning.py --workers 2 examples/python/vit-fine-tuning.yaml -- \
  --base runs/vit/model.safetensors --images FOLDER

--images: the folder of Fashion-MNIST's four files, packed or not. The new task is to tell tops, legwear, shoes and bags apart.
"""

import argparse
import gzip
import pathlib
import re
import tempfile

import numpy
import torch
from safetensors.torch import load_file
from torch.utils.data import Dataset
from transformers import TrainingArguments, ViTConfig, ViTForImageClassification

import slackline
from slackline.integrations.transformers import SlacklineTrainer

# The new class of each class of Fashion-MNIST: 0 tops, 1 legwear and dresses, 2 shoes, 3 bags.
NEW_CLASS = torch.tensor([0, 1, 0, 1, 0, 2, 0, 2, 3, 2])
# data.mean and data.std of the run.
MEAN, DEVIATION = 0.286, 0.353
# Width of the model: heads.
HEADS = {192: 3, 384: 6, 768: 12}
# A pattern of timm's names, which runs use, and the name in transformers.
NAMES = (
    (r"cls_token", "vit.embeddings.cls_token"),
    (r"pos_embed", "vit.embeddings.position_embeddings"),
    (r"patch_embed\.proj\.(.*)", r"vit.embeddings.patch_embeddings.projection.\1"),
    (r"blocks\.(\d+)\.norm1\.(.*)", r"vit.layers.\1.layernorm_before.\2"),
    (r"blocks\.(\d+)\.norm2\.(.*)", r"vit.layers.\1.layernorm_after.\2"),
    (r"blocks\.(\d+)\.attn\.proj\.(.*)", r"vit.layers.\1.attention.o_proj.\2"),
    (r"blocks\.(\d+)\.mlp\.(.*)", r"vit.layers.\1.mlp.\2"),
    (r"norm\.(.*)", r"vit.layernorm.\1"),
    (r"head\.(.*)", r"classifier.\1"),
)


def renamed(weights):
    """Weights under the names of transformers, which has query, key and value apart."""
    out = {}
    for name, value in weights.items():
        if found := re.fullmatch(r"blocks\.(\d+)\.attn\.qkv\.(.*)", name):
            for part, third in zip("qkv", value.chunk(3)):
                out[f"vit.layers.{found[1]}.attention.{part}_proj.{found[2]}"] = third.clone()
            continue
        to = [re.sub(pattern, new, name) for pattern, new in NAMES if re.fullmatch(pattern, name)]
        if not to:
            raise ValueError(f"found a tensor {name}; allowed are those of a ViT, from a run with model.kind: vit_tiny, vit_small or vit_base")
        out[to[0]] = value
    return out


def pretrained(path):
    """The model of the run, with its classes. Everything about its shape is in the weights."""
    weights = renamed(load_file(path))
    width, channels, patch, _ = weights["vit.embeddings.patch_embeddings.projection.weight"].shape
    along = round((weights["vit.embeddings.position_embeddings"].shape[1] - 1) ** 0.5)
    layers = len({name.split(".")[2] for name in weights if name.startswith("vit.layers.")})
    model = ViTForImageClassification(ViTConfig(
        image_size=along * patch, patch_size=patch, num_channels=channels, hidden_size=width, num_hidden_layers=layers,
        num_attention_heads=HEADS[width], intermediate_size=4 * width, layer_norm_eps=1e-6,
        num_labels=len(weights["classifier.bias"])))  # fmt: skip
    model.load_state_dict(weights)
    return model


def read_idx(folder, name):
    """A file of Fashion-MNIST as a tensor of bytes."""
    path = pathlib.Path(folder, name)
    content = path.read_bytes() if path.exists() else gzip.decompress(path.with_name(name + ".gz").read_bytes())
    shape = numpy.frombuffer(content, ">u4", count=content[3], offset=4).astype(int)
    return torch.from_numpy(numpy.frombuffer(content, numpy.uint8, offset=4 + 4 * len(shape)).reshape(shape).copy())


class Pictures(Dataset):
    """Images and labels as the Trainer wants them."""

    def __init__(self, folder, part, count, classes=None):
        pixels = read_idx(folder, f"{part}-images-idx3-ubyte")[:count].float() / 255
        self.pixels = ((pixels - MEAN) / DEVIATION).unsqueeze(1)
        self.labels = read_idx(folder, f"{part}-labels-idx1-ubyte")[:count].long()
        if classes is not None:
            self.labels = classes[self.labels]

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return {"pixel_values": self.pixels[index], "labels": self.labels[index]}


def accuracy(prediction):
    return {"accuracy": float((numpy.argmax(prediction.predictions, -1) == prediction.label_ids).mean())}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--base", required=True, help="model.safetensors of a run with a ViT")
    parser.add_argument("--images", required=True, help="folder of Fashion-MNIST")
    parser.add_argument("--samples", type=int, default=1000, help="images to train on")
    options = parser.parse_args()
    with slackline.connect() as worker, tempfile.TemporaryDirectory() as folder:
        torch.manual_seed(worker.seed)  # all workers begin with the same new head
        model = pretrained(options.base)
        model.classifier = torch.nn.Linear(model.config.hidden_size, int(NEW_CLASS.max()) + 1)
        model.num_labels = model.config.num_labels = model.classifier.out_features
        trainer = SlacklineTrainer(
            worker=worker, model=model, compute_metrics=accuracy,
            args=TrainingArguments(folder, report_to="none", seed=worker.seed, logging_steps=20),
            train_dataset=Pictures(options.images, "train", options.samples, NEW_CLASS),
            eval_dataset=Pictures(options.images, "t10k", 1000, NEW_CLASS))  # fmt: skip
        trainer.train()
        print(f"{worker.name} took {worker.clock} steps: {worker.reason}")


if __name__ == "__main__":
    main()
