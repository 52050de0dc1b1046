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

{{- define "slackline.workers" -}}
{{- if kindIs "invalid" .Values.workers.replicas -}}{{ int (dig "cluster" "workers" 2 .Values.job) }}{{- else -}}{{ int .Values.workers.replicas }}{{- end -}}
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
{{- if and .Values.autoscaling.enabled (lt (int .Values.autoscaling.minReplicas) (int (dig "cluster" "workers" 2 .Values.job))) -}}
{{- fail (printf "autoscaling.minReplicas is %d, job.cluster.workers is %d: training would never begin" (int .Values.autoscaling.minReplicas) (int (dig "cluster" "workers" 2 .Values.job))) -}}
{{- end -}}
{{- if dig "worker" "groups" list .Values.job -}}
{{- fail "job.worker.groups: found groups; allowed are worker.devices: a pod has one worker" -}}
{{- end -}}
{{- if and .Values.autoscaling.enabled (lt (int .Values.autoscaling.maxReplicas) (int .Values.autoscaling.minReplicas)) -}}
{{- fail "autoscaling.maxReplicas is below minReplicas" -}}
{{- end -}}
{{- end -}}
