"""Who may include whom: the rules of the rooms, and the check that a tree keeps them.

Every rule is data at the top of this file. A check takes a Tree and yields Problems; it knows nothing of ctest.
"""

import re

from tree import Problem

# Rooms of the tree, and the rooms that each may include. The three processes never include one another.
PROCESS_ROOMS = ("ps", "worker", "scheduler")
MAY_INCLUDE = {
    "protos": {"protos"},
    "common": {"common", "protos"},
    "images": {"images", "common", "protos"},
    "ps": {"ps", "common", "protos"},
    "worker": {"worker", "images", "common", "protos"},
    "scheduler": {"scheduler", "common", "protos"},
    "simulator": {"simulator", "images", "common", "protos", *PROCESS_ROOMS},
    "cli": {"cli", "images", "common", "protos", *PROCESS_ROOMS},
    "python": {"python", "common", "worker"},
    "bench": {"bench", "images", "common", "protos", *PROCESS_ROOMS},
    "tests": {"tests", "cli", "simulator", "images", "common", "protos", *PROCESS_ROOMS},
}

# How an include names a third party.
THIRD_PARTIES = {
    "torch": re.compile(r"^(torch|ATen|c10)/"),
    "cuda": re.compile(r"^(cuda[a-z_]*\.h|nccl\.h|nvtx3/)"),
    "grpc": re.compile(r"^(grpc|grpcpp)/|\.grpc\.pb\.h$"),
    "protobuf": re.compile(r"^google/protobuf/|(?<!\.grpc)\.pb\.h$"),
    "yaml-cpp": re.compile(r"^yaml-cpp/"),
    "spdlog": re.compile(r"^spdlog/"),
    "prometheus": re.compile(r"^prometheus/"),
    "zlib": re.compile(r"^zlib\.h$"),
    "xxhash": re.compile(r"^xxhash\.h$"),
    "turbojpeg": re.compile(r"^turbojpeg\.h$"),
    "png": re.compile(r"^png\.h$"),
    "stb": re.compile(r"^stb/"),
    "curl": re.compile(r"^curl/"),
    "csv": re.compile(r"^csv\.h$"),
    "rocksdb": re.compile(r"^rocksdb/"),
    "openssl": re.compile(r"^openssl/"),
    "nlohmann": re.compile(r"^nlohmann/"),
    "cli11": re.compile(r"^CLI/"),
    "highway": re.compile(r"^hwy/"),
    "python": re.compile(r"^(Python\.h$|nanobind/)"),
    "gtest": re.compile(r"^(gtest|gmock)/"),
    "benchmark": re.compile(r"^benchmark/"),
}

