{{/* A quantity of Kubernetes as a number: bytes, processors, or pieces. */}}
{{- define "slackline.amount" -}}
{{- $text := toString . -}}
{{- $number := regexFind "^[0-9]+([.][0-9]+)?([eE][+]?[0-9]+)?" $text -}}
{{- $factors := dict "" 1.0 "m" 0.001 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "P" 1e15 "E" 1e18 "Ki" 1024.0 "Mi" 1048576.0 "Gi" 1073741824.0 "Ti" 1099511627776.0 "Pi" 1125899906842624.0 "Ei" 1152921504606846976.0 -}}
{{- printf "%.3f" (mulf (float64 $number) (get $factors (trimPrefix $number $text))) -}}
{{- end -}}

{{/* How requests and limits of a container must be to each other. Takes a dict: key, resources, claims of the pod. */}}
{{- define "slackline.checkResources" -}}
{{- $key := .key -}}
{{- $requests := .resources.requests | default dict -}}
{{- $limits := .resources.limits | default dict -}}
{{- $claims := .claims -}}
{{- range .resources.claims -}}
{{- $name := .name -}}
{{- $known := false -}}
{{- range $claims -}}{{- if eq .name $name -}}{{- $known = true -}}{{- end -}}{{- end -}}
{{- if not $known -}}{{- fail (printf "%s.claims: found %s; allowed are the names of workers.resourceClaims, for workers" $key $name) -}}{{- end -}}
{{- end -}}
{{- range $what, $limit := $limits -}}
{{- $most := float64 (include "slackline.amount" $limit) -}}
{{- if and (not (contains "/" $what)) (eq $most 0.0) -}}
{{- fail (printf "%s.limits: found %s: %s; allowed is more than 0" $key $what (toString $limit)) -}}
{{- end -}}
{{- if and (eq $what "memory") (lt $most 16777216.0) -}}
{{- fail (printf "%s.limits: found memory: %s, which are bytes; allowed are at least 16Mi" $key (toString $limit)) -}}
{{- end -}}
{{- end -}}
{{- range $what, $request := $requests -}}
{{- if hasKey $limits $what -}}
{{- $limit := get $limits $what | toString -}}
{{- if gt (float64 (include "slackline.amount" $request)) (float64 (include "slackline.amount" $limit)) -}}
{{- fail (printf "%s.requests: found %s: %s; allowed is at most what is in limits, %s" $key $what (toString $request) $limit) -}}
{{- end -}}
{{- if and (regexMatch "/|^hugepages-" $what) (ne (toString $request) $limit) -}}
{{- fail (printf "%s.requests: found %s: %s; allowed is what is in limits, %s, since others cannot have the rest" $key $what (toString $request) $limit) -}}
{{- end -}}
{{- else if regexMatch "/|^hugepages-" $what -}}
{{- fail (printf "%s.requests: found %s, which limits has not; allowed is the same in limits" $key $what) -}}
{{- end -}}
{{- end -}}
{{- end -}}
