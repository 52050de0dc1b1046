"""The programs of bench/ from outside: what they print, and how they refuse; and the bars, judged on made-up figures.

    bench_test.py --programs build/release/bin --root .
"""

import argparse
import contextlib
import json
import subprocess
import sys
import unittest
from pathlib import Path

options = argparse.Namespace()

SHORT = ("--seconds", "0.05", "--repeats", "1", "--json")


def run(program, *arguments):
    return subprocess.run([str(options.programs / program), *arguments], capture_output=True, text=True,
                          stdin=subprocess.DEVNULL, timeout=60 * options.patience)


@contextlib.contextmanager
def started(program, *arguments):
    """The program beside the test, with its output to read. It ends with the block, also when an assertion fails."""
    with subprocess.Popen([str(options.programs / program), *arguments], stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL, text=True) as child:
        try:
            yield child
        finally:
            child.kill()  # Popen would wait for it; nothing happens when it has ended


class Programs(unittest.TestCase):
    def rows(self, program, *arguments):
        """The rows of a short run, by name."""
        result = run(program, *SHORT, *arguments)
        self.assertEqual(result.returncode, 0, result.stderr)
        rows = [json.loads(line) for line in result.stdout.splitlines() if line.startswith("{")]
        return {row["what"]: row for row in rows}

    def assert_positive(self, row, *names):
        for name in names:
            self.assertGreater(row[name], 0, f"{name} of {row}")


class Exchange(Programs):
    def exchange(self, *arguments):
        rows = self.rows("exchange_bench", "--megabytes", "1", "--transport", "tcp", *arguments)
        self.assert_positive(rows["exchange"], "rounds_per_s", "gb_per_s", "cpu_s_per_gb", "p50_us", "p99_us")
        self.assert_positive(rows["raw socket"], "rounds_per_s", "gb_per_s", "cpu_s_per_gb")
        return rows

    def test_one_worker_and_one_server_beside_a_raw_socket(self):
        rows = self.exchange()
        exchange, raw = rows["exchange"], rows["raw socket"]
        self.assertAlmostEqual(exchange["gb_per_s"], 2e-3 * exchange["rounds_per_s"], places=5)
        self.assertAlmostEqual(rows["exchange / raw socket"]["ratio"], exchange["rounds_per_s"] / raw["rounds_per_s"],
                               places=5)

    def test_two_servers_and_two_workers(self):
        self.exchange("--servers", "2", "--workers", "2", "--shards", "3")

    def test_every_encoding(self):
        for encoding in ("bf16", "fp16", "int8", "topk:0.05"):
            with self.subTest(encoding):
                self.exchange("--wire", encoding, "--error-feedback", "always")

    def test_many_tensors_and_adam(self):
        self.exchange("--tensors", "1000", "--optimizer", "adam")

    def test_workers_go_on_beside_every_kind_of_faulty_peer(self):
        rows = self.rows("faulty_peers", "--megabytes", "1")
        self.assertEqual(len(rows), 5)
        for row in rows.values():
            self.assert_positive(row, "ratio", "rounds_per_s", "alone_rounds_per_s")

    def test_servers_stay_within_their_memory_beside_stalled_readers(self):
        rows = self.exchange("--memory", "--workers", "2", "--stalled-readers", "2", "--optimizer", "momentum")
        memory = rows["memory of server ps-0"]
        # 1.15 x 1 MB x (1 + 2 versions held + momentum), a window of two pushes and one more, 64 MB.
        self.assertAlmostEqual(memory["allowed_mb"], 1.15 * 4 + 3 + 64, places=3)
        self.assert_positive(memory, "peak_mb")

    def test_pulls_alone_and_beside_a_pusher(self):
        rows = self.rows("exchange_bench", "--megabytes", "1", "--pusher-beside")
        self.assert_positive(rows["pull alone"], "pulls_per_s", "gb_per_s")
        self.assert_positive(rows["pull beside a pusher"], "pulls_per_s", "gb_per_s")

    def test_servers_and_workers_can_be_started_apart(self):
        shape = ["--megabytes", "1", "--servers", "2", "--shards", "2", "--transport", "tcp"]
        with started("exchange_bench", *shape, "--serve") as servers:
            said = []
            while said[-1:] != ["ready"]:
                line = servers.stdout.readline()
                self.assertNotEqual(line, "", f"the servers ended after {said}")
                said.append(line.strip())
            words = [line.split() for line in said if " " in line]
            addresses = [address for kind, address, *_ in words if kind == "exchange"]
            raw = next(address for kind, address, *_ in words if kind == "raw")
            rows = self.rows("exchange_bench", *shape, "--connect", *addresses, "--connect-raw", raw)
            self.assert_positive(rows["exchange"], "rounds_per_s", "worker_cpu_s_per_gb")
            self.assertIsNone(rows["exchange"]["server_cpu_s_per_gb"], "the servers are elsewhere")
            self.assert_positive(rows["raw socket"], "rounds_per_s")
            servers.terminate()
            self.assertEqual(servers.wait(timeout=30 * options.patience), 0)

    def test_wrong_options_are_wrong_use_and_say_what_is_allowed(self):
        for arguments, message in (
                (("--wire", "fp64"), "found fp64; allowed is fp32, bf16, fp16, int8 or topk:FRACTION"),
                (("--wire", "topk:2"), "found topk:2; allowed is"),
                (("--transport", "pigeon"), "not in {auto,tcp,unix,shm}"),
                (("--servers", "0"), "not in range 1 to 64"),
                (("--optimizer", "lbfgs"), "not in {sgd,momentum,adam}"),
                (("--megabytes", "0.001", "--shards", "1000"), "found 250 elements; allowed is at least one a shard"),
                (("--pusher-beside", "--workers", "2"), "--pusher-beside is for one worker"),
                (("--connect", "127.0.0.1:1", "127.0.0.1:2"), "found 2 addresses in --connect"),
                (("--serve", "--connect", "127.0.0.1:1"), "--serve excludes --connect"),
                (("dance",), "dance")):
            with self.subTest(arguments):
                result = run("exchange_bench", *arguments)
                self.assertEqual(result.returncode, 2)
                self.assertIn(message, result.stderr)
                self.assertEqual(result.stdout, "")

    def test_a_server_that_is_not_there_is_a_failure_and_no_hang(self):
        result = run("exchange_bench", "--megabytes", "1", "--transport", "tcp", "--connect", "127.0.0.1:1",
                     "--connect-raw", "127.0.0.1:1")
        self.assertEqual(result.returncode, 1)
        self.assertIn("found no raw peer at 127.0.0.1:1", result.stderr)


