"""What running programs have loaded, and whose it is."""
import pathlib
import re

# Parts of glibc, and the C++ and NSS plugins that it brings: the machine's own, whatever is installed beside.
GLIBC = re.compile(r"/(ld-linux-.*|lib(anl|c|dl|m|mvec|nsl|pthread|resolv|rt|util)|libnss_(compat|dns|files))\.so\.\d+$")
SYSTEM = ("/lib/", "/lib64/", "/usr/lib/", "/usr/lib64/")


def libraries_and_programs(pid):
    """Files that the process has mapped to run code from; none if it has ended."""
    try:
        lines = pathlib.Path(f"/proc/{pid}/maps").read_text().splitlines()
    except OSError:
        return set()
    fields = [line.split(maxsplit=5) for line in lines]
    return {parts[5] for parts in fields if len(parts) == 6 and "x" in parts[1] and parts[5].startswith("/")}


def is_glibc(path):
    return path.startswith(SYSTEM) and GLIBC.search(path) is not None


def strangers(paths, tree, of_the_system=False):
    """Those that lie neither in `tree` nor where the machine's own may: glibc, or with `of_the_system` any of its libraries."""
    inside = str(pathlib.Path(tree).resolve()) + "/"
    return sorted(path for path in paths
                  if not path.startswith(inside) and not is_glibc(path)
                  and not (of_the_system and path.startswith(SYSTEM)))
