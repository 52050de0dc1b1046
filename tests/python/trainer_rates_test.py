"""Learning rates and gradient clipping of the Trainers of transformers and Lightning, as the servers apply them.

    trainer_rates_test.py --programs FOLDER [TEST...]

Skipped (77) without PyTorch or without the package; a library that is not there is skipped, with a message.
"""

import contextlib
import io
import logging
import math
import warnings

import package_test
from needs import needs
from package_test import Base, DataLoader, data, main, nn, slackline, torch

BSP = "consistency: {mode: bsp}\n"
JOB = "optimizer: {lr: 0.5}\n" + BSP
SAMPLES = 48
STEPS = 2 * SAMPLES // 8  # of the job
CLIP = 0.01
NO_ROUNDS = "found every='30s' in a job without local.steps; allowed is .*local.steps=500"


class Regression(nn.Module):
    """Has the loss in its outputs, as the Trainer of transformers wants it."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(5)
        self.layer = nn.Linear(4, 1)

    def forward(self, x, labels):
        return {"loss": ((self.layer(x) - labels) ** 2).mean()}


def stream(worker, items):
    """Of two parts, each with half of the items."""
    half = len(items) // 2
    return worker.stream((0, half), lambda begin: iter(items[begin : begin + half]), samples=len(items))


class Twin:
    """Takes the steps that the servers should take: those of torch.optim.SGD, with the gradients and rates of a Trainer."""

    def __init__(self, model):
        self.model = model
        self.values = [one.detach().clone() for one in model.parameters()]
        self.norms, self.rates = [], []
        self.gradients = []

    def note_gradients(self):
        self.gradients = [
            torch.zeros_like(one) if one.grad is None else one.grad.detach().clone() for one in self.model.parameters()
        ]
        self.norms.append(math.sqrt(sum(float((one**2).sum()) for one in self.gradients)))

    def step(self, rate):
        self.rates.append(rate)
        for value, gradient in zip(self.values, self.gradients):
            value -= rate * gradient

    def check(self, test, rates, clip):
        torch.testing.assert_close(self.rates, rates)
        for value, parameter in zip(self.values, self.model.parameters()):
            torch.testing.assert_close(parameter.detach(), value, rtol=1e-5, atol=1e-7)
        test.assertEqual([norm <= clip * 1.001 for norm in self.norms], [True] * len(self.norms))


def linear(step, warmup, lr):
    return lr * (step / warmup if step < warmup else (STEPS - step) / (STEPS - warmup))


def cosine(step, warmup, lr):
    if step < warmup:
        return lr * step / warmup
    return lr * 0.5 * (1 + math.cos(math.pi * (step - warmup) / (STEPS - warmup)))


@needs("transformers")
@needs("accelerate")
class Transformers(Base):
    def train(self, job=JOB, like=None, streams=False, samples=SAMPLES, **arguments):
        """Twin and output of a worker by these arguments. `like` is the learning rate of an optimizer of the script's."""
        from transformers import TrainerCallback, TrainingArguments

        from slackline.integrations.transformers import SlacklineTrainer

        class Watch(TrainerCallback):
            def on_pre_optimizer_step(self, *args, **kwargs):
                twin.note_gradients()

            def on_optimizer_step(self, *args, optimizer, **kwargs):
                twin.step(optimizer.param_groups[0]["lr"])

        x, y = data(samples).tensors
        items = [{"x": one, "labels": label} for one, label in zip(x, y)]
        twin = Twin(Regression())
        with self.brief_cluster(job) as cluster, cluster.connect(log="warning") as worker:
            options = TrainingArguments(str(self.folder), report_to="none", logging_steps=1, use_cpu=True, **arguments)
            said = io.StringIO()
            more = {"eval_dataset": items} if "eval_strategy" in arguments else {}
            if like is not None:
                more["optimizers"] = (torch.optim.SGD(twin.model.parameters(), lr=like), None)
            train = stream(worker, items) if streams else items
            with contextlib.redirect_stdout(said):
                trainer = SlacklineTrainer(worker=worker, model=twin.model, args=options, train_dataset=train, callbacks=[Watch],
                                           **more)  # fmt: skip
                trainer.train()
            self.assertEqual(worker.reason, "training is complete")
            self.assertEqual(worker.progress, 1.0)
        self.logged = [one["learning_rate"] for one in trainer.state.log_history if "learning_rate" in one]
        return twin, said.getvalue()

    def test_the_jobs_rate_counts_where_the_arguments_name_none(self):
        twin, said = self.train(max_grad_norm=CLIP)
        twin.check(self, [0.5] * STEPS, CLIP)
        self.assertEqual(self.logged, [])
        self.assertNotIn("learning rate", said)

    def test_cosine_with_warmup_steps_begins_at_the_jobs_rate(self):
        twin, said = self.train(max_grad_norm=CLIP, lr_scheduler_type="cosine", warmup_steps=4)
        twin.check(self, [cosine(step, 4, 0.5) for step in range(STEPS)], CLIP)
        self.assertIn("TrainingArguments (lr_scheduler_type, warmup_steps), over the 12 steps of the job", said)
        self.assertEqual(len(self.logged), STEPS)

    def test_learning_rate_of_the_arguments_without_clipping(self):
        twin, _ = self.train(max_grad_norm=0, learning_rate=0.25, warmup_steps=3)
        twin.check(self, [linear(step, 3, 0.25) for step in range(STEPS)], math.inf)

    def test_optimizer_of_the_script(self):
        twin, _ = self.train(BSP, like=0.25, max_grad_norm=CLIP)
        twin.check(self, [0.25] * STEPS, CLIP)

    def test_optimizer_of_the_script_with_a_schedule(self):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            twin, _ = self.train(BSP, like=0.25, learning_rate=1.0, warmup_steps=3, max_grad_norm=CLIP, weight_decay=0.5)
        said = [str(one.message) for one in caught if one.category is UserWarning and "change" in str(one.message)]
        self.assertEqual(said, [
            "learning_rate=1.0 changes nothing: the rates are those of optimizers=...",
            "the job and optimizers=... decide, and these arguments change nothing: weight_decay (optimizers=...)",
        ])  # fmt: skip
        twin.check(self, [linear(step, 3, 0.25) for step in range(STEPS)], CLIP)

    def test_stream(self):
        for options in ({"dataloader_num_workers": 2}, {"lr_scheduler_type": "cosine", "warmup_steps": 4}):
            with self.subTest(**options):
                twin, _ = self.train(streams=True, max_grad_norm=CLIP, **options)
                lr_of = (lambda step: 0.5) if "warmup_steps" not in options else (lambda step: cosine(step, 4, 0.5))
                twin.check(self, [lr_of(step) for step in range(STEPS)], CLIP)

    def test_the_job_ends_without_a_warning_of_the_library(self):
        # Each range ends with a batch of 4, and so does the library's epoch.
        with self.assertLogs("transformers", "WARNING") as logs:
            logging.getLogger("transformers.trainer").warning("the only line")
            self.train(samples=SAMPLES - 4)
        self.assertEqual(logs.output, ["WARNING:transformers.trainer:the only line"])

    def test_other_data_of_unknown_length_are_refused(self):
        from transformers import TrainingArguments

        from slackline.integrations.transformers import SlacklineTrainer

        class Lines(torch.utils.data.IterableDataset):
            def __iter__(self):
                return iter(())

        with self.brief_cluster(JOB) as cluster, cluster.connect(log="warning") as worker:
            options = TrainingArguments(str(self.folder), report_to="none", use_cpu=True)
            for data, found in ((Lines(), "a train_dataset of type Lines, without a length"), (None, "no train_dataset")):
                with self.subTest(found), self.assertRaisesRegex(ValueError, f"found {found}; allowed is .*, or worker.stream"):
                    SlacklineTrainer(worker=worker, model=Regression(), args=options, train_dataset=data)
            with self.assertRaisesRegex(ValueError, "found optimizer_cls_and_kwargs; allowed is optimizers="):
                SlacklineTrainer(worker=worker, model=Regression(), args=options, train_dataset=[1],
                                 optimizer_cls_and_kwargs=(torch.optim.SGD, {"lr": 0.1}))  # fmt: skip
            with self.assertRaisesRegex(ValueError, "found an eval_dataset of type Lines, without a length"):
                SlacklineTrainer(worker=worker, model=Regression(), args=options, train_dataset=[1], eval_dataset=Lines())

    def test_an_end_of_rounds_needs_rounds(self):
        from slackline.integrations.transformers import SlacklineTrainer

        with self.assertRaisesRegex(ValueError, NO_ROUNDS):
            SlacklineTrainer(worker=self.unconnected(), every="30s")

    def test_groups_keep_their_factors(self):
        groups = 'optimizer: {lr: 0.5, groups: [{match: "*.bias", lr_factor: 0.5}]}\n'
        with self.assertWarnsRegex(UserWarning, r"change nothing: optim \(optimizer.kind\), weight_decay \(optimizer.weight_decay\)$"):
            self.train(groups, learning_rate=0.25, lr_scheduler_type="constant", weight_decay=0.1, optim="sgd")

    def test_what_cannot_follow_the_job_is_refused(self):
        with self.assertRaisesRegex(ValueError, "found lr_scheduler_type=reduce_lr_on_plateau; allowed is one without a metric"):
            self.train(lr_scheduler_type="reduce_lr_on_plateau", eval_strategy="epoch")


