"""The examples, which make their models and data themselves: most are trainers of other libraries as workers.

    integrations_test.py --programs BIN_FOLDER --package FOLDER --examples FOLDER [TEST...]

A library, and a text for language models, that is not there is skipped, with a message.
"""

import json
import pathlib
import shutil
import subprocess
import sys
import unittest
from unittest import mock

import launch_test
from needs import needs
from run_e2e import DATA

# Bytes of the text of /usr/bin/bible that language models learn from within seconds.
TEXT_BYTES = 150_000

# The adapters of a run have PEFT's names, PEFT saves and loads them, and the model then has the run's loss.
READ_BACK = """
import sys
sys.path.insert(0, sys.argv[1])
import torch
from gpt import read
from gpt_lora import SIZES, Tokens, pretrained, with_adapters
from peft import PeftModel
from safetensors.torch import load_file

base, folder, text, expected, tolerance = *sys.argv[2:5], *map(float, sys.argv[5:])
weights = load_file(f"{folder}/model.safetensors")
assert len(weights) == 4 and all(".lora_" in name for name in weights), list(weights)
model = with_adapters(pretrained(base, "tiny"))
assert not model.load_state_dict(weights, strict=False).unexpected_keys
model.save_pretrained(f"{folder}/adapter")
model = PeftModel.from_pretrained(pretrained(base, "tiny"), f"{folder}/adapter").eval()
test = Tokens(read(text, SIZES["tiny"][-1])[1])
batch = {name: torch.stack([test[i][name] for i in range(len(test))]) for name in test[0]}
with torch.no_grad():
    loss = model(**batch).loss.item()
    with model.disable_adapter():
        before = model(**batch).loss.item()
print(f"{folder}: loss {loss}, in the run {expected}, without adapters {before}")
assert abs(loss - expected) < tolerance and loss < before - 0.01, (loss, expected, before)
"""

# The optimizer of each library is then the inner one; the servers' is DiLoCo's.
ROUNDS = "local: {steps: 4}\nconsistency: {mode: bsp}\ncluster: {servers: 1, workers: 2}\n"


class Integrations(launch_test.Launched):
    def check(self, script, job, least, *arguments):
        run = self.launch(launch_test.OPTIONS.examples / script, "--servers", "1", "--workers", "2",
                          job=launch_test.OPTIONS.examples / job, arguments=arguments)
        self.assertEqual(run.wait(240), 0, run.diagnosis())
        for name in ("worker-1", "worker-2"):
            self.assertIn("steps: training is complete", self.log(run, name), run.diagnosis())
        self.assertGreater(self.accuracy(run), least, run.diagnosis())
        return json.loads((run.folder / "summary.json").read_text())

    def check_rounds(self, *arguments):
        """Rounds end after two steps, and after one where a range of samples does, in place of the job's four."""
        for worker in self.check(*arguments, "--every", "2")["worker_list"]:
            self.assertGreater(worker["local_steps"], worker["steps"])
            self.assertLessEqual(worker["local_steps"], 2 * worker["steps"])

    def rounds(self, epochs):
        job = self.folder / "rounds.yaml"
        job.write_text(f"model: {{kind: external}}\ntraining: {{epochs: {epochs}, batch_size: 32}}\n{ROUNDS}")
        return job

    def test_captions(self):
        self.check("captions.py", "captions.yaml", 0.8)

    @needs("transformers")
    @needs("accelerate")
    def test_transformers(self):
        self.check("transformers_trainer.py", "sentences.yaml", 0.5)

    @needs("transformers")
    @needs("accelerate")
    def test_transformers_in_bf16_with_loader_processes(self):
        self.check("transformers_trainer.py", "sentences.yaml", 0.5, "--bf16", "--loaders", "2")

    @needs("transformers")
    @needs("accelerate")
    def test_transformers_in_rounds(self):
        self.check_rounds("transformers_trainer.py", self.rounds(epochs=6), 0.5, "--learning-rate", "0.003")

    @needs("lightning")
    def test_lightning_in_rounds(self):
        self.check_rounds("lightning_trainer.py", self.rounds(epochs=4), 0.5)

    @needs("lightning")
    def test_lightning(self):
        self.check("lightning_trainer.py", "patterns.yaml", 0.5)

    @needs("lightning")
    def test_lightning_in_bf16_with_loader_processes(self):
        self.check("lightning_trainer.py", "patterns.yaml", 0.5, "--bf16", "--loaders", "2")


