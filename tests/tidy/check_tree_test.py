#!/usr/bin/env python3
"""Each rule finds the mistake it is there for, and lets the right thing pass."""

import unittest

from check_tree import problems_of
from tree import Tree

SLEEP = "std::this_thread::sleep_" + "for(x);\n"

CORES_PAGE = "# A\n\n## Cores\n\n| core | decides |\n|---|---|\n| `ps/consistency/e.h` | all |\n\n## B\n"

# (what, files, the file that must be named; None where all is well)
CASES = [
    ("a process room may include common", {"ps/a.h": '#include "common/b.h"\n', "common/b.h": ""}, None),
    ("a process room may not include another", {"ps/a.h": '#include "worker/b.h"\n', "worker/b.h": ""}, "ps/a.h"),
    ("common may not include a process room", {"common/a.h": '#include "ps/b.h"\n', "ps/b.h": ""}, "common/a.h"),
    ("an include beside the file is seen", {"common/x/a.h": '#include "../c/b.h"\n', "common/c/b.h": ""}, None),
    ("tests may include a process room", {"tests/ps/a.cc": '#include "ps/b.h"\n', "ps/b.h": ""}, None),
    ("programs may not include tests", {"cli/a.cc": '#include "tests/b.h"\n', "tests/b.h": ""}, "cli/a.cc"),
    ("a new room must be declared", {"other/a.cc": ""}, "other/a.cc"),
    ("folders of a room include in one direction", {
        "ps/a/x.h": '#include "ps/b/y.h"\n', "ps/b/y.h": '#include "ps/z.h"\n', "ps/z.h": "", "ps/b/v.cc": '#include "ps/a/w.h"\n', "ps/a/w.h": ""},
     "ps/a/x.h"),
    ("any number of folders may", {"ps/a/x.h": '#include "ps/b/y.h"\n', "ps/b/y.h": '#include "ps/z.h"\n', "ps/z.h": ""}, None),
    ("two rooms have no class of one name", {"ps/a.h": "class Stream {\n};\n", "worker/b.h": "class Stream final : public A {\n};\n"}, "worker/b.h"),
    ("but inside of classes they may", {"ps/a.h": "class A {\n  struct Options {};\n};\n", "worker/b.h": "class B {\n  struct Options {};\n};\n"}, None),
    ("worker/model/torch may include torch", {"worker/model/torch/a.cc": "#include <torch/torch.h>\n"}, None),
    ("no other room may", {"worker/trainer/trainer.cc": "#include <ATen/ATen.h>\n"}, "worker/trainer/trainer.cc"),
    ("torch and gRPC do not meet", {"bench/a.cc": "#include <torch/torch.h>\n#include <grpcpp/grpcpp.h>\n"},
     "bench/a.cc"),
    ("nor through our headers", {
        "bench/a.cc": '#include "common/job/job_file.h"\n#include <c10/core/Device.h>\n',
        "common/job/job_file.h": '#include "job.pb.h"\n'}, "bench/a.cc"),
    ("a core of the page is pure", {"docs/ARCHITECTURE.md": CORES_PAGE, "ps/consistency/e.h": "#include <mutex>\n"},
     "ps/consistency/e.h"),
    ("at any depth", {"docs/ARCHITECTURE.md": CORES_PAGE, "ps/consistency/e.h": '#include "common/b.h"\n',
                      "common/b.h": "#include <fstream>\n"}, "ps/consistency/e.h"),
    ("its .cc, too", {"docs/ARCHITECTURE.md": CORES_PAGE, "ps/consistency/e.h": "",
                      "ps/consistency/e.cc": "#include <grpcpp/grpcpp.h>\n"}, "ps/consistency/e.cc"),
    ("messages are plain data", {"docs/ARCHITECTURE.md": CORES_PAGE, "ps/consistency/e.h": '#include "job.pb.h"\n'}, None),
    ("the page has cores", {"docs/ARCHITECTURE.md": "# A\n\n## Other\n"}, "docs/ARCHITECTURE.md"),
    ("a core of the page is there", {"docs/ARCHITECTURE.md": CORES_PAGE}, "docs/ARCHITECTURE.md"),
    ("yaml-cpp only where the job file is read", {"cli/a.cc": "#include <yaml-cpp/yaml.h>\n"}, "cli/a.cc"),
    ("spdlog only in logging", {"common/metrics/metrics.cc": "#include <spdlog/spdlog.h>\n"}, "common/metrics/metrics.cc"),
    ("prometheus only in metrics", {"ps/a.cc": "#include <prometheus/counter.h>\n"}, "ps/a.cc"),
    ("Highway only in kernels", {"ps/shard/slice.cc": "#include \"hwy/highway.h\"\n"}, "ps/shard/slice.cc"),
    ("rocksdb only in the storage room", {"ps/store/a.cc": "#include <rocksdb/db.h>\n"}, "ps/store/a.cc"),
    ("zlib only in the data room", {"worker/a.cc": "#include <zlib.h>\n"}, "worker/a.cc"),
    ("gRPC only at the edges", {"scheduler/shards/placement.cc": "#include <grpcpp/grpcpp.h>\n"}, "scheduler/shards/placement.cc"),
    ("no path of one machine", {"docs/a.md": "see /wor" + "k/x\n"}, "docs/a.md"),
    ("no one's home", {"scripts/a": "/hom" + "e/me/x\n"}, "scripts/a"),
    ("no host", {"scripts/a.txt": "--index-url http" + "s://wheels.somewhere.net/x\n"}, "scripts/a.txt"),
    ("not without https either", {"docs/a.md": "from somewhere" + ".org\n"}, "docs/a.md"),
    ("the licence's address may stand", {"LICENSE": "http://www.apache.org/licenses/\n"}, None),
    ("settings do not come from the environment", {"ps/a.cc": 'std::getenv' + '("X");\n'}, "ps/a.cc"),
    ("tests do not sleep", {"tests/a.cc": SLEEP}, "tests/a.cc"),
    ("nor in Python", {"tests/a.py": "time.sle" + "ep(1)\n"}, "tests/a.py"),
    ("a comment begins with its subject", {"ps/a.h": "// What is held.\nint held;\n"}, "ps/a.h"),
    ("also behind the code", {"ps/a.h": "int held;  // of all shards\n"}, "ps/a.h"),
    ("which it then does", {"ps/a.h": "// Pushes that wait,\n// of all shards.\nint held;  // not more than 8\n" + "// Limit.\n\n" * 50}, None),
    ("a file ends in time", {"ps/a.cc": "\n" * 601}, "ps/a.cc"),
    ("600 lines are allowed", {"ps/a.cc": "\n" * 600}, None),
    ("a document's link leads somewhere", {"docs/a.md": "[b](../b.md)\n"}, "docs/a.md"),
    ("and may lead to a folder", {"docs/a.md": "[b](../ps) `ps/a.{h,cc}` `ps/`\n", "ps/a.h": "", "ps/a.cc": ""}, None),
    ("a link leads to a heading", {"docs/a.md": "[b](b.md#nothing)\n", "docs/b.md": "# Title\n"}, "docs/a.md"),
    ("of another document or the same", {
        "docs/a.md": "## It's `all` here\n[b](b.md#a-title) [a](#its-all-here)\n", "docs/b.md": "# A [title](a.md)\n"}, None),
    ("a document names files that exist", {"docs/a.md": "`ps/a.{h,cc}`\n", "ps/a.h": ""}, "docs/a.md"),
    ("and tests and calls that exist", {
        "docs/a.md": "`Slice.IsOne` `Scheduler.Stop`\n", "tests/a.cc": "TEST(Slice, IsTwo) {"}, "docs/a.md"),
    ("a decision has a title, a date, a status and alternatives, and is listed", {
        "docs/adr/README.md": "| [0007](0007-a.md) | 2020-01-31 | Servers step |\n",
        "docs/adr/0007-a.md": "# 7. Servers step\n\nDate: 2020-01-31. Status: accepted.\n\n**Alternatives.** None.\n"}, None),
    ("not without a date", {
        "docs/adr/README.md": "", "docs/adr/0007-a.md": "# 7. Servers step\n\n**Alternatives.** None.\n"}, "docs/adr/0007-a.md"),
    ("nor without alternatives", {
        "docs/adr/README.md": "| [0007](0007-a.md) | 2020-01-31 | Servers step |\n",
        "docs/adr/0007-a.md": "# 7. Servers step\n\nDate: 2020-01-31. Status: accepted.\n"}, "docs/adr/0007-a.md"),
    ("nor under another title", {
        "docs/adr/README.md": "| [0007](0007-a.md) | 2020-01-31 | Workers step |\n",
        "docs/adr/0007-a.md": "# 7. Servers step\n\nDate: 2020-01-31. Status: accepted.\n\n**Alternatives.** None.\n"}, "docs/adr/0007-a.md"),
    ("the fields of the status are documented", {
        "docs/status-fields.md": "## Job\n| `name` |\n", "protos/status.proto": "message Job {\n  repeated string host = 1;\n"},
     "protos/status.proto"),
    ("and so they are", {
        "docs/status-fields.md": "## Job\n| `name` |\n", "protos/status.proto": "message Job {\n  optional string name = 1;\n"}, None),
    ("a topic of the help exists", {"ps/a.cc": "slackline help moving\n", "cli/help/topics.cmake": "set(topics\n  moves=moves.md)\n"}, "ps/a.cc"),
    ("by its name", {"ps/a.cc": "slackline help moves\n", "cli/help/topics.cmake": "set(topics\n  moves=moves.md)\n"}, None),
    ("which may be anywhere", {
        "docs/a.md": "`Slice.IsOne` `Scheduler.Stop`\n", "tests/a.cc": "TEST_F(Slice, IsOne) {",
        "protos/a.proto": "service Scheduler {\n  rpc Stop(A) returns (B);\n}\n"}, None),
]


class CheckTree(unittest.TestCase):
    def test_each_rule_finds_its_mistake_and_nothing_else(self):
        for what, files, culprit in CASES:
            with self.subTest(what):
                found = {problem.path for problem in problems_of(Tree(files))}
                self.assertEqual(found, {culprit} if culprit else set())

    def test_a_problem_names_its_line(self):
        problems = list(problems_of(Tree({"ps/a.cc": "\n\n#include <zlib.h>\n"})))
        self.assertEqual([(problem.path, problem.line) for problem in problems], [("ps/a.cc", 3)])


if __name__ == "__main__":
    unittest.main()
