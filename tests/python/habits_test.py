"""What scripts do by habit, or by mistake, and how a cluster of a notebook ends.

    habits_test.py --programs FOLDER [TEST...]

Skipped (77) without PyTorch or without the package.
"""

import contextlib
import copy
import csv
import io
import itertools
import json
import math
import os
import pathlib
import pickle
import signal
import subprocess
import sys
import warnings

import package_test
from needs import needs
from package_test import Base, DataLoader, data, is_alive, main, nn, slackline, torch


class Habits(Base):
    def test_more_batches_a_step_than_the_job_knows_of_are_warned_of_once(self):
        def passes(model, optimizer, number, x):
            """The script's own way of adding up."""
            if number % 2 == 0:
                optimizer.zero_grad()
            model(x).mean().backward()
            if number % 2 == 1:
                optimizer.step()

        def two_losses(model, optimizer, number, x):
            optimizer.zero_grad()
            model(x).mean().backward()
            model(x).square().mean().backward()
            optimizer.step()

        def thrown_away(model, optimizer, number, x):
            """What is zeroed by the model, or one by one, counts no more."""
            for one in model.parameters():
                one.grad = None
            model(x).mean().backward()
            if number % 2 == 1:
                optimizer.step()

        def in_turns(model, optimizer, number, x):
            """As adversaries: one half in each batch."""
            half = model.weight if number % 2 == 0 else model.bias
            (x.mean() * half.mean()).backward()
            if number % 2 == 1:
                optimizer.step()
                optimizer.zero_grad()

        def closures(model, optimizer, number, x):
            def closure():
                optimizer.zero_grad()
                loss = model(x).mean()
                loss.backward()
                return loss

            optimizer.step(closure)

        def check(cluster, script, times):
            with warnings.catch_warnings(record=True) as seen, cluster.connect(log="nothing") as worker:
                warnings.simplefilter("always")
                model = nn.Linear(4, 1)
                optimizer = slackline.Optimizer(model, worker)
                batches = worker.batches(DataLoader(data(), batch_size=8, sampler=worker.sampler(48)))
                for number, (x, _) in zip(range(4), batches):
                    script(model, optimizer, number, x)
            said = [one for one in seen if "training.accumulate" in str(one.message)]
            self.assertEqual(len(said), times)
            for one in said:
                self.assertIn("gradients of 2 batches, 16 samples", str(one.message))
                self.assertEqual(one.filename, __file__)

        for accumulate, scripts in ((1, (passes, two_losses, thrown_away, in_turns, closures)), (2, (passes,))):
            overrides = ["training.epochs=99", f"training.accumulate={accumulate}"]
            with self.brief_cluster("wire: {window: 3}\n", overrides=overrides) as cluster:
                for script in scripts:
                    with self.subTest(script=script.__name__, accumulate=accumulate):
                        check(cluster, script, 1 if script is passes and accumulate == 1 else 0)

    def test_mistakes_of_torch_optim_are_named(self):
        model = nn.Linear(2, 1)
        worker = slackline.connect("127.0.0.1:1", str(self.job()), log="nothing")
        optimizer = slackline.Optimizer(model, worker)
        for copied in (copy.deepcopy, pickle.dumps):
            with self.assertRaisesRegex(TypeError, "cannot be copied or pickled: save optimizer.state_dict"):
                copied(optimizer)
            with self.assertRaisesRegex(TypeError, "collate_fn. must not hold it"):
                copied(worker)
        with self.assertRaisesRegex(RuntimeError, "make it when the model is whole"):
            optimizer.add_param_group({"params": []})
        group = optimizer.param_groups[0]
        with self.assertRaisesRegex(KeyError, "momentum is the job's: optimizer.momentum"):
            group["momentum"]
        with self.assertWarnsRegex(UserWarning, "momentum is the job's: optimizer.momentum. To set it here changes nothing"):
            group["momentum"] = 0.1
        self.assertIs(copy.deepcopy(model)(torch.ones(1, 2)).requires_grad, True)
        with self.assertRaisesRegex(TypeError, "0.weight has no shape yet, as its layer is lazy"):
            slackline.Optimizer(nn.Sequential(nn.LazyLinear(4)), worker)

    def test_steps_of_another_model_and_new_parameters_are_warned_of(self):
        model = nn.Sequential(nn.Linear(4, 1))
        with self.cluster() as cluster, cluster.connect(log="nothing") as worker:
            optimizer = slackline.Optimizer(model, worker)
            model.append(nn.Linear(1, 1))
            loader = DataLoader(data(), batch_size=8, sampler=worker.sampler(48))
            with self.assertWarnsRegex(UserWarning, "parameter 1.weight has come into the model since"):
                batches = iter(worker.batches(loader))
                next(batches)
            with self.assertWarnsRegex(UserWarning, "no parameter has a gradient, and zeros are pushed: is the optimizer of"):
                optimizer.step()
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                next(batches)
                optimizer.step()  # once is enough
            self.assertEqual(worker.clock, 2)

    def test_evaluations_are_looked_at(self):
        figures = slackline._figures.measured
        self.assertEqual(figures(None), (None, None, {}))
        self.assertEqual(figures({"loss": torch.tensor(2.0), "f1": 1}), (2.0, None, {"f1": 1.0}))
        self.assertEqual(figures({"accuracy": 1}), (None, 1.0, {}))
        with self.assertRaisesRegex(TypeError, "worker.evaluation.. returned float; allowed is"):
            figures(0.5)
        with self.assertRaisesRegex(ValueError, "returned accuracy=93.0; allowed is"):
            figures({"accuracy": 93})
        with self.assertRaisesRegex(TypeError, "returned f1 of type str; allowed is a number"):
            figures({"f1": "high"})
        with self.assertRaisesRegex(ValueError, "returned perplexity=inf; allowed is a finite number"):
            figures({"perplexity": float("inf")})
        with self.assertRaisesRegex(ValueError, 'returned "Top-5"; allowed is a name of at most 64 characters: a to z, then'):
            figures({"loss": 1, "Top-5": 0.5})
        with self.assertRaisesRegex(ValueError, "returned 33 names of figures; allowed is at most 32"):
            figures({f"at_{i}": i for i in range(33)})
        with self.assertWarnsRegex(UserWarning, "returned an empty mapping; allowed is"):
            self.assertEqual(figures({}), (None, None, {}))

    def test_figures_of_training_are_looked_at(self):
        with self.cluster() as cluster, cluster.connect(log="nothing") as worker:
            worker.report(loss=1.0, perplexity=torch.tensor(2.0), f1=0.5)
            for wrong, error, words in (
                (dict(bleu="high"), TypeError, "found bleu of type str; allowed is a number"),
                (dict(bleu=math.nan), ValueError, "found bleu=nan; allowed is a finite number"),
                (dict(Bleu=1), ValueError, 'found "Bleu"; allowed is a name'),
                (dict(accuracy=93, bleu=1), ValueError, "found accuracy=93.0; allowed is 0 to 1"),
                ({f"at_{i}": i for i in range(31)}, ValueError, "found 33 names of figures; allowed is at most 32"),
            ):
                with self.assertRaisesRegex(error, words):
                    worker.report(**wrong)
            self.assertEqual((worker._loss, worker._accuracy, worker._values), (1.0, None, {"perplexity": 2.0, "f1": 0.5}))

    def test_metric_of_the_script_is_the_jobs(self):
        run = self.folder / "perplexity"
        perplexities = itertools.chain((20.5, 25.0), itertools.repeat(30.0))
        overrides = [
            "training.epochs=8",
            "training.metric.name=perplexity",
            "training.metric.better=lower",
            "training.early_stopping.patience=1",
        ]
        with self.cluster(overrides=overrides, run_folder=run) as cluster:
            with cluster.connect(log="nothing") as worker:
                model = nn.Linear(4, 1)
                optimizer = slackline.Optimizer(model, worker)
                worker.evaluation(lambda: {"perplexity": next(perplexities), "bleu": 0.5}, samples=500)
                for x, y in worker.batches(DataLoader(data(48), batch_size=8, sampler=worker.sampler(48))):
                    optimizer.zero_grad()
                    ((model(x) - y) ** 2).mean().backward()
                    worker.report(perplexity=40.0)
                    optimizer.step()
        events = (run / "events.log").read_text()
        self.assertIn("epoch 1: test perplexity 20.5, bleu 0.5 on 500 samples", events)
        self.assertIn("training ends early, after what is under way: 1 evaluation did not better it: the best is test perplexity 20.5", events)
        self.assertNotIn("warning", events)
        summary = json.loads((run / "summary.json").read_text())
        self.assertEqual(summary["metric"], {"name": "perplexity", "better": "lower", "last": 30.0, "best": 20.5})
        self.assertEqual(summary["evaluations"][0]["values"], {"bleu": 0.5, "perplexity": 20.5})
        self.assertEqual((summary["test_loss"], summary["test_accuracy"]), (None, None))
        curves = b"".join(path.read_bytes() for path in run.glob("events.out.tfevents.*"))
        for tag in (b"train/perplexity", b"test/perplexity", b"test/bleu"):
            self.assertIn(tag, curves)

    def test_metric_that_is_never_reported_is_named(self):
        run = self.folder / "never"
        with self.cluster(overrides=["training.metric.name=bleu"], run_folder=run) as cluster:
            with cluster.connect(log="nothing") as worker:
                model = nn.Linear(4, 1)
                optimizer = slackline.Optimizer(model, worker)
                worker.evaluation(lambda: {"loss": 1, "f1": 0.5}, samples=500)
                for x, y in worker.batches(DataLoader(data(48), batch_size=8, sampler=worker.sampler(48))):
                    optimizer.zero_grad()
                    ((model(x) - y) ** 2).mean().backward()
                    optimizer.step()
        warning = "warning: evaluations report loss, f1 and no bleu (training.metric), so the job's metric is unknown"
        self.assertEqual((run / "events.log").read_text().count(warning), 1)

    def test_accuracy_that_is_not_measured_is_missing_and_not_zero(self):
        run = self.folder / "loss-alone"
        with self.cluster(overrides=["training.early_stopping.patience=1"], run_folder=run) as cluster:
            with cluster.connect(log="nothing") as worker:
                model = nn.Linear(4, 1)
                optimizer = slackline.Optimizer(model, worker)
                worker.evaluation(lambda: {"loss": 0.031}, samples=500)
                for x, y in worker.batches(DataLoader(data(48), batch_size=8, sampler=worker.sampler(48))):
                    optimizer.zero_grad()
                    ((model(x) - y) ** 2).mean().backward()
                    optimizer.step()
        events = (run / "events.log").read_text()
        self.assertIn("epoch 2: test loss 0.0310 on 500 samples", events)
        self.assertEqual(events.count("warning: evaluations report loss and no accuracy (training.metric), so training does not"), 1, events)
        self.assertNotIn("test accuracy", events)
        rows = list(csv.DictReader((run / "epochs.csv").read_text().splitlines()))
        self.assertEqual((rows[-1]["test_loss"], rows[-1]["test_accuracy"]), ("0.031", ""))
        summary = json.loads((run / "summary.json").read_text())
        self.assertEqual((summary["test_loss"], summary["test_accuracy"], summary["best_test_accuracy"]), (0.031, None, None))

    def train_with_a_bar(self, name, report):
        """Trains, and returns what the bar has drawn and the rows of epochs.csv."""
        run = self.folder / name
        with self.cluster(run_folder=run) as cluster, cluster.connect(log="nothing") as worker:
            model = nn.Linear(4, 1)
            optimizer = slackline.Optimizer(model, worker)
            loader = DataLoader(data(48), batch_size=8, sampler=worker.sampler(48))
            drawn = io.StringIO()
            with contextlib.redirect_stderr(drawn):
                for x, y in worker.batches(loader, progress=True):
                    optimizer.zero_grad()
                    loss = ((model(x) - y) ** 2).mean()
                    loss.backward()
                    if report:
                        worker.report(loss=loss.item())
                    optimizer.step()
        rows = list(csv.DictReader((run / "epochs.csv").read_text().splitlines()))
        self.assertEqual(len(rows), 2)
        return drawn.getvalue(), rows

    @needs("tqdm")
    def test_progress_is_drawn_and_recorded(self):
        drawn, rows = self.train_with_a_bar("told", report=True)
        self.assertRegex(drawn, r"python-\d+: .*(8[0-9]|9[0-6])samples .*epoch=2/2, loss=\d")
        for row in rows:
            self.assertGreater(float(row["loss"]), 0)
            self.assertEqual(row["accuracy"], "", "the script has not reported one")

    @needs("tqdm")
    def test_loss_that_is_not_reported_is_unknown_and_not_zero(self):
        drawn, rows = self.train_with_a_bar("silent", report=False)
        self.assertRegex(drawn, r"epoch=2/2, loss=-")
        self.assertEqual([row["loss"] for row in rows], ["", ""])

    def test_model_that_is_too_small_for_its_servers(self):
        with self.cluster(servers=2) as cluster:
            with self.assertRaisesRegex((RuntimeError, StopIteration), "5 elements.*allowed is 1 to 1|^$"):
                with cluster.connect(log="nothing") as worker:
                    slackline.Optimizer(nn.Linear(4, 1), worker)
                    next(iter(worker.sampler(48)))
        self.assertIn("the model has 5 elements, and a server takes 16 of them at least", worker.reason)


