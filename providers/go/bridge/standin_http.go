package bridge

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	v1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/grpc-ccm/grpc-ccm/providers/go/contract"
)

// noAccess is the text of a refusal, for a cloud that asks the stand-in for more than it has.
const noAccess = "a provider has no access to Kubernetes: this stand-in knows the Nodes and Services that the controller named, and takes annotations of the Service of an open call and events; " +
	"a cloud that needs more is started with --kubeconfig"

// config returns a configuration for clients of the stand-in, whose requests stay in the process.
func (s *standIn) config() *rest.Config { return configOf(s) }

// cloudConfig returns the configuration for the cloud's own clients: the stand-in refuses requests for all objects, because it knows only a part.
func (s *standIn) cloudConfig() *rest.Config { return configOf(&cloudSide{s}) }

func configOf(transport http.RoundTripper) *rest.Config {
	return &rest.Config{Host: "http://stand-in.invalid", Transport: transport, QPS: -1}
}

// cloudSide is the stand-in as the cloud's own clients see it.
type cloudSide struct{ *standIn }

func (s *cloudSide) RoundTrip(request *http.Request) (*http.Response, error) {
	kind, _, name := resourceOf(request.URL.Path)
	if request.Method == http.MethodGet && kind != "" && name == "" {
		query := request.URL.Query()
		byField, err := fields.ParseSelector(query.Get("fieldSelector"))
		one := false
		if err == nil {
			_, one = byField.RequiresExactMatch("metadata.name")
		}
		if !one || kind != nodeKind && kind != serviceKind {
			verb := "lists"
			if watches(query) {
				verb = "watches"
			}
			err := s.lacks.note("the cloud " + verb + " " + kind + " with a client of its own")
			return refused(http.StatusForbidden, metav1.StatusReasonForbidden, err.Error())
		}
	}
	return s.standIn.RoundTrip(request)
}

func watches(query url.Values) bool { return query.Get("watch") == "true" || query.Get("watch") == "1" }

// RoundTrip answers one request in the API server's place. It refuses requests that the stand-in does not serve.
func (s *standIn) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.Body != nil {
		defer func() { _ = request.Body.Close() }()
	}
	query := request.URL.Query()
	if request.Method == http.MethodGet && request.URL.Path == "/version" {
		s.mu.Lock()
		defer s.mu.Unlock()
		return answered(http.StatusOK, serverVersion(s.version))
	}
	kind, namespace, name := resourceOf(request.URL.Path)
	switch {
	case (kind == nodeKind || kind == serviceKind) && request.Method == http.MethodGet && name == "":
		return s.answerList(request.Context(), kind, namespace, query)
	case (kind == nodeKind || kind == serviceKind) && request.Method == http.MethodGet:
		return s.answerGet(kind, strings.TrimPrefix(namespace+"/"+name, "/"))
	case kind == serviceKind && (request.Method == http.MethodPatch || request.Method == http.MethodPut):
		return s.answerWrite(request, namespace+"/"+name)
	case kind == "events" && (request.Method == http.MethodPost || request.Method == http.MethodPut):
		return s.answerEvent(request)
	case kind == "events" && request.Method == http.MethodPatch, kind == eventsKind && request.Method == http.MethodPatch:
		// The client repeats an event.
		return answered(http.StatusOK, &v1.Event{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Event"}})
	case kind == eventsKind && request.Method == http.MethodPost:
		return s.answerEvent(request)
	}
	return refused(http.StatusForbidden, metav1.StatusReasonForbidden, fmt.Sprintf("%s %s: %s", request.Method, request.URL.Path, noAccess))
}

// eventsKind is the kind of the newer events API.
const eventsKind = "events.events.k8s.io"

// resourceOf returns the resource of a path: nodes, services, or services/NAME/status for a subresource; with a group,
// endpointslices.discovery.k8s.io. It is empty for other paths.
func resourceOf(path string) (kind, namespace, name string) {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	switch {
	case len(parts) >= 3 && parts[0] == "api" && parts[1] == "v1":
		return resource(parts[2:])
	case len(parts) >= 4 && parts[0] == "apis":
		kind, namespace, name = resource(parts[3:])
		return kind + "." + parts[1], namespace, name
	default:
		return "", "", ""
	}
}

// resource reads nodes/NAME, services, namespaces/NAMESPACE/services/NAME. For a subresource it returns no name.
func resource(path []string) (kind, namespace, name string) {
	if path[0] == "namespaces" && len(path) >= 3 {
		namespace, path = path[1], path[2:]
	}
	switch len(path) {
	case 1:
		return path[0], namespace, ""
	case 2:
		return path[0], namespace, path[1]
	default:
		return strings.Join(path, "/"), namespace, ""
	}
}

func serverVersion(text string) *version.Info {
	major, minor, _ := strings.Cut(strings.TrimPrefix(text, "v"), ".")
	minor, _, _ = strings.Cut(minor, ".")
	return &version.Info{Major: major, Minor: minor, GitVersion: text}
}

func (s *standIn) answerGet(kind, key string) (*http.Response, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if found := s.objects[kind+"/"+key]; found != nil {
		return answered(http.StatusOK, found.value)
	}
	// Not 404, because a cloud would take the object for deleted.
	return refused(http.StatusForbidden, metav1.StatusReasonForbidden, fmt.Sprintf("%s %q is unknown, as no call has named it: %s", kind, key, noAccess))
}

func (s *standIn) answerList(ctx context.Context, kind, namespace string, query url.Values) (*http.Response, error) {
	byLabel, err := labels.Parse(query.Get("labelSelector"))
	if err != nil {
		return refused(http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error())
	}
	byField, err := fields.ParseSelector(query.Get("fieldSelector"))
	if err != nil {
		return refused(http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error())
	}
	wanted := func(one *kept) bool {
		return (namespace == "" || one.meta.Namespace == namespace) && byLabel.Matches(labels.Set(one.meta.Labels)) &&
			byField.Matches(fields.Set{"metadata.name": one.meta.Name, "metadata.namespace": one.meta.Namespace})
	}
	if watches(query) {
		return s.answerWatch(ctx, kind, wanted, query)
	}
	found, revision := s.list(kind, wanted)
	meta := metav1.ListMeta{ResourceVersion: revision}
	if kind == nodeKind {
		list := &v1.NodeList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "NodeList"}, ListMeta: meta}
		for _, one := range found {
			list.Items = append(list.Items, *one.value.(*v1.Node))
		}
		return answered(http.StatusOK, list)
	}
	list := &v1.ServiceList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceList"}, ListMeta: meta}
	for _, one := range found {
		list.Items = append(list.Items, *one.value.(*v1.Service))
	}
	return answered(http.StatusOK, list)
}

