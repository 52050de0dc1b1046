{{/* What the schema of the values cannot refuse. Of the job: what depends on the pods, or what worker.groups, devices, cores
     and stages must be, as common/job/worker_rules.cc has it (tests/k8s/refusals_test.py holds them together). */}}
{{- define "slackline.check" -}}
{{- $security := include "slackline.security" . -}}
{{- if and (eq $security "none") (not (dig "insecure" false (.Values.job.security | default dict))) -}}
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
{{- if and (eq .Values.mode "batch") (not (kindIs "invalid" .Values.workers.replicas)) (lt (mul (int .Values.workers.replicas) (max $groups 1)) $workers) -}}
{{- fail (printf "workers.replicas: found %d, of %d worker(s) each; allowed are at least job.cluster.workers (%d): a batch with fewer would never begin" (int .Values.workers.replicas) (max $groups 1) $workers) -}}
{{- end -}}
{{- $mode := dig "mode" "snapshot" (.Values.job.durability | default dict) -}}
{{- $places := mul (int (dig "servers" 2 (.Values.job.cluster | default dict))) (ternary 2 1 (eq $mode "replicated")) | int -}}
{{- $consistency := .Values.job.consistency | default dict -}}
{{- $answers := ternary "job.consistency.mode: softsync" (ternary "job.consistency.late: count" "" (eq (dig "late" "" $consistency) "count")) (eq (dig "mode" "" $consistency) "softsync") -}}
{{- $fixed := ternary "job.durability.mode: replicated" $answers (eq $mode "replicated") -}}
{{- if and $fixed (not (kindIs "invalid" .Values.servers.replicas)) (ne (int .Values.servers.replicas) $places) -}}
{{- fail (printf "servers.replicas: found %d with %s; allowed are %d, since there servers are not added or drained" (int .Values.servers.replicas) $fixed $places) -}}
{{- end -}}
{{- $external := eq (dig "kind" "mlp" (.Values.job.model | default dict)) "external" -}}
{{- if and $external (empty .Values.workers.command) -}}
{{- fail "job.model.kind: found external; allowed is a model that is known here, or workers.command, a script that has its own" -}}
{{- end -}}
{{- $worker := .Values.job.worker | default dict -}}
{{- $scripts := int (get $worker "per_node" | default 1) -}}
{{- if and (gt $scripts 1) (not (get $worker "node_group")) -}}
{{- fail (printf "job.worker.per_node: found %d; allowed is 1, since a pod has one worker: give each pod one GPU, or set job.worker.node_group" $scripts) -}}
{{- end -}}
{{- if $groups -}}
{{- include "slackline.checkGroups" . -}}
{{- else -}}
{{- include "slackline.checkDevices" . -}}
{{- end -}}
{{- include "slackline.checkStages" . -}}
{{- include "slackline.checkCache" . -}}
{{- include "slackline.checkExtras" . -}}
{{- range $role := list "scheduler" "servers" "workers" -}}
{{- include "slackline.checkResources" (dict "key" (printf "%s.resources" $role) "resources" (get $.Values $role).resources "claims" ((get $.Values $role).resourceClaims | default list)) -}}
{{- end -}}
{{- $checkpoint := int (dig "timeout_s" 300 (.Values.job.checkpoint | default dict)) -}}
{{- $grace := int .Values.scheduler.terminationGracePeriodSeconds -}}
{{- if and (eq (dig "mode" "snapshot" (.Values.job.durability | default dict)) "none") (le $grace $checkpoint) -}}
{{- fail (printf "scheduler.terminationGracePeriodSeconds: found %d with job.durability.mode: none; allowed is more than job.checkpoint.timeout_s (%d): it makes a checkpoint before it ends" $grace $checkpoint) -}}
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
{{- $worker := .Values.job.worker -}}
{{- if get $worker "devices" -}}
{{- fail "job.worker.devices: found a value together with job.worker.groups; allowed is one of both: each group says its own" -}}
{{- end -}}
{{- include "slackline.checkApart" . -}}
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