class Scheduler(Programs):
    def test_a_real_one_with_workers_that_die_and_come(self):
        result = run("scheduler_load", "--workers", "40", "--deaths", "100", "--seconds", "3", "--json")
        self.assertEqual(result.returncode, 0, result.stderr)
        row = json.loads(result.stdout)
        self.assert_positive(row, "scheduler_cores", "load_cores", "heartbeats_per_s", "deaths")
        self.assertEqual(row["heartbeat_period_ms"], 300)

    def test_without_one_the_path_is_named(self):
        result = run("scheduler_load", "--scheduler", "/no/such/program")
        self.assertEqual(result.returncode, 2)
        self.assertIn("/no/such/program", result.stderr)


class Others(Programs):
    def test_memory_ceiling(self):
        rows = self.rows("memory_ceiling", "--megabytes", "1")
        self.assertEqual(list(rows),
                         ["memcpy", "triad", "read-modify-write", "sgd in place", "sgd copy-on-write"])
        for row in rows.values():
            self.assert_positive(row, "gb_per_s", "ms")

    def test_socket_ceiling(self):
        rows = self.rows("socket_ceiling", "--bytes", "1024")
        self.assertEqual(list(rows),
                         ["tcp stream", "tcp ping-pong 1024", "unix stream", "unix ping-pong 1024"])
        for row in rows.values():
            self.assert_positive(row, "rounds_per_s", "gb_per_s", "cpu_s_per_gb", "p50_us")

    def test_grpc_ceiling_with_chunks_that_do_not_divide_the_model(self):
        rows = self.rows("grpc_ceiling", "--megabytes", "1", "--chunk-bytes", "5000")
        self.assertEqual(len(rows), 8)
        for row in rows.values():
            self.assert_positive(row, "rounds_per_s", "gb_per_s", "client_cpu_s_per_gb", "server_cpu_s_per_gb")

    def test_latency(self):
        rows = self.rows("latency_bench")
        self.assert_positive(rows["bare stream"], "rounds_per_s", "p50_us")
        self.assert_positive(rows["exchange"], "rounds_per_s", "p50_us")
        self.assertAlmostEqual(rows["exchange / bare stream"]["p50_ratio"],
                               rows["exchange"]["p50_us"] / rows["bare stream"]["p50_us"], places=3)

    def test_a_table_for_readers_when_json_is_not_asked_for(self):
        result = run("memory_ceiling", "--megabytes", "1", "--seconds", "0.01", "--repeats", "2")
        self.assertEqual(result.returncode, 0)
        self.assertRegex(result.stdout, r"^ +gb_per_s +ms\nmemcpy +[\d.e+-]+ +[\d.e+-]+\n")
        self.assertEqual(len(result.stdout.splitlines()), 6, "medians, one line each")


