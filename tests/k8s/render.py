"""What kubectl and helm make of k8s/. Their places, and the objects as dictionaries."""

import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOOLS = ROOT / ".cache" / "outside" / "bin"
CHART = ROOT / "k8s" / "chart" / "slackline"


def skip(reason):
    print(f"SKIP: {reason}; ./test --all installs it")
    sys.exit(77)


try:
    import yaml
except ImportError:
    skip("there is no PyYAML")


def need_tools():
    for tool in ("kubectl", "helm"):
        if not (TOOLS / tool).exists():
            skip(f"there is no {tool} in .cache/outside/bin")


class RenderError(Exception):
    """The tool's own words."""


def _run(*command):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False, timeout=120)
    if done.returncode != 0:
        raise RenderError(done.stderr)
    return done.stdout


def parse(text):
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return [document for document in yaml.load_all(text, loader) if document]


def kustomize(overlay, components=()):
    """The objects of k8s/overlays/OVERLAY, with components of k8s/components."""
    if not components:
        return kustomize_folder(ROOT / "k8s" / "overlays" / overlay)
    with tempfile.TemporaryDirectory(dir=ROOT / "build") as folder:
        up = "../../k8s"
        (pathlib.Path(folder) / "kustomization.yaml").write_text(json.dumps({
            "apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization",
            "resources": [f"{up}/overlays/{overlay}"], "components": [f"{up}/components/{one}" for one in components]}))
        return kustomize_folder(folder)


def kustomize_folder(folder):
    return parse(_run(TOOLS / "kubectl", "kustomize", folder))


def helm(values=None, name="slackline"):
    """The objects of the chart with these values over its own."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(values or {}, file)
        file.flush()
        return parse(_run(TOOLS / "helm", "template", name, CHART, "--namespace", "training", "-f", file.name))


def helm_lint():
    return _run(TOOLS / "helm", "lint", "--strict", CHART)