# Where each may be included: folders end in '/', files are patterns of whole paths. What a process room may not, no
# test or bench of another room may either: they come in by name.
ALLOWED = {
    "torch": ["worker/model/(losses|networks|torch)/.*", "tests/worker/.*", "bench/.*"],
    "cuda": ["worker/cuda/.*", "tests/worker/gpu_.*", "tests/worker/played/.*", "bench/gpu_.*"],
    "grpc": [
        "common/rpc/.*", "common/security/(guard|security)\\.(h|cc)", "tests/.*", "bench/.*", "cli/.*",
        "ps/service/.*", "ps/main\\.cc", "worker/(client|scheduler_link)/.*", "scheduler/service/.*", "scheduler/main\\.cc",
    ],
    "yaml-cpp": ["common/job/.*"],
    "spdlog": ["common/log/logging\\.cc"],
    "prometheus": ["common/metrics/metrics\\.cc"],
    "zlib": ["images/base/idx_file\\.cc", "tests/images/.*", "tests/worker/.*"],
    "xxhash": ["common/checkpoint/.*", "common/storage/checksum\\.cc"],
    "turbojpeg": ["images/pictures/jpeg\\.cc"],
    "png": ["scheduler/record/confusion_image\\.cc", "images/pictures/png\\.cc", "tests/scheduler/confusion_image_test\\.cc"],
    "stb": ["images/pictures/resize\\.cc"],
    "curl": ["images/prepared/file_fetch\\.cc", "common/http/http_post\\.cc"],
    "csv": ["images/pictures/label_file\\.cc"],
    "rocksdb": ["common/storage/.*", "tests/common/failing_disk\\.h"],
    "openssl": ["common/security/.*"],
    "nlohmann": [
        "common/text/json_text\\.(h|cc)", "common/checkpoint/shard_file\\.cc",
        "cli/(base/process|commands/runs|doctor/report|prepare/(output|prepare|shard_maker)|service/(jobs_view|service_api)|run/(not_started|page_status|run_end|run_folder|script)|slurm/meeting)\\.cc",
        "images/(coco/annotations|prepared/prepared_index)\\.cc",
        "scheduler/(base/message_json|record/run_summary|service/scrape_targets|status/settings_and_logs)\\.cc",
        "worker/(base/(otlp_spans|trace)|evaluation/evaluator|model/weights/(load_weights|safetensors))\\.cc", "tests/.*",
    ],
    "cli11": ["cli/.*", "common/(text/help|job/command_options)\\.cc", "ps/main\\.cc", "worker/main\\.cc", "scheduler/main\\.cc", "simulator/main\\.cc", "bench/.*"],
    # Its vectors stay in the files of kernels; a test goes through the instruction sets.
    "highway": ["common/(codec|optimizer)/kernels\\.cc", "tests/each_target\\.h"],
    "python": ["python/src/.*"],
    "gtest": ["tests/.*"],
    "benchmark": ["bench/.*"],
}