class Bars(unittest.TestCase):
    def setUp(self):
        from bars import Bar
        from suite.figures import Figures, judge
        self.bar, self.figures, self.judge = Bar, Figures(), judge

    def add(self, experiment, *values):
        for value in values:
            self.figures.add(experiment, {"what": "it", "rate": value})

    def test_the_ratio_is_the_median_of_each_repeats_own(self):
        self.add("ours", 1, 10, 5)
        self.add("theirs", 2, 10, 2)
        verdict = self.judge(self.bar("m", "ours/it/rate", "theirs/it/rate", 1.0), self.figures)
        self.assertEqual((verdict.ratio, verdict.said), (1.0, "met"))

    def test_the_strongest_opponent_counts(self):
        self.add("ours", 8)
        self.add("weak", 4)
        self.add("strong", 16)
        verdict = self.judge(self.bar("m", "ours/it/rate", "weak/it/rate", 1.0, or_against=("strong/it/rate",)),
                             self.figures)
        self.assertEqual((verdict.ratio, verdict.against_name, verdict.said), (0.5, "strong/it/rate", "missed"))

    def test_what_is_to_be_small_is_missed_above_the_limit(self):
        self.add("ours", 1.3)
        for limit, said in ((1.3, "met"), (1.2, "missed")):
            self.assertEqual(self.judge(self.bar("m", "ours/it/rate", None, limit, wanted="at most"),
                                        self.figures).said, said)

    def test_what_was_not_measured_says_why(self):
        self.figures.missing["ours"] = "not built yet"
        self.add("theirs", 1)
        self.assertEqual(self.judge(self.bar("m", "ours/it/rate", "theirs/it/rate", 1.0), self.figures).said,
                         "not built yet")
        self.assertEqual(self.judge(self.bar("m", "theirs/it/rate", "nowhere/it/rate", 1.0), self.figures).said,
                         "not measured")

    def test_every_bar_names_an_experiment(self):
        from bars import BARS
        from suite.experiments import EXPERIMENTS
        from suite.peers import PEERS
        known = {one.name for one in (*EXPERIMENTS, *PEERS)}
        for bar in BARS:
            for figure in filter(None, (bar.figure, bar.against, *bar.or_against)):
                self.assertIn(figure.split("/")[0], known, bar.measure)

    def test_two_builds_are_compared(self):
        from suite import report
        from suite.figures import Figures
        this, other = Figures(), Figures()
        for figures, values in ((this, (2.0, 3.0, 4.0)), (other, (4.0, 3.0, 4.0))):
            for value in values:
                figures.add("tcp", {"what": "exchange", "gb_per_s": value})
        this.add("tcp", {"what": "exchange", "only_here": 1})
        other.missing["shm"] = "no memory"
        self.assertEqual(report.comparison_rows(this, other)[1:], [
            ["tcp", "exchange", "gb_per_s", "3", "4", "0.750", "0.500", "1.000"],
            ["shm", "", "no memory", "", "", "", "", ""]])

    def test_a_run_against_another_build_measures_both(self):
        command = [sys.executable, str(options.root / "bench/run"), "--quick", "--only", "latency", "--binaries",
                   str(options.programs), "--against"]
        refused = subprocess.run([*command, "/nowhere"], capture_output=True, text=True, timeout=60)
        self.assertEqual(refused.returncode, 2)
        self.assertIn("found --against /nowhere; wanted is a folder with exchange_bench", refused.stderr)
        compared = subprocess.run([*command, str(options.programs)], capture_output=True, text=True,
                                  timeout=120 * options.patience)
        self.assertEqual(compared.returncode, 0, compared.stderr)
        self.assertRegex(compared.stdout, r"(?m)^latency +exchange +p50_us +\S+ +\S+ +\d+\.\d+ +\d")

    def test_a_run_that_names_no_experiment_is_wrong_use(self):
        result = subprocess.run([sys.executable, str(options.root / "bench/run"), "--only", "nothing"],
                                capture_output=True, text=True, timeout=60)
        self.assertEqual(result.returncode, 2)
        self.assertIn("found --only nothing; allowed are ceilings, ", result.stderr)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=Path, required=True, help="folder of the built programs")
    parser.add_argument("--root", type=Path, required=True, help="of the source tree")
    parser.add_argument("--patience", type=int, default=1, help="factor on time limits, for sanitizers")
    parser.add_argument("tests", nargs="*")
    parser.parse_args(namespace=options)
    sys.path.insert(0, str(options.root / "bench"))
    unittest.main(argv=[sys.argv[0], *options.tests], verbosity=1)


if __name__ == "__main__":
    main()
