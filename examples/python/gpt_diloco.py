"""The GPT of gpt.py, with DiLoCo (Douillard et al. 2023): each worker takes steps with an AdamW of its own, and pushes once in a round.

    slackline launch gpt_diloco.py gpt-diloco.yaml -- --text FILE [--size tiny|small|gpt2]

DiLoCo() and exchange.step() are new beside what every script has: connect(), sampler() and batches(). In a job without local.steps, the
gradient of each step goes to the servers, which have the same AdamW.
"""

import torch
from gpt import GPT, SIZES, mean_loss, measure, options_of, read
from torch.utils.data import DataLoader

import slackline


def main():
    options = options_of(__doc__).parse_args()
    train, test = read(options.text, SIZES[options.size][-1])
    with slackline.connect() as worker:
        torch.manual_seed(worker.seed)  # all workers begin alike
        model = GPT(*SIZES[options.size])
        inner = torch.optim.AdamW(model.parameters(), lr=0.002, weight_decay=0.1)
        in_rounds = worker.local_steps > 0
        if in_rounds:
            exchange = slackline.DiLoCo(model, worker)
        else:
            exchange = slackline.Optimizer(model, worker, like=inner, overlap=False)
        worker.evaluation(lambda: measure(model, test), samples=len(test))
        loader = DataLoader(train, batch_size=worker.batch_size, sampler=worker.sampler(len(train)))
        for batch in worker.batches(loader):
            exchange.zero_grad()
            loss = mean_loss(model, batch)
            worker.report(loss=loss.item())
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1)
            if in_rounds:
                inner.step()
            exchange.step()
        print(f"{worker.name} took {worker.clock} steps: {worker.reason}")


if __name__ == "__main__":
    main()