// answerWatch begins with all objects if the client names no version or asks for them. A client that names an older version gets 410 and lists again,
// because the stand-in keeps no history.
func (s *standIn) answerWatch(ctx context.Context, kind string, wanted func(*kept) bool, query url.Values) (*http.Response, error) {
	now, revision, opened := s.startWatch(kind, wanted)
	from := query.Get("resourceVersion")
	initial := query.Get("sendInitialEvents") == "true"
	if !initial && from != "" && from != "0" && from != revision {
		s.stopWatch(opened)
		return refused(http.StatusGone, metav1.StatusReasonExpired, "the stand-in keeps no history: list again")
	}
	reader, writer := io.Pipe()
	context.AfterFunc(ctx, func() {
		s.stopWatch(opened)
		_ = reader.CloseWithError(ctx.Err())
	})
	go func() {
		encoder := json.NewEncoder(writer)
		send := func(event watchEvent) bool { return encoder.Encode(event) == nil }
		defer s.stopWatch(opened)
		defer func() { _ = writer.Close() }()
		if initial || from == "" || from == "0" {
			for _, one := range now {
				if !send(watchEvent{"ADDED", one.value}) {
					return
				}
			}
		}
		if initial {
			bookmark := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: map[string]string{nodeKind: "Node", serviceKind: "Service"}[kind]}}
			bookmark.ResourceVersion = revision
			bookmark.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
			if !send(watchEvent{"BOOKMARK", bookmark}) {
				return
			}
		}
		for event := range opened.sent {
			if !send(event) {
				return
			}
		}
	}()
	return &http.Response{
		Status: "200 OK", StatusCode: http.StatusOK, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: reader, ContentLength: -1,
	}, nil
}

// answerWrite accepts only a change of annotations.
func (s *standIn) answerWrite(request *http.Request, key string) (*http.Response, error) {
	body, err := io.ReadAll(request.Body)
	if err != nil {
		return nil, err
	}
	var changes map[string]*string
	switch kind := types.PatchType(request.Header.Get("Content-Type")); {
	case request.Method == http.MethodPut:
		changes, err = s.putChanges(body, key)
	case kind == types.MergePatchType || kind == types.StrategicMergePatchType:
		changes, err = patchChanges(body)
	default:
		err = fmt.Errorf("a patch of type %q: send a merge patch", kind)
	}
	if err != nil {
		return refused(http.StatusForbidden, metav1.StatusReasonForbidden, fmt.Sprintf("Service %s: %v: %s", key, err, noAccess))
	}
	service, err := s.annotate(key, changes)
	if err != nil {
		return refused(http.StatusForbidden, metav1.StatusReasonForbidden, err.Error())
	}
	return answered(http.StatusOK, service)
}

