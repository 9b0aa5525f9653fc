{{- /* The command line of the ccm. */}}
{{- define "ccm.flags" -}}
{{- $v := .Values }}
{{- $flags := list }}
{{- $flags = append $flags (printf "--controllers=%s" (join "," $v.controllers)) }}
{{- $flags = append $flags (printf "--provider=%s=unix:///run/cloud-provider/socket/provider.sock" $v.provider.name) }}
{{- if eq (int64 $v.provider.runAsUser) (int64 $v.ccm.runAsUser) }}{{ fail "provider.runAsUser: the ccm runs as this user too (ccm.runAsUser). The ccm identifies the provider by its user, so set another one" }}{{ end }}
{{- $flags = append $flags (printf "--provider-peer-uid=%d" (int $v.provider.runAsUser)) }}
{{- $flags = append $flags (printf "--cluster-name=%s" $v.cluster.name) }}
{{- with $v.cluster.ownerID }}{{ $flags = append $flags (printf "--cluster-owner-id=%s" .) }}{{ end }}
{{- with $v.cluster.previousOwnerIDs }}{{ $flags = append $flags (printf "--previous-owner-ids=%s" (join "," .)) }}{{ end }}
{{- if include "ccm.runs" (list . "node-route-controller") }}
{{- if not $v.cluster.cidrs }}{{ fail "cluster.cidrs: the node-route-controller in controllers needs the CIDRs of the cluster's Pods, for instance [10.244.0.0/16]" }}{{ end }}
{{- $flags = concat $flags (list "--allocate-node-cidrs=true" (printf "--cluster-cidr=%s" (join "," $v.cluster.cidrs))) }}
{{- else if $v.cluster.cidrs }}{{ fail "cluster.cidrs: only the node-route-controller uses it, and that is not in controllers" }}
{{- end }}
{{- with $v.cluster.serviceCIDRs }}
{{- if not (include "ccm.runs" (list $ "service-lb-controller")) }}{{ fail "cluster.serviceCIDRs: only the service-lb-controller uses it, and that is not in controllers" }}{{ end }}
{{- $flags = append $flags (printf "--service-cluster-ip-range=%s" (join "," .)) }}
{{- end }}
{{- if has $v.ccm.bindAddress (list "127.0.0.1" "::1") }}
{{- if not $v.hostNetwork }}{{ fail "ccm.bindAddress: in a Pod network the kubelet's probes cannot reach a loopback address: use 0.0.0.0, or hostNetwork: true" }}{{ end }}
{{- if or $v.monitoring.serviceMonitor.enabled $v.monitoring.podMonitor.enabled }}{{ fail "ccm.bindAddress: Prometheus cannot reach a loopback address: use 0.0.0.0, or turn the monitors off" }}{{ end }}
{{- end }}
{{- $flags = append $flags (printf "--bind-address=%s" (include "ccm.bindAddress" .)) }}
{{- $flags = append $flags (printf "--secure-port=%d" (int $v.ccm.securePort)) }}
{{- if $v.ccm.certificateSecret }}{{ $flags = concat $flags (list "--tls-cert-file=/etc/cloud-controller-manager/serving/tls.crt" "--tls-private-key-file=/etc/cloud-controller-manager/serving/tls.key") }}{{ end }}
{{- $flags = append $flags (printf "--leader-elect-lease-duration=%s" $v.leaderElection.leaseDuration) }}
{{- $flags = append $flags (printf "--leader-elect-renew-deadline=%s" $v.leaderElection.renewDeadline) }}
{{- $flags = append $flags (printf "--leader-elect-retry-period=%s" $v.leaderElection.retryPeriod) }}
{{- $flags = append $flags (printf "--leader-elect-resource-name=%s" $v.leaderElection.resourceName) }}
{{- $flags = append $flags (printf "--leader-elect-resource-namespace=%s" $v.leaderElection.resourceNamespace) }}
{{- if $v.leaderMigration.enabled }}
{{- $flags = append $flags "--enable-leader-migration=true" }}
{{- if include "ccm.migrationFile" . }}{{ $flags = append $flags "--leader-migration-config=/etc/cloud-controller-manager/leader-migration/config.yaml" }}{{ end }}
{{- end }}
{{- if $v.serviceAccountCredentials.enabled }}{{ $flags = append $flags "--use-service-account-credentials=true" }}{{ end }}
{{- if $v.volumeWebhook.enabled }}
{{- if not $v.volumeWebhook.certificateSecret }}{{ fail "volumeWebhook.certificateSecret: the webhook needs the name of a Secret of type kubernetes.io/tls" }}{{ end }}
{{- $flags = concat $flags (list "--webhooks=persistent-volume-label" (printf "--webhook-secure-port=%d" (int $v.volumeWebhook.port)) "--webhook-tls-cert-file=/etc/cloud-controller-manager/webhook/tls.crt" "--webhook-tls-private-key-file=/etc/cloud-controller-manager/webhook/tls.key") }}
{{- end }}
{{- with $v.ccm.nodeDeletionBrake }}{{ $flags = append $flags (printf "--node-deletion-brake=%s" .) }}{{ end }}
{{- $flags = append $flags (printf "--orphaned-load-balancers=%s" $v.ccm.orphanedLoadBalancers) }}
{{- if $v.ccm.adoptUnmarkedLoadBalancers }}{{ $flags = append $flags "--adopt-unmarked-load-balancers=true" }}{{ end }}
{{- $flags = append $flags (printf "--logging-format=%s" $v.ccm.logging.format) }}
{{- $flags = append $flags (printf "--v=%d" (int $v.ccm.logging.verbosity)) }}
{{- $made := dict }}
{{- range $flags }}{{ $_ := set $made (first (splitList "=" (trimPrefix "--" .))) true }}{{ end }}
{{- $reserved := list "allocate-node-cidrs" "cluster-cidr" "service-cluster-ip-range" "cluster-owner-id" "previous-owner-ids" "enable-leader-migration" "leader-migration-config" "use-service-account-credentials" "webhooks" "webhook-secure-port" "webhook-tls-cert-file" "webhook-tls-private-key-file" "node-deletion-brake" "adopt-unmarked-load-balancers" }}
{{- range $name, $value := $v.ccm.extraArgs }}
{{- if or (hasKey $made $name) (has $name $reserved) }}{{ fail (printf "ccm.extraArgs.%s: another value sets this flag: see values.yaml" $name) }}{{ end }}
{{- if eq $name "leader-elect" }}{{ fail "ccm.extraArgs.leader-elect: leader election is always on: updates run two Pods at once" }}{{ end }}
{{- if kindIs "slice" $value }}{{ $flags = append $flags (printf "--%s=%s" $name (join "," $value)) }}
{{- else if and (kindIs "float64" $value) (eq (floor $value) $value) }}{{ $flags = append $flags (printf "--%s=%d" $name (int64 $value)) }}
{{- else if kindIs "float64" $value }}{{ $flags = append $flags (printf "--%s=%v" $name ($value | toString)) }}
{{- else }}{{ $flags = append $flags (printf "--%s=%v" $name $value) }}{{ end }}
{{- end }}
{{- toYaml $flags }}
{{- end }}

