{{/* The objects of a release are named RELEASE, RELEASE-server and so on; a JobSet adds "-scheduler-0-0-abcde" to that. */}}
{{- define "slackline.name" -}}
{{- if gt (len .Release.Name) 40 -}}
{{- fail (printf "the release's name, %s, has %d letters; allowed are 40, since those of pods are longer" .Release.Name (len .Release.Name)) -}}
{{- end -}}
{{- .Release.Name -}}
{{- end -}}

{{- define "slackline.selector" -}}
app.kubernetes.io/name: slackline
app.kubernetes.io/instance: {{ include "slackline.name" . }}
{{- end -}}

{{- define "slackline.labels" -}}
{{ include "slackline.selector" . }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end -}}

{{/* The job as it is in the ConfigMap. */}}
{{- define "slackline.job" -}}
{{- $job := deepCopy .Values.job -}}
{{- if not $job.name -}}{{- $_ := set $job "name" (include "slackline.name" .) -}}{{- end -}}
{{- toYaml $job -}}
{{- end -}}

{{- define "slackline.security" -}}{{ dig "security" "mode" "none" .Values.job }}{{- end -}}

{{/* As the schema of the job has them by default. */}}
{{- define "slackline.servers" -}}
{{- $places := int (dig "cluster" "servers" 2 .Values.job) -}}
{{- if eq (dig "durability" "mode" "snapshot" .Values.job) "replicated" -}}{{- $places = mul 2 $places -}}{{- end -}}
{{- if kindIs "invalid" .Values.servers.replicas -}}{{ $places }}{{- else -}}{{ int .Values.servers.replicas }}{{- end -}}
{{- end -}}

{{- define "slackline.jobGroups" -}}{{ len (dig "worker" "groups" list .Values.job | default list) }}{{- end -}}

{{- define "slackline.jobWorkers" -}}
{{- int (dig "cluster" "workers" (int (include "slackline.jobGroups" .) | default 2) .Values.job) -}}
{{- end -}}

{{/* Pods: each has a worker of each group. */}}
{{- define "slackline.workers" -}}
{{- if kindIs "invalid" .Values.workers.replicas -}}
{{- div (int (include "slackline.jobWorkers" .)) (int (include "slackline.jobGroups" .) | default 1) -}}
{{- else -}}
{{- int .Values.workers.replicas -}}
{{- end -}}
{{- end -}}

{{/* Of a group, as text: a number, auto, or nothing. Takes a dict: worker, number, group. */}}
{{- define "slackline.cores" -}}
{{- $cores := "" -}}
{{- $key := printf "job.worker.groups[%d].cores" .number -}}
{{- if kindIs "map" .group -}}{{- $cores = get .group "cores" -}}{{- end -}}
{{- if empty $cores -}}{{- $cores = get .worker "cores" -}}{{- $key = "job.worker.cores" -}}{{- end -}}
{{- if and (kindIs "slice" $cores) (eq (len $cores) 1) -}}{{- $cores = first $cores -}}{{- end -}}
{{- if not (empty $cores) -}}
{{- if or (kindIs "slice" $cores) (not (regexMatch "^([0-9]+|auto)$" (toString $cores))) -}}
{{- fail (printf "%s: found %s; allowed are a number or auto: kubelet chooses which cores a container gets" $key (toJson $cores)) -}}
{{- end -}}
{{- toString $cores -}}
{{- end -}}
{{- end -}}