@needs("lightning")
class Lightning(Base):
    def fit(self, configure, job=JOB, clip=None, like=False, streams=False, validation=None, max_epochs=-1, warns="ignore"):
        """Twin of a worker whose module has this configure_optimizers()."""
        import lightning

        from slackline.integrations.lightning import SlacklineStrategy

        class Module(lightning.LightningModule):
            def __init__(self):
                super().__init__()
                self.model = twin.model

            def training_step(self, batch, index):
                return self.model(*batch)["loss"]

            def configure_optimizers(self):
                return configure(self)

            def configure_gradient_clipping(self, *args, **kwargs):
                super().configure_gradient_clipping(*args, **kwargs)
                twin.note_gradients()

            def validation_step(self, batch, index):
                self.validated = getattr(self, "validated", 0) + 1

            def on_train_batch_end(self, *args):
                # The rate is still the step's, although the library has stepped its schedulers since.
                twin.step(self.optimizers().param_groups[0]["lr"])

        twin = Twin(Regression())
        with self.brief_cluster(job) as cluster, cluster.connect(log="warning") as worker, warnings.catch_warnings():
            warnings.simplefilter(warns)  # of Lightning, about its settings
            if streams:
                loader = DataLoader(stream(worker, list(data(SAMPLES))), batch_size=8)
            else:
                loader = DataLoader(data(SAMPLES), batch_size=8, sampler=worker.sampler(SAMPLES))
            trainer = lightning.Trainer(
                strategy=SlacklineStrategy(worker, like=like), max_epochs=max_epochs, enable_checkpointing=False, logger=False, accelerator="cpu",
                enable_progress_bar=False, enable_model_summary=False, gradient_clip_val=clip)  # fmt: skip
            self.module = Module()
            trainer.fit(self.module, loader, validation)
            self.assertEqual(worker.reason, "training is complete" if max_epochs < 0 else None)
        return twin

    def test_an_end_of_rounds_needs_rounds(self):
        from slackline.integrations.lightning import SlacklineStrategy

        with self.assertRaisesRegex(ValueError, NO_ROUNDS):
            SlacklineStrategy(self.unconnected(), every="30s")

    def test_fit_that_ends_before_the_job_says_so(self):
        with self.assertWarnsRegex(UserWarning, r"fit\(\) ends before the job, with max_epochs=1 and max_steps=-1: this worker trains no"):
            self.fit(lambda module: torch.optim.SGD(module.parameters(), lr=0.125), max_epochs=1, warns="always")

    def test_the_jobs_rate_counts_without_a_scheduler(self):
        twin = self.fit(lambda module: torch.optim.SGD(module.parameters(), lr=0.125), clip=CLIP)
        twin.check(self, [0.5] * STEPS, CLIP)

    def test_scheduler_of_steps(self):
        def configure(module):
            optimizer = torch.optim.SGD(module.parameters(), lr=0.25)
            steps = int(module.trainer.estimated_stepping_batches)
            self.assertEqual(steps, STEPS)
            schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: cosine(step, 4, 1))
            return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

        twin = self.fit(configure, clip=CLIP)
        twin.check(self, [cosine(step, 4, 0.25) for step in range(STEPS)], CLIP)

    def test_optimizer_of_the_module(self):
        twin = self.fit(lambda module: torch.optim.SGD(module.parameters(), lr=0.125), BSP, CLIP, like=True)
        twin.check(self, [0.125] * STEPS, CLIP)

    def test_optimizer_of_the_module_with_a_warmup_and_frozen_groups(self):
        def configure(module):
            weight, bias = module.parameters()
            bias.requires_grad_(False)
            optimizer = torch.optim.SGD([{"params": [weight]}, {"params": [bias], "lr": 1.0}], lr=0.25)
            schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: (step + 1) / STEPS)
            return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

        twin = self.fit(configure, BSP, CLIP, like=True)
        torch.testing.assert_close(twin.rates, [0.25 * (step + 1) / STEPS for step in range(STEPS)])
        self.assertEqual(twin.model.layer.bias.item(), Regression().layer.bias.item())
        self.assertNotEqual(twin.model.layer.weight.tolist(), Regression().layer.weight.tolist())

    def test_schedule_of_the_momentum_is_refused(self):
        def configure(module):
            optimizer = torch.optim.AdamW(module.parameters(), lr=0.25)
            return [optimizer], [torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.25, total_steps=STEPS)]

        with self.assertRaisesRegex(ValueError, "changes the momentum; allowed is cycle_momentum=False"):
            self.fit(configure, BSP, like=True)

    def test_what_no_server_has_is_refused(self):
        with self.assertRaisesRegex(TypeError, "found like=torch.optim.rmsprop.RMSprop; allowed are torch.optim.SGD, "):
            self.fit(lambda module: torch.optim.RMSprop(module.parameters()), BSP, like=True)

    def test_stream(self):
        twin = self.fit(lambda module: torch.optim.SGD(module.parameters(), lr=0.125), clip=CLIP, streams=True,
                        validation=DataLoader(data(SAMPLES), batch_size=SAMPLES))  # fmt: skip
        twin.check(self, [0.5] * STEPS, CLIP)
        self.assertGreaterEqual(self.module.validated, 3)  # before training, and behind each epoch

    def test_scheduler_of_epochs(self):
        def configure(module):
            optimizer = torch.optim.SGD(module.parameters(), lr=0.25)
            return [optimizer], [torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)]

        twin = self.fit(configure)
        twin.check(self, [0.25] * (STEPS // 2) + [0.125] * (STEPS // 2), math.inf)

    def test_chained_schedulers_of_epochs(self):
        def configure(module):
            optimizer = torch.optim.SGD(module.parameters(), lr=0.5)
            halves = [torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5) for _ in range(2)]
            return [optimizer], [torch.optim.lr_scheduler.ChainedScheduler(halves)]

        twin = self.fit(configure)
        twin.check(self, [0.5] * (STEPS // 2) + [0.125] * (STEPS // 2), math.inf)

    def test_what_cannot_follow_the_job_is_refused(self):
        def plateau(module):
            optimizer = torch.optim.SGD(module.parameters(), lr=0.25)
            return {"optimizer": optimizer, "lr_scheduler": torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer), "monitor": "loss"}

        def two_rates(module):
            weight, bias = module.parameters()
            optimizer = torch.optim.SGD([{"params": [weight]}, {"params": [bias], "lr": 0.5}], lr=0.25)
            return [optimizer], [torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)]

        for configure, said in (
            (plateau, "found ReduceLROnPlateau; allowed is a scheduler without a metric"),
            (two_rates, r"parameters of group \* have learning rates \[0.25, 0.5\] in configure_optimizers; allowed is one"),
        ):
            with self.subTest(said), self.assertRaisesRegex(ValueError, said):
                self.fit(configure)

    def test_rates_of_groups(self):
        def configure(module):
            weight, bias = module.parameters()
            optimizer = torch.optim.SGD([{"params": [bias], "lr": 0.125}, {"params": [weight]}], lr=0.25)
            return [optimizer], [torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)]

        job = 'optimizer: {lr: 0.5, groups: [{match: "*.bias"}]}\n'
        twin = self.fit(configure, job)
        self.assertEqual(twin.rates, [0.25] * (STEPS // 2) + [0.125] * (STEPS // 2))


class Progress(Base):
    def test_progress_of_two_workers_is_the_jobs(self):
        seen = []
        with self.brief_cluster("consistency: {mode: async}\n") as cluster:
            for number in range(2):
                # The first worker leaves in the middle, and the second one goes on there.
                with cluster.connect(log="nothing") as worker:
                    model = nn.Linear(4, 1)
                    optimizer = slackline.Optimizer(model, worker)
                    self.assertEqual(worker.progress, 0.0)
                    for x, y in worker.batches(DataLoader(data(SAMPLES), batch_size=8, sampler=worker.sampler(SAMPLES))):
                        seen.append(worker.progress)
                        optimizer.zero_grad()
                        ((model(x) - y) ** 2).mean().backward()
                        optimizer.step()
                        if number == 0 and worker.clock == 5:
                            break
        torch.testing.assert_close(seen, [step / STEPS for step in range(STEPS)])


# Its tests are package_test.py's.
del Base

if __name__ == "__main__":
    main()