{{/* No GPU is in two groups, and a group's batch has a part for each of its devices. */}}
{{- define "slackline.checkApart" -}}
{{- $training := .Values.job.training | default dict -}}
{{- $owners := dict -}}
{{- range $number, $group := .Values.job.worker.groups -}}
{{- $own := dict "devices" $group -}}
{{- if kindIs "map" $group -}}{{- $own = $group -}}{{- end -}}
{{- $key := printf "job.worker.groups[%d]" $number -}}
{{- $found := include "slackline.devices" (dict "key" (printf "%s.devices" $key) "devices" $own.devices) | fromJson -}}
{{- range $gpu := ternary (list "auto") $found.gpus $found.auto -}}
{{- $other := ternary (keys $owners | sortAlpha | first) (ternary "auto" $gpu (hasKey $owners "auto")) (and $found.auto (gt (len $owners) 0)) -}}
{{- if hasKey $owners $other -}}
{{- fail (printf "%s.devices: found %s%s in job.worker.groups[%d]; allowed is each GPU in one group: they share a node, whatever their containers see" $key $gpu (ternary ", which is" (printf " beside %s" $other) (eq $gpu $other)) (get $owners $other)) -}}
{{- end -}}
{{- end -}}
{{- range $gpu := ternary (list "auto") $found.gpus $found.auto -}}{{- $_ := set $owners $gpu $number -}}{{- end -}}
{{- $batch := int (get $own "batch" | default 0) -}}
{{- if and $batch (eq (get $training "batch" | default "fixed") "balance") -}}
{{- fail (printf "%s.batch: found %d together with job.training.batch: balance; allowed is 0, or job.training.batch: fixed" $key $batch) -}}
{{- end -}}
{{- $batch = $batch | default (int (get $training "batch_size" | default 64)) -}}
{{- if gt (int $found.count) $batch -}}
{{- fail (printf "%s.devices: found %d devices; allowed are at most the group's batch (%d), each gets a part of it" $key (int $found.count) $batch) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Of workers without groups. */}}
{{- define "slackline.checkDevices" -}}
{{- $worker := .Values.job.worker | default dict -}}
{{- $limits := .Values.workers.resources.limits -}}
{{- $found := include "slackline.devices" (dict "key" "job.worker.devices" "devices" (get $worker "devices" | default list)) | fromJson -}}
{{- $batch := int (dig "batch_size" 64 (.Values.job.training | default dict)) -}}
{{- if gt (int $found.count) $batch -}}
{{- fail (printf "job.worker.devices: found %d devices; allowed are at most job.training.batch_size (%d), each gets a part of the batch" (int $found.count) $batch) -}}
{{- end -}}
{{- $gpu := .Values.workers.gpuResource -}}
{{- if hasKey $limits $gpu -}}
{{- range $device := $found.gpus -}}
{{- if ge (int (trimPrefix "cuda:" $device)) (int (get $limits $gpu | toString)) -}}
{{- fail (printf "job.worker.devices: found %s; allowed are the %s that workers.resources.limits has of %s, counted from cuda:0" $device (get $limits $gpu | toString) $gpu) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $other := or .Values.workers.resources.claims .Values.workers.runtimeClassName .Values.workers.command -}}
{{- if and $found.gpus (not $other) (not (regexMatch "/" (keys $limits | join " "))) -}}
{{- fail (printf "job.worker.devices: found %s, and workers.resources.limits has no %s; allowed are devices that the pod is given: a number of them in limits, or cpu" (first $found.gpus) $gpu) -}}
{{- end -}}
{{- $cores := include "slackline.cores" (dict "worker" $worker) -}}
{{- include "slackline.enoughCores" (dict "key" "job.worker.cores" "cores" $cores "cpus" (toString $limits.cpu) "here" "workers.resources") -}}
{{- end -}}

{{/* Of images that nodes keep, and give each other. */}}
{{- define "slackline.checkCache" -}}
{{- $cache := get (.Values.job.data | default dict) "cache" | default dict -}}
{{- $folder := get $cache "folder" | default "" | toString -}}
{{- if get $cache "peers" -}}
{{- if not $folder -}}
{{- fail "job.data.cache.peers: found true without job.data.cache.folder; allowed is only with a folder, which keeps what others are given" -}}
{{- end -}}
{{- if and (eq (include "slackline.security" .) "tls") (not (get $cache "peers_in_clear")) -}}
{{- fail "job.data.cache.peers: found true with job.security.mode: tls; allowed is false, or peers_in_clear: true: images go from node to node as plain text" -}}
{{- end -}}
{{- end -}}
{{- if $folder -}}
{{- $data := ternary (printf "%s/" (trimSuffix "/" .Values.data.mountPath)) "/etc/slackline/" (not (empty .Values.data.claimName)) -}}
{{- if or (not (hasPrefix "/" $folder)) (hasPrefix $data (printf "%s/" $folder)) (hasPrefix "/etc/slackline/" $folder) -}}
{{- fail (printf "job.data.cache.folder: found %s; allowed is a path from / on that is not in %s, which is read-only: workers have a volume there" $folder $data) -}}
{{- end -}}
{{- else if include "slackline.filesPort" . -}}
{{- fail "job.data.path: found a server without job.data.cache.folder; allowed is a folder, or a server with a cache, where each worker keeps what it has read" -}}
{{- end -}}
{{- end -}}

