#!/usr/bin/env python3
"""usage: manifests_test.py [TEST...]: what k8s/ renders to would be taken by Kubernetes, and fits together."""

import copy
import sys
import unittest
from concurrent.futures import ThreadPoolExecutor

import render
from render import RenderError, helm, kustomize, skip

try:
    import rules
except ImportError as missing:
    skip(f"no Python module {missing.name}")

REPLICATED = {"cluster": {"servers": 3}, "durability": {"mode": "replicated"}}
SCRIPT = {"workers": {"command": ["python3", "/app/train.py"], "image": {"repository": "slackline-script"}}}
GROUPS = {
    "job": {"cluster": {"workers": 6},
            "worker": {"groups": [{"devices": ["cuda:0", "cuda:1"], "batch": 128, "cores": 4}, ["cuda:2"], {"devices": ["cpu"], "batch": 16}]}},
    "workers": {"groups": [{"resources": {}}, {"resources": {"limits": {"memory": "8Gi"}}}]}, "podMonitor": {"enabled": True}}
PEERS = {"job": {"data": {"format": "prepared", "path": "/data", "cache": {"folder": "/var/cache/images", "peers": True, "peers_in_clear": True}}},
         "data": {"claimName": "images"}}
EXTRAS = {
    "serviceAccountName": "trainer", "commonLabels": {"team": "vision", "example.com/cost-centre": "7"},
    "podMonitor": {"enabled": True, "labels": {"release": "prometheus"}}, "prometheusRule": {"enabled": True, "labels": {"role": "rules"}},
    "dashboard": {"enabled": True, "annotations": {"grafana_folder": "Training"}},
    **{role: {
        "priorityClassName": "training", "podLabels": {"tier": role, "team": "audio"}, "podAnnotations": {"example.com/note": "a b"},
        "env": [{"name": "TZ", "value": "Europe/Berlin"}],
        "extraVolumes": [{"name": "weights", "persistentVolumeClaim": {"claimName": "weights"}}],
        "extraVolumeMounts": [{"name": "weights", "mountPath": "/weights", "readOnly": True}],
    } for role in ("scheduler", "servers", "workers")}}
