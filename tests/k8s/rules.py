"""What an API server would refuse, and what it would take although it cannot work. Each rule yields lines of text."""

import copy
import functools
import json
import re

import yaml
from jsonschema import Draft7Validator
import kubernetes_validate
from kubeflow_trainer_api import models

VERSIONS = ("1.29", "1.35")
IMAGES = 7100
PORTS = {"grpc": {"scheduler": 7000, "server": 7001}, "metrics": {"scheduler": 9090, "server": 9090, "worker": 9090}}
PROGRAMS = {"scheduler": "slackline-scheduler", "server": "slackline-ps", "worker": "slackline-worker"}
BATCH = ("jobset.x-k8s.io/v1alpha2", "JobSet")
MONITOR = ("monitoring.coreos.com/v1", "PodMonitor")

# The part of PodMonitor that we use, and nothing else.
_LABELS = {"type": "object", "additionalProperties": {"type": "string"}}
POD_MONITOR = {
    "type": "object", "additionalProperties": False, "required": ["apiVersion", "kind", "metadata", "spec"],
    "properties": {
        "apiVersion": {"const": MONITOR[0]}, "kind": {"const": MONITOR[1]},
        "metadata": {"type": "object", "additionalProperties": False, "required": ["name"],
                     "properties": {"name": {"type": "string"}, "labels": _LABELS}},
        "spec": {"type": "object", "additionalProperties": False, "required": ["selector", "podMetricsEndpoints"], "properties": {
            "selector": {"type": "object", "additionalProperties": False, "required": ["matchLabels"],
                         "properties": {"matchLabels": _LABELS}},
            "podMetricsEndpoints": {"type": "array", "minItems": 1, "items": {
                "type": "object", "additionalProperties": False, "required": ["port"], "properties": {
                    "port": {"type": "string"}, "path": {"type": "string", "pattern": "^/"}, "honorLabels": {"type": "boolean"},
                    "relabelings": {"type": "array", "items": {
                        "type": "object", "additionalProperties": False, "required": ["sourceLabels", "targetLabel"],
                        "properties": {"sourceLabels": {"type": "array", "items": {"type": "string", "pattern": "^__meta_"}},
                                       "separator": {"type": "string"}, "regex": {"type": "string"},
                                       "targetLabel": {"type": "string"}}}},
                    "interval": {"type": "string", "pattern": "^[0-9]+(ms|s|m)$"}}}}}}}}


# The same of PrometheusRule. What the rules themselves are, tests/monitoring knows.
PROMETHEUS_RULE = {
    "type": "object", "additionalProperties": False, "required": ["apiVersion", "kind", "metadata", "spec"],
    "properties": {
        **{key: POD_MONITOR["properties"][key] for key in ("apiVersion", "metadata")}, "kind": {"const": "PrometheusRule"},
        "spec": {"type": "object", "additionalProperties": False, "required": ["groups"], "properties": {"groups": {
            "type": "array", "minItems": 1, "items": {
                "type": "object", "additionalProperties": False, "required": ["name", "rules"], "properties": {
                    "name": {"type": "string"}, "interval": {"type": "string"}, "rules": {"type": "array", "items": {
                        "type": "object", "additionalProperties": False, "required": ["expr"], "properties": {
                            "alert": {"type": "string"}, "record": {"type": "string"}, "expr": {"type": "string"},
                            "for": {"type": "string"}, "labels": _LABELS, "annotations": _LABELS}}}}}}}}}}


def name_of(thing):
    return f"{thing['kind']}/{thing['metadata']['name']}"


def lost(before, after, path=""):
    """What a model that ignores unknown fields did not keep."""
    if isinstance(before, dict):
        for key, value in before.items():
            if not isinstance(after, dict) or key not in after:
                yield f"{path}.{key}"
            else:
                yield from lost(value, after[key], f"{path}.{key}")
    elif isinstance(before, list):
        if not isinstance(after, list) or len(before) != len(after):
            yield path
        else:
            for index, (one, other) in enumerate(zip(before, after)):
                yield from lost(one, other, f"{path}[{index}]")