// patchChanges returns the annotations that a merge patch sets, or removes by null. The patch may also have a precondition.
func patchChanges(body []byte) (map[string]*string, error) {
	var patch map[string]json.RawMessage
	if err := json.Unmarshal(body, &patch); err != nil {
		return nil, err
	}
	metadata := map[string]json.RawMessage{}
	for field, value := range patch {
		if field != "metadata" {
			return nil, fmt.Errorf("the patch changes %s", field)
		}
		if err := json.Unmarshal(value, &metadata); err != nil {
			return nil, err
		}
	}
	changes := map[string]*string{}
	for field, value := range metadata {
		switch field {
		case "uid", "resourceVersion", "name", "namespace":
		case "annotations":
			if err := json.Unmarshal(value, &changes); err != nil {
				return nil, err
			}
		default:
			return nil, fmt.Errorf("the patch changes metadata.%s", field)
		}
	}
	return changes, nil
}

// putChanges returns the annotations in which a whole Service differs from the known one.
func (s *standIn) putChanges(body []byte, key string) (map[string]*string, error) {
	decoded, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
	if err != nil {
		return nil, err
	}
	next, ok := decoded.(*v1.Service)
	if !ok {
		return nil, fmt.Errorf("%T is no Service", decoded)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.objects[serviceKind+"/"+key]
	if old == nil {
		return nil, fmt.Errorf("no call has named it")
	}
	before := old.value.(*v1.Service)
	changes := annotationChanges(before.Annotations, next.Annotations)
	same := before.DeepCopy()
	same.TypeMeta, same.Annotations, same.ResourceVersion = next.TypeMeta, next.Annotations, next.ResourceVersion
	if !equality.Semantic.DeepEqual(same, next) {
		return nil, fmt.Errorf("the update changes more than annotations")
	}
	return changes, nil
}

// annotationChanges returns the changes from one map to the other; nil removes a key.
func annotationChanges(before, after map[string]string) map[string]*string {
	changes := map[string]*string{}
	for key, value := range after {
		if old, ok := before[key]; !ok || old != value {
			changes[key] = &value
		}
	}
	for key := range before {
		if _, ok := after[key]; !ok {
			changes[key] = nil
		}
	}
	return changes
}

// answerEvent keeps an event about a known Service for the Service's next answer, and logs an event about any other object.
func (s *standIn) answerEvent(request *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(request.Body)
	if err != nil {
		return nil, err
	}
	decoded, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
	if err != nil {
		return refused(http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error())
	}
	var about v1.ObjectReference
	told := &contract.Event{Severity: contract.EventSeverity_EVENT_SEVERITY_NORMAL}
	kind := ""
	switch event := decoded.(type) {
	case *v1.Event:
		about, kind, told.Reason, told.Message = event.InvolvedObject, event.Type, event.Reason, event.Message
	case *eventsv1.Event:
		about, kind, told.Reason, told.Message = event.Regarding, event.Type, event.Reason, event.Note
	}
	if kind == v1.EventTypeWarning {
		told.Severity = contract.EventSeverity_EVENT_SEVERITY_WARNING
	}
	told.Reason, told.Message = shorten(told.Reason), shorten(told.Message)
	if about.Kind != "Service" || about.UID == "" || !s.keepEvent(&about, told) {
		klog.InfoS("The cloud recorded an event", "kind", about.Kind, "name", about.Name, "type", kind, "reason", told.Reason, "message", told.Message)
	}
	return answered(http.StatusCreated, decoded)
}

func answered(code int, body any) (*http.Response, error) {
	text, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	return &http.Response{
		Status: http.StatusText(code), StatusCode: code, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(text)), ContentLength: int64(len(text)),
	}, nil
}

func refused(code int, reason metav1.StatusReason, message string) (*http.Response, error) {
	return answered(code, &metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: int32(code), Reason: reason, Message: message,
	})
}

func metaOf(value runtime.Object) *metav1.ObjectMeta {
	switch typed := value.(type) {
	case *v1.Node:
		return &typed.ObjectMeta
	case *v1.Service:
		return &typed.ObjectMeta
	default:
		return &metav1.ObjectMeta{}
	}
}

func equal(one, other runtime.Object) bool { return equality.Semantic.DeepEqual(one, other) }
