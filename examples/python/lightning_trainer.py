"""Lightning's Trainer with the network and the pictures of patterns.py. Needs no download.

pip install lightning
slackline launch examples/python/lightning_trainer.py --workers 2 examples/python/patterns.yaml
"""

import argparse

import lightning
import torch
from patterns import network, pictures
from torch import nn
from torch.utils.data import DataLoader

import slackline
from slackline.integrations.lightning import SlacklineStrategy


class Patterns(lightning.LightningModule):
    """As it would be written without Slackline."""

    def __init__(self):
        super().__init__()
        self.network = network()
        self.loss = nn.CrossEntropyLoss()

    def training_step(self, batch, index):
        inputs, labels = batch
        return self.loss(self.network(inputs), labels)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.05)  # without Slackline; with it the job's optimizer


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--pictures", type=int, default=4000, help="to train on")
    parser.add_argument("--bf16", action="store_true", help="parameters in bfloat16; the servers' stay float32")
    parser.add_argument("--loaders", type=int, default=0, help="processes that make batches")
    parser.add_argument("--every", type=int, help="steps in a round, in a job with local.steps")
    options = parser.parse_args()
    train, test = pictures(options.pictures, noise=2.0, seed=1), pictures(1000, noise=2.0, seed=2)

    def measure(module):
        inputs, labels = test.tensors
        outputs = module.network(inputs.to(module.device, module.dtype)).float().cpu()
        accuracy = (outputs.argmax(1) == labels).float().mean()
        return {"loss": module.loss(outputs, labels).item(), "accuracy": accuracy.item()}

    with slackline.connect() as worker:
        torch.manual_seed(worker.seed)  # all workers begin alike
        strategy = SlacklineStrategy(worker, measure=measure, test_samples=len(test), every=options.every)
        trainer = lightning.Trainer(
            strategy=strategy, precision="bf16-true" if options.bf16 else "32-true", max_epochs=-1, enable_checkpointing=False, logger=False,
            enable_progress_bar=False, enable_model_summary=False)  # fmt: skip
        loader = DataLoader(train, batch_size=worker.batch_size, sampler=worker.sampler(len(train)),
                            num_workers=options.loaders)  # fmt: skip
        trainer.fit(Patterns(), loader)
        print(f"{worker.name} took {worker.clock} steps: {worker.reason}")


if __name__ == "__main__":
    main()
