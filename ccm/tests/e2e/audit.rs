//! The requests of the ccm's account in the API server's audit log.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;

const ACCOUNT: &str = "system:serviceaccount:kube-system:cloud-controller-manager";

/// The prefix of the manifests' bindings.
const OWN: &str = "\"system:cloud-controller-manager";
/// The roles of every authenticated account: for its own identity, and for discovery.
const EVERYBODY: [&str; 3] = [
    "\"system:basic-user\"",
    "\"system:discovery\"",
    "\"system:public-info-viewer\"",
];

/// A request of the ccm.
struct Request {
    verb: String,
    /// With the subresource.
    resource: String,
    name: String,
    code: u64,
    /// The reason that the authorizer gave.
    reason: String,
}

fn requests(log: &Path) -> Vec<Request> {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let parse = |line: &str| -> Option<Request> {
        // The last line may be incomplete.
        let event: Value = serde_json::from_str(line).ok()?;
        if event["user"]["username"] != ACCOUNT || event["stage"] == "ResponseStarted" {
            return None;
        }
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let object = &event["objectRef"];
        let mut resource = text(&object["resource"]);
        if resource.is_empty() {
            resource = text(&event["requestURI"]);
        }
        if let Some(subresource) = object["subresource"].as_str() {
            resource = format!("{resource}/{subresource}");
        }
        Some(Request {
            verb: text(&event["verb"]),
            resource,
            name: text(&object["name"]),
            code: event["responseStatus"]["code"].as_u64().unwrap_or_default(),
            reason: text(&event["annotations"]["authorization.k8s.io/reason"]),
        })
    };
    text.lines().filter_map(parse).collect()
}

/// The ccm's requests that change an object, except for Leases, events and reviews.
pub fn changes(log: &Path) -> Vec<String> {
    let all = requests(log).into_iter().filter(|request| {
        let changes = !["get", "list", "watch"].contains(&request.verb.as_str());
        let beside = ["leases", "events", "tokenreviews", "subjectaccessreviews"];
        changes && !beside.contains(&request.resource.as_str())
    });
    all.map(|request| format!("{} {} {}", request.verb, request.resource, request.name))
        .collect()
}

/// How often the ccm updated a Lease: renewed it, took it over or released it.
pub fn renewals(log: &Path) -> usize {
    let all = requests(log).into_iter();
    all.filter(|request| {
        request.resource == "leases" && request.verb == "update" && request.code == 200
    })
    .count()
}

/// How often the ccm created or patched an event whose name begins with this.
pub fn event_writes(log: &Path, begin: &str) -> usize {
    let all = requests(log).into_iter();
    all.filter(|request| {
        let written = ["create", "patch"].contains(&request.verb.as_str());
        written && request.resource == "events" && request.name.starts_with(begin)
    })
    .count()
}

/// Checks that each request was allowed by a binding of the manifests, or by one that everybody
/// has. Returns a table of the requests.
pub fn check(log: &Path) -> String {
    let mut table: BTreeMap<String, usize> = BTreeMap::new();
    let requests = requests(log);
    for request in &requests {
        let what = format!("{} {}", request.verb, request.resource);
        assert_ne!(request.code, 403, "{what} {}", request.name);
        let by_own = request.reason.contains(OWN);
        let by_all = EVERYBODY.iter().any(|role| request.reason.contains(role));
        assert!(
            by_own || by_all,
            "{what} {}: {:?}",
            request.name,
            request.reason
        );
        *table.entry(what).or_default() += 1;
    }
    let total = requests.len();
    assert!(total > 20, "the account was seen {total} times only");
    let mut text = format!(
        "{total} requests of the ccm's account, none refused, each allowed by the manifests' own bindings or by those of every account:\n\n| request | times |\n|---|---|\n"
    );
    for (what, times) in table {
        text += "| ";
        text += &what;
        text += " | ";
        text += &times.to_string();
        text += " |\n";
    }
    text
}