@functools.lru_cache(maxsize=None)
def _builtin_schema(text, version):
    """Of an object as JSON: the same ones come again and again, and the schemas are read anew each time."""
    thing = json.loads(text)
    try:
        kubernetes_validate.validate(thing, version, strict=True)
    except kubernetes_validate.ValidationError as error:
        return [f"{name_of(thing)}, Kubernetes {version}: {'.'.join(map(str, error.path))}: {error.message[:200]}"]
    except kubernetes_validate.SchemaNotFoundError:
        return [f"{name_of(thing)}: Kubernetes {version} has no {thing['apiVersion']} {thing['kind']}"]
    return []


def builtin_schema(thing, version):
    return _builtin_schema(json.dumps(thing, sort_keys=True), version)


def jobset_schema(thing):
    spec = thing["spec"]
    outer = copy.deepcopy(thing)
    for job in outer["spec"].get("replicatedJobs", []):
        job["template"] = {}
    try:
        model = models.JobsetV1alpha2JobSet.from_dict(copy.deepcopy(outer))
    except ValueError as error:
        yield f"{name_of(thing)}: {error}"
        return
    # The models ignore what they do not know; an API server prunes it, or refuses it.
    for path in lost(outer["spec"], model.to_dict()["spec"], "spec"):
        if not path.endswith(".template"):
            yield f"{name_of(thing)}: unknown field {path}"
    # What is an enum for the API server is a text for the models.
    allowed = {"restartStrategy": ("Recreate", "BlockingRecreate"), "operator": ("All", "Any"), "status": ("Ready", "Complete")}
    words = [spec.get("failurePolicy", {}), spec.get("successPolicy", {})]
    words += [one for job in spec["replicatedJobs"] for one in job.get("dependsOn", [])]
    for word in words:
        for key, values in allowed.items():
            if key in word and word[key] not in values:
                yield f"{name_of(thing)}: {key} is {word[key]}, allowed are {values}"
    names = [job["name"] for job in spec["replicatedJobs"]]
    for target in spec.get("successPolicy", {}).get("targetReplicatedJobs", []):
        if target not in names:
            yield f"{name_of(thing)}: success by {target}, which is none of {names}"
    for index, job in enumerate(spec["replicatedJobs"]):
        if len(job.get("dependsOn", [])) > 1:
            yield f"{name_of(thing)}: {job['name']} depends on more than one"
        for one in job.get("dependsOn", []):
            if one["name"] not in names[:index]:
                yield f"{name_of(thing)}: {job['name']} depends on {one['name']}, which is not before it"
        inner = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": job["name"]}, "spec": job["template"]["spec"]}
        for version in VERSIONS:
            yield from builtin_schema(inner, version)
        if inner["spec"].get("podReplacementPolicy") != "Failed":
            yield f"{job['name']}: two pods of one name may be there at a time (podReplacementPolicy)"
        if inner["spec"].get("completions") != inner["spec"].get("parallelism"):
            yield f"{job['name']}: completions and parallelism differ"


def schema(objects):
    for thing in objects:
        what = (thing["apiVersion"], thing["kind"])
        if what == BATCH:
            yield from jobset_schema(thing)
        elif what in (MONITOR, (MONITOR[0], "PrometheusRule")):
            for error in Draft7Validator(POD_MONITOR if what == MONITOR else PROMETHEUS_RULE).iter_errors(thing):
                yield f"{name_of(thing)}: {error.message}"
        else:
            for version in VERSIONS:
                yield from builtin_schema(thing, version)