# Cores without I/O, as this page's table has them: nothing they include, at any depth, may be one of these.
CORES_PAGE = "docs/ARCHITECTURE.md"
CORES = re.compile(r"^## Cores$(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
IMPURE_HEADERS = re.compile(
    r"^(thread|mutex|condition_variable|atomic|future|chrono|fstream|iostream|filesystem|random|ctime)$"
    r"|^absl/(synchronization|random)/|^(sys|unistd|netinet)")

# Classes of headers outside of other classes. A name says one thing in the whole product; work has one name on both ends
# of a call.
CLASS = re.compile(r"^(?:class|struct|enum class) (?:ABSL_\w+ )?(\w+)[^;()]*?\{", re.MULTILINE)
ON_BOTH_ENDS = {"EvaluationWork", "LeaveWork", "StandbyWork"}

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*[<"]([^">]+)[">]', re.MULTILINE)


def matches(path, patterns):
    return any(re.fullmatch(pattern, path) for pattern in patterns)


def room_of(path):
    return path.split("/", 1)[0]


class Includes:
    """The includes of a tree's C++ files; those that name a file of the tree, and all others."""

    def __init__(self, tree):
        self.direct = {}
        for path, text in tree.files(".h", ".cc"):
            self.direct[path] = [
                (self._resolve(path, match.group(1), tree), text.count("\n", 0, match.start()) + 1)
                for match in INCLUDE.finditer(text)
            ]

    @staticmethod
    def _resolve(path, name, tree):
        if name in tree:
            return name
        beside = path.rsplit("/", 1)[0] + "/" + name
        return beside if beside in tree else name

    def reach(self, path):
        """Every name that `path` includes at any depth, with the chain that leads to it."""
        chains = {}
        work = [(name, [name]) for name, _ in self.direct.get(path, [])]
        while work:
            name, chain = work.pop()
            if name in chains:
                continue
            chains[name] = chain
            work.extend((further, chain + [further]) for further, _ in self.direct.get(name, []))
        return chains


def third_party_of(name):
    return next((party for party, pattern in THIRD_PARTIES.items() if pattern.search(name)), None)


def check_rooms(tree, includes):
    for path, names in includes.direct.items():
        allowed = MAY_INCLUDE.get(room_of(path))
        if allowed is None:
            yield Problem(path, 1, f"is in no known room; rooms are {', '.join(sorted(MAY_INCLUDE))}")
            continue
        for name, line in names:
            if name in tree and room_of(name) not in allowed:
                yield Problem(path, line, f"includes {name}; {room_of(path)} may include {', '.join(sorted(allowed))}")


def check_third_parties(tree, includes):
    del tree
    for path, names in includes.direct.items():
        for name, line in names:
            party = third_party_of(name)
            if party in ALLOWED and not matches(path, ALLOWED[party]):
                yield Problem(path, line, f"includes {name}; {party} may be included by {' '.join(ALLOWED[party])}")


def check_torch_stays_apart(tree, includes):
    """LibTorch brings headers of an older protobuf: the two never meet in one translation unit."""
    del tree
    for path in includes.direct:
        chains = includes.reach(path)
        torch = next((chain for name, chain in chains.items() if third_party_of(name) == "torch"), None)
        wire = next((chain for name, chain in chains.items() if third_party_of(name) in ("grpc", "protobuf")), None)
        if torch and wire:
            yield Problem(path, 1, f"reaches LibTorch by {' > '.join(torch)} and protobuf by {' > '.join(wire)}")


def check_pure_cores(tree, includes):
    page = dict(tree.files(".md")).get(CORES_PAGE, "")
    table = CORES.search(page)
    named = re.findall(r"`([\w/]+\.h)`", table.group(1)) if table else []
    if page and not named:
        yield Problem(CORES_PAGE, 1, "has no table of cores under '## Cores'")
    for path in named:
        # The last column names a core's parts by the file alone.
        if "/" in path and path not in includes.direct:
            yield Problem(CORES_PAGE, 1, f"names the core {path}, which is not there")
    for path in includes.direct:
        if path.removesuffix(".cc").removesuffix(".h") + ".h" not in named:
            continue
        for name, chain in includes.reach(path).items():
            # Messages are plain data.
            if third_party_of(name) not in (None, "protobuf") or IMPURE_HEADERS.search(name):
                yield Problem(path, 1, f"is a pure core and reaches {' > '.join(chain)}")


def folder_of(path):
    return path.rpartition("/")[0]


def check_folders(tree, includes):
    """Includes between the folders of a room have one direction, like those between rooms."""
    edges = {}
    for path, names in includes.direct.items():
        for name, line in names:
            if name in tree and folder_of(name) != folder_of(path) and room_of(name) == room_of(path) != "tests":
                edges.setdefault(folder_of(path), {}).setdefault(folder_of(name), (path, line, name))

    def chain(begin, end):
        chains = {begin: [begin]}
        work = [begin]
        while work:
            folder = work.pop(0)
            for further in edges.get(folder, {}):
                if further not in chains:
                    chains[further] = chains[folder] + [further]
                    work.append(further)
        return chains.get(end)

    rings = set()
    for folder, others in edges.items():
        for other, (path, line, name) in others.items():
            back = chain(other, folder)
            if back and frozenset(back) not in rings:
                rings.add(frozenset(back))
                yield Problem(path, line, f"includes {name}, and {' includes '.join(back)}: folders of a room include in one direction")


def check_class_names(tree, includes):
    del includes
    first = {}
    for path, text in tree.files(".h"):
        for match in CLASS.finditer(text) if room_of(path) not in ("tests", "bench") else ():
            name = match.group(1)
            if name not in ON_BOTH_ENDS and first.setdefault(name, path) != path:
                yield Problem(path, text.count("\n", 0, match.start()) + 1, f"has the class {name}, as {first[name]} has; a name says one thing")


CHECKS = [check_rooms, check_folders, check_class_names, check_third_parties, check_torch_stays_apart, check_pure_cores]


def check(tree):
    includes = Includes(tree)
    for one in CHECKS:
        yield from one(tree, includes)