{{- /* "true" if leader migration differs from upstream's default. */}}
{{- define "ccm.migrationFile" -}}
{{- if and .Values.leaderMigration.enabled (or .Values.leaderMigration.controllerLeaders (ne .Values.leaderMigration.leaderName "cloud-provider-extraction-migration")) }}true{{ end }}
{{- end }}

{{- /* On the host's network every peer of the Node reaches the port. So the ccm binds it to 127.0.0.1, unless ccm.bindAddress is set, a monitor is on or an account may read /metrics. */}}
{{- define "ccm.bindAddress" -}}
{{- $monitoring := .Values.monitoring }}
{{- $scraped := or $monitoring.reader.serviceAccount $monitoring.serviceMonitor.enabled $monitoring.podMonitor.enabled }}
{{- .Values.ccm.bindAddress | default (ternary "127.0.0.1" "0.0.0.0" (and .Values.hostNetwork (not $scraped))) }}
{{- end }}

{{- /* The host on which the kubelet finds the HTTPS port. With hostNetwork it is a loopback address, unless ccm.bindAddress names another one: a Node that is not initialised has no IP address yet. */}}
{{- define "ccm.probe" -}}
httpGet:
  scheme: HTTPS
  {{- $bound := include "ccm.bindAddress" .root }}
  {{- if not (has $bound (list "0.0.0.0" "::")) }}
  host: {{ $bound | quote }}
  {{- else if .root.Values.hostNetwork }}
  host: {{ ternary "::1" "127.0.0.1" (eq $bound "::") | quote }}
  {{- end }}
  port: https
  path: {{ .path }}
{{ toYaml .timing }}
{{- end }}

