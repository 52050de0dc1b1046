{{/* The pod of a role. Takes a dict: root, role (scheduler, server, worker), batch (true or false). */}}
{{- define "slackline.pod" -}}
{{- $root := .root -}}
{{- $role := .role -}}
{{- $batch := .batch -}}
{{- $name := include "slackline.name" $root -}}
{{- $program := get (dict "scheduler" "scheduler" "server" "ps" "worker" "worker") $role -}}
{{- $script := and (eq $role "worker") (not (empty $root.Values.workers.command)) -}}
{{- $launched := or $batch (eq $role "scheduler") $script -}}
{{- $image := $root.Values.image -}}
{{- if and (eq $role "worker") $root.Values.workers.image.repository }}{{ $image = $root.Values.workers.image }}{{ end -}}
{{- $settings := get $root.Values (get (dict "scheduler" "scheduler" "server" "servers" "worker" "workers") $role) -}}
{{- $security := include "slackline.security" $root -}}
{{- $containers := list (dict "name" $role "port" "metrics" "at" 9090 "images" 7100 "resources" $settings.resources) -}}
{{- $peers := and (eq $role "worker") (include "slackline.peers" $root) -}}
{{- $cache := "" -}}
{{- if eq $role "worker" }}{{ $cache = include "slackline.cacheFolder" $root }}{{ end -}}
{{- if and (eq $role "worker") (ne (include "slackline.jobGroups" $root) "0") }}{{ $containers = include "slackline.groups" $root | fromJsonArray }}{{ end -}}
{{- if $batch }}
restartPolicy: OnFailure
{{- end }}
automountServiceAccountToken: false
{{- with $root.Values.serviceAccountName }}
serviceAccountName: {{ . }}
{{- end }}
{{- with $settings.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with $settings.runtimeClassName }}
runtimeClassName: {{ . }}
{{- end }}
{{- with $settings.resourceClaims }}
resourceClaims:
  {{- toYaml . | nindent 2 }}
{{- end }}
enableServiceLinks: false
terminationGracePeriodSeconds: {{ $settings.terminationGracePeriodSeconds }}
{{- with $root.Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: {{ $root.Values.user }}
  runAsGroup: {{ $root.Values.user }}
  fsGroup: {{ $root.Values.user }}
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile:
    type: RuntimeDefault
{{- with $settings.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $settings.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $settings.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- if eq $role "server" }}
{{- $replicated := eq (dig "mode" "snapshot" ($root.Values.job.durability | default dict)) "replicated" }}
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: {{ $settings.whenUnsatisfiable | default (ternary "DoNotSchedule" "ScheduleAnyway" $replicated) }}
    labelSelector:
      matchLabels:
        {{- include "slackline.selector" $root | nindent 8 }}
        app.kubernetes.io/component: server
{{- end }}
{{- with $settings.topologySpreadConstraints }}
topologySpreadConstraints:
  {{- range $spread := . }}
  {{- $own := include "slackline.selector" $root | fromYaml | merge (dict "app.kubernetes.io/component" $role) }}
  {{- if not (hasKey $spread "labelSelector") }}{{ $spread = merge (dict "labelSelector" (dict "matchLabels" $own)) $spread }}{{ end }}
  {{- list $spread | toYaml | nindent 2 }}
  {{- end }}
{{- end }}
containers:
  {{- range $container := $containers }}
  {{- $group := hasKey $container "number" }}
  - name: {{ $container.name }}
    image: {{ if $image.digest }}{{ printf "%s@%s" $image.repository $image.digest }}{{ else }}{{ printf "%s:%s" $image.repository ($image.tag | default $root.Chart.AppVersion) }}{{ end }}
    imagePullPolicy: {{ $root.Values.image.pullPolicy }}
    command: [{{ $launched | ternary "slackline-pod" (printf "slackline-%s" $program) }}]
    args:
      {{- if $launched }}
      - {{ $script | ternary "script" $program }}
      - /runs/{{ $name }}
      {{- end }}
      - /etc/slackline/job/job.yaml
      {{- if ne $role "scheduler" }}
      - --scheduler={{ $name }}-scheduler:7000
      {{- end }}
      {{- if eq $role "scheduler" }}
      - --listen=0.0.0.0:7000
      {{- else if eq $role "server" }}
      - --listen=0.0.0.0:7001
      {{- end }}
      {{- if ne $role "scheduler" }}
      - --name={{ $batch | ternary (printf "%s-$(INDEX)" $program) "$(POD_NAME)" }}{{ if $group }}-{{ $container.name }}{{ end }}
      {{- end }}
      - --set=network.listen=0.0.0.0
      {{- if eq $role "scheduler" }}
      - --set=network.advertise={{ $name }}-scheduler
      {{- else if or $peers (eq $role "server") }}
      - --set=network.advertise=$(POD_IP)
      {{- end }}
      - --set=network.metrics_port={{ $container.at }}
      {{- if $peers }}
      - --set=network.ports={{ $container.images }}-{{ $container.images }}
      {{- end }}
      {{- if $group }}
      - --group={{ $container.number }}
      {{- end }}
      {{- if $script }}
      - --set=worker.threads=$(CPUS)
      {{- else if eq $role "worker" }}
      - --container=$(CPUS)
      {{- end }}
      {{- if not $batch }}
      - --set=durability.folder=/snapshots
      {{- end }}
      {{- if eq $security "tls" }}
      - --set=security.folder=/etc/slackline/credentials
      {{- else if eq $security "token" }}
      - --set=security.token_file=/etc/slackline/credentials/token
      {{- end }}
      {{- if $script }}
      - --
      {{- toYaml $root.Values.workers.command | nindent 6 }}
      {{- end }}
    {{- if or $settings.env (ne $role "scheduler") }}
    env:
      {{- if eq $role "scheduler" }}
      {{- else if $batch }}
      - name: INDEX
        valueFrom:
          fieldRef:
            fieldPath: metadata.annotations['batch.kubernetes.io/job-completion-index']
      {{- else }}
      - name: POD_NAME
        valueFrom:
          fieldRef:
            fieldPath: metadata.name
      {{- end }}
      {{- if or $peers (eq $role "server") }}
      - name: POD_IP
        valueFrom:
          fieldRef:
            fieldPath: status.podIP
      {{- end }}
      {{- if eq $role "worker" }}
      - name: CPUS
        valueFrom:
          resourceFieldRef:
            resource: limits.cpu
      {{- end }}
      {{- with $settings.env }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
    {{- end }}
    ports:
      {{- if ne $role "worker" }}
      - name: grpc
        containerPort: {{ eq $role "scheduler" | ternary 7000 7001 }}
      {{- end }}
      - name: {{ $container.port }}
        containerPort: {{ $container.at }}
      {{- if $peers }}
      - name: {{ $container.port | replace "metrics" "images" }}
        containerPort: {{ $container.images }}
      {{- end }}
    startupProbe:
      httpGet: {path: /healthz, port: {{ $container.port }}}
      periodSeconds: 5
      failureThreshold: {{ div (add (get $settings "startupSeconds" | default 600 | int) 4) 5 }}
    livenessProbe:
      httpGet: {path: /healthz, port: {{ $container.port }}}
      periodSeconds: 10
      timeoutSeconds: 5
      failureThreshold: 6
    {{- if and $batch (ne $role "worker") }}
    # Who comes next waits for this, and the job may be ready only when all are there.
    {{- end }}
    readinessProbe:
      httpGet: {path: {{ and $batch (ne $role "worker") | ternary "/healthz" "/readyz" }}, port: {{ $container.port }}}
      periodSeconds: 5
      timeoutSeconds: 5
    resources:
      {{- toYaml $container.resources | nindent 6 }}
    securityContext:
      allowPrivilegeEscalation: false
      readOnlyRootFilesystem: true
      capabilities:
        drop: [ALL]
    volumeMounts:
      - {name: job, mountPath: /etc/slackline/job, readOnly: true}
      {{- if ne $security "none" }}
      - {name: credentials, mountPath: /etc/slackline/credentials, readOnly: true}
      {{- end }}
      - {name: runs, mountPath: /runs}
      {{- if and (not $batch) (eq $role "server") }}
      - {name: snapshots, mountPath: /snapshots}
      {{- end }}
      {{- if and $root.Values.data.claimName (eq $role "worker") }}
      - {name: data, mountPath: {{ $root.Values.data.mountPath }}, readOnly: true}
      {{- end }}
      {{- with $cache }}
      - {name: cache, mountPath: {{ . }}}
      {{- end }}
      - {name: tmp, mountPath: /tmp}
      {{- with $settings.extraVolumeMounts }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
  {{- end }}
volumes:
  - name: job
    configMap:
      name: {{ $name }}-job
  {{- if ne $security "none" }}
  - name: credentials
    secret:
      secretName: {{ $root.Values.credentials.secretName | default (printf "%s-credentials" $name) }}
      # Root's, and readable for fsGroup: what the programs take for a key (docs/security.md).
      defaultMode: 0440
      items:
        {{- if eq $security "tls" }}
        - {key: ca.crt, path: ca.crt}
        - {key: {{ $role }}.crt, path: {{ $role }}.crt}
        - {key: {{ $role }}.key, path: {{ $role }}.key}
        {{- else }}
        - {key: token, path: token}
        {{- end }}
  {{- end }}
  - name: runs
    persistentVolumeClaim:
      claimName: {{ $root.Values.storage.runs.existingClaim | default (printf "%s-runs" $name) }}
  {{- if and $root.Values.data.claimName (eq $role "worker") }}
  - name: data
    persistentVolumeClaim:
      claimName: {{ $root.Values.data.claimName }}
      readOnly: true
  {{- end }}
  {{- if $cache }}
  - name: cache
    emptyDir: {}
  {{- end }}
  - name: tmp
    emptyDir:
      sizeLimit: 64Mi
  {{- with $settings.extraVolumes }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}