class Pods:
    """A container of a controller's pods: of whom, how many, their labels and their spec."""

    def __init__(self, owner, role, count, template, number):
        self.owner, self.role, self.count = owner, role, count
        self.labels, self.spec = template["metadata"].get("labels", {}), template["spec"]
        self.container = self.spec["containers"][number]
        self.batch = owner["kind"] == "JobSet"
        # Of worker.groups; None where the pod has one worker.
        self.group = number if self.container["name"].startswith("group") else None
        self.where = f"{name_of(owner)}, {role}" + ("" if self.group is None else f", group {self.group}")

    def setting(self, key):
        return next((arg.split("=", 2)[2] for arg in self.container["args"] if arg.startswith(f"--set={key}=")), None)

    def flag(self, name):
        return next((arg.split("=", 1)[1] for arg in self.container["args"] if arg.startswith(f"--{name}=")), None)


def pods_of(objects):
    """Once for each container."""
    for thing in objects:
        if thing["kind"] == "JobSet":
            for job in thing["spec"]["replicatedJobs"]:
                spec = job["template"]["spec"]
                for number in range(len(spec["template"]["spec"]["containers"])):
                    yield Pods(thing, job["name"], job["replicas"] * spec["parallelism"], spec["template"], number)
        elif thing["kind"] in ("StatefulSet", "Deployment"):
            template = thing["spec"]["template"]
            role = template["metadata"]["labels"]["app.kubernetes.io/component"]
            for number in range(len(template["spec"]["containers"])):
                yield Pods(thing, role, thing["spec"].get("replicas"), template, number)


def by_kind(objects, kind):
    return {thing["metadata"]["name"]: thing for thing in objects if thing["kind"] == kind}


def selects(selector, pods):
    return all(pods.labels.get(key) == value for key, value in selector.items())


def selectors(objects):
    """Whoever selects pods finds those that it is for."""
    pods = list(pods_of(objects))
    for thing in objects:
        kind, spec = thing["kind"], thing.get("spec", {})
        wanted = {thing["metadata"].get("labels", {}).get("app.kubernetes.io/component")} - {None} or set(PROGRAMS)
        if kind == "Service":
            chosen = spec["selector"]
        elif kind in ("PodDisruptionBudget", "PodMonitor"):
            chosen = spec["selector"]["matchLabels"]
        elif kind == "NetworkPolicy":
            chosen = spec["podSelector"]["matchLabels"]
        else:
            continue
        found = {one.role for one in pods if selects(chosen, one)}
        if found != wanted:
            yield f"{name_of(thing)} selects {sorted(found)}, wanted is {sorted(wanted)}"
    for one in pods:
        if not one.batch and not selects(one.owner["spec"]["selector"]["matchLabels"], one):
            yield f"{one.where}: the selector does not match its own pods"
        for spread in one.spec.get("topologySpreadConstraints", []):
            if not selects(spread["labelSelector"]["matchLabels"], one):
                yield f"{one.where}: spread over nodes by labels that it has not"


def references(objects, secrets=("slackline-credentials",)):
    """What a pod mounts is there."""
    maps, claims = by_kind(objects, "ConfigMap"), by_kind(objects, "PersistentVolumeClaim")
    services = by_kind(objects, "Service")
    for one in pods_of(objects):
        volumes = {volume["name"]: volume for volume in one.spec["volumes"]}
        templates = {claim["metadata"]["name"] for claim in one.owner["spec"].get("volumeClaimTemplates", [])}
        mounts = [mount["name"] for mount in one.container["volumeMounts"]]
        if set(mounts) != set(volumes) | templates:
            yield f"{one.where}: volumes {sorted(set(volumes) | templates)}, mounts {sorted(mounts)}"
        for volume in volumes.values():
            if "configMap" in volume and volume["configMap"]["name"] not in maps:
                yield f"{one.where}: no ConfigMap {volume['configMap']['name']}"
            if "secret" in volume and volume["secret"]["secretName"] not in secrets:
                yield f"{one.where}: no Secret {volume['secret']['secretName']}"
            claim = volume.get("persistentVolumeClaim", {}).get("claimName")
            if claim is not None and claim not in claims and volume["name"] not in ("data", "weights"):
                yield f"{one.where}: no PersistentVolumeClaim {claim}"
        if one.owner["kind"] == "StatefulSet":
            service = services.get(one.owner["spec"]["serviceName"])
            if service is None or service["spec"].get("clusterIP") != "None":
                yield f"{one.where}: no headless Service {one.owner['spec']['serviceName']}"
        address = one.flag("scheduler") if one.role != "scheduler" else one.setting("network.advertise") + ":7000"
        host, port = address.split(":")
        service = services.get(host)
        if service is None or int(port) not in [entry["port"] for entry in service["spec"]["ports"]]:
            yield f"{one.where}: the scheduler's address is {address}, and no Service has it"
        elif service["spec"].get("clusterIP") == "None":
            yield f"{one.where}: {host} is headless: gRPC would keep an address that is gone"
        elif PORTS["metrics"]["scheduler"] not in [entry["port"] for entry in service["spec"]["ports"]]:
            yield f"{name_of(service)}: the status page is at no port of it"