{{- define "ccm.confined" -}}
runAsGroup: {{ int64 .root.Values.runAsGroup }}
privileged: false
allowPrivilegeEscalation: false
readOnlyRootFilesystem: {{ .readOnly }}
capabilities:
  drop: [ALL]
{{- end }}

{{- define "ccm.lastWords" -}}
# With this, `kubectl describe pod` shows why the container ended, also on a Node without an IP address, which serves no logs.
terminationMessagePolicy: FallbackToLogsOnError
{{- end }}

{{- define "ccm.container" -}}
name: ccm
image: {{ include "ccm.image" (list . "ccm.image" .Values.ccm.image) }}
imagePullPolicy: {{ .Values.ccm.image.pullPolicy }}
{{ include "ccm.lastWords" . }}
args:
  {{- include "ccm.flags" . | nindent 2 }}
{{- if or .Values.apiServer.host .Values.ccm.env }}
env:
  {{- with .Values.apiServer }}{{ if .host }}
  - name: KUBERNETES_SERVICE_HOST
    value: {{ .host | quote }}
  - name: KUBERNETES_SERVICE_PORT
    value: {{ .port | quote }}
  {{- end }}{{ end }}
  {{- with .Values.ccm.env }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}
ports:
  - name: https
    containerPort: {{ .Values.ccm.securePort }}
    protocol: TCP
  {{- if .Values.volumeWebhook.enabled }}
  - name: webhook
    containerPort: {{ .Values.volumeWebhook.port }}
    protocol: TCP
  {{- end }}
startupProbe:
  {{- include "ccm.probe" (dict "root" . "path" "/livez" "timing" .Values.ccm.startupProbe) | nindent 2 }}
livenessProbe:
  {{- include "ccm.probe" (dict "root" . "path" "/livez" "timing" .Values.ccm.livenessProbe) | nindent 2 }}
readinessProbe:
  {{- include "ccm.probe" (dict "root" . "path" "/readyz" "timing" .Values.ccm.readinessProbe) | nindent 2 }}
resources:
  {{- toYaml .Values.ccm.resources | nindent 2 }}
securityContext:
  runAsUser: {{ int64 .Values.ccm.runAsUser }}
  {{- include "ccm.confined" (dict "root" . "readOnly" true) | nindent 2 }}
volumeMounts:
  # Read-only, because a connect needs no write to the directory: only the provider writes there.
  - name: socket
    mountPath: /run/cloud-provider
    readOnly: true
  - name: kubernetes
    mountPath: /var/run/secrets/kubernetes.io/serviceaccount
    readOnly: true
  {{- if include "ccm.migrationFile" . }}
  - name: leader-migration
    mountPath: /etc/cloud-controller-manager/leader-migration
    readOnly: true
  {{- end }}
  {{- if .Values.ccm.certificateSecret }}
  - name: serving-certificate
    mountPath: /etc/cloud-controller-manager/serving
    readOnly: true
  {{- end }}
  {{- if .Values.volumeWebhook.enabled }}
  - name: webhook-certificate
    mountPath: /etc/cloud-controller-manager/webhook
    readOnly: true
  {{- end }}
  {{- with .Values.ccm.volumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}

{{- define "ccm.providerContainer" -}}
{{- $provider := .Values.provider -}}
name: provider
image: {{ include "ccm.image" (list . "provider.image" $provider.image) }}
imagePullPolicy: {{ $provider.image.pullPolicy }}
{{ include "ccm.lastWords" . }}
{{- if $provider.sidecar }}
restartPolicy: Always
{{- end }}
{{- with $provider.command }}
command:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $provider.args }}
args:
  {{- toYaml . | nindent 2 }}
{{- end }}
env:
  - name: CLOUD_PROVIDER_ENDPOINT
    value: unix:///run/cloud-provider/socket/provider.sock
  {{- with $provider.env }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- if and $provider.secret.name $provider.secret.env }}
envFrom:
  - secretRef:
      name: {{ $provider.secret.name }}
{{- end }}
{{- with $provider.probe }}{{ if .command }}
startupProbe:
  exec:
    command:
      {{- toYaml .command | nindent 6 }}
  periodSeconds: {{ .startup.periodSeconds }}
  timeoutSeconds: {{ .timeoutSeconds }}
  failureThreshold: {{ .startup.failureThreshold }}
livenessProbe:
  exec:
    command:
      {{- toYaml .command | nindent 6 }}
  periodSeconds: {{ .periodSeconds }}
  timeoutSeconds: {{ .timeoutSeconds }}
  failureThreshold: {{ .failureThreshold }}
{{- end }}{{ end }}
resources:
  {{- toYaml $provider.resources | nindent 2 }}
