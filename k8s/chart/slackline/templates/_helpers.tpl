{{/* The objects of a release are named RELEASE, RELEASE-server and so on; a JobSet adds "-scheduler-0-0-abcde" to that. */}}
{{- define "slackline.name" -}}
{{- if gt (len .Release.Name) 40 -}}
{{- fail (printf "the release's name, %s, has %d letters; allowed are 40, since those of pods are longer" .Release.Name (len .Release.Name)) -}}
{{- end -}}
{{- if not (regexMatch "^[a-z]([-a-z0-9]*[a-z0-9])?$" .Release.Name) -}}
{{- fail (printf "the release's name: found %s; allowed are a to z, 0 to 9 and - between them, with a letter first, as Services have it" .Release.Name) -}}
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
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* The job as it is in the ConfigMap. */}}
{{- define "slackline.job" -}}
{{- $job := deepCopy .Values.job -}}
{{- if not $job.name -}}{{- $_ := set $job "name" (include "slackline.name" .) -}}{{- end -}}
{{- /* Keys that are numbers: values have texts in their place, and the job file's reader takes none in quotes. */ -}}
{{- $text := toYaml $job -}}
{{- if get ($job.worker | default dict) "slowdown" -}}{{- $text = regexReplaceAll "(?m)^( +)\"([0-9]+)\":" $text "${1}${2}:" -}}{{- end -}}
{{- $text -}}
{{- end -}}

{{- define "slackline.security" -}}{{ dig "mode" "none" (.Values.job.security | default dict) }}{{- end -}}

{{/* As the schema of the job has them by default. */}}
{{- define "slackline.servers" -}}
{{- $places := int (dig "servers" 2 (.Values.job.cluster | default dict)) -}}
{{- if eq (dig "mode" "snapshot" (.Values.job.durability | default dict)) "replicated" -}}{{- $places = mul 2 $places -}}{{- end -}}
{{- if kindIs "invalid" .Values.servers.replicas -}}{{ $places }}{{- else -}}{{ int .Values.servers.replicas }}{{- end -}}
{{- end -}}

{{- define "slackline.jobGroups" -}}{{ len (get (.Values.job.worker | default dict) "groups" | default list) }}{{- end -}}

{{- define "slackline.jobWorkers" -}}
{{- int (dig "workers" (int (include "slackline.jobGroups" .) | default 2) (.Values.job.cluster | default dict)) -}}
{{- end -}}

{{/* Pods: each has a worker of each group. */}}
{{- define "slackline.workers" -}}
{{- if kindIs "invalid" .Values.workers.replicas -}}
{{- div (int (include "slackline.jobWorkers" .)) (int (include "slackline.jobGroups" .) | default 1) -}}
{{- else -}}
{{- int .Values.workers.replicas -}}
{{- end -}}
{{- end -}}

{{/* data.cache of the job, as JSON. */}}
{{- define "slackline.cache" -}}{{ get (.Values.job.data | default dict) "cache" | default dict | toJson }}{{- end -}}

{{/* Where workers keep images, if the chart is to mount a volume there; else nothing. */}}
{{- define "slackline.cacheFolder" -}}
{{- $folder := get (include "slackline.cache" . | fromJson) "folder" | default "" | toString | trimSuffix "/" -}}
{{- range .Values.workers.extraVolumeMounts -}}
{{- if hasPrefix (printf "%s/" (trimSuffix "/" .mountPath)) (printf "%s/" $folder) -}}{{- $folder = "" -}}{{- end -}}
{{- end -}}
{{- $folder -}}
{{- end -}}

{{/* Whether workers serve each other images: true or nothing. A script has no such port. */}}
{{- define "slackline.peers" -}}
{{- if and (get (include "slackline.cache" . | fromJson) "peers") (empty .Values.workers.command) -}}true{{- end -}}
{{- end -}}

{{/* Ports at which pods of the job talk with each other, as JSON. */}}
{{- define "slackline.ports" -}}
{{- $ports := list 7000 7001 -}}
{{- if include "slackline.peers" . -}}
{{- range $number := until (max 1 (int (include "slackline.jobGroups" .)) | int) -}}{{- $ports = append $ports (add 7100 $number) -}}{{- end -}}
{{- end -}}
{{- toJson $ports -}}
{{- end -}}

{{/* Of the server that data.path of the job names; nothing where it is a folder. */}}
{{- define "slackline.filesPort" -}}
{{- $path := get (.Values.job.data | default dict) "path" | default "" | toString -}}
{{- $usual := get (dict "http" "80" "https" "443" "ftp" "21") (splitList "://" $path | first) -}}
{{- if and (contains "://" $path) $usual -}}
{{- regexFind ":[0-9]+$" (get (urlParse $path) "host") | trimPrefix ":" | default $usual -}}
{{- end -}}
{{- end -}}