{{/* What users add to pods must not be what the chart itself has there. */}}
{{- define "slackline.checkExtras" -}}
{{- $labels := list "app.kubernetes.io/name" "app.kubernetes.io/instance" "app.kubernetes.io/component" "app.kubernetes.io/managed-by" "helm.sh/chart" -}}
{{- $volumes := list "job" "credentials" "runs" "snapshots" "data" "cache" "tmp" -}}
{{- $folders := list "/tmp" "/runs" "/snapshots" "/etc/slackline" "/etc/slackline/job" "/etc/slackline/credentials" -}}
{{- range $label, $_ := .Values.commonLabels -}}
{{- if has $label $labels -}}{{- fail (printf "commonLabels: found %s; allowed are labels other than those of the chart: %s" $label (join ", " $labels)) -}}{{- end -}}
{{- range $where := list "jobset" "podMonitor" "prometheusRule" "dashboard" -}}
{{- if hasKey ((get $.Values $where).labels | default dict) $label -}}{{- fail (printf "%s.labels: found %s, which is in commonLabels, too; allowed is one of both" $where $label) -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- if and .Values.data.claimName (has (trimSuffix "/" .Values.data.mountPath) $folders) -}}
{{- fail (printf "data.mountPath: found %s; allowed is a folder where the chart mounts nothing else" .Values.data.mountPath) -}}
{{- end -}}
{{- if and (empty .Values.workers.image.repository) (or .Values.workers.image.tag .Values.workers.image.digest) -}}
{{- fail "workers.image: found a tag or digest without a repository; allowed is all of an image, or nothing: then workers have the image of all" -}}
{{- end -}}
{{- range $role := list "scheduler" "servers" "workers" -}}
{{- $settings := get $.Values $role -}}
{{- range $label, $_ := $settings.podLabels -}}
{{- if has $label $labels -}}{{- fail (printf "%s.podLabels: found %s; allowed are labels other than those of the chart: %s" $role $label (join ", " $labels)) -}}{{- end -}}
{{- end -}}
{{- $names := list "INDEX" "POD_NAME" "POD_IP" "CPUS" -}}
{{- range $settings.env -}}
{{- if or (has .name $names) (hasPrefix "SLACKLINE_" .name) -}}{{- fail (printf "%s.env: found %s a second time, or a name of ours; allowed are each once, and others than INDEX, POD_NAME, POD_IP, CPUS and SLACKLINE_..." $role .name) -}}{{- end -}}
{{- $names = append $names .name -}}
{{- end -}}
{{- $here := $volumes -}}
{{- range $settings.extraVolumes -}}
{{- if has .name $here -}}{{- fail (printf "%s.extraVolumes: found %s a second time; allowed are each once, and others than %s" $role .name (join ", " $volumes)) -}}{{- end -}}
{{- $here = append $here .name -}}
{{- end -}}
{{- range $settings.extraVolumeMounts -}}
{{- if or (not (has .name $here)) (and (has .name $volumes) (not (has .name (list "runs" "tmp")))) -}}
{{- fail (printf "%s.extraVolumeMounts: found a mount of %s; allowed are volumes of extraVolumes, and runs and tmp" $role .name) -}}
{{- end -}}
{{- $path := trimSuffix "/" .mountPath -}}
{{- if or (has $path $folders) (and (eq $role "workers") $.Values.data.claimName (eq $path (trimSuffix "/" $.Values.data.mountPath))) -}}
{{- fail (printf "%s.extraVolumeMounts: found %s; allowed are folders where the chart mounts nothing" $role .mountPath) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Parts of a model, one on each device. Of which models, and on which devices, is no affair of pods. */}}
{{- define "slackline.checkStages" -}}
{{- $worker := .Values.job.worker | default dict -}}
{{- $stages := int (get $worker "stages" | default 1) -}}
{{- if gt $stages 1 -}}
{{- if get $worker "groups" -}}
{{- fail (printf "job.worker.stages: found %d together with job.worker.groups; allowed is 1: groups have the whole model on each device" $stages) -}}
{{- end -}}
{{- $found := include "slackline.devices" (dict "key" "job.worker.devices" "devices" (get $worker "devices" | default list)) | fromJson -}}
{{- if or $found.auto (ne (int $found.count) $stages) -}}
{{- fail (printf "job.worker.devices: found %s with job.worker.stages: %d; allowed are as many as stages, by their names" (ternary "auto" (int $found.count | toString) $found.auto) $stages) -}}
{{- end -}}
{{- end -}}
{{- end -}}