{{/* Resources of a group's container: those of all workers, processors as its cores say, GPUs as its devices say, and over
     them its own. Takes a dict: root, number, gpus, auto, cores. */}}
{{- define "slackline.groupResources" -}}
{{- $settings := .root.Values.workers -}}
{{- $gpu := $settings.gpuResource -}}
{{- $here := printf "workers.groups[%d].resources" .number -}}
{{- $own := dict -}}
{{- if lt .number (len $settings.groups) -}}{{- $own = deepCopy (index $settings.groups .number).resources -}}{{- end -}}
{{- $resources := deepCopy $settings.resources -}}
{{- if hasKey $resources.limits $gpu -}}
{{- fail (printf "workers.resources.limits: found %s; allowed is none with job.worker.groups: each group's container gets the GPUs that its devices name" $gpu) -}}
{{- end -}}
{{- if regexMatch "^[0-9]+$" .cores -}}
{{- $resources = mergeOverwrite $resources (dict "requests" (dict "cpu" .cores) "limits" (dict "cpu" .cores)) -}}
{{- end -}}
{{- /* What is limited and not asked for is asked for, as Kubernetes has it. */ -}}
{{- range $what, $_ := get $own "limits" | default dict -}}
{{- $_ := unset (get $resources "requests" | default dict) $what -}}
{{- end -}}
{{- $resources = mergeOverwrite $resources $own -}}
{{- $given := get $resources.limits $gpu | toString -}}
{{- if .auto -}}
{{- if not $given -}}
{{- fail (printf "job.worker.groups[%d].devices: found auto; allowed are cuda:0, cuda:1 and so on, or cpu, unless %s.limits has a number of %s: a container is given so many GPUs" .number $here $gpu) -}}
{{- end -}}
{{- else if and $given (ne $given (toString .gpus)) -}}
{{- fail (printf "%s.limits: found %s: %s; allowed is %d, as many as job.worker.groups[%d].devices has GPUs" $here $gpu $given .gpus .number) -}}
{{- else if .gpus -}}
{{- $_ := set $resources.limits $gpu (toString .gpus) -}}
{{- end -}}
{{- $cpus := toString $resources.limits.cpu -}}
{{- if and (regexMatch "^[0-9]+$" .cores) (regexMatch "^[0-9]+$" $cpus) (gt (int .cores) (int $cpus)) -}}
{{- fail (printf "job.worker.groups[%d]: found %s cores; allowed are at most the %s processors of %s.limits" .number .cores $cpus $here) -}}
{{- end -}}
{{- toJson $resources -}}
{{- end -}}

{{/* The containers of a worker's pod, as JSON: one for each of job.worker.groups; none without groups. */}}
{{- define "slackline.groups" -}}
{{- $root := . -}}
{{- $worker := .Values.job.worker | default dict -}}
{{- $containers := list -}}
{{- range $number, $group := $worker.groups | default list -}}
{{- $devices := $group -}}
{{- if kindIs "map" $group -}}{{- $devices = get $group "devices" -}}{{- end -}}
{{- if not (kindIs "slice" $devices) -}}{{- $devices = list $devices -}}{{- end -}}
{{- $gpus := 0 -}}
{{- range $device := $devices -}}
{{- if hasPrefix "cuda:" (toString $device) -}}{{- $gpus = add1 $gpus -}}{{- end -}}
{{- if not (regexMatch "^(cpu|cuda:[0-9]+|auto)$" (toString $device)) -}}
{{- fail (printf "job.worker.groups[%d].devices: found %s; allowed are cpu, cuda:0, cuda:1 and so on, or auto alone" $number (toJson $device)) -}}
{{- end -}}
{{- end -}}
{{- if and $gpus (ne (int $gpus) (len $devices)) -}}
{{- fail (printf "job.worker.groups[%d].devices: found CPUs and GPUs together; allowed is one kind: another group has the others" $number) -}}
{{- end -}}
{{- $auto := has "auto" $devices -}}
{{- $cores := include "slackline.cores" (dict "worker" $worker "number" $number "group" $group) -}}
{{- $resources := include "slackline.groupResources" (dict "root" $root "number" $number "gpus" (int $gpus) "auto" $auto "cores" $cores) | fromJson -}}
{{- $port := ternary "metrics" (printf "metrics-%d" $number) (eq $number 0) -}}
{{- $containers = append $containers (dict "name" (printf "group%d" $number) "number" $number "port" $port "at" (add 9090 $number) "gpu" (or $auto (gt (int $gpus) 0)) "resources" $resources) -}}
{{- end -}}
{{- toJson $containers -}}
{{- end -}}