{{/* Labels and annotations of a role's pods. Takes a dict: root, role, settings. */}}
{{- define "slackline.podMetadata" -}}
{{- with .settings.podAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
labels:
  {{- include "slackline.selector" .root | nindent 2 }}
  app.kubernetes.io/component: {{ .role }}
  {{- with merge (deepCopy (.settings.podLabels | default dict)) (.root.Values.commonLabels | default dict) }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}

{{- define "slackline.settings" -}}
{{ get .root.Values (get (dict "scheduler" "scheduler" "server" "servers" "worker" "workers") .role) | toJson }}
{{- end -}}

{{/* Of a worker, as text: a number, auto, or nothing. Takes a dict: worker, and of a group its number and group. */}}
{{- define "slackline.cores" -}}
{{- $cores := list -}}
{{- $key := "" -}}
{{- if kindIs "map" .group -}}
{{- $cores = get .group "cores" -}}
{{- $key = printf "job.worker.groups[%d].cores" .number -}}
{{- end -}}
{{- if and (empty $cores) (not (kindIs "float64" $cores)) (not (kindIs "int64" $cores)) -}}
{{- $cores = get .worker "cores" -}}
{{- $key = "job.worker.cores" -}}
{{- end -}}
{{- if and (kindIs "slice" $cores) (eq (len $cores) 1) -}}{{- $cores = first $cores -}}{{- end -}}
{{- $text := toString $cores -}}
{{- if not (or (has $cores (list "" nil)) (and (kindIs "slice" $cores) (empty $cores))) -}}
{{- if or (kindIs "slice" $cores) (not (regexMatch "^([1-9][0-9]{0,3}|auto)$" $text)) (gt (int $text) 4096) -}}
{{- fail (printf "%s: found %s; allowed are a number from 1 to 4096, or auto: kubelet chooses which cores a container gets" $key (toJson $cores)) -}}
{{- end -}}
{{- $text -}}
{{- end -}}
{{- end -}}

{{/* What a worker computes on, as JSON: count, gpus (how many), auto. Takes a dict: key, devices (one or a list). */}}
{{- define "slackline.devices" -}}
{{- $key := .key -}}
{{- $devices := .devices -}}
{{- if kindIs "invalid" $devices -}}{{- $devices = list -}}{{- end -}}
{{- if not (kindIs "slice" $devices) -}}{{- $devices = list $devices -}}{{- end -}}
{{- $gpus := list -}}
{{- $auto := and (eq (len $devices) 1) (eq (first $devices | toString) "auto") -}}
{{- range $device := ternary list $devices $auto -}}
{{- $name := toString $device -}}
{{- if or (not (regexMatch "^(cpu|cuda:(0|[1-9][0-9]{0,3}))$" $name)) (gt (int (trimPrefix "cuda:" $name)) 1023) -}}
{{- fail (printf "%s: found %s; allowed are cpu, cuda:0, cuda:1 and so on, or auto alone" $key (toJson $device)) -}}
{{- end -}}
{{- if has $name $gpus -}}{{- fail (printf "%s: found %s twice; allowed is each GPU once" $key $name) -}}{{- end -}}
{{- if ne $name "cpu" -}}{{- $gpus = append $gpus $name -}}{{- end -}}
{{- end -}}
{{- if and $gpus (ne (len $gpus) (len $devices)) -}}
{{- fail (printf "%s: found CPUs and GPUs together; allowed is one kind: a group of job.worker.groups waits for its slowest device, and another group has the others" $key) -}}
{{- end -}}
{{- toJson (dict "count" (len $devices) "gpus" $gpus "auto" $auto) -}}
{{- end -}}

{{/* Takes a dict: key, cores as text, cpus as a quantity, here. */}}
{{- define "slackline.enoughCores" -}}
{{- if and (regexMatch "^[0-9]+$" .cores) (gt (float64 .cores) (float64 (include "slackline.amount" .cpus))) -}}
{{- fail (printf "%s: found %s cores; allowed are at most the %s processors of %s.limits" .key .cores .cpus .here) -}}
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
{{- include "slackline.enoughCores" (dict "key" (printf "job.worker.groups[%d]" .number) "cores" .cores "cpus" (toString $resources.limits.cpu) "here" $here) -}}
{{- include "slackline.checkResources" (dict "key" $here "resources" $resources "claims" ($settings.resourceClaims | default list)) -}}
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
{{- $key := printf "job.worker.groups[%d].devices" $number -}}
{{- $found := include "slackline.devices" (dict "key" $key "devices" $devices) | fromJson -}}
{{- if not $found.count -}}{{- fail (printf "%s: found no device; allowed is at least one: cpu, cuda:0, cuda:1 and so on, or auto alone" $key) -}}{{- end -}}
{{- $gpus := len $found.gpus -}}
{{- $auto := $found.auto -}}
{{- $cores := include "slackline.cores" (dict "worker" $worker "number" $number "group" $group) -}}
{{- $resources := include "slackline.groupResources" (dict "root" $root "number" $number "gpus" (int $gpus) "auto" $auto "cores" $cores) | fromJson -}}
{{- $port := ternary "metrics" (printf "metrics-%d" $number) (eq $number 0) -}}
{{- $containers = append $containers (dict "name" (printf "group%d" $number) "number" $number "port" $port "at" (add 9090 $number) "images" (add 7100 $number) "gpu" (or $auto (gt (int $gpus) 0)) "resources" $resources) -}}
{{- end -}}
{{- toJson $containers -}}
{{- end -}}