def job_of(objects):
    jobs = (thing["data"]["job.yaml"] for thing in by_kind(objects, "ConfigMap").values() if "job.yaml" in thing["data"])
    return yaml.safe_load(next(jobs, "{}"))


def serves_images(one, objects):
    cache = job_of(objects).get("data", {}).get("cache", {})
    if cache.get("folder") and cache["folder"] not in [mount["mountPath"] for mount in one.container["volumeMounts"]]:
        raise ValueError(f"{one.where}: has no volume at data.cache.folder, {cache['folder']}")
    return cache.get("peers", False)


def ports(objects):
    """Ports are those that the programs are told to listen on, everywhere."""
    for one in pods_of(objects):
        named = {port["name"]: port["containerPort"] for port in one.container["ports"]}
        wanted = {name: roles[one.role] for name, roles in PORTS.items() if one.role in roles}
        # Containers of a pod share its ports.
        metrics = f"metrics-{one.group}" if one.group else "metrics"
        if one.group:
            wanted = {metrics: wanted["metrics"] + one.group}
        peers = one.role == "worker" and serves_images(one, objects)
        if peers:
            images = metrics.replace("metrics", "images")
            wanted[images] = IMAGES + (one.group or 0)
            if one.setting("network.ports") != f"{wanted[images]}-{wanted[images]}" or one.setting("network.advertise") != "$(POD_IP)":
                yield f"{one.where}: serves images at {one.setting('network.ports')}, the port is {wanted[images]}"
        if named != wanted:
            yield f"{one.where}: ports {named}, wanted are {wanted}"
        if one.setting("network.metrics_port") != str(named.get(metrics)):
            yield f"{one.where}: metrics at {one.setting('network.metrics_port')}, the port is {named.get(metrics)}"
        if "grpc" in wanted and one.flag("listen") != f"0.0.0.0:{named.get('grpc')}":
            yield f"{one.where}: listens on {one.flag('listen')}, the port is {named.get('grpc')}"
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            get = one.container[probe]["httpGet"]
            if get["port"] != metrics or get["path"] not in ("/healthz", "/readyz"):
                yield f"{one.where}: {probe} asks {get}"
            if probe != "readinessProbe" and get["path"] != "/healthz":
                yield f"{one.where}: {probe} asks {get['path']}: a process that waits for others would be killed"
            # A server can be ready only with workers, and workers would wait for it.
            if probe == "readinessProbe" and one.batch and one.role != "worker" and get["path"] != "/healthz":
                yield f"{one.where}: those who depend on it wait for {get['path']}"
        for service in by_kind(objects, "Service").values():
            for port in service["spec"]["ports"]:
                if selects(service["spec"]["selector"], one) and not one.group and port["targetPort"] not in named:
                    yield f"{name_of(service)}: {one.where} has no port {port['targetPort']}"
    more = range(1, len([one for one in pods_of(objects) if one.group is not None]))
    for monitor in by_kind(objects, "PodMonitor").values():
        found = [end["port"] for end in monitor["spec"]["podMetricsEndpoints"]]
        if found != ["metrics", *(f"metrics-{group}" for group in more)]:
            yield f"{name_of(monitor)}: scrapes other ports than metrics: {found}"
    for policy in by_kind(objects, "NetworkPolicy").values():
        inward = [port["port"] for rule in policy["spec"]["ingress"] for port in rule["ports"]]
        outward = [port["port"] for rule in policy["spec"]["egress"] for port in rule["ports"]]
        images = [port["containerPort"] for one in pods_of(objects) for port in one.container["ports"] if port["name"].startswith("images")]
        if sorted(inward) != sorted([7000, 7001, 9090, *(9090 + group for group in more), *images]):
            yield f"{name_of(policy)}: lets in {inward}"
        if sorted(outward) != sorted([53, 53, 7000, 7001, *images]):
            yield f"{name_of(policy)}: lets out {outward}"