{{/* Combinations that the schema of the values cannot refuse. */}}
{{- define "slackline.check" -}}
{{- $security := include "slackline.security" . -}}
{{- if and (eq $security "none") (not (dig "security" "insecure" false .Values.job)) -}}
{{- fail "job.security.mode is none: processes that others can reach need tls, token, or insecure: true" -}}
{{- end -}}
{{- if and (eq .Values.mode "batch") (or .Values.autoscaling.enabled (not (kindIs "invalid" .Values.servers.replicas))) -}}
{{- fail "autoscaling.enabled and servers.replicas are for mode: service; a JobSet has as many servers as the job" -}}
{{- end -}}
{{- $workers := int (include "slackline.jobWorkers" .) -}}
{{- $groups := int (include "slackline.jobGroups" .) -}}
{{- if and .Values.autoscaling.enabled (lt (mul (int .Values.autoscaling.minReplicas) (max $groups 1)) $workers) -}}
{{- fail (printf "autoscaling.minReplicas is %d, of %d worker(s) each, job.cluster.workers is %d: training would never begin" (int .Values.autoscaling.minReplicas) (max $groups 1) $workers) -}}
{{- end -}}
{{- if gt (len .Values.workers.groups) $groups -}}
{{- fail (printf "workers.groups: found %d; allowed are at most %d, as many as job.worker.groups has" (len .Values.workers.groups) $groups) -}}
{{- end -}}
{{- if $groups -}}
{{- include "slackline.checkGroups" . -}}
{{- end -}}
{{- if and .Values.autoscaling.enabled (lt (int .Values.autoscaling.maxReplicas) (int .Values.autoscaling.minReplicas)) -}}
{{- fail "autoscaling.maxReplicas is below minReplicas" -}}
{{- end -}}
{{- end -}}

{{/* What a job with groups must not have here. */}}
{{- define "slackline.checkGroups" -}}
{{- $groups := int (include "slackline.jobGroups" .) -}}
{{- $workers := int (include "slackline.jobWorkers" .) -}}
{{- $containers := include "slackline.groups" . | fromJsonArray -}}
{{- if gt $groups 64 -}}
{{- fail (printf "job.worker.groups: found %d; allowed are 64 in a pod" $groups) -}}
{{- end -}}
{{- if dig "worker" "devices" list .Values.job -}}
{{- fail "job.worker.devices: found a value together with job.worker.groups; allowed is one of both: each group says its own" -}}
{{- end -}}
{{- if mod $workers $groups -}}
{{- fail (printf "job.cluster.workers: found %d; allowed is a multiple of %d, the number of job.worker.groups, of which each pod has all" $workers $groups) -}}
{{- end -}}
{{- if .Values.workers.command -}}
{{- fail "workers.command: found a command together with job.worker.groups; allowed is one of both: a script has no groups" -}}
{{- end -}}
{{- $suffix := printf "-group%d" (sub $groups 1) -}}
{{- if and (eq .Values.mode "service") (gt (add (len .Release.Name) (len $suffix)) 40) -}}
{{- fail (printf "the release's name, %s, has %d letters; allowed are %d with job.worker.groups, since workers are named POD%s" .Release.Name (len .Release.Name) (sub 40 (len $suffix)) $suffix) -}}
{{- end -}}
{{- $cpu := false -}}
{{- range $containers -}}{{- if not .gpu -}}{{- $cpu = true -}}{{- end -}}{{- end -}}
{{- if and .Values.autoscaling.enabled (not $cpu) -}}
{{- fail "autoscaling.enabled: found true, and all of job.worker.groups compute on GPUs; allowed is false: it goes by the time of processors" -}}
{{- end -}}
{{- end -}}
