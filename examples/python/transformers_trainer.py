"""Hugging Face's Trainer on a small BERT made from scratch: which of four words is in a sentence? Needs no download.

pip install transformers accelerate
slackline launch examples/python/transformers_trainer.py --workers 2 examples/python/sentences.yaml
"""

import argparse
import tempfile

import numpy
import torch
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification, TrainingArguments

import slackline
from slackline.integrations.transformers import SlacklineTrainer

CLASSES, WORDS, LENGTH = 4, 60, 12


class Sentences(Dataset):
    """Random words, one of which, in a random place, says the class."""

    def __init__(self, count, seed):
        generator = torch.Generator().manual_seed(seed)
        self.words = torch.randint(CLASSES, WORDS, (count, LENGTH), generator=generator)
        self.labels = torch.randint(CLASSES, (count,), generator=generator)
        places = torch.randint(LENGTH, (count,), generator=generator)
        self.words[torch.arange(count), places] = self.labels

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return {"input_ids": self.words[index], "labels": self.labels[index]}


def accuracy(prediction):
    return {"accuracy": float((numpy.argmax(prediction.predictions, -1) == prediction.label_ids).mean())}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--sentences", type=int, default=2000, help="to train on")
    parser.add_argument("--bf16", action="store_true", help="parameters in bfloat16; the servers' stay float32")
    parser.add_argument("--loaders", type=int, default=0, help="processes that make batches")
    parser.add_argument("--learning-rate", type=float, help="of the trainer's own steps, in a job with local.steps")
    parser.add_argument("--every", type=int, help="steps in a round, in a job with local.steps")
    options = parser.parse_args()
    with slackline.connect() as worker, tempfile.TemporaryDirectory() as folder:
        torch.manual_seed(worker.seed)  # all workers begin alike
        model = BertForSequenceClassification(BertConfig(
            vocab_size=WORDS, hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64,
            max_position_embeddings=LENGTH, num_labels=CLASSES))  # fmt: skip
        if options.bf16:
            model.to(torch.bfloat16)
        rate = {} if options.learning_rate is None else {"learning_rate": options.learning_rate}
        arguments = TrainingArguments(folder, report_to="none", seed=worker.seed, logging_steps=20,
                                      dataloader_num_workers=options.loaders, **rate)  # fmt: skip
        trainer = SlacklineTrainer(worker=worker, every=options.every, model=model, args=arguments, compute_metrics=accuracy,
                                   train_dataset=Sentences(options.sentences, seed=1),
                                   eval_dataset=Sentences(500, seed=2))  # fmt: skip
        trainer.train()
        print(f"{worker.name} took {worker.clock} steps: {worker.reason}")


if __name__ == "__main__":
    main()