def arguments(objects):
    """$(NAME) of each argument is an environment variable of the container, and each of those is used."""
    for one in pods_of(objects):
        names = {entry["name"] for entry in one.container.get("env", []) if "valueFrom" in entry}
        used = {name for arg in one.container["args"] for name in re.findall(r"\$\((\w+)\)", arg)}
        if names != used:
            yield f"{one.where}: arguments want {sorted(used)}, the environment has {sorted(names)}"
        program = PROGRAMS[one.role]
        script = one.role == "worker" and one.container["image"].startswith("slackline-script:")
        launched = one.batch or one.role == "scheduler" or script
        word = "script" if script else program.removeprefix("slackline-")
        if script and one.container["args"][-3:] != ["--", "python3", "/app/train.py"]:
            yield f"{one.where}: the script has no command: {one.container['args']}"
        if one.container["command"] != ["slackline-pod" if launched else program]:
            yield f"{one.where}: starts {one.container['command']}"
        # Of a pod's processors; slackline-worker shares them out among its devices.
        for argument, wanted in (("--container=$(CPUS)", one.role == "worker" and not script), ("--set=worker.threads=$(CPUS)", script)):
            if (argument in one.container["args"]) != wanted:
                yield f"{one.where}: {'no' if wanted else 'a'} {argument}"
        name = next(iter(by_kind(objects, "Service"))).removesuffix("-scheduler")
        if launched and one.container["args"][:2] != [word, f"/runs/{name}"]:
            yield f"{one.where}: slackline-pod starts {one.container['args'][:2]}, wanted is {word} with /runs/{name}"
        if one.role != "scheduler" and "$(" not in (one.flag("name") or ""):
            yield f"{one.where}: all pods have the name {one.flag('name')}"
        if one.group is not None and not one.flag("name").endswith(f"-group{one.group}"):
            yield f"{one.where}: has the name of another group, {one.flag('name')}"
        if one.flag("group") != (None if one.group is None else str(one.group)):
            yield f"{one.where}: trains group {one.flag('group')}"