@unittest.skipIf(not DATA.is_dir(), f"found no {DATA}")
class Pictures(launch_test.Launched):
    @needs("transformers")
    @needs("accelerate")
    def test_a_vit_with_the_names_of_a_run_goes_on_in_hugging_face(self):
        import torch
        from safetensors.torch import save_file

        paths = [str(pathlib.Path(__file__).resolve().parents[1] / "worker"), str(launch_test.OPTIONS.examples), *sys.path]
        with mock.patch.object(sys, "path", paths):
            from twin_networks import Vit
            from vit_fine_tuning import pretrained
        torch.manual_seed(3)
        vit = Vit(channels=1, side=7, tokens=17, width=192, classes=10).eval()
        with torch.no_grad():
            for one in vit.parameters():  # no two tensors alike
                one.add_(torch.randn(one.shape), alpha=0.02)
        base = self.folder / "base.safetensors"
        save_file(vit.state_dict(), base)
        pictures = torch.randn(8, 1, 28, 28)
        with torch.no_grad():
            torch.testing.assert_close(pretrained(base).eval()(pixel_values=pictures).logits, vit(pictures), rtol=1e-4, atol=1e-5)
        run = self.launch(launch_test.OPTIONS.examples / "vit_fine_tuning.py", job=launch_test.OPTIONS.examples / "vit-fine-tuning.yaml",
                          arguments=["--base", str(base), "--images", str(DATA), "--samples", "640"])  # fmt: skip
        self.assertEqual(run.wait(240), 0, run.diagnosis())
        self.assertGreater(self.accuracy(run), 0.5, run.diagnosis())  # four of ten classes are tops


@unittest.skipIf(shutil.which("bible") is None, "there is no program bible; ./test --all installs it")
class LanguageModels(launch_test.Launched):
    def setUp(self):
        super().setUp()
        self.take("ge1:1-ex40:38")

    def take(self, verses):
        said = subprocess.run(["bible", "-f", verses], stdin=subprocess.DEVNULL, capture_output=True, check=True, timeout=60)
        self.text = self.folder / "text"
        self.text.write_bytes(said.stdout[:TEXT_BYTES])

    def train(self, script, job, *arguments, flags=()):
        """The run, and its test loss."""
        examples = launch_test.OPTIONS.examples
        run = self.launch(examples / script, *flags, job=examples / job, arguments=["--text", str(self.text), *arguments])
        self.assertEqual(run.wait(240), 0, run.diagnosis())
        for name in ("worker-1", "worker-2"):
            self.assertIn("steps: training is complete", self.log(run, name), run.diagnosis())
        return run, json.loads((run.folder / "summary.json").read_text())["test_loss"]

    def test_gpt_by_ssp(self):
        run, loss = self.train("gpt.py", "gpt-ssp.yaml")
        self.assertLess(loss, 3.2, run.diagnosis())  # 5.5 untrained
        self.assertIn("bits per byte, perplexity", self.log(run, "worker-1") + self.log(run, "worker-2"))

    @needs("lightning")
    def test_lightning_in_bf16_with_loader_processes(self):
        run, loss = self.train("gpt_lightning.py", "gpt-ssp.yaml", "--bf16", "--loaders", "2")
        self.assertLess(loss, 3.4, run.diagnosis())

    def test_gpt_by_diloco(self):
        run, loss = self.train("gpt_diloco.py", "gpt-diloco.yaml")
        self.assertLess(loss, 3.2, run.diagnosis())

    @needs("peft")
    @needs("accelerate")
    def test_gpt_by_async_and_its_adapters(self):
        run, loss = self.train("gpt.py", "gpt-async.yaml")
        self.assertLess(loss, 3.2, run.diagnosis())
        base = run.folder.rename(self.folder / "base") / "model.safetensors"
        self.take("ps1:1-ps150:6")
        # Adapters gain several times what READ_BACK asks for in two epochs, however well the base was trained.
        epochs = ["--set", "training.epochs=2"]
        # READ_BACK computes in float32. A base in bfloat16 has a slightly different loss.
        for number, (options, tolerance) in enumerate((([], 1e-3), (["--bf16", "--loaders", "2"], 1e-2))):
            with self.subTest(options):
                run, loss = self.train("gpt_lora.py", "gpt-lora.yaml", "--base", str(base), *options, flags=epochs)
                folder = run.folder.rename(self.folder / f"lora-{number}")
                command = [sys.executable, "-B", "-c", READ_BACK, launch_test.OPTIONS.examples, base, folder, self.text]
                subprocess.run([*command, str(loss), str(tolerance)], check=True, timeout=60)


if __name__ == "__main__":
    launch_test.main()