securityContext:
  runAsUser: {{ int64 $provider.runAsUser }}
  {{- include "ccm.confined" (dict "root" . "readOnly" $provider.readOnlyRootFilesystem) | nindent 2 }}
volumeMounts:
  - name: socket
    mountPath: /run/cloud-provider
  {{- if $provider.secret.name }}
  - name: secret
    mountPath: {{ $provider.secret.mountPath }}
    readOnly: true
  {{- end }}
  {{- if $provider.config.files }}
  - name: config
    mountPath: {{ $provider.config.mountPath }}
    readOnly: true
  {{- end }}
  {{- with $provider.volumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}

{{- /* The Pod of the Deployment or DaemonSet; takes the differing fields as "placement". */}}
{{- define "ccm.pod" -}}
{{- $provider := .root.Values.provider -}}
metadata:
  labels:
    {{- include "ccm.selector" .root | nindent 4 }}
    {{- with .root.Values.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  annotations:
    kubectl.kubernetes.io/default-container: ccm
    {{- if $provider.config.files }}
    checksum/config: {{ toYaml $provider.config.files | sha256sum }}
    {{- end }}
    {{- if include "ccm.migrationFile" .root }}
    checksum/leader-migration: {{ toYaml .root.Values.leaderMigration | sha256sum }}
    {{- end }}
    {{- with .root.Values.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  serviceAccountName: {{ include "ccm.serviceAccount" .root }}
  # Only the ccm's container mounts the token: see the volume `kubernetes`.
  automountServiceAccountToken: false
  enableServiceLinks: false
  {{- if .root.Values.hostNetwork }}
  hostNetwork: true
  {{- end }}
  dnsPolicy: {{ .root.Values.dnsPolicy }}
  {{- with .root.Values.hostAliases }}
  hostAliases:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  priorityClassName: {{ .root.Values.priorityClassName }}
  terminationGracePeriodSeconds: {{ .root.Values.terminationGracePeriodSeconds }}
  {{- with .root.Values.imagePullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  securityContext:
    runAsNonRoot: true
    seccompProfile:
      type: RuntimeDefault
  {{- with trim .placement }}
  {{- . | nindent 2 }}
  {{- end }}
  tolerations:
    {{- toYaml .root.Values.tolerations | nindent 4 }}
  {{- if $provider.sidecar }}
  initContainers:
    - {{ include "ccm.providerContainer" .root | indent 6 | trim }}
  {{- end }}
  containers:
    - {{ include "ccm.container" .root | indent 6 | trim }}
    {{- if not $provider.sidecar }}
    - {{ include "ccm.providerContainer" .root | indent 6 | trim }}
    {{- end }}
  volumes:
    # The provider makes a directory for its group in this volume, and the socket in that directory.
    - name: socket
      emptyDir:
        medium: Memory
        sizeLimit: 1Mi
    # The ccm's credentials for the API server, as the kubelet would mount them into all containers.
    - name: kubernetes
      projected:
        sources:
          - serviceAccountToken:
              path: token
              expirationSeconds: 3607
          - configMap:
              name: kube-root-ca.crt
              items:
                - key: ca.crt
                  path: ca.crt
          - downwardAPI:
              items:
                - path: namespace
                  fieldRef:
                    apiVersion: v1
                    fieldPath: metadata.namespace
    {{- if include "ccm.migrationFile" .root }}
    - name: leader-migration
      configMap:
        name: {{ include "ccm.name" .root }}-leader-migration
    {{- end }}
    {{- with .root.Values.ccm.certificateSecret }}
    - name: serving-certificate
      secret:
        secretName: {{ . }}
        items:
          - {key: tls.crt, path: tls.crt}
          - {key: tls.key, path: tls.key}
    {{- end }}
    {{- if .root.Values.volumeWebhook.enabled }}
    - name: webhook-certificate
      secret:
        secretName: {{ .root.Values.volumeWebhook.certificateSecret }}
    {{- end }}
    {{- if $provider.secret.name }}
    - name: secret
      secret:
        secretName: {{ $provider.secret.name }}
    {{- end }}
    {{- if $provider.config.files }}
    - name: config
      configMap:
        name: {{ include "ccm.name" .root }}-provider
    {{- end }}
    {{- with concat .root.Values.ccm.volumes $provider.volumes }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end }}