EXTRAS["workers"].update(runtimeClassName="nvidia", startupSeconds=1201, topologySpreadConstraints=[
    {"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "ScheduleAnyway"}])
SETS = {
    "cpu": lambda: kustomize("cpu"),
    "gpu": lambda: kustomize("gpu"),
    "service": lambda: kustomize("service"),
    "service with all": lambda: kustomize("service", ["monitoring", "autoscaling"]),
    "cpu, monitored": lambda: kustomize("cpu", ["monitoring"]),
    "cpu, script": lambda: kustomize("cpu", ["script"]),
    "service, script": lambda: kustomize("service", ["script"]),
    "helm, script": lambda: helm(SCRIPT),
    "helm, script, service": lambda: helm({"mode": "service", **SCRIPT}),
    "helm": lambda: helm(),
    "helm, service": lambda: helm({"mode": "service"}),
    "helm, service with all": lambda: helm({"mode": "service", "autoscaling": {"enabled": True}, "podMonitor": {"enabled": True}}),
    "helm, groups": lambda: helm(GROUPS),
    "helm, groups, service": lambda: helm({"mode": "service", **GROUPS}),
    "helm, groups, scaled": lambda: helm({"mode": "service", "autoscaling": {"enabled": True}, **GROUPS}),
    "helm, peers": lambda: helm(PEERS),
    "helm, peers in groups": lambda: helm({**PEERS, "mode": "service", "job": {**GROUPS["job"], **PEERS["job"]}}),
    "helm, extras": lambda: helm(EXTRAS),
    "helm, extras, service": lambda: helm({"mode": "service", **EXTRAS}),
    "helm, replicated": lambda: helm({"job": REPLICATED}),
    "helm, replicated service": lambda: helm({"mode": "service", "job": REPLICATED}),
    "helm, token": lambda: helm({"job": {"security": {"mode": "token"}}}),
    "helm, insecure": lambda: helm({"job": {"security": {"mode": "none", "insecure": True}}}),
    "helm, data and gpu": lambda: helm({
        "data": {"claimName": "images"}, "imagePullSecrets": [{"name": "pull"}],
        "workers": {"resources": {"limits": {"nvidia.com/gpu": "1"}}, "nodeSelector": {"a": "b"},
                    "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
                    "affinity": {"nodeAffinity": {}}}}),
}


def role(objects, name):
    return next(pods for pods in rules.pods_of(objects) if pods.role == name)


def kind(objects, name):
    return next(thing for thing in objects if thing["kind"] == name)


def groups_of(objects):
    return [pods for pods in rules.pods_of(objects) if pods.role == "worker"]


def group_args(objects, group):
    return groups_of(objects)[group].container["args"]


def worker_args(objects):
    return role(objects, "worker").container["args"]


def jobset(objects, index):
    return kind(objects, "JobSet")["spec"]["replicatedJobs"][index]


def server_secret(objects):
    return next(volume for volume in role(objects, "server").spec["volumes"] if "secret" in volume)["secret"]


def swap(arguments, old, new):
    arguments[:] = [new if argument == old else argument for argument in arguments]
    assert new in arguments


# What is broken, in which set, and a word of what must be said about it.
BREAKAGES = {
    "a field that a pod does not have": ("service", lambda o: role(o, "server").spec.update(restartPolice="Always"), "restartPolice"),
    "a field of a Job that it does not have": ("cpu", lambda o: jobset(o, 1)["template"]["spec"].update(backofLimit=1), "backofLimit"),
    "a field that a JobSet does not have": ("cpu", lambda o: kind(o, "JobSet")["spec"].update(sucessPolicy={}), "sucessPolicy"),
    "a field deep in a JobSet": ("cpu", lambda o: kind(o, "JobSet")["spec"]["network"].update(subDomain="a"), "subDomain"),
    "a number that is a text": ("service", lambda o: kind(o, "StatefulSet")["spec"].update(replicas="1"), "replicas"),
    "a maximum that is a text in a JobSet": ("cpu", lambda o: kind(o, "JobSet")["spec"]["failurePolicy"].update(maxRestarts="3"),
                                             "max"),
    "a strategy that there is not": ("cpu", lambda o: kind(o, "JobSet")["spec"]["failurePolicy"].update(restartStrategy="Fast"),
                                     "restartStrategy"),
    "servers that wait for workers": ("cpu", lambda o: jobset(o, 1)["dependsOn"][0].update(name="worker"), "not before it"),
    "success by nobody": ("cpu", lambda o: kind(o, "JobSet")["spec"]["successPolicy"].update(targetReplicatedJobs=["chief"]),
                          "none of"),
    "two of one name": ("cpu", lambda o: jobset(o, 1)["template"]["spec"].pop("podReplacementPolicy"), "one name"),
    "an api that is gone": ("cpu", lambda o: kind(o, "PodDisruptionBudget").update(apiVersion="policy/v1beta1"), "policy/v1beta1"),
    "a monitor with a typing mistake": ("cpu, monitored", lambda o: kind(o, "PodMonitor")["spec"]["podMetricsEndpoints"][0].update(
        intervall="1s"), "intervall"),
    "a monitor of another port": ("cpu, monitored", lambda o: kind(o, "PodMonitor")["spec"]["podMetricsEndpoints"][0].update(
        port="grpc"), "metrics"),
    "a service that selects nobody": ("cpu", lambda o: kind(o, "Service")["spec"]["selector"].update(a="b"), "selects []"),
    "labels that the selector has not": ("service", lambda o: role(o, "worker").labels.update(
        {"app.kubernetes.io/instance": "other"}), "own pods"),
    "a budget for the wrong pods": ("service", lambda o: kind(o, "PodDisruptionBudget")["spec"]["selector"]["matchLabels"].update(
        {"app.kubernetes.io/component": "worker"}), "PodDisruptionBudget"),
    "a budget that lets nothing be drained": ("cpu", lambda o: kind(o, "PodDisruptionBudget")["spec"].update(minAvailable=2),
                                              "drained"),
    "a budget that a Job has no scale for": ("cpu", lambda o: kind(o, "PodDisruptionBudget").update(spec={
        **kind(o, "PodDisruptionBudget")["spec"], "minAvailable": "50%"}), "drained"),
    "a ConfigMap that is not there": ("service", lambda o: o.remove(kind(o, "ConfigMap")), "no ConfigMap"),
    "a claim that is not there": ("cpu", lambda o: o.remove(kind(o, "PersistentVolumeClaim")), "no PersistentVolumeClaim"),
    "another Secret": ("cpu", lambda o: server_secret(o).update(secretName="keys"), "no Secret"),
    "keys of another role": ("cpu", lambda o: server_secret(o)["items"].append({"key": "ca.key", "path": "ca.key"}), "ca.key"),
    "keys that others may read": ("cpu", lambda o: server_secret(o).update(defaultMode=0o444), "0440"),
    "a volume that nobody mounts": ("cpu", lambda o: role(o, "server").container["volumeMounts"].pop(), "mounts"),
    "a headless address of the scheduler": ("service", lambda o: [
        swap(pods.container["args"], "--scheduler=slackline-scheduler:7000", "--scheduler=slackline:9090")
        for pods in rules.pods_of(o) if pods.role == "server"], "headless"),
    "an address that no Service has": ("cpu", lambda o: swap(
        worker_args(o), "--scheduler=slackline-scheduler:7000", "--scheduler=scheduler:7000"), "no Service"),
    "a status page that nobody reaches": ("cpu", lambda o: kind(o, "Service")["spec"]["ports"].pop(), "status page"),
    "a port that nobody listens on": ("cpu", lambda o: role(o, "server").container["ports"][0].update(containerPort=7002), "ports"),
    "a server that listens elsewhere": ("cpu", lambda o: swap(
        role(o, "server").container["args"], "--listen=0.0.0.0:7001", "--listen=0.0.0.0:7002"), "listens on"),
    "metrics elsewhere": ("cpu", lambda o: swap(
        worker_args(o), "--set=network.metrics_port=9090", "--set=network.metrics_port=9091"), "metrics at"),
    "liveness by readiness": ("service", lambda o: role(o, "worker").container["livenessProbe"]["httpGet"].update(path="/readyz"),
                              "killed"),
    "an order that waits for itself": ("cpu", lambda o: role(o, "server").container["readinessProbe"]["httpGet"].update(
        path="/readyz"), "depend on it"),
    "a policy that closes a port": ("cpu", lambda o: kind(o, "NetworkPolicy")["spec"]["ingress"][0]["ports"].pop(), "lets in"),
    "an argument without a value": ("cpu", lambda o: role(o, "server").container["env"].pop(), "arguments want"),
    "a script without a command": ("cpu, script", lambda o: worker_args(o).__delitem__(slice(worker_args(o).index("--"), None)),
                                   "no command"),
    "a script that slackline-pod does not start": ("service, script", lambda o: worker_args(o).__setitem__(0, "worker"), "starts"),
    "threads for each device": ("service", lambda o: swap(worker_args(o), "--container=$(CPUS)", "--set=worker.threads=$(CPUS)"),
                                "no --container=$(CPUS)"),
    "one name for all": ("service", lambda o: swap(worker_args(o), "--name=$(POD_NAME)", "--name=worker"), "the name worker"),
    "a program under another name": ("service", lambda o: role(o, "worker").container.update(command=["slackline-ps"]), "starts"),
    "snapshots that only servers know of": ("service", lambda o: worker_args(o).remove("--set=durability.folder=/snapshots"),
                                            "durability.folder differs"),
    "fewer pods than the job has": ("cpu", lambda o: jobset(o, 2)["template"]["spec"].update(completions=1, parallelism=1),
                                    "the job has 2"),
    "root": ("cpu", lambda o: role(o, "worker").spec["securityContext"].update(runAsUser=0), "runAsUser"),
    "a root that can be written": ("cpu", lambda o: role(o, "worker").container["securityContext"].pop("readOnlyRootFilesystem"),
                                   "read-only root"),
    "capabilities": ("service", lambda o: role(o, "server").container["securityContext"].pop("capabilities"), "capabilities"),
    "a token of the API": ("cpu", lambda o: role(o, "worker").spec.pop("automountServiceAccountToken"), "no token"),
    "no limit of memory": ("cpu", lambda o: role(o, "server").container["resources"]["limits"].pop("memory"), "memory limit"),
    "two groups at one port": ("helm, groups", lambda o: swap(group_args(o, 1), "--set=network.metrics_port=9091",
                                                               "--set=network.metrics_port=9090"), "metrics at 9090, the port is 9091"),
    "a container of the wrong group": ("helm, groups", lambda o: swap(group_args(o, 1), "--group=1", "--group=0"), "trains group 0"),
    "one name for two groups": ("helm, groups", lambda o: swap(group_args(o, 1), "--name=worker-$(INDEX)-group1",
                                                                "--name=worker-$(INDEX)-group0"), "name of another group"),
    "a group without its GPUs": ("helm, groups", lambda o: groups_of(o)[1].container["resources"]["limits"].pop("nvidia.com/gpu"),
                                 "0 GPUs"),
    "a group that no container has": ("helm, groups, service", lambda o: groups_of(o)[0].spec["containers"].pop(), "has 3 groups"),
    "metrics of a group that nobody scrapes": ("helm, groups", lambda o: kind(o, "PodMonitor")["spec"]["podMetricsEndpoints"].pop(),
                                               "scrapes other ports"),
    "metrics of a group that are shut off": ("helm, groups", lambda o: kind(o, "NetworkPolicy")["spec"]["ingress"][1]["ports"].pop(),
                                             "lets in"),
    "a pod for each worker": ("helm, groups", lambda o: jobset(o, 2)["template"]["spec"].update(completions=6, parallelism=6),
                              "6 pods, the job has 2"),
    "images at no port": ("helm, peers", lambda o: role(o, "worker").container["ports"].pop(), "ports"),
    "images that are shut off": ("helm, peers", lambda o: kind(o, "NetworkPolicy")["spec"]["egress"][0]["ports"].pop(), "lets out"),
    "images of two groups at one port": ("helm, peers in groups", lambda o: swap(
        group_args(o, 1), "--set=network.ports=7101-7101", "--set=network.ports=7100-7100"), "serves images at 7100-7100"),
    "images that have no room": ("helm, peers", lambda o: role(o, "worker").container["volumeMounts"].pop(-2), "no volume at"),
    "a rule with a typing mistake": ("helm, extras", lambda o: kind(o, "PrometheusRule")["spec"]["groups"][0]["rules"][0].update(
        exprs="1"), "exprs"),
    "replicas beside a scaler": ("service with all", lambda o: kind(o, "Deployment")["spec"].update(replicas=2), "contradict"),
    "a scaler below the job's workers": ("service with all", lambda o: kind(o, "HorizontalPodAutoscaler")["spec"].update(
        minReplicas=1), "begins with"),
}


def grouped(**worker):
    return {"job": {"worker": {"groups": [["cuda:0"], ["cpu"]], **worker}}}


def with_gpus(groups, **resources):
    return {**grouped(groups=groups), "workers": {"groups": [{"resources": {"limits": resources}}]}}


def limits(role, **resources):
    return {role: {"resources": {"limits": resources}}}


REFUSED_VALUES = {
    "a value that there is not": ({"worker": {}}, "worker"),
    "a command that is a text": ({"workers": {"command": "python3 /app/train.py"}}, "command"),
    "another mode": ({"mode": "daemon"}, "mode"),
    "what the pod decides": ({"job": {"network": {"listen": "0.0.0.0"}}}, "network"),
    "a folder of keys": ({"job": {"security": {"folder": "/keys"}}}, "folder"),
    "no security": ({"job": {"security": {"mode": "none"}}}, "insecure"),
    "a device that there is not": (grouped(groups=[["gpu:0"], ["cpu"]]), 'groups[0].devices: found "gpu:0"'),
    "a group without devices": (grouped(groups=[{"batch": 4}]), "groups[0].devices: found"),
    "a group of two kinds": (grouped(groups=[["cuda:0", "cpu"]]), "CPUs and GPUs together"),
    "all GPUs, of which nobody says how many": (grouped(groups=["auto", "cpu"]), "groups[0].devices: found auto"),
    "other GPUs than the devices": (with_gpus([["cuda:0"], ["cpu"]], **{"nvidia.com/gpu": 2}), "found nvidia.com/gpu: 2; allowed is 1"),
    "GPUs for a group on processors": (with_gpus([["cpu"], ["cuda:0"]], **{"nvidia.com/gpu": 1}), "allowed is 0"),
    "GPUs for all groups": ({**grouped(), "workers": {"resources": {"limits": {"nvidia.com/gpu": 1}}}}, "that its devices name"),
    "cores by their numbers": (grouped(cores=["0-3", 8]), "job.worker.cores: found"),
    "cores of a group by their numbers": (grouped(groups=[{"devices": "cpu", "cores": "8-8"}]), "groups[0].cores: found"),
    "more cores than processors": (with_gpus([{"devices": ["cpu"], "cores": 8}, ["cpu"]], cpu="4"), "at most the 4 processors"),
    "a part of a pod's workers": ({"job": {"cluster": {"workers": 3}, **grouped()["job"]}}, "a multiple of 2"),
    "groups and devices": (grouped(devices="cpu"), "each group says its own"),
    "groups of a script": ({**grouped(), "workers": {"command": ["python3"]}}, "a script has no groups"),
    "several workers in the pod of a script": ({"job": {"worker": {"per_node": 4}}, "workers": SCRIPT["workers"]},
                                               "job.worker.per_node: found 4; allowed is 1"),
    "resources of a group that there is not": ({"workers": {"groups": [{"resources": {}}]}}, "workers.groups: found 1"),
    "a scaler by processors of GPUs": ({"mode": "service", "autoscaling": {"enabled": True}, **grouped(groups=[["cuda:0"]])}, "on GPUs"),
    "a scaler below the groups": ({"mode": "service", "autoscaling": {"enabled": True},
                                   "job": {"cluster": {"workers": 6}, **grouped()["job"]}}, "of 2 worker(s) each"),
    "more groups than ports": (grouped(groups=[["cpu"]] * 65), "allowed are 64"),
    "a scaler in a batch": ({"autoscaling": {"enabled": True}}, "mode: service"),
    "a scaler below the job": ({"mode": "service", "job": {"cluster": {"workers": 9}}, "autoscaling": {"enabled": True}}, "never begin"),
    "a batch with fewer pods than the job": ({"workers": {"replicas": 1}}, "workers.replicas: found 1"),
    "a batch without workers": ({"workers": {"replicas": 0}}, "workers.replicas: found 0"),
    "pods below none": ({"mode": "service", "workers": {"replicas": -1}}, "/workers/replicas"),
    "no servers of the service": ({"mode": "service", "servers": {"replicas": 0}}, "/servers/replicas"),
    "more servers, with backups": ({"mode": "service", "servers": {"replicas": 8}, "job": REPLICATED}, "found 8 with job.durability.mode: replicated; allowed are 6"),
    "more servers, that wait for each other": ({"mode": "service", "servers": {"replicas": 3}, "job": {"consistency": {"mode": "softsync"}}}, "softsync; allowed are 2"),
    "more servers, whose late pushes count": ({"mode": "service", "servers": {"replicas": 3}, "job": {"consistency": {"mode": "quorum", "late": "count"}}}, "late: count; allowed are 2"),
    "no servers of the job": ({"job": {"cluster": {"servers": 0}}}, "/job/cluster/servers"),
    "scalers below none": ({"mode": "service", "autoscaling": {"enabled": True, "minReplicas": 0}}, "minReplicas"),
    "a model of a script, without it": ({"job": {"model": {"kind": "external"}}}, "workers.command"),
    "GPUs in words": (limits("workers", **{"nvidia.com/gpu": "two"}), "/workers/resources/limits/nvidia.com~1gpu"),
    "half a GPU": (limits("workers", **{"nvidia.com/gpu": 0.5}), "nvidia.com~1gpu"),
    "GPUs below none": (limits("workers", **{"nvidia.com/gpu": -1}), "nvidia.com~1gpu"),
    "GPUs of a group in words": (with_gpus([["cuda:0"], ["cpu"]], **{"nvidia.com/gpu": "two"}), "groups/0/resources"),
    "a GPU beyond those of the pod": ({"job": {"worker": {"devices": ["cuda:0", "cuda:2"]}}, **limits("workers", **{"nvidia.com/gpu": 2})},
                                      "found cuda:2; allowed are the 2"),
    "a GPU that no pod is given": ({"job": {"worker": {"devices": "cuda:0"}}}, "workers.resources.limits has no nvidia.com/gpu"),
    "pages asked for and not limited": ({"servers": {"resources": {"requests": {"hugepages-2Mi": "64Mi"}}}}, "found hugepages-2Mi, which"),
    "a claim of a pod that has none": ({"servers": {"resources": {"claims": [{"name": "gpu"}]}}}, "servers.resources.claims: found gpu"),
    "a tag without its image": ({"workers": {"image": {"tag": "v2"}}}, "without a repository"),
    "a tag in the repository": ({"image": {"repository": "registry.example.com/slackline:0.2.0"}}, "/image/repository"),
    "an address as an image": ({"image": {"repository": "https://registry.example.com/slackline"}}, "/image/repository"),
    "images over the runs": ({"data": {"claimName": "images", "mountPath": "/runs/"}}, "data.mountPath: found /runs/"),
    "a toleration of all values and one": ({"workers": {"tolerations": [{"key": "a", "operator": "Exists", "value": "b"}]}}, "value"),
    "a section that is taken away": ({"storage": None}, "storage"),
    "GPUs asked for and not limited": ({"workers": {"resources": {"requests": {"nvidia.com/gpu": 1}}}}, "which limits has not"),
    "fewer GPUs asked for": ({"workers": {"resources": {"requests": {"nvidia.com/gpu": 1}, "limits": {"nvidia.com/gpu": 2}}}},
                             "found nvidia.com/gpu: 1"),
    "more asked for than limited": ({"servers": {"resources": {"requests": {"memory": "3Gi"}}}},
                                    "servers.resources.requests: found memory: 3Gi; allowed is at most what is in limits, 2Gi"),
    "more processors than limited": ({"workers": {"resources": {"requests": {"cpu": "2500m"}}}}, "found cpu: 2500m"),
    "a group that asks for more": ({**grouped(), "workers": {"groups": [{"resources": {"requests": {"memory": "5G"}}}]}},
                                   "workers.groups[0].resources.requests: found memory: 5G"),
    "memory in words": (limits("servers", memory="2 GB"), "/servers/resources/limits/memory"),
    "a thousandth of a byte": (limits("servers", memory="2048m"), "/servers/resources/limits/memory"),
    "bytes for gigabytes": ({"servers": {"resources": {"requests": {"memory": 2}, "limits": {"memory": 2}}}}, "which are bytes"),
    "no processors": (limits("workers", cpu=0), "found cpu: 0; allowed is more than 0"),
    "processors below none": (limits("workers", cpu=-2), "/workers/resources/limits/cpu"),
    "a resource that there is not": (limits("workers", memroy="4Gi"), "memroy"),
    "a setting of a group that there is not": ({**grouped(), "workers": {"groups": [{"resources": {}, "memory": "8Gi"}]}}, "'memory'"),
    "cores of a worker by their numbers": ({"job": {"worker": {"cores": ["0-3"]}}}, "job.worker.cores: found"),
    "more cores of a worker than processors": ({"job": {"worker": {"cores": 3}}}, "at most the 2 processors of workers.resources.limits"),
    "a toleration with a typing mistake": ({"servers": {"tolerations": [{"keys": "a"}]}}, "keys"),
    "a label that is a number": ({"jobset": {"labels": {"a": 1}}}, "/jobset/labels"),
    "an affinity that there is not": ({"servers": {"affinity": {"podAntiafinity": {}}}}, "podAntiafinity"),
    "a server of files without room for them": ({"job": {"data": {"format": "prepared", "path": "http://files.example.org:8000/a"}}}, "job.data.path"),
    "a cache in what is read-only": ({**PEERS, "data": {"claimName": "images", "mountPath": "/var"}}, "which is read-only"),
    "a cache beside the job": ({"job": {"data": {"cache": {"folder": "images"}}}}, "a path from / on"),
    "a label of ours": ({"workers": {"podLabels": {"app.kubernetes.io/component": "server"}}}, "workers.podLabels: found app"),
    "a label of ours for all": ({"commonLabels": {"helm.sh/chart": "other"}}, "commonLabels: found helm.sh/chart"),
    "a label twice": ({"commonLabels": {"release": "a"}, "podMonitor": {"labels": {"release": "b"}}}, "podMonitor.labels: found release"),
    "a variable of ours": ({"servers": {"env": [{"name": "POD_IP", "value": "10.0.0.1"}]}}, "servers.env: found POD_IP"),
    "a variable that is a number": ({"servers": {"env": [{"name": "DEBUG", "value": 1}]}}, "/servers/env/0/value"),
    "a volume of ours": ({"scheduler": {"extraVolumes": [{"name": "tmp", "emptyDir": {}}]}}, "scheduler.extraVolumes: found tmp"),
    "a mount of nothing": ({"workers": {"extraVolumeMounts": [{"name": "weights", "mountPath": "/weights"}]}}, "found a mount of weights"),
    "a mount over the keys": ({"workers": {"extraVolumes": [{"name": "a", "emptyDir": {}}], "extraVolumeMounts": [
        {"name": "a", "mountPath": "/etc/slackline/credentials/"}]}}, "found /etc/slackline/credentials/"),
    "a spread without a place": ({"workers": {"topologySpreadConstraints": [{"maxSkew": 1}]}}, "topologyKey"),
    "a rule of the network with a typing mistake": ({"networkPolicy": {"egress": [{"from": []}]}}, "/networkPolicy/egress"),
    "images in clear": ({"job": {"data": {"cache": {"folder": "/cache", "peers": True}}}}, "peers_in_clear: true"),
    "too little time for a checkpoint": ({"job": {"durability": {"mode": "none"}, "checkpoint": {"timeout_s": 600}}},
                                         "terminationGracePeriodSeconds: found 330"),
    "a seed that helm rounds": ({"job": {"seed": 2**53 + 2}}, "/job/seed"),
    "workers without processors": ({"workers": {"resources": {"limits": {"cpu": None}}}}, "cpu"),
    "a size that is none": ({"storage": {"runs": {"size": "many"}}}, "size"),
    "a digest that is none": ({"image": {"digest": "sha256:1"}}, "digest"),
}


def without_marks(objects):
    """By kind and name, without what helm adds to say that it was it."""
    result = {}
    for thing in copy.deepcopy(objects):
        labels = thing["metadata"]["labels"]
        for mark in ("app.kubernetes.io/managed-by", "helm.sh/chart"):
            labels.pop(mark, None)
        thing["metadata"].pop("namespace", None)
        thing["metadata"].pop("annotations", None)
        if thing["kind"] == "ConfigMap":
            thing["data"] = {key: render.yaml.safe_load(text) for key, text in thing["data"].items()}
        for pods in rules.pods_of([thing]):
            pods.container.pop("imagePullPolicy", None)
            for part in ("requests", "limits"):
                values = pods.container["resources"][part]
                values.update({key: str(value) for key, value in values.items()})
        result[rules.name_of(thing)] = thing
    return result


class ManifestsTest(unittest.TestCase):
    maxDiff = 4000

    def test_everything_would_be_taken_and_fits_together(self):
        for name, make in SETS.items():
            with self.subTest(name):
                self.assertEqual(rules.problems(make()), [])

    def test_what_is_broken_is_noticed(self):
        whole = {name: SETS[name]() for name in {entry[0] for entry in BREAKAGES.values()}}
        for name, (where, spoil, word) in BREAKAGES.items():
            with self.subTest(name):
                objects = copy.deepcopy(whole[where])
                spoil(objects)
                try:
                    found = "\n".join(rules.problems(objects))
                except Exception as error:  # a schema that is not there at all
                    found = str(error)
                self.assertIn(word, found)

    def test_helm_and_kustomize_render_the_same(self):
        endless = {"training": {"epochs": 1000000}, "optimizer": {"schedule": None}}
        pairs = {
            "batch": (kustomize("cpu"), helm()),
            "batch with GPUs": (kustomize("gpu"), helm({"workers": {
                "resources": {"limits": {"nvidia.com/gpu": "1"}}, "nodeSelector": {"nvidia.com/gpu.present": "true"},
                "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]}})),
            "batch with a script": (kustomize("cpu", ["script"]), helm(SCRIPT)),
            "service with a script": (kustomize("service", ["script"]), helm({"mode": "service", "job": endless, **SCRIPT})),
            "service": (kustomize("service"), helm({"mode": "service", "job": endless})),
            "service with all": (kustomize("service", ["monitoring", "autoscaling"]), helm({
                "mode": "service", "job": endless, "autoscaling": {"enabled": True}, "podMonitor": {"enabled": True}})),
        }
        for name, (one, other) in pairs.items():
            with self.subTest(name):
                self.assertEqual(without_marks(one), without_marks(other))

    def test_the_chart_passes_helms_own_checks(self):
        self.assertIn("0 chart(s) failed", render.helm_lint())

    def test_values_that_cannot_work_are_refused_with_their_name(self):
        def said(values):
            try:
                helm(values)
            except RenderError as refused:
                return str(refused)
            return "nothing"

        with ThreadPoolExecutor(max_workers=2) as pool:
            heard = pool.map(said, [values for values, _ in REFUSED_VALUES.values()])
        for (name, (_, word)), words in zip(REFUSED_VALUES.items(), heard):
            with self.subTest(name):
                self.assertIn(word, words)

    def test_a_name_that_makes_names_too_long_is_refused(self):
        self.assertTrue(helm(name="a" * 40))
        with self.assertRaises(RenderError) as refused:
            helm(name="a" * 41)
        self.assertIn("allowed are 40", str(refused.exception))

    def test_a_name_that_no_service_can_have_is_refused(self):
        for name in ("1st", "a.b"):
            with self.assertRaises(RenderError) as refused:
                helm(name=name)
            self.assertIn(f"found {name}; allowed are", str(refused.exception))

    def test_quantities_may_be_written_in_all_ways(self):
        for amount in ("2Gi", "2G", "2e9", 2147483648, "1.5Gi", "2048Mi"):
            helm({"servers": {"resources": {"requests": {"memory": amount}, "limits": {"memory": amount}}}})
        for amount in (1, "1", 1.5, "1500m", "0.5"):
            helm({"workers": {"resources": {"requests": {"cpu": amount}, "limits": {"cpu": amount}}}})
        helm({"workers": {"resources": {"requests": {"cpu": 0, "hugepages-2Mi": "64Mi"}, "limits": {
            "hugepages-2Mi": "64Mi", "ephemeral-storage": "1Gi", "rdma/hca": 1, "nvidia.com/mig-1g.5gb": "1"}}}})

    def test_a_name_that_makes_names_of_groups_too_long_is_refused(self):
        self.assertTrue(helm({"mode": "service", **GROUPS}, name="a" * 33))
        self.assertTrue(helm(GROUPS, name="a" * 40))
        with self.assertRaises(RenderError) as refused:
            helm({"mode": "service", **GROUPS}, name="a" * 34)
        self.assertIn("allowed are 33", str(refused.exception))

    def test_each_group_has_the_resources_that_it_uses(self):
        for name in ("helm, groups", "helm, groups, service"):
            groups = groups_of(SETS[name]())
            self.assertEqual([pods.count for pods in groups], [2, 2, 2])
            limits = [pods.container["resources"]["limits"] for pods in groups]
            self.assertEqual(limits, [{"cpu": "4", "memory": "4Gi", "nvidia.com/gpu": "2"},
                                      {"cpu": "2", "memory": "8Gi", "nvidia.com/gpu": "1"}, {"cpu": "2", "memory": "4Gi"}])
            self.assertEqual([pods.container["resources"]["requests"] for pods in groups],
                             [{"cpu": "4", "memory": "4Gi"}, {"cpu": "2"}, {"cpu": "2", "memory": "4Gi"}])
        name = "gpu.example.com/gpu"
        other = with_gpus(["auto", "cpu"], **{name: "8"})
        other["workers"]["gpuResource"] = name
        self.assertEqual([pods.container["resources"]["limits"].get(name) for pods in groups_of(helm(other))], ["8", None])

    def test_pods_are_scaled_by_the_groups_that_use_processors(self):
        scaler = kind(SETS["helm, groups, scaled"](), "HorizontalPodAutoscaler")
        self.assertEqual([metric["containerResource"]["container"] for metric in scaler["spec"]["metrics"]], ["group2"])

    def test_sections_of_nothing_are_empty(self):
        nothing = {"podLabels": None, "podAnnotations": None, "env": None, "extraVolumes": None, "extraVolumeMounts": None, "tolerations": None}
        objects = helm({"commonLabels": None, "scheduler": nothing, "servers": nothing, "workers": nothing, "podMonitor": {"labels": None},
                        "networkPolicy": {"egress": None}, "job": {"worker": None}})
        self.assertEqual(without_marks(objects), without_marks(helm({"job": {"worker": None}})))

    def test_a_claim_is_the_pods_and_the_containers(self):
        claims = [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}]
        worker = role(helm({"workers": {"resourceClaims": claims, "resources": {"claims": [{"name": "gpu"}]}}}), "worker")
        self.assertEqual((worker.spec["resourceClaims"], worker.container["resources"]["claims"]), (claims, [{"name": "gpu"}]))

    def test_what_users_add_is_where_it_belongs(self):
        for name in ("helm, extras", "helm, extras, service"):
            objects = SETS[name]()
            self.assertEqual([thing["kind"] for thing in objects if thing["metadata"]["labels"].get("team") != "vision"], [])
            for pods, settings in zip(sorted(rules.pods_of(objects), key=lambda pods: pods.role), ("scheduler", "servers", "workers")):
                self.assertEqual((pods.labels["tier"], pods.labels["team"], pods.labels["example.com/cost-centre"]), (settings, "audio", "7"))
                self.assertEqual((pods.spec["priorityClassName"], pods.spec["serviceAccountName"]), ("training", "trainer"))
                self.assertIn({"name": "TZ", "value": "Europe/Berlin"}, pods.container["env"])
                self.assertIn({"name": "weights", "mountPath": "/weights", "readOnly": True}, pods.container["volumeMounts"])
            worker = role(objects, "worker")
            self.assertEqual((worker.spec["runtimeClassName"], worker.container["startupProbe"]["failureThreshold"]), ("nvidia", 241))
            self.assertEqual(worker.spec["topologySpreadConstraints"][0]["labelSelector"]["matchLabels"]["app.kubernetes.io/component"], "worker")
            self.assertEqual({group["name"] for group in kind(objects, "PrometheusRule")["spec"]["groups"]}, {
                group["name"] for file in (render.ROOT / "monitoring" / "rules").iterdir()
                for group in render.yaml.safe_load(file.read_text())["groups"]})
            dashboard = next(thing for thing in objects if thing["metadata"]["name"].endswith("-dashboard"))
            self.assertEqual(dashboard["metadata"]["labels"]["grafana_dashboard"], "1")
            self.assertEqual(dashboard["data"]["slackline.json"].strip(), (render.ROOT / "monitoring/grafana/slackline.json").read_text().strip())

    def test_a_volume_of_the_user_may_keep_the_images(self):
        own = {"extraVolumes": [{"name": "disk", "hostPath": {"path": "/mnt/nvme"}}], "extraVolumeMounts": [{"name": "disk", "mountPath": "/var/cache"}]}
        self.assertEqual([volume["name"] for volume in role(helm({**PEERS, "workers": own}), "worker").spec["volumes"]],
                         ["job", "credentials", "runs", "data", "tmp", "disk"])

    def test_pods_reach_what_the_job_and_the_user_name(self):
        for path, port in (("http://files.example.org:8000/a", 8000), ("http://files.example.org/a", 80),
                           ("https://files.example.org/a", 443), ("https://files.example.org:8443/a", 8443), ("ftp://files.example.org/a", 21)):
            policy = kind(helm({"job": {"data": {"format": "prepared", "path": path, "cache": {"folder": "/cache"}}},
                                "networkPolicy": {"egress": [{"ports": [{"port": 443}]}], "ingress": [{"ports": [{"port": 9090}]}]}}),
                          "NetworkPolicy")
            self.assertEqual(policy["spec"]["egress"][2:], [{"ports": [{"port": port, "protocol": "TCP"}]}, {"ports": [{"port": 443}]}])
            self.assertEqual(policy["spec"]["ingress"][2:], [{"ports": [{"port": 9090}]}])

    def test_names_follow_the_release(self):
        objects = helm({"mode": "service"}, name="second")
        self.assertEqual([thing["metadata"]["name"] for thing in objects if not thing["metadata"]["name"].startswith("second")], [])
        self.assertEqual(list(rules.references(objects, secrets=["second-credentials"])), [])

    def test_replicated_servers_are_twice_as_many_on_nodes_of_their_own(self):
        server = role(helm({"mode": "service", "job": REPLICATED}), "server")
        self.assertEqual(server.count, 6)
        self.assertEqual(role(helm({"mode": "service", "servers": {"replicas": 6}, "job": REPLICATED}), "server").count, 6)
        self.assertEqual(server.spec["topologySpreadConstraints"][0]["whenUnsatisfiable"], "DoNotSchedule")

    def test_resized_servers_do_not_change_the_job(self):
        before, after = helm({"mode": "service"}), helm({"mode": "service", "servers": {"replicas": 5}})
        self.assertEqual(role(after, "server").count, 5)
        self.assertEqual(kind(before, "ConfigMap"), kind(after, "ConfigMap"))
        self.assertEqual(role(before, "server").container, role(after, "server").container)


if __name__ == "__main__":
    render.need_tools()
    unittest.main(argv=sys.argv)
