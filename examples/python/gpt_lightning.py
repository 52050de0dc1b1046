"""Trains the GPT of gpt.py with Lightning's Trainer.

pip install lightning
slackline launch examples/python/gpt_lightning.py --workers 2 examples/python/gpt-ssp.yaml -- --text TEXT
"""

import lightning
import torch
from gpt import GPT, SIZES, mean_loss, measure, options_of, read
from torch.utils.data import DataLoader

import slackline
from slackline.integrations.lightning import SlacklineStrategy


class Language(lightning.LightningModule):
    """As it would be written without Slackline."""

    def __init__(self, size):
        super().__init__()
        self.gpt = GPT(*SIZES[size])

    def training_step(self, batch, index):
        return mean_loss(self.gpt, batch)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters())  # without Slackline; with it the job's optimizer


def main():
    parser = options_of(__doc__)
    parser.add_argument("--bf16", action="store_true", help="parameters in bfloat16; the servers' stay float32")
    parser.add_argument("--loaders", type=int, default=0, help="processes that make batches")
    options = parser.parse_args()
    train, test = read(options.text, SIZES[options.size][-1])
    with slackline.connect() as worker:
        torch.manual_seed(worker.seed)  # all workers begin alike
        strategy = SlacklineStrategy(worker, measure=lambda module: measure(module.gpt, test), test_samples=len(test))
        trainer = lightning.Trainer(
            strategy=strategy, precision="bf16-true" if options.bf16 else "32-true", max_epochs=-1, enable_checkpointing=False,
            logger=False, enable_progress_bar=False, enable_model_summary=False)  # fmt: skip
        loader = DataLoader(train, batch_size=worker.batch_size, sampler=worker.sampler(len(train)), num_workers=options.loaders)
        trainer.fit(Language(options.size), loader)
        print(f"{worker.name} took {worker.clock} steps: {worker.reason}")


if __name__ == "__main__":
    main()
