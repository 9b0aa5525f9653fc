"""moto's server, with what AWS does and moto leaves out, and a console by which a test makes the cloud fail.

- A new classic load balancer has a health check; a network load balancer has a DNS name of AWS's form.
- A call that asks for an instance twice gets it once. DescribeInstanceTopology is refused, as in a region without topology.
- One call after the other: moto's state is not made for threads.
- An instance can be given the private DNS name of its Node: GET /console/name?instance=ID&name=NAME.
- Every API call can fail as AWS's calls do (GET /console/fail?code=CODE, the codes of suite.yaml's hook
  cloud-fail), can be slow (GET /console/slow?ms=MS), and the calls that change something are counted
  (GET /console/writes), except for NOT_COUNTED. moto has none of the three.
- A caller with the access key `AKIATESTPROVIDER` may do what ../policy.json allows, and nothing else. GET
  /console/deny?action=ACTION takes one of these rights away, /console/allow?action=ACTION gives it back. This caller's calls are kept: GET /console/calls.
"""

import io
import json
import pathlib
import re
import threading
import time
from urllib.parse import parse_qs
from xml.sax.saxutils import escape

from moto import server
from moto.ec2.models.instances import Instance, InstanceBackend
from moto.elb import models
from moto.elbv2.models import FakeLoadBalancer
from moto.moto_server.werkzeug_app import DomainDispatcherApplication

# The access key of the caller to whom the policy applies.
PROVIDER = "AKIATESTPROVIDER"

made = models.LoadBalancer.__init__


def with_health_check(self, *arguments, **named):
    made(self, *arguments, **named)
    self.health_check = models.FakeHealthCheck(timeout="5", healthy_threshold="10", unhealthy_threshold="2", interval="30", target="TCP:80")


models.LoadBalancer.__init__ = with_health_check

made_v2 = FakeLoadBalancer.__init__


def with_its_name(self, *arguments, **named):
    made_v2(self, *arguments, **named)
    if self.type == "network":
        name, region, _ = self.dns_name.split(".", 2)
        self.dns_name = f"{name}.elb.{region}.amazonaws.com"


FakeLoadBalancer.__init__ = with_its_name

found = InstanceBackend.get_reservations_by_instance_ids
InstanceBackend.get_reservations_by_instance_ids = lambda self, ids, filters=None: found(self, list(dict.fromkeys(ids)), filters)

names = {}
by_address = Instance.private_dns_name.fget
Instance.private_dns_name = property(lambda self: names.get(self.id) or by_address(self))

# AWS's answer: the status, and the error code of EC2 and of ELB.
FAILURES = {
    "THROTTLED": ("503 Service Unavailable", "RequestLimitExceeded", "Throttling"),
    "CREDENTIALS": ("401 Unauthorized", "AuthFailure", "InvalidClientTokenId"),
    "UNAVAILABLE": ("503 Service Unavailable", "Unavailable", "ServiceUnavailable"),
    "PRECONDITION": ("400 Bad Request", "ResourceLimitExceeded", "TooManyLoadBalancers"),
}
EC2 = "<Response><Errors><Error><Code>{code}</Code><Message>{text}</Message></Error></Errors><RequestID>r</RequestID></Response>"
ELB = "<ErrorResponse><Error><Type>Sender</Type><Code>{code}</Code><Message>{text}</Message></Error><RequestId>r</RequestId></ErrorResponse>"
NO_TOPOLOGY = ("400 Bad Request", "UnsupportedOperation", "")
# AWS's answer to a caller without the right: the status, and the error code of EC2 and of ELB.
REFUSED = ("403 Forbidden", "UnauthorizedOperation", "AccessDenied")
POLICY = json.loads((pathlib.Path(__file__).parent.parent / "policy.json").read_text())
READS = ("Describe", "Get", "List")
# The caller and the service of a request, from its Authorization header.
SCOPE = re.compile(r"Credential=([^/]+)/[^/]+/[^/]+/([^/]+)/")
# cloud-provider-aws 1.36 sends this call in each Ensure of a classic load balancer: it compares
# its own attributes with AWS's answer, which has more of them. If the test API counted it, tests
# could not see whether an Ensure makes other writes.
NOT_COUNTED = "ModifyLoadBalancerAttributes"


def scope(environ):
    """The access key of a request, and the service that it is for."""
    found = SCOPE.search(environ.get("HTTP_AUTHORIZATION", ""))
    return found.groups() if found else ("", "")


class Console:
    """The WSGI application in front of moto: it plays failures, checks rights, counts calls, and serves the console."""

    def __init__(self, application):
        self.application = application
        self.code = None
        self.delay = 0.0
        self.one = threading.Lock()
        self.writes = 0
        self.calls = []
        self.allowed = {action for statement in POLICY["Statement"] for action in statement["Action"]}

    def __call__(self, environ, start_response):
        path = environ["PATH_INFO"]
        if path.startswith("/console/"):
            return self.console(path.removeprefix("/console/"), environ, start_response)
        action = self.action(environ)
        key, service = scope(environ)
        named = f"{service}:{action}"
        if key == PROVIDER:
            self.calls.append(named)
        time.sleep(self.delay)
        failure = FAILURES[self.code] if self.code else None
        if not failure and action == "DescribeInstanceTopology":
            failure = NO_TOPOLOGY
        if key == PROVIDER and named not in self.allowed:
            failure = REFUSED
        if failure:
            status, *codes = failure
            elb = service == "elasticloadbalancing"
            body = (ELB if elb else EC2).format(code=codes[elb], text=escape(f"{named}: played by the test"))
            start_response(status, [("Content-Type", "text/xml")])
            return [body.encode()]
        if action and action != NOT_COUNTED and not action.startswith(READS):
            self.writes += 1
        with self.one:
            return self.application(environ, start_response)

    @staticmethod
    def action(environ):
        """The Action of a request in AWS's query protocol."""
        length = int(environ.get("CONTENT_LENGTH") or 0)
        body = environ["wsgi.input"].read(length)
        environ["wsgi.input"] = io.BytesIO(body)
        return parse_qs(body.decode("utf-8", "replace")).get("Action", [""])[0]

    def console(self, what, environ, start_response):
        asked = {key: values[0] for key, values in parse_qs(environ["QUERY_STRING"]).items()}
        answer = ""
        if what == "fail" and asked["code"] in [*FAILURES, "NONE"]:
            self.code = None if asked["code"] == "NONE" else asked["code"]
        elif what == "slow":
            self.delay = float(asked["ms"]) / 1000
        elif what == "writes":
            answer = str(self.writes)
        elif what == "calls":
            answer = json.dumps(self.calls)
        elif what == "deny" and asked["action"] in self.allowed:
            self.allowed.remove(asked["action"])
        elif what == "allow":
            self.allowed.add(asked["action"])
        elif what == "name":
            names[asked["instance"]] = asked["name"]
        else:
            start_response("404 Not Found", [])
            return [f"the console has no {what} {asked}".encode()]
        start_response("200 OK", [("Content-Type", "text/plain")])
        return [answer.encode()]


if __name__ == "__main__":
    server.DomainDispatcherApplication = lambda create: Console(DomainDispatcherApplication(create))
    server.main()
