"""The oldest glibc and libstdc++ that files of a package run with: those of manylinux_2_34 and GCC 11."""
import pathlib
import re
import subprocess

NEWEST = {"GLIBC": (2, 34), "GLIBCXX": (3, 4, 29), "CXXABI": (1, 3, 13), "GCC": (11,)}
WANTED = re.compile(r"\*UND\*\s+\S+\s+\(?(GLIBC|GLIBCXX|CXXABI|GCC)_([\d.]+)\)?\s+(\S+)")


def is_elf(path):
    with pathlib.Path(path).open("rb") as file:
        return file.read(4) == b"\x7fELF"


def too_new(files):
    """(file, symbol, version) for each versioned symbol that an older system lacks; and how many versioned symbols there are."""
    found, seen = [], 0
    for path in files:
        said = subprocess.run(["objdump", "-T", path], capture_output=True, text=True, check=True).stdout
        for library, version, symbol in WANTED.findall(said):
            seen += 1
            if tuple(map(int, version.split("."))) > NEWEST[library]:
                found.append((pathlib.Path(path).name, symbol, f"{library}_{version}"))
    return found, seen
