#!/usr/bin/env python3
"""The GPU kit's runner on CPUs: everything that needs no GPU passes, and what needs one is skipped and says why."""

import argparse
import importlib.machinery
import importlib.util
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

OPTIONS = argparse.Namespace()
sys.dont_write_bytecode = True
# Reasons of the checks that need a device.
SKIP = {"gpu_tests": "this kit has no worker_gpu_device_test", "kernels": "this kit has no gpu_codec_bench",
        "graphs": "there is no GPU", "pinned": "there is no GPU", "memcheck": "there is no", "racecheck": "there is no"}


def results_page():
    """The module scripts/make_gpu_results."""
    loader = importlib.machinery.SourceFileLoader("make_gpu_results", str(OPTIONS.source / "scripts/make_gpu_results"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module


def make_kit(folder):
    """As scripts/gpu_kit packs it, of what a build for CPUs has."""
    bench = OPTIONS.source / "bench"
    for file in [*bench.glob("gpu/*.py"), bench / "race_plain_loop.py", OPTIONS.source / "tests/worker/twin_networks.py"]:
        shutil.copy(file, folder)
    (folder / "bin").mkdir()
    for program in ("slackline", "slackline-scheduler", "slackline-ps", "slackline-worker"):
        (folder / "bin" / program).symlink_to(OPTIONS.programs / program)
    (folder / "python").symlink_to(OPTIONS.package)
    (folder / "images").mkdir()
    command = [sys.executable, str(bench / "gpu/cut_images.py"), "/usr/share/datasets/fashion-mnist", str(folder / "images")]
    subprocess.run(command, check=True)
    (folder / "kit.json").write_text('{"slackline": "a test"}')


LISTED = """GpuKernels.
  GiveTheOraclesBits
GpuModel.
  HasTheGradientOfACpu/resnet34  # GetParam() = 4-byte object <02-00 00-00>
"""
# Plays worker_gpu_device_test: one test passes, and another one fails.
TESTS = f"""#!/bin/sh
case "$1" in
  --gtest_list_tests) printf '{LISTED}' ;;
  *GiveTheOraclesBits) echo '[  PASSED  ] 1 test.' ;;
  *) printf '[ RUN      ] it\nit differs\n' && exit 1 ;;
esac
"""


class Kit(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.kit = pathlib.Path(folder.name)
        make_kit(self.kit)

    def run_kit(self, *arguments, timeout_s=280):
        return subprocess.run([sys.executable, str(self.kit / "kit.py"), *arguments], capture_output=True, text=True, timeout=timeout_s)

    def run_checks(self, *names, device="cpu"):
        """Returns the exit code, the figures by check and part, and the last line of each check."""
        only = [part for name in names for part in ("--only", name)]
        ran = self.run_kit("--device", device, "--out", str(self.kit / "out"), *only)
        self.assertIn(ran.returncode, (0, 1), ran.stdout + ran.stderr)
        return ran.returncode, *results_page().read((self.kit / "out/results.jsonl").read_text())

    def check_passes(self, name):
        code, figures, ends = self.run_checks(name)
        self.assertEqual((code, ends[name]["state"]), (0, "passed"), json.dumps([ends, figures], indent=1))
        page = results_page().page((self.kit / "out/results.jsonl").read_text())
        self.assertIn(f"| `{name}` | passed |", page)
        return figures[name]


class Runner(Kit):
    def test_a_test_that_fails_costs_no_other_result(self):
        program = self.kit / "bin/worker_gpu_device_test"
        program.write_text(TESTS)
        program.chmod(0o755)
        code, figures, ends = self.run_checks("gpu_tests", device="cuda:0")
        self.assertEqual((code, ends["gpu_tests"]["state"]), (1, "failed"))
        said = figures["gpu_tests"]
        self.assertEqual(said["GpuKernels.GiveTheOraclesBits"], "passed")
        self.assertIn("it differs", said["GpuModel.HasTheGradientOfACpu/resnet34"])
        self.assertIn("GpuModel.HasTheGradientOfACpu/resnet34", ends["gpu_tests"]["reason"])

    def test_what_needs_a_device_is_skipped_and_says_why(self):
        code, figures, ends = self.run_checks("machine", *SKIP)
        self.assertEqual((code, ends.pop("machine")["state"]), (0, "passed"))
        self.assertEqual(figures["machine"]["facts"]["slackline"], "a test")
        for check, end in ends.items():
            self.assertEqual(end["state"], "skipped", end)
            self.assertIn(SKIP[check], end["reason"])

    def test_ends_at_once_where_pytorch_finds_no_gpu(self):
        with unittest.mock.patch.dict(os.environ, CUDA_VISIBLE_DEVICES=""):
            code, figures, ends = self.run_checks("machine", "settings", device="cuda:0")
        self.assertEqual((code, list(ends), figures["machine"]["facts"]["gpus"]), (1, ["machine"], []))
        self.assertIn("allowed is --device cpu", ends["machine"]["reason"])

    def test_a_check_that_fails_or_is_unknown(self):
        unknown = self.run_kit("--only", "nothing")
        self.assertEqual(unknown.returncode, 2)
        self.assertIn("allowed are machine, gpu_tests", unknown.stderr)
        shutil.rmtree(self.kit / "images")
        code, figures, ends = self.run_checks("settings")
        self.assertEqual((code, ends["settings"]["state"]), (1, "failed"))
        self.assertIn("images", figures["settings"]["float32"])

    def test_checks_that_do_not_fit_into_the_time_are_skipped(self):
        ran = self.run_kit("--device", "cpu", "--out", str(self.kit / "out"), "--seconds", "1")
        ends = results_page().read((self.kit / "out/results.jsonl").read_text())[1]
        self.assertEqual(ran.returncode, 0)
        self.assertEqual({end.get("reason") for end in ends.values()}, {"too little time was left"})
        self.assertEqual(list(ends)[:4], ["machine", "gpu_tests", "gradients", "resnet50"])

    def test_figures_of_a_check_that_was_cut_off_are_on_the_page(self):
        out = self.kit / "out"
        child = subprocess.Popen([sys.executable, str(self.kit / "kit.py"), "--device", "cpu", "--out", str(out), "--only", "resnet50"],
                                 stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.addCleanup(child.stdout.close)
        self.assertIn('"part": "plain"', child.stdout.readline())
        child.send_signal(signal.SIGTERM)
        child.wait(timeout=60)
        page = results_page().page((out / "results.jsonl").read_text())
        self.assertIn("| `resnet50` | cut off |", page)
        self.assertIn("| ResNet-50 | plain PyTorch |", page)


class Checks(Kit):
    def test_gradients(self):
        for kind, figure in self.check_passes("gradients").items():
            with self.subTest(kind):
                self.assertLess(figure["worker"]["relative"], 1e-5)

    def test_weights_of_scripts(self):
        figures = self.check_passes("script_weights")
        self.assertEqual(len(figures), 4)
        self.assertLess(figures["float32"]["worst"], 1e-4)
        # Two of the steps overflow.
        self.assertEqual({name: figure["pushes"] for name, figure in figures.items() if figure["pushes"] != 32},
                         {"GradScaler with overflows": 30})

    def test_wrappers(self):
        self.assertEqual(self.check_passes("wrappers")["torch.compile"], "accepted")


class Training(Kit):
    def test_speed(self):
        figures = self.check_passes("resnet50")
        self.assertEqual(figures["worker, window 2"]["bar"], 0.97)
        self.assertGreater(figures["script, window 2"]["samples_per_second"], 0)
        self.assertGreater(figures["worker, window 2"]["host_bytes"]["slackline-worker"], 1e7)

    def test_timeline(self):
        figures = self.check_passes("timeline")
        self.assertGreater(figures["script"]["backward_ms"], 0)
        self.assertGreater(figures["worker"]["push shard_ms"], 0)

    def test_stages(self):
        self.assertGreater(self.check_passes("stages")["two stages"]["samples_per_second"], 0)

    def test_several_scripts(self):
        figures = self.check_passes("two_scripts")
        self.assertEqual([name for name, figure in figures.items() if figure["samples_per_second"] > 0],
                         ["one script", "two scripts", "node group of two"])

    def test_local_rounds(self):
        figures = self.check_passes("local_gpt")
        self.assertEqual(figures["pushed_bytes_without_rounds"], 16 * figures["pushed_bytes"])

    @unittest.skipUnless(importlib.util.find_spec("transformers") and importlib.util.find_spec("accelerate"), "no transformers")
    def test_trainer(self):
        self.assertGreater(self.check_passes("hf_trainer")["Trainer, window 2"]["ratio"], 0)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    for option in ("--source", "--package", "--programs"):
        parser.add_argument(option, type=lambda path: pathlib.Path(path).resolve(), required=True)
    OPTIONS, rest = parser.parse_known_args()
    if importlib.util.find_spec("torch") is None or not pathlib.Path("/usr/share/datasets/fashion-mnist").exists():
        print("SKIP: there is no PyTorch, or no Fashion-MNIST")
        sys.exit(77)
    unittest.main(argv=[sys.argv[0], *rest])
