"""torchvision from PyPI beside a PyTorch for CPUs: stand-ins for the CUDA libraries that its operators name, and CPUs do not call.

PyPI's wheel for Linux is linked with PyTorch's CUDA half. Where that is missing, torchvision does not even import, and libraries that
look for it fail with it: so it lies in a folder of its own, which only tests of detectors put on their path.
"""

import os
import pathlib
import subprocess

import torch

FOLDER = pathlib.Path(__file__).resolve().parents[2] / ".cache/outside/detection"
# In the order of the files that name them.
STAND_INS = ("libtorch_cuda.so", "libc10_cuda.so")
# The pointer to PyTorch's allocator is the only datum; the others are functions, which would end the process.
DATA = "_ZN3c104cuda20CUDACachingAllocator9allocatorE"


def missing():
    """The reason why torchvision cannot be used here; empty if it can."""
    if not (FOLDER / "torchvision").is_dir():
        return f"there is no {FOLDER}; ./test --all installs it"
    if not operators().is_file():
        return "this torchvision has no operators of its own"
    return ""


def operators():
    return FOLDER / "torchvision/_C.so"


def environment(folder):
    """Variables with which a process finds torchvision; `folder` gets the stand-ins, unless PyTorch has its CUDA half."""
    found = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(FOLDER)]))}
    if torch.version.cuda is None:
        make_stand_ins(folder)
        found["LD_LIBRARY_PATH"] = os.pathsep.join(filter(None, [str(folder), os.environ.get("LD_LIBRARY_PATH")]))
    return found


def make_stand_ins(folder):
    lines = [f".bss\n.globl {DATA}\n.type {DATA},@object\n.size {DATA},8\n{DATA}: .zero 8\n.text"]
    lines += [f".globl {name}\n.type {name},@function\n{name}: ud2" for name in wanted() if name != DATA]
    source = folder / "stand_ins.s"
    source.write_text("\n".join([*lines, '.section .note.GNU-stack,"",@progbits', ""]))
    nothing = folder / "nothing.c"
    nothing.write_text("")
    for name, made_of in zip(STAND_INS, (source, nothing)):
        subprocess.run(["cc", "-shared", f"-Wl,-soname,{name}", "-o", folder / name, made_of], check=True, timeout=60)
    # The wheel brings the CUDA runtime under another name.
    for runtime in (FOLDER / "torchvision.libs").glob("libcudart.*.so.*"):
        (folder / f"libcudart.so.{runtime.name.split('.so.')[1]}").symlink_to(runtime)


def wanted():
    """Functions of PyTorch's CUDA half that torchvision names."""
    lines = subprocess.run(["nm", "-D", "--undefined-only", operators()], check=True, capture_output=True, text=True, timeout=60).stdout
    names = (line.split()[-1].split("@")[0] for line in lines.splitlines())
    return [name for name in names if name.startswith(("_ZN2at4cuda", "_ZN3c104cuda", "_ZNK3c104cuda"))]