class Ends(Base):
    def test_cluster_ends_without_waiting_for_anybody_to_be_silent(self):
        for interrupted in (True, False):
            with contextlib.suppress(KeyboardInterrupt), self.cluster(run_folder=self.folder / f"run-{interrupted}") as cluster:
                worker = cluster.connect(name="there", log="nothing")
                model = nn.Linear(4, 1)
                optimizer = slackline.Optimizer(model, worker)
                x, y = next(iter(DataLoader(data(), batch_size=8, sampler=worker.sampler(48))))
                ((model(x) - y) ** 2).mean().backward()
                optimizer.step()
                if interrupted:
                    raise KeyboardInterrupt
            events = (pathlib.Path(cluster.run_folder) / "events.log").read_text()
            # It has said goodbye, and so has the last checkpoint what it had trained.
            left = f"worker there leaves: {'failed: KeyboardInterrupt' if interrupted else 'the cluster ends'}"
            self.assertRegex(events, f"(?s){left}.*the job is stopped.*checkpoint 1 is on disk: 8 samples")
            self.assertEqual([process.returncode for _, process in cluster._processes], [0, 0])
            # Nobody is there who would ask it how the job has ended.
            self.assertIn("--unwatched", cluster._processes[0][1].args)

    def test_second_ctrl_c_ends_a_cluster_that_hangs(self):
        self.end_by_second_ctrl_c("")

    def test_second_ctrl_c_ends_a_cluster_whatever_the_first_has_cut_short(self):
        self.end_by_second_ctrl_c("cluster._processes[0][1]._waitpid_lock.acquire()")

    def end_by_second_ctrl_c(self, first):
        code = (
            "import signal, sys, slackline\n"
            "with slackline.local_cluster(sys.argv[1], programs=sys.argv[2], run_folder=sys.argv[3]) as cluster:\n"
            "    leave = cluster._leave\n"
            "    cluster._leave = lambda reason: (leave(reason), print('ends', flush=True))\n"
            "    print(*(process.pid for _, process in cluster._processes), flush=True)\n"
            f"    {first or 'pass'}\n"
            "    signal.pause()\n"
        )
        script = subprocess.Popen(
            [sys.executable, "-c", code, str(self.job()), package_test.PROGRAMS, str(self.folder / "run")],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        try:
            pids = [int(word) for word in script.stdout.readline().split()]
            os.kill(pids[0], signal.SIGSTOP)
            script.send_signal(signal.SIGINT)
            self.assertEqual(script.stdout.readline(), "ends\n")
            script.send_signal(signal.SIGINT)
            script.communicate(timeout=60)
            self.assertEqual([pid for pid in pids if is_alive(pid)], [])
        finally:
            script.kill()
            script.communicate()


# Its tests are package_test.py's.
del Base

if __name__ == "__main__":
    main()
