package main

import (
	"encoding/json"
	"os"
	"slices"
	"testing"
)

// An operator may leave out the statements of controllers that do not run. So each statement has also the actions that its code shares with the others.
func TestAStatementNeedsNoOther(t *testing.T) {
	text, err := os.ReadFile("policy.json")
	if err != nil {
		t.Fatal(err)
	}
	var policy struct {
		Statement []struct {
			Sid    string
			Action []string
		}
	}
	if err := json.Unmarshal(text, &policy); err != nil {
		t.Fatal(err)
	}
	shared := map[string][]string{
		"Nodes":         {"ec2:DescribeAvailabilityZones", "ec2:DescribeInstances"},
		"Routes":        {"ec2:DescribeInstances", "ec2:DescribeRouteTables"},
		"LoadBalancers": {"ec2:DescribeAvailabilityZones", "ec2:DescribeInstances", "ec2:DescribeRouteTables"},
	}
	for _, statement := range policy.Statement {
		for _, action := range shared[statement.Sid] {
			if !slices.Contains(statement.Action, action) {
				t.Errorf("%s lacks %s", statement.Sid, action)
			}
		}
		delete(shared, statement.Sid)
	}
	if len(shared) > 0 {
		t.Errorf("the policy lacks the statements %v", shared)
	}
}
