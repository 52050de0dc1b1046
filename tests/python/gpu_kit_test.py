#!/usr/bin/env python3
"""The GPU kit's runner on CPUs: everything that needs no GPU passes, and what needs one is skipped and says why."""

import argparse
import importlib.util
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

OPTIONS = argparse.Namespace()
PASS = {"machine", "script_weights", "fashion", "resnet50", "timeline"}
SKIP = {"gpu_tests": "this kit has no worker_gpu_device_test", "kernels": "this kit has no gpu_codec_bench",
        "memcheck": "there is no"}


def make_kit(folder):
    """As scripts/gpu_kit packs it, of what a build for CPUs has."""
    bench = OPTIONS.source / "bench"
    for file in [*bench.glob("gpu/*.py"), bench / "race_plain_loop.py"]:
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


class GpuKit(unittest.TestCase):
    def test_a_test_that_fails_costs_no_other_result(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            make_kit(folder)
            program = folder / "bin/worker_gpu_device_test"
            program.write_text(TESTS)
            program.chmod(0o755)
            ran = self.run_kit(folder, "--out", str(folder / "out"), "--only", "gpu_tests")
            self.assertEqual(ran.returncode, 1, ran.stdout + ran.stderr)
            said = json.loads(json.loads((folder / "out/results.jsonl").read_text())["reason"].split(": ", 1)[1])
            self.assertEqual(said["passed"], ["GpuKernels.GiveTheOraclesBits"])
            self.assertEqual(list(said["failed"]), ["GpuModel.HasTheGradientOfACpu/resnet34"])
            self.assertIn("it differs", said["failed"]["GpuModel.HasTheGradientOfACpu/resnet34"])

    def run_kit(self, folder, *arguments):
        return subprocess.run([sys.executable, str(folder / "kit.py"), *arguments], capture_output=True, text=True, timeout=280)

    def test_all_but_the_gpu(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            make_kit(folder)
            only = [part for check in [*PASS, *SKIP] for part in ("--only", check)]
            ran = self.run_kit(folder, "--device", "cpu", "--out", str(folder / "out"), *only)
            lines = (folder / "out/results.jsonl").read_text().splitlines()
            results = {result["check"]: result for result in map(json.loads, lines)}
            self.assertEqual(ran.returncode, 0, ran.stdout + ran.stderr)
            self.assertEqual({check for check, result in results.items() if result["state"] == "passed"}, PASS)
            for check, reason in SKIP.items():
                self.assertEqual(results[check]["state"], "skipped")
                self.assertIn(reason, results[check]["reason"])
            self.assertGreater(results["resnet50"]["figures"]["script, window 2"]["samples_per_second"], 0)
            self.assertLess(results["script_weights"]["figures"]["worst"], 1e-4)

    def test_a_check_that_fails_or_is_unknown(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            make_kit(folder)
            unknown = self.run_kit(folder, "--only", "nothing")
            self.assertEqual(unknown.returncode, 2)
            self.assertIn("allowed are machine, gpu_tests", unknown.stderr)
            shutil.rmtree(folder / "images")
            ran = self.run_kit(folder, "--device", "cpu", "--out", str(folder / "out"), "--only", "fashion")
            self.assertEqual(ran.returncode, 1, ran.stdout)
            result = json.loads((folder / "out/results.jsonl").read_text())
            self.assertEqual(result["state"], "failed")
            self.assertIn("images", result["reason"])


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    for option in ("--source", "--package", "--programs"):
        parser.add_argument(option, type=lambda path: pathlib.Path(path).resolve(), required=True)
    OPTIONS, rest = parser.parse_known_args()
    if importlib.util.find_spec("torch") is None or not pathlib.Path("/usr/share/datasets/fashion-mnist").exists():
        print("SKIP: there is no PyTorch, or no Fashion-MNIST")
        sys.exit(77)
    unittest.main(argv=[sys.argv[0], *rest])
