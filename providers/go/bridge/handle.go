package bridge

import (
	"encoding/json"

	v1 "k8s.io/api/core/v1"

	"github.com/grpc-ccm/grpc-ccm/providers/go/contract"
)

// handle is the handle that the controller stores on the Service. It names the owner of the load balancer. The cloud finds its load balancer without the
// handle, by the native name, a tag or an annotation. A handle with another owner or Service is a conflict.
type handle struct {
	Owner string `json:"owner"`
	UID   string `json:"uid"`
	// Name is the cloud's name for the load balancer. Only people read it.
	Name string `json:"name,omitempty"`
}

func (o *Owner) handle(service *v1.Service, name string) *string {
	text, err := json.Marshal(handle{Owner: o.ID, UID: string(service.UID), Name: name})
	if err != nil || len(text) > idBytes {
		return nil
	}
	return new(string(text))
}

// checkHandle refuses a handle that names another owner or Service (LB-4).
func (o *Owner) checkHandle(text string, service *v1.Service) *contract.Failure {
	if err := fits("the handle", text, idBytes); err != nil {
		return invalid("%v", err)
	}
	var named handle
	if err := json.Unmarshal([]byte(text), &named); err != nil || named.Owner == "" || named.UID == "" {
		return nil // The handle names no owner. The cloud finds the load balancer by itself.
	}
	if !o.Owns(named.Owner) || named.UID != string(service.UID) {
		return fail(contract.FailureCode_FAILURE_CODE_CONFLICT, "ForeignHandle",
			"the handle names the load balancer %q of another owner (%s) or Service (%s); it is not touched", named.Name, named.Owner, named.UID)
	}
	return nil
}