def same_job(objects):
    """Settings that all processes must agree on are equal, and the job is the one that the objects are for."""
    pods = list(pods_of(objects))
    for key in ("durability.folder", "checkpoint.folder", "security.mode"):
        if len({one.setting(key) for one in pods}) > 1:
            yield f"{key} differs: {[(one.role, one.setting(key)) for one in pods]}"
    for thing in by_kind(objects, "ConfigMap").values():
        if "job.yaml" not in thing["data"]:
            continue
        job = yaml.safe_load(thing["data"]["job.yaml"])
        copies = 2 if job.get("durability", {}).get("mode") == "replicated" else 1
        groups = len(job.get("worker", {}).get("groups", [])) or 1
        counts = {"scheduler": 1, "server": copies * job["cluster"]["servers"], "worker": job["cluster"]["workers"] // groups}
        found = len([one for one in pods if one.role == "worker"])
        if found != groups:
            yield f"{name_of(thing)}: {found} containers of workers in a pod, the job has {groups} groups"
        for one in pods:
            if one.count is not None and one.count != counts[one.role]:
                yield f"{one.where}: {one.count} pods, the job has {counts[one.role]}"
        for scaler in by_kind(objects, "HorizontalPodAutoscaler").values():
            if scaler["spec"]["minReplicas"] < counts["worker"]:
                yield f"{name_of(scaler)}: at least {scaler['spec']['minReplicas']}, the job begins with {counts['worker']}"


def gpus(one, objects):
    job = job_of(objects)
    group = job["worker"]["groups"][one.group]
    devices = group.get("devices") if isinstance(group, dict) else group
    wanted = len([device for device in devices if str(device).startswith("cuda")])
    found = int(one.container["resources"]["limits"].get("nvidia.com/gpu", 0))
    if found != wanted and devices not in ("auto", ["auto"]):
        yield f"{one.where}: {found} GPUs, its devices are {devices}"


def security(objects):
    """Pod security standard *restricted*, a read-only root, of the keys only the role's own, and GPUs only for who uses them."""
    for one in pods_of(objects):
        pod, container = one.spec.get("securityContext", {}), one.container.get("securityContext", {})
        demands = {
            "runAsNonRoot": pod.get("runAsNonRoot") is True, "runAsUser": pod.get("runAsUser", 0) > 0,
            "fsGroup": pod.get("fsGroup", 0) > 0,
            "seccomp": pod.get("seccompProfile", {}).get("type") == "RuntimeDefault",
            "no more rights": container.get("allowPrivilegeEscalation") is False,
            "read-only root": container.get("readOnlyRootFilesystem") is True,
            "no capabilities": container.get("capabilities") == {"drop": ["ALL"]},
            "no token": one.spec.get("automountServiceAccountToken") is False,
            "no hostPath": not any("hostPath" in volume for volume in one.spec["volumes"]),
            "memory limit": "memory" in one.container["resources"]["limits"],
            "threads by cores": one.role != "worker" or "cpu" in one.container["resources"]["limits"],
        }
        yield from (f"{one.where}: {what}" for what, met in demands.items() if not met)
        if one.group is not None:
            yield from gpus(one, objects)
        for volume in one.spec["volumes"]:
            if "secret" not in volume:
                continue
            keys = [item["key"] for item in volume["secret"].get("items", [])]
            if keys not in (["ca.crt", f"{one.role}.crt", f"{one.role}.key"], ["token"]):
                yield f"{one.where}: mounts {keys}"
            if volume["secret"].get("defaultMode") != 0o440:
                yield f"{one.where}: keys with mode {volume['secret'].get('defaultMode')}, wanted is 0440"


def budgets(objects):
    """Nodes can be drained: one server at a time."""
    pods = {one.role: one for one in pods_of(objects)}
    scaled = {scaler["spec"]["scaleTargetRef"]["name"] for scaler in by_kind(objects, "HorizontalPodAutoscaler").values()}
    for name in scaled:
        target = by_kind(objects, "Deployment").get(name)
        if target is None or "replicas" in target["spec"]:
            yield f"Deployment/{name}: its scaler and its replicas contradict each other"
    for budget in by_kind(objects, "PodDisruptionBudget").values():
        spec = budget["spec"]
        servers = pods["server"]
        if servers.batch:
            # A Job has no scale: percentages and maxUnavailable cannot be counted, and nothing could be drained.
            if not isinstance(spec.get("minAvailable"), int) or spec["minAvailable"] >= servers.count:
                yield f"{name_of(budget)}: no server of a JobSet could be drained"
        elif spec.get("maxUnavailable") != 1:
            yield f"{name_of(budget)}: wanted is maxUnavailable: 1"
        if spec.get("unhealthyPodEvictionPolicy") != "AlwaysAllow":
            yield f"{name_of(budget)}: a server that is not ready would hold up a drain"


RULES = (schema, selectors, references, ports, arguments, same_job, security, budgets)


def problems(objects):
    return [line for rule in RULES for line in rule(objects)]
