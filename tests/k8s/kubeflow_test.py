#!/usr/bin/env python3
"""usage: kubeflow_test.py [TEST...]: k8s/kubeflow/ would be taken by Kubeflow Trainer, and its pods are those of the batch overlay."""

import copy
import json
import sys
import unittest

import render
from render import kustomize, skip

try:
    import rules
    from kubeflow_trainer_api import models
except ImportError as missing:
    skip(f"no Python module {missing.name}")

FOLDER = render.ROOT / "k8s" / "kubeflow"
ANCESTOR = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
RUN = {"name": "RUN", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['jobset.sigs.k8s.io/jobset-name']"}}}


def read(name):
    (thing,) = render.parse((FOLDER / name).read_text())
    return thing


def jobset_of(runtime):
    return {"apiVersion": rules.BATCH[0], "kind": rules.BATCH[1], "metadata": {"name": "slackline"}, "spec": runtime["spec"]["template"]["spec"]}


def schema(thing):
    """By the models of Kubeflow Trainer, which ignore what they do not know; a pod's template by Kubernetes' own schemas."""
    model = {"ClusterTrainingRuntime": models.TrainerV1alpha1ClusterTrainingRuntime, "TrainJob": models.TrainerV1alpha1TrainJob}[thing["kind"]]
    outer = copy.deepcopy(thing)
    if thing["kind"] == "ClusterTrainingRuntime":
        yield from rules.jobset_schema(jobset_of(thing))
        for job in outer["spec"]["template"]["spec"]["replicatedJobs"]:
            job["template"] = {}
    try:
        known = model.from_dict(copy.deepcopy(outer)).to_dict()
    except ValueError as error:
        yield str(error)
        return
    yield from (path for path in rules.lost(outer["spec"], known["spec"], "spec") if not path.endswith(".template"))


def as_overlay(runtime):
    """The JobSet of a TrainJob called slackline, with the names of the overlay: a Service, and a worker."""
    text = json.dumps(jobset_of(runtime)).replace("$(RUN)-scheduler-0-0.$(RUN)", "slackline-scheduler")
    jobset = json.loads(text.replace("/$(RUN).yaml", "/job.yaml").replace("$(RUN)", "slackline"))
    for job in jobset["spec"]["replicatedJobs"]:
        (container,) = job["template"]["spec"]["template"]["spec"]["containers"]
        container["env"].remove(RUN)
        if not container["env"]:
            del container["env"]
        if job["name"] == "node":
            assert job["template"].pop("metadata") == {"labels": ANCESTOR} and container["name"] == "node"
            job["name"] = container["name"] = "worker"
    return jobset


class KubeflowTest(unittest.TestCase):
    maxDiff = 4000

    def test_kubeflow_trainer_would_take_it(self):
        for thing in (read("runtime.yaml"), read("script.yaml"), read("namespace/trainjob.yaml")):
            with self.subTest(thing["kind"]):
                self.assertEqual(list(schema(thing)), [])

    def test_what_is_broken_is_noticed(self):
        for name, spoil, word in (
                ("runtime.yaml", lambda spec: spec["mlPolicy"].update(nodes=2), "spec.mlPolicy.nodes"),
                ("runtime.yaml", lambda spec: spec["template"]["spec"].update(sucessPolicy={}), "sucessPolicy"),
                ("script.yaml", lambda spec: spec["trainer"].update(workers=2), "spec.trainer.workers"),
                ("script.yaml", lambda spec: spec["trainer"].update(numNodes="2"), "numNodes")):
            with self.subTest(word):
                thing = read(name)
                spoil(thing["spec"])
                self.assertIn(word, "\n".join(schema(thing)))

    def test_its_pods_are_those_of_the_batch_overlay(self):
        (jobset,) = [thing for thing in kustomize("cpu") if thing["kind"] == "JobSet"]
        self.assertEqual(as_overlay(read("runtime.yaml"))["spec"], jobset["spec"])

    def test_a_script_has_the_arguments_of_the_script_component(self):
        trainer = read("script.yaml")["spec"]["trainer"]
        spoilt = read("runtime.yaml")
        (container,) = spoilt["spec"]["template"]["spec"]["replicatedJobs"][2]["template"]["spec"]["template"]["spec"]["containers"]
        container.update({key: trainer[key] for key in ("image", "command", "args")})
        (jobset,) = [thing for thing in kustomize("cpu", ["script"]) if thing["kind"] == "JobSet"]
        self.assertEqual(as_overlay(spoilt)["spec"], jobset["spec"])

    def test_a_train_job_has_its_job_and_as_many_nodes_as_that_has_workers(self):
        objects = render.kustomize_folder(FOLDER / "namespace")
        self.assertEqual(sorted(thing["kind"] for thing in objects), ["ConfigMap", "NetworkPolicy", "PersistentVolumeClaim", "TrainJob"])
        (jobs,) = [thing["data"] for thing in objects if thing["kind"] == "ConfigMap"]
        (train_job,) = [thing for thing in objects if thing["kind"] == "TrainJob"]
        self.assertEqual(train_job["spec"]["runtimeRef"]["name"], read("runtime.yaml")["metadata"]["name"])
        self.assertEqual(list(jobs), [f"{train_job['metadata']['name']}.yaml"])
        (text,) = jobs.values()
        self.assertEqual(text, (render.ROOT / "k8s" / "base" / "job.yaml").read_text())
        self.assertEqual(train_job["spec"]["trainer"]["numNodes"], render.parse(text)[0]["cluster"]["workers"])


if __name__ == "__main__":
    render.need_tools()
    unittest.main(argv=sys.argv)
